"""What keeps a draining worker from being restarted or removed, and whom a person means."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from holdfast.common.errors import HoldfastError, NoRoomError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.control.draining import Draining
from holdfast.master.core.drains import Drains, Kept, Placed, held, judge, named
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Worker
from holdfast.master.fleet.fleet import Fleet
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import I1, Log, application, worker

CLEAR, DONE = Placed(0, 0), Kept(0, 0)


@pytest.mark.parametrize(
    ("placed", "kept", "others", "restart", "removal", "waits"),
    [
        (CLEAR, DONE, True, True, True, ""),
        (CLEAR, Kept(0, 1), True, True, False, "keeps data of 1 shuffle"),
        (Placed(0, 0, 2), DONE, True, True, False, "maps of 2 open shuffles may still come there"),
        (CLEAR, Kept(2, 1), True, False, False, "not sealed there: 2"),
        (CLEAR, None, True, False, False, "has not received"),
        (Placed(1, 1), DONE, True, False, False, "1 open partition of 1 shuffle "),
        (Placed(7, 2), DONE, True, False, False, "7 open partitions of 2 shuffles"),
        (None, DONE, True, False, False, "has not checked"),
        (CLEAR, DONE, False, False, False, "no other worker"),
        (Placed(7, 2), None, False, False, False, "no other worker"),
    ],
)
def test_row_36_when_a_worker_may_go(
    placed: Placed | None, kept: Kept | None, others: bool, restart: bool, removal: bool, waits: str
) -> None:
    """It may be restarted when nothing is open, removed when it keeps nothing either; else the first reason is told,
    and what nobody has said yet is one."""
    verdict = judge(placed, kept, others)
    assert (verdict.restart, verdict.removal) == (restart, removal)
    assert waits in verdict.waits
    assert bool(verdict.waits) == (not removal)


def test_copies_on_draining_workers_are_counted() -> None:
    """An epoch counts on each draining worker that has a copy of it, once."""
    newest = [
        PlacedEpoch(0, 0, (1, 2), 5),
        PlacedEpoch(1, 3, (2,), 9),
        PlacedEpoch(2, 0, (3, 1), 5),
        PlacedEpoch(3, 0, (3,), 5),
    ]
    assert held(newest, frozenset({1, 2})) == {1: 2, 2: 2}
    assert held(newest, frozenset({4})) == {}


def test_a_worker_drains_where_another_one_takes_its_data() -> None:
    """One that has all of its tags that somebody wants, and does not leave as well; tags that nobody wants hold up
    nothing."""

    async def story() -> None:
        leader = leader_of(Node())
        draining = Draining(leader, Fleet(leader))
        leader.leadership(True, 1)
        for number, tags in ((1, ("ssd", "rare")), (2, ("ssd", "etl")), (3, ("ssd",)), (4, ())):
            await do(leader, replace(worker(number), tags=tags))
        await do(leader, replace(application(), tags=("ssd", "etl")))
        one, two, three, four = leader.peek(lambda state: list(state.workers.values()))
        assert [draining.others(each) for each in (one, two, three, four)] == [True, False, True, True]
        with pytest.raises(NoRoomError, match=r"data of w2 \(the tags etl and ssd\)"):
            await draining.set(["w2"], False)
        with pytest.raises(NoRoomError, match=r"data of w[13] \(the tag ssd\)"):
            await draining.set(["w3", "w1", "w2"], False)
        assert [each.id for each in await draining.set(["w1", "w4"], False)] == [1, 4]
        await do(leader, cmd.Forget(I1, False, 0))
        # Nobody wants a tag any more.
        assert [each.id for each in await draining.set(["w2"], False)] == [2]
        leader.leadership(False, 1)

    asyncio.run(story())


def test_who_is_left_alone_has_said_nothing_of_what_it_keeps() -> None:
    """The others are lost, so a worker that had drained until it kept nothing is told to take data again: what it said
    before that does not make it gone."""

    async def story() -> None:
        leader = leader_of(Node())
        draining = Draining(leader, Fleet(leader))
        leader.leadership(True, 1)
        await do(leader, worker(1), worker(2))
        (drained,) = await draining.set(["w1"], False)
        leader.drains.looked([drained], Counter(), Counter(), Counter())

        def heard() -> tuple[bool, bool]:
            leader.heard("w1", pb.HeartbeatRequest(worker=1, incarnation=1, emptying=pb.Emptying()))
            return draining.heartbeat_answer(drained)

        assert heard() == (True, True)
        assert leader.kept(drained) == Kept(0, 0)
        await do(leader, cmd.SetWorkersAlive(False, (cmd.WorkerRef(2, 1),)))
        leader.lives_changed += 1
        assert heard() == (False, False)
        assert leader.kept(drained) is None
        leader.leadership(False, 1)

    asyncio.run(story())


def test_whether_a_host_is_ready_when_it_goes_away() -> None:
    """By how shuffles went so far: of four kept a minute ago one is left, which needs twenty seconds more; nobody knows
    while none has gone, nor of a worker that says nothing; it is late when the time is over."""
    log = Log()
    log.do(worker(1))
    log.do(cmd.SetWorkersDraining(True, (cmd.WorkerRef(1, 1),), 2_000_000))
    leaves, drains = log.state.workers[1], Drains()
    for at, shuffles in ((1_000_000, 3), (1_100_000, 4), (1_130_000, 2), (1_160_000, 1)):
        drains.heard(leaves, Kept(0, shuffles), at)
    assert drains.reach(leaves, Kept(0, 1), False, 1_160_000) == "in time"
    soon = replace(leaves, leaves_ms=1_180_000)
    assert drains.reach(soon, Kept(0, 1), False, 1_160_000) == "in time"
    assert drains.reach(replace(soon, leaves_ms=1_179_999), Kept(0, 1), False, 1_160_000) == "late"
    assert drains.reach(soon, Kept(0, 4), False, 1_160_000) == "unknown"
    assert drains.reach(soon, None, False, 1_160_000) == "unknown"
    assert drains.reach(soon, Kept(0, 1), False, 1_180_000) == "late"
    assert drains.reach(soon, Kept(0, 0), True, 1_180_000) == "reached"
    drains.forget(leaves)
    assert drains.reach(leaves, Kept(0, 1), False, 1_160_000) == "unknown"


def test_what_others_have_as_well_keeps_no_host() -> None:
    """Of three shuffles that a worker keeps one would lose a copy with it; nobody has looked before, nor after another
    start of the drain."""
    log, drains = Log(), Drains()
    log.do(worker(1))
    leaves = log.state.workers[1]
    assert drains.needed(leaves, Kept(0, 3), 0) == Kept(0, 3)
    drains.looked_for_copies({cmd.WorkerRef(1, 1): 1}, 0)
    assert drains.needed(leaves, Kept(2, 3), 0) == Kept(2, 1)
    assert drains.needed(leaves, Kept(0, 0), 0) == Kept(0, 0)
    drains.looked_for_copies({cmd.WorkerRef(1, 1): 0}, 0)
    assert drains.needed(leaves, Kept(0, 3), 0) == Kept(0, 0)
    assert drains.needed(leaves, Kept(0, 3), 1) == Kept(0, 1), "somebody was lost since"
    drains.forget(leaves)
    assert drains.needed(leaves, Kept(0, 3), 0) == Kept(0, 3)


def registered() -> tuple[Log, dict[str, Worker]]:
    """Three workers; the second one is called 3, the third 12."""
    log = Log()
    for number, name in ((1, "w1"), (2, "3"), (3, "12")):
        log.do(worker(number, name=name))
    return log, {each.name: each for each in log.state.workers.values()}


def test_people_name_workers_by_name_or_by_number() -> None:
    """A name comes first, then a number; each worker once, in the order asked; an unknown one is told with those there
    are."""
    _, workers = registered()
    there = list(workers.values())
    assert [each.id for each in named(there, ["12", "w1", "1"])] == [3, 1]
    assert [each.id for each in named(there, ["3", "2"])] == [2], "a worker called 3, and number 2, which is the same"
    with pytest.raises(HoldfastError, match='no worker or host "w9"; there are 12, 3, w1') as unknown:
        named(there, ["w1", "w9"])
    assert unknown.value.status is Status.UNKNOWN_WORKER
    with pytest.raises(HoldfastError, match="none is known"):
        named([], ["w1"])


def test_people_name_hosts() -> None:
    """A host is all its workers but those that are gone, also where one of them has its name; that one alone is named
    by its number."""
    log = Log()
    for number, name, host in ((1, "a", "h"), (2, "b", "h"), (3, "c", "h"), (4, "h2", "h2"), (5, "e", "h2")):
        log.do(worker(number, name=name, host=host))
    log.do(cmd.SetWorkersAlive(False, (cmd.WorkerRef(2, 1), cmd.WorkerRef(3, 1)), (cmd.WorkerRef(3, 1),)))
    there = list(log.state.workers.values())
    assert [each.name for each in named(there, ["h"])] == ["a", "b"], "b is lost, c is gone"
    assert [each.name for each in named(there, ["h2"])] == ["h2", "e"]
    assert [each.name for each in named(there, ["4"])] == ["h2"]
    assert [each.name for each in named(there, ["c"])] == ["c"], "which is gone, and its host is called otherwise"
    assert [each.name for each in named(there, ["b", "h"])] == ["b", "a"]
    gone = [replace(each, alive=False, gone=True) for each in there if each.host == "h"]
    assert [each.name for each in named(gone, ["h"])] == ["a", "b", "c"], "of a host that is gone as a whole"


def test_what_was_seen_is_of_one_start_that_drains() -> None:
    """Placed epochs are known of a start that drains and was looked at, and of no other."""
    log, workers = registered()
    drains = Drains()
    assert drains.placed(workers["w1"]) is None
    log.do(cmd.SetWorkersDraining(True, (cmd.WorkerRef(1, 1),)))
    draining = log.state.workers[1]
    assert drains.placed(draining) is None
    drains.looked([draining], Counter({1: 4}), Counter({1: 2}), Counter())
    assert drains.placed(draining) == Placed(4, 2)
    assert drains.placed(workers["w1"]) is None, "the record of before it drained"
    drains.forget(draining)
    assert drains.placed(draining) is None
    drains.looked([draining], Counter(), Counter(), Counter())
    assert drains.placed(draining) == Placed(0, 0)
    log.do(worker(1, incarnation=2))
    assert drains.placed(log.state.workers[1]) is None
