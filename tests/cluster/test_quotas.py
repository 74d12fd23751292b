"""Quotas of applications and users on real servers: who holds what it may gets no new shuffle, and is told why."""

import asyncio
import getpass
import json
import random
import re
import subprocess
import sys

import pytest

from holdfast.client import QuotaExceededError, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster
from holdfast.common.limits import KIB, MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.cluster.reduce_peers import metric
from tests.cluster.shapes import Shape
from tests.support.logged import lines_of
from tests.support.waiting import wait_until

SHARED = Shape(
    masters=3,
    workers=2,
    settings={
        "lease": {"heartbeat": "200ms", "deletion_grace": "100ms"},
        "quota": {
            "application_bytes": "3MiB",
            "user_bytes": "4MiB",
            "users": [{"user": "etl", "bytes": "1GiB", "files": 1000}],
        },
    },
)


def fill(session: Session, size_kib: int) -> ReduceShuffle:
    """Push and commit so much, in two partitions."""
    shuffle = session.register_reduce_shuffle(2, 1)
    rng = random.Random(size_kib)
    with shuffle.writer(0) as writer:
        for number in range(size_kib // 50):
            writer.write(number % 2, rng.randbytes(50 * KIB))
        shuffle.commit([writer.close()])
    return shuffle


def reported_of(session: Session) -> pb.ShuffleInfo:
    """What the masters list of the first shuffle of an application."""

    async def ask() -> pb.ListShufflesReply:
        async with ControlClient(session.ticket.endpoints) as client:
            request = pb.ListShufflesRequest(instance=session.instance)
            reply: pb.ListShufflesReply = await client.call("Admin/ListShuffles", request)
            return reply

    return asyncio.run(ask()).shuffles[0]


def wait_for_heartbeats(session: Session, size_kib: int) -> None:
    """Wait until the leader has heard from all workers that the application holds so much."""
    wait_until(lambda: reported_of(session).application_bytes >= size_kib * KIB, "the heartbeats that tell it")


def refusal(session: Session) -> str:
    """Register shuffles until one is refused: what workers hold is known a heartbeat later."""

    def refused() -> str:
        try:
            session.register_reduce_shuffle(2).unregister()
        except QuotaExceededError as error:
            return str(error)
        return ""

    return str(wait_until(refused, "a refusal"))


def test_row_42_an_application_that_holds_too_much_gets_no_new_shuffle(shared: LocalCluster) -> None:
    """The refusal names limit, use and the largest shuffle, also by the next leader; what is registered goes on, in the
    next generation too, and when something was dropped there is room again."""
    with Session(shared.endpoints, app="greedy", user="bob") as session, Session(shared.endpoints, app="b") as other:
        fill(session, 500)
        large = fill(session, 3_000)
        wait_for_heartbeats(session, 3_500)
        text = refusal(session)
        # What is sent again since its answer is late counts again.
        named = f"that an application may have, largest: shuffle greedy/{large.key.shuffle} with"
        assert re.match(rf'application "greedy" holds \d\.\d MiB of 3\.0 MiB {named} \d\.\d MiB', text), text
        assert metric(shared, "holdfast_master_quota_refusals") > 0
        lines = lines_of(shared.leader().log, LogEvent.QUOTA_EXCEEDED)
        assert f"application=greedy instance={session.instance.hex()} " in lines[0]
        assert "of 3.0 MiB that an application may have" in lines[0]
        other.register_reduce_shuffle(2)
        session.register_reduce_shuffle(2, 1, shuffle_id=large.key.shuffle, generation=1)
        assert sum(1 for _ in large.reader(range(2))) == 60
        old = shared.leader()
        old.kill()
        assert "application may have" in refusal(session)
        old.start()
        large.unregister()

        def again() -> bool:
            try:
                session.register_reduce_shuffle(2)
            except QuotaExceededError:
                return False
            return True

        wait_until(again, "room in the quota")


def test_row_42_a_user_with_too_much_is_reported_the_largest_application(shared: LocalCluster) -> None:
    """All applications of a user count together; another user, and one who may have more, are not hit."""
    with (
        Session(shared.endpoints, app="nightly", user="ann") as nightly,
        Session(shared.endpoints, app="adhoc", user="ann") as adhoc,
        Session(shared.endpoints, app="load", user="etl") as load,
        Session(shared.endpoints, app="merge", user="etl") as merge,
    ):
        for session, size in ((nightly, 2_500), (adhoc, 2_000), (load, 2_500), (merge, 2_000)):
            fill(session, size)
            wait_for_heartbeats(session, size)
        for session in (nightly, adhoc):
            text = refusal(session)
            assert text.startswith('user "ann" holds 4.4 MiB of 4.0 MiB that its quota allows in 2 applications')
            assert f'largest: application "nightly" ({nightly.instance.hex()[:8]}) with 2.4 MiB' in text
        load.register_reduce_shuffle(2)
        info = reported_of(load)
        assert (info.application_bytes_limit, info.application_files_limit) == (3 * MIB, 0)
        assert (info.user_bytes_limit, info.user_files_limit) == (1 << 30, 1000)

        def is_sum() -> bool:
            mine, other = reported_of(load), reported_of(merge)
            return mine.user_bytes == mine.application_bytes + other.application_bytes

        # Between the two a worker may have told of more, such as a footer.
        wait_until(is_sum, "the user to have what both applications have")
        command = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", "shuffles", "--masters", shared.endpoints]
        listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        assert "application and user holds: on all workers, second copies counted, of what [quota] allows" in listed
        for cell in ("2.4 MiB of", "4.4 MiB of"):
            assert cell in listed, "what does not fit into a cell goes on below"
        one = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, timeout=60).stdout)
        limits = {each["user"]: (each["user_bytes_limit"], each["user_files_limit"]) for each in one["shuffles"]}
        assert limits == {"ann": (4 * MIB, 0), "etl": (1 << 30, 1000)}


@pytest.mark.parametrize("user", [None, "somebody"])
def test_an_application_has_a_user(shared: LocalCluster, user: str | None) -> None:
    """The one who was named, or who runs the process; masters tell it, and what the application holds."""
    with Session(shared.endpoints, app="owned", user=user) as session:
        shuffle = fill(session, 500)
        wait_for_heartbeats(session, 500)
        info = reported_of(session)
        assert info.user == (user or getpass.getuser())
        holders = {copy.worker for epoch in shuffle.manifest().epochs.epochs for copy in epoch.readable}
        # One of them may not have told yet.
        wait_until(
            lambda: reported_of(session).application_files == len(holders),
            "a pack file on each worker that has a partition",
        )
