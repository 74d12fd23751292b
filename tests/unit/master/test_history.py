"""What a leader remembers for people: the last hour of each worker, and who asked for the data of a shuffle."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.limits import MIB
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.master.core.history import History, Trend
from holdfast.master.core.rates import Totals
from holdfast.master.core.readers import ALL_MAX, EACH_MAX, HostReader, Readers
from holdfast.master.web.pace import PaceKeeper
from tests.unit.master.alone import Node, leader_of
from tests.unit.master.build import key

MINUTE_NS = 60_000_000_000


def test_rates_are_of_the_time_between_samples() -> None:
    """A minute's bytes become bytes a second; the first sample has nothing to compare with, and a worker that started
    again has pushed what its counters say since. After a silence nothing is known either."""
    history = History(60)
    history.sample(1, 1, Totals(9_000, 5), 100, MINUTE_NS)
    history.sample(1, 1, Totals(69_000, 125), 200, MINUTE_NS)
    history.sample(1, 2, Totals(120_000, 0), 50, MINUTE_NS)
    history.silent(1)
    history.sample(1, 2, Totals(999_999_999, 0), 60, MINUTE_NS)
    history.sample(1, 2, Totals(1_000_059_999, 0), 60, MINUTE_NS)
    assert history.of([1]) == Trend((0, 1_000, 2_000, 0, 0, 1_000), (0, 2, 0, 0, 0, 0), (100, 200, 50, 0, 60, 60))


def test_a_worker_that_only_registered_has_counted_nothing_new() -> None:
    """A sample between a registration and the first heartbeat: a new start has counted nothing yet, the same start has
    what it had, and of one that nobody knows nothing is known."""
    starts = {2: (0, 0, 1_000), 1: (0, 0, 1_000)}
    for start, rates in starts.items():
        history = History(60)
        history.sample(1, 1, Totals(9_000, 5), 0, MINUTE_NS)
        history.sample(1, start, None, 0, MINUTE_NS)
        history.sample(1, start, Totals(60_000 if start == 2 else 69_000, 5), 0, MINUTE_NS)
        assert history.of([1]).push == rates
    unknown = History(60)
    unknown.sample(1, 1, None, 0, MINUTE_NS)
    unknown.sample(1, 1, Totals(10**12, 5), 0, MINUTE_NS)
    assert unknown.of([1]).push == (0, 0)


def test_workers_of_a_host_are_added_up_from_the_newest_sample() -> None:
    """A younger worker counts from its first sample on, and one that is not known as nothing."""
    history = History(60)
    for stored in (1, 2, 3):
        history.sample(1, 1, Totals(0, 0), stored, MINUTE_NS)
        if stored == 3:
            history.sample(2, 1, Totals(0, 0), 10, MINUTE_NS)
    assert history.of([1, 2, 77]).stored == (1, 2, 13)


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 4))
def test_it_is_bounded(workers: list[int], samples: int) -> None:
    """No worker has more samples than asked for, and only those that are kept have any."""
    history = History(samples)
    for number in workers:
        history.sample(number, 1, Totals(MIB, 0), 1, MINUTE_NS)
        assert len(history.of([number]).push) <= samples
    history.keep({1, 2})
    assert history.of([0, 3, 4, 5]) == Trend()
    assert bool(history.of([1]).push) == (1 in workers)


def test_a_leader_samples_its_heartbeats() -> None:
    """Every worker that was heard of has a sample of what its disks hold; one that is silent has none of it, and one
    that left the state is forgotten."""
    leader = leader_of(Node())
    pace = PaceKeeper(leader)

    async def run() -> None:
        disks = [pb.Directory(path=path, used_bytes=MIB) for path in ("/a", "/b")]
        for number in (1, 2):
            leader.heard(f"w{number}", pb.HeartbeatRequest(worker=number, incarnation=1, directories=disks))
        await pace.sample()
        leader.reports[1] = replace(leader.reports[1], at_ns=leader.now_ns() - leader.config.lease.worker.ns)
        await pace.sample()
        assert (pace.trend([1]).stored, pace.trend([2]).stored) == ((2 * MIB, 0), (2 * MIB, 2 * MIB))
        assert pace.trend([1, 2]).stored == (4 * MIB, 2 * MIB)
        del leader.reports[1]
        await pace.sample()
        assert pace.trend([1]) == Trend()

    asyncio.run(run())


def test_readers_are_counted_by_host() -> None:
    """Who asked last comes first, with how often it asked; another generation is another shuffle."""
    readers = Readers()
    for host, now_ms in (("a", 1), ("b", 2), ("a", 3)):
        readers.asked(key(7), host, now_ms)
    assert readers.of(key(7)) == [HostReader("a", 2, 3), HostReader("b", 1, 2)]
    assert readers.of(key(7, generation=1)) == []


def test_the_oldest_readers_are_forgotten() -> None:
    """Neither many hosts of one shuffle nor many shuffles make it grow for ever."""
    readers = Readers()
    for number in range(EACH_MAX + 5):
        readers.asked(key(0), f"h{number}", number)
    assert len(readers.of(key(0))) == EACH_MAX
    assert readers.of(key(0))[-1].host == "h5"
    for shuffle in range(1, ALL_MAX // EACH_MAX + 1):
        for number in range(EACH_MAX):
            readers.asked(key(shuffle), f"h{number}", number)
    assert readers.of(key(0)) == []
    assert len(readers.of(key(ALL_MAX // EACH_MAX))) == EACH_MAX
