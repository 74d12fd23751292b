"""What tenants and strangers take of masters: bodies of calls, processor time on the loop. Real processes, TLS on, and
an honest client beside every attack."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

import psutil
import pytest

from holdfast.client import LocalCluster, local_cluster
from holdfast.client.connection.direct import ask
from holdfast.common.limits import MIB
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.api.budgets import BODY_BYTES_EACH_MAX
from tests.attack import bodies, commits
from tests.attack.beside import beside, honest_job
from tests.attack.target import Attack, Target, log_of, used
from tests.support.waiting import wait_until

#: What is measured here is the memory of servers as users start them.
pytestmark = pytest.mark.real_starts
#: What a master may have beyond what it had before, when all is over: the allocator keeps some.
_KEPT_BYTES = 160 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and a worker with security, which all tests here share."""
    with local_cluster(1, 1, dir=tmp_path_factory.mktemp("budgets") / "cluster", secure=True) as started:
        honest_job(started)
        yield started


@pytest.mark.parametrize(("attack", "tries"), [(bodies.refused_over_grpc, 40), (bodies.cut_over_http, 24)])
def test_a17_masters_keep_no_body_that_was_refused_or_cut(cluster: LocalCluster, attack: Attack, tries: int) -> None:
    """Forty calls over gRPC with 62 MiB each that are refused, or 24 commits over HTTP that are cut before their end,
    leave no body in a master, and no traceback in its log."""
    master = cluster.masters[0]
    before = used(master)[0]
    reported, _ = beside(cluster, attack, tries)
    assert sum(reported.values()) >= tries - 1
    wait_until(lambda: used(master)[0] < before + _KEPT_BYTES, "the master to let go of all bodies")
    assert "Traceback" not in log_of(master)


def test_a17_bodies_at_once_are_bounded_together(cluster: LocalCluster) -> None:
    """A tenant that sends 40 commits of 62 MiB at once, none to its end, is let in with its share: the rest is told to
    come again before a byte of it is kept, and the honest client's calls are answered."""
    master = cluster.masters[0]
    before = used(master)[0]
    reported, peak = beside(cluster, bodies.at_once_over_http, watched=master)
    assert peak < before + BODY_BYTES_EACH_MAX + _KEPT_BYTES
    assert reported["503"] > 0
    wait_until(lambda: used(master)[0] < before + _KEPT_BYTES, "the master to let go of all bodies")
    assert "Traceback" not in log_of(master)


def test_a18_winners_of_another_shape_are_not_looked_at(cluster: LocalCluster) -> None:
    """Sixty commits of 40 KiB that announce a million maps, of shuffles of one map, are refused by their head: a master
    has no work with them, and an honest client's job goes on."""
    process = psutil.Process(cluster.masters[0].pid)
    before = process.cpu_times()
    reported, _ = beside(cluster, commits.of_another_shape, tries=60)
    after = process.cpu_times()
    assert reported["CONFLICT"] >= 50
    assert after.user + after.system - before.user - before.system < 20


def test_a18_long_winners_hold_no_loop(cluster: LocalCluster) -> None:
    """While winners of a million maps, as registered, are looked at again and again, a master answers others meanwhile:
    more calls than commits."""
    address, answered = cluster.masters[0].address, 0

    async def beside_others(target: Target, until: Callable[[], bool]) -> Counter[str]:
        nonlocal answered
        attacking = asyncio.ensure_future(commits.as_registered(target, until))
        while not attacking.done():
            request, answer = pb.DiscoverRequest(), pb.DiscoverReply
            await asyncio.to_thread(ask, address, "Shuffles/Discover", request, answer, 60.0, target.user)
            answered += 1
        return await attacking

    reported, _ = beside(cluster, beside_others, tries=8)
    assert sum(reported.values()) > 0
    assert answered > 3 * sum(reported.values())
