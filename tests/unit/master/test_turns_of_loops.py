"""Loops of the leader over all shuffles let others have their turn."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from holdfast.master.control import early as early_module
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.locations import Locations
from holdfast.master.control.moving import EpochMover
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.seals import EpochKey, PlacedEpoch
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Worker
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from tests.support.waiting import wait_until_async
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, key, reduce, worker

SHUFFLES, WORKERS = 50, 20


def test_heartbeats_get_in_while_partitions_move() -> None:
    """A worker drains, and then another one is lost, while there are many open shuffles: between any two of them
    whatever else waits for the event loop goes on."""

    async def story() -> None:
        leader = leader_of(Node())
        locations, asker = Locations(), Asker(leader)
        sealing = Sealing(leader, locations, asker)
        early = EarlySeals(leader, locations, asker, sealing.begun)
        leader.leadership(True, 1)
        mover = EpochMover(leader, Fleet(leader), locations, sealing, early)
        await do(leader, *map(worker, range(1, 6)), application())
        await do(leader, *[reduce(key(number)) for number in range(1, SHUFFLES + 1)])
        turns = 0

        def others() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(others)

        loop = asyncio.get_running_loop()
        others()
        await do(leader, cmd.SetWorkersDraining(True, (cmd.WorkerRef(1, 1),)))
        assert await mover._move()
        assert turns > 2 * SHUFFLES, "once where it moves, once where it is looked at"
        await do(leader, cmd.SetWorkersAlive(False, (cmd.WorkerRef(2, 1),)))
        before = turns
        assert await mover._move()
        assert turns - before > SHUFFLES
        leader.leadership(False, 1)

    asyncio.run(story())


def test_heartbeats_get_in_while_many_workers_seal_what_they_had_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader finds many workers that have started since some shuffles were registered: they are looked at one
    after the other. Those that have not are not looked at."""

    async def story() -> None:
        leader = leader_of(Node())
        asker = Asker(leader)
        early = EarlySeals(leader, Locations(), asker, lambda _: False)
        leader.leadership(True, 1)
        await do(leader, *map(worker, range(1, 2 * WORKERS + 1)), application())
        await do(leader, reduce(key(1)), *[worker(number, incarnation=2) for number in range(1, WORKERS + 1)])
        at_once, most, looked = 0, 0, 0

        def look(epochs: Iterable[PlacedEpoch], workers: Mapping[int, Worker]) -> dict[int, list[EpochKey]]:
            nonlocal at_once, most, looked
            at_once, looked = at_once + 1, looked + 1
            most = max(most, at_once)
            return {}

        def others() -> None:
            nonlocal at_once
            at_once = 0
            loop.call_soon(others)

        monkeypatch.setattr(early_module, "left_behind", look)
        loop = asyncio.get_running_loop()
        others()
        early.seal_left()
        await wait_until_async(lambda: not asker.queues._queues, "all to be looked at")
        assert (looked, most) == (WORKERS, 1)
        leader.leadership(False, 1)

    asyncio.run(story())
