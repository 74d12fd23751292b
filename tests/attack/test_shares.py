"""A user who makes many applications takes one user's share of a server, whoever else is there; real processes, TLS."""

import asyncio
import http.client
import random
import signal
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.client import QuotaExceededError, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import ask
from holdfast.common.limits import KIB, MIB
from holdfast.common.net.methods import METHODS
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.tokens import TokenKind
from holdfast.common.shares import LEFT
from holdfast.worker.core.read.streams import PLAN_ROWS_MAX
from holdfast.worker.core.write.reduce import EPOCHS_MAX
from holdfast.worker.storage.read.reader import FILE_ROWS
from tests.attack import sharing
from tests.attack.beside import honest_job
from tests.attack.target import Target, credentials_of, target_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real_starts
T = TypeVar("T")
_SECONDS = 300
#: Descriptors of each server here, so that few connections are many.
_DESCRIPTORS = 1_024
_CONNECTIONS = (_DESCRIPTORS * 3 // 8) * 7 // 8
_HTTP_CONNECTIONS = (_DESCRIPTORS - _DESCRIPTORS // 4) // 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and a worker with security and few descriptors, which the tests here share."""
    directory = tmp_path_factory.mktemp("shared")
    few = directory / "python"
    few.write_text(f'#!/bin/sh\nulimit -n {_DESCRIPTORS}\nexec "{sys.executable}" "$@"\n')
    few.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(few))
        with local_cluster(1, 1, dir=directory / "cluster", secure=True) as started:
            yield started


Story = Callable[[list[Target], Target, AsyncExitStack], Awaitable[T]]


def outcome_of(cluster: LocalCluster, story: Story[T], count: int) -> T:
    """Tell a story of a user with so many applications, and of another user; then an honest job is exact."""

    async def tell() -> T:
        mallory = [await target_of(cluster, "mallory") for _ in range(count)]
        alice = await target_of(cluster, "alice")
        async with AsyncExitStack() as stack:
            found = await story(mallory, alice, stack)
            await asyncio.to_thread(honest_job, cluster)
        for each in (*mallory, alice):
            await sharing.end(each)
        return found

    return asyncio.run(asyncio.wait_for(tell(), _SECONDS))


@pytest.mark.parametrize(
    ("taking", "bound", "others"),
    [
        (sharing.epochs, EPOCHS_MAX, 16_384),
        (sharing.plans, PLAN_ROWS_MAX // (256 * FILE_ROWS), 16),
        (sharing.connections, _CONNECTIONS, 16),
        (sharing.map_files, _DESCRIPTORS // 4, 16),
    ],
    ids=["epochs", "plans", "connections", "map files"],
)
def test_many_applications_of_a_user_have_one_share_of_a_worker(
    cluster: LocalCluster, taking: sharing.Taking, bound: int, others: int
) -> None:
    """One application after the other takes all that it gets: together that is four fifths at most, and another user
    finds room. Each had four fifths of what was left, so a few of them had all."""

    async def story(mallory: list[Target], alice: Target, stack: AsyncExitStack) -> tuple[int, int]:
        taken = sum([await taking(each, stack, bound) for each in mallory])
        return taken, await taking(alice, stack, others)

    taken, left = outcome_of(cluster, story, 4)
    assert taken <= bound * LEFT // (LEFT + 1)
    assert left == others


def test_many_applications_of_a_user_stand_in_one_line_for_windows(cluster: LocalCluster) -> None:
    """Many connections of many applications ask a worker for the largest windows before somebody else asks: the others
    are let in while those wait. First come was first served, whoever it was."""

    async def story(mallory: list[Target], alice: Target, stack: AsyncExitStack) -> int:
        asked = [await sharing.ask_window(each, stack, 64 * MIB) for each in mallory for _ in range(6)]
        granted = await (await sharing.ask_window(alice, stack, 4 * MIB))
        assert granted >= 4 * MIB
        return sum(not each.done() for each in asked)

    assert outcome_of(cluster, story, 4) > 12


async def all_decided(cluster: LocalCluster, calls: set[asyncio.Task[bytes]]) -> None:
    """Return when the master waits for as many calls as have no answer: all others are refused."""

    def decided() -> bool:
        return sum(not each.done() for each in calls) == long_polls_waiting(cluster)

    await asyncio.to_thread(wait_until, decided, "the master to refuse what it does not let wait")


def long_polls_waiting(cluster: LocalCluster) -> int:
    """How many long polls the master has."""
    assert cluster.credentials is not None
    request = urllib.request.Request(f"https://{cluster.masters[0].http}/metrics")
    request.add_header("Authorization", f"Bearer {cluster.credentials.token}")
    with urllib.request.urlopen(request, timeout=60, context=cluster.credentials.context) as reply:
        lines = reply.read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("holdfast_master_long_polls "))))


def test_many_applications_of_a_user_have_one_share_of_long_polls(cluster: LocalCluster) -> None:
    """Long polls of many applications over gRPC, more than there may be RPCs: another user's wait beside them, and
    calls are answered. They took all RPCs that gRPC lets in."""

    async def story(mallory: list[Target], alice: Target, stack: AsyncExitStack) -> tuple[int, int]:
        calls: set[asyncio.Task[bytes]] = set()
        for each in mallory:
            calls |= await sharing.ask_long_polls(each, stack, 1_500)
            await all_decided(cluster, calls)
        others = await sharing.ask_long_polls(alice, stack, 100)
        await all_decided(cluster, calls | others)
        return sum(not each.done() for each in calls), sum(not each.done() for each in others)

    taken, others = outcome_of(cluster, story, 3)
    assert taken <= 2_048
    assert others == 100


def test_applications_that_ended_have_no_share_of_their_own(cluster: LocalCluster) -> None:
    """A user makes applications, ends them, and begins commits of 62 MiB with the token of each: that is one user's
    share of the memory for bodies, and somebody else's is let in. Each had a share, as nobody knew whose it was."""

    async def story(mallory: list[Target], alice: Target, stack: AsyncExitStack) -> list[str]:
        begun = [await sharing.bodies_of_ended(each, stack) for each in mallory]
        await asyncio.to_thread(honest_job, cluster)
        others = await sharing.bodies_of_ended(alice, stack)
        await asyncio.to_thread(honest_job, cluster)
        assert not others.done()
        return [each.result() for each in begun if each.done()]

    assert outcome_of(cluster, story, 6) == ["503"] * 5


def test_no_user_holds_all_of_a_masters_http_port(cluster: LocalCluster) -> None:
    """Connections of a user's applications that have each made a call, which is permitted, and stay: operators and
    other users get in all the same. The port was theirs until they went."""
    master, shown = cluster.masters[0], cluster.credentials

    def called(target: Target) -> http.client.HTTPSConnection | None:
        host, _, port = master.address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=target.context)
        headers = {"Authorization": f"Bearer {target.application.token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", METHODS["Shuffles/Discover"].path, b"{}", headers)
            connection.getresponse().read(16 * KIB)
        except OSError:
            return None
        return connection

    async def story(mallory: list[Target], alice: Target, stack: AsyncExitStack) -> int:
        kept = []
        for number in range(_HTTP_CONNECTIONS + 50):
            connection = await asyncio.to_thread(called, mallory[number % len(mallory)])
            if connection is not None:
                kept.append(connection)
                stack.callback(connection.close)
        for _ in range(5):
            await asyncio.to_thread(
                ask, master.address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, 60.0, shown
            )
            assert await asyncio.to_thread(called, alice) is not None
        return len(kept)

    assert outcome_of(cluster, story, 4) >= _HTTP_CONNECTIONS


def test_what_ended_applications_hold_counts_in_their_users_quota(tmp_path: Path) -> None:
    """A user fills a quota and ends the application: while the worker has not deleted what it had, no other one of that
    user gets a shuffle, and somebody else's does; then they do. Each had a quota of its own, as fast as they ended."""
    settings = {"quota": {"user_bytes": "4MiB"}, "lease": {"heartbeat": "200ms", "worker": "300s"}}
    with local_cluster(1, 1, dir=tmp_path / "cluster", secure=True, settings=settings) as cluster:
        worker, user = cluster.workers[0], credentials_of(cluster, TokenKind.USER, b"mallory")
        with Session(cluster.endpoints, app="first", credentials=user) as session:
            fill_shuffle(session, 5 * MIB)
            wait_until(lambda: refused(session), "the masters to hear of it", _SECONDS)
        with Session(cluster.endpoints, app="second", credentials=user) as session:
            worker.kill(signal.SIGSTOP)  # so that it deletes nothing yet
            try:
                assert refused(session)
                with Session(cluster.endpoints, app="honest", credentials=cluster.credentials) as honest:
                    honest.register_map_shuffle(1, maps=1)
            finally:
                worker.kill(signal.SIGCONT)
            wait_until(lambda: not refused(session), "the worker to delete what ended", _SECONDS)
        honest_job(cluster)


def fill_shuffle(session: Session, size: int) -> None:
    """Write and commit a shuffle of so many bytes."""
    shuffle = session.register_map_shuffle(1, maps=1)
    with shuffle.writer(0, 1) as writer:
        shuffle.commit([writer.close([(0, random.Random(1).randbytes(size))])])


def refused(session: Session) -> bool:
    """Whether another shuffle is beyond a quota."""
    try:
        session.register_map_shuffle(1, maps=1).unregister()
    except QuotaExceededError:
        return True
    return False
