"""Loops of the leader over all shuffles let others have their turn."""

import asyncio

from holdfast.master.control.early import EarlySeals
from holdfast.master.control.locations import Locations
from holdfast.master.control.moving import EpochMover
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.state import commands as cmd
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import application, key, reduce, worker

SHUFFLES = 50


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
