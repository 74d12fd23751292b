"""The call Revive while the partition is moved by somebody else: the real Reviver on one master whose log is applied at
once, and an executor that holds what it is given until the test lets go."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, ProtocolError
from holdfast.common.formats.reduce_layouts import Location, ReduceLocations
from holdfast.common.ids import Epoch, WorkerId
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.locations import INLINE_MAX, Locations
from holdfast.master.control.reviving import Reviver
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.moves import EpochMove, pack_moves
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader
from holdfast.master.placement.replace import Moving, Replaced
from tests.support.waiting import wait_until_async
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, key, reduce, worker

PARTITIONS = INLINE_MAX + 1


class Held(Executor):
    """Runs its work when told to."""

    def __init__(self) -> None:
        self.work: list[Any] = []
        self.open = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.work.append(lambda: future.set_result(fn(*args, **kwargs)))
        if self.open:
            self.release()
        return future

    def release(self) -> None:
        self.open = True
        while self.work:
            self.work.pop(0)()


def make(leader: Leader, fleet: Fleet, locations: Locations) -> tuple[Reviver, list[PlacedEpoch]]:
    """The reviver, and what it hands on to be sealed."""
    asker = Asker(leader)
    sealing = Sealing(leader, locations, asker)
    early = EarlySeals(leader, locations, asker, sealing.begun)
    sealed: list[PlacedEpoch] = []
    early.seal = lambda key, epochs: sealed.extend(epochs)  # type: ignore[method-assign]
    return Reviver(leader, fleet, locations, sealing, early), sealed


def test_a36_who_takes_over_while_a_revive_waits_is_not_blamed(monkeypatch):
    """A client reports the first epoch of a partition, which fails on worker 1. While the call waits the partition
    moves to worker 2 on its own. The answer is the place on worker 2, which is neither avoided nor counted as failed,
    nor asked to seal an epoch that it never had."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        held = Held()
        monkeypatch.setattr(loop, "run_in_executor", lambda _, work: asyncio.wrap_future(held.submit(work)))
        node = Node()
        leader = leader_of(node)
        blamed: list[int] = []
        fleet = Fleet(leader)
        monkeypatch.setattr(fleet, "failed", blamed.extend)
        locations = Locations()
        reviver, sealed = make(leader, fleet, locations)
        leader.leadership(True, 1)
        place = ReduceLocations((Location(Epoch(0), (WorkerId(1),)),) * PARTITIONS).encode()
        bodies = [worker(1), worker(2), worker(3), application(), reduce(partitions=PARTITIONS, assignment=place)]
        await do(leader, *bodies)
        shuffle = leader.peek(lambda state: state.shuffle(key()))
        assert shuffle is not None
        failed = [
            pb.FailedEpoch(partition=0, epoch=0, status=Status.UNAVAILABLE),
            pb.FailedEpoch(partition=1, epoch=0, status=Status.HARD_SPLIT),
        ]
        asked = asyncio.ensure_future(reviver.revive(shuffle, pb.ReviveRequest(failed=failed)))
        await wait_until_async(lambda: held.work, "the call to wait")
        rows = pack_moves([EpochMove(partition, 0, (2,)) for partition in (0, 1)], shuffle.copies_wanted)
        await do(leader, cmd.MoveEpochs((cmd.Revive(key(), rows),)))
        held.release()
        reported, room = await asked
        assert [(each.epoch, list(each.workers)) for each in reported] == [(1, [2]), (1, [2])]
        assert (blamed, sealed, room) == ([], [], "")
        leader.leadership(False, 1)

    asyncio.run(story())


def test_of_three_copies_the_one_that_failed_is_replaced():
    """A client says that a replica did not keep a batch, and that it cannot use worker 3: the other two copies stay
    where they are. Where it names nobody both replicas are left."""

    async def story() -> None:
        leader = leader_of(Node())
        reviver, _ = make(leader, Fleet(leader), Locations())
        leader.leadership(True, 1)
        place = ReduceLocations((Location(Epoch(0), (WorkerId(1), WorkerId(2), WorkerId(3))),) * 2).encode()
        bodies = [*map(worker, range(1, 6)), application()]
        await do(leader, *bodies, reduce(partitions=2, copies_wanted=3, copies=3, assignment=place))
        shuffle = leader.peek(lambda state: state.shuffle(key()))
        assert shuffle is not None

        async def revived(partition: int, *unusable: int) -> list[int]:
            failed = [pb.FailedEpoch(partition=partition, epoch=0, status=Status.REPLICA_FAILED)]
            request = pb.ReviveRequest(failed=failed, unusable_workers=unusable)
            (found,), _ = await reviver.revive(shuffle, request)
            return list(found.workers)

        one = await revived(0, 3)
        assert (one[:2], one[2] in (4, 5)) == ([1, 2], True)
        two = await revived(1)
        assert (two[0], set(two[1:])) == (1, {4, 5})
        leader.leadership(False, 1)

    asyncio.run(story())


def test_what_a_client_cannot_use_is_kept_once(monkeypatch):
    """A client that cannot use very many workers names many partitions: the workers that none of these may get are one
    set, and each has what it avoids besides."""

    async def story() -> None:
        leader = leader_of(Node())
        fleet = Fleet(leader)
        reviver, _ = make(leader, fleet, Locations())
        leader.leadership(True, 1)
        place = ReduceLocations((Location(Epoch(0), (WorkerId(1), WorkerId(2))),) * 50).encode()
        await do(leader, *map(worker, range(1, 6)), application(), reduce(partitions=50, assignment=place))
        shuffle = leader.peek(lambda state: state.shuffle(key()))
        assert shuffle is not None
        asked: list[Moving] = []
        replacing = fleet.replacing

        def noted(candidates: Any, copies: int) -> Any:
            found = replacing(candidates, copies)

            def and_note(rows: Sequence[Moving]) -> Replaced:
                asked.extend(rows)
                return found(rows)

            return and_note

        monkeypatch.setattr(fleet, "replacing", noted)
        failed = [pb.FailedEpoch(partition=one, epoch=0, status=Status.UNAVAILABLE) for one in range(50)]
        request = pb.ReviveRequest(failed=failed, unusable_workers=[3, *range(100, 9_000)])
        found, _ = await reviver.revive(shuffle, request)
        assert {1, 3}.isdisjoint(one for each in found for one in each.workers)
        assert len({id(row.avoid) for row in asked}) == 1
        assert {row.leaves | row.also for row in asked} == {frozenset({1})}
        leader.leadership(False, 1)

    asyncio.run(story())


def test_incomplete_copies_are_recorded_before_new_places_are_given():
    """A client names copies that lack something: those that are copies are marked, again for nothing, and seals know of
    them. Who has no copy is refused; and where two of three acknowledge no second one of an epoch can be marked."""

    async def story() -> None:
        leader = leader_of(Node())
        locations = Locations()
        reviver, _ = make(leader, Fleet(leader), locations)
        leader.leadership(True, 1)
        place = ReduceLocations((Location(Epoch(0), (WorkerId(1), WorkerId(2), WorkerId(3))),) * 2).encode()
        opened = reduce(partitions=2, copies_wanted=3, copies=3, ack_copies=2, assignment=place)
        await do(leader, *map(worker, range(1, 6)), application(), opened)

        async def mark(*copies: tuple[int, int, int]) -> list[frozenset[int]]:
            shuffle = leader.peek(lambda state: state.shuffle(key()))
            assert shuffle is not None
            rows = [pb.IncompleteCopy(partition=one, epoch=epoch, worker=who) for one, epoch, who in copies]
            assert await reviver.revive(shuffle, pb.ReviveRequest(incomplete=rows)) == ([], "")
            shuffle = leader.peek(lambda state: state.shuffle(key()))
            assert shuffle is not None
            return await locations.with_epochs(shuffle, lambda epochs: [each.incomplete for each in epochs])

        assert await mark((0, 0, 3)) == [{3}, frozenset()]
        assert await mark((0, 0, 3), (1, 0, 1)) == [{3}, {1}]
        assert leader.counts.copies_incomplete == 2
        with pytest.raises(HoldfastError, match="too few copies") as refused:
            await mark((0, 0, 2))
        assert refused.value.status is Status.REPLICA_FAILED
        for stranger in ((0, 0, 4), (0, 1, 2), (2, 0, 1)):
            with pytest.raises(ProtocolError):
                await mark(stranger)
        leader.leadership(False, 1)

    asyncio.run(story())
