"""The call RegisterShuffle on a master that has been cut off: the real service on one master whose log is applied at
once; what the others did meanwhile comes before its next confirmed read."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.api.registry import Registry
from holdfast.master.api.shuffles import Shuffles
from holdfast.master.control.early import EarlySeals
from holdfast.master.control.locations import Locations
from holdfast.master.control.reviving import Reviver
from holdfast.master.control.sealing import Sealing
from holdfast.master.core.state import commands as cmd
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.asking import Asker
from holdfast.master.observe.masters import Masters
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import H1, application, encode_entry, key, reduce, worker


class CutOff(Node):
    """What `missed` has is in the log of the others, and here with the next confirmed read."""

    def __init__(self) -> None:
        super().__init__()
        self.missed: list[cmd.Body] = []

    def read(self, read: Any) -> Future[Any]:
        missed, self.missed = self.missed, []
        for body in missed:
            self.propose(encode_entry(cmd.LogEntry(0, (cmd.Command(body),))))
        return super().read(read)


def test_what_was_dropped_elsewhere_is_not_registered_again() -> None:
    """A shuffle that this master knows is registered again, and another master leads by now and has dropped it: the
    call says so, and gives no places to write to."""

    async def story() -> None:
        node = CutOff()
        leader = leader_of(node)
        fleet, locations, asker = Fleet(leader), Locations(), Asker(leader)
        sealing = Sealing(leader, locations, asker)
        early = EarlySeals(leader, locations, asker, sealing.begun)
        reviver = Reviver(leader, fleet, locations, sealing, early)
        registry = Registry(leader, fleet)
        shuffles = Shuffles(leader, Masters(leader.config), registry, fleet, locations, sealing, reviver, asker)
        leader.leadership(True, 1)
        await do(leader, worker(1), worker(2), application(), reduce())
        request = pb.RegisterShuffleRequest(
            key=key_message(key()), kind=pb.PARTITION_KIND_REDUCE, partitions=4, maps=0, copies=2, ack=1, holder=H1
        )
        assert (await shuffles.register_shuffle(request)).copies == 2
        node.missed = [cmd.Unregister(key())]
        with pytest.raises(HoldfastError) as refused:
            await shuffles.register_shuffle(request)
        assert refused.value.status is Status.UNKNOWN_GENERATION
        leader.leadership(False, 1)

    asyncio.run(story())
