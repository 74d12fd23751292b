"""Where a shuffle's partitions are and why: what `holdfast placement --explain` asks.

Runs in the event loop, on the leader. Called by admin.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.common.errors import GiveUpError
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.ids import INSTANCE_BYTES, NO_WORKER, Generation, Instance, ShuffleId, ShuffleKey, shuffle_name
from holdfast.common.limits import U32_MAX
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.api.statuses import bad_request
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.core.state.records import KIND_MAP, Shuffle
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.leader import Leader
from holdfast.master.placement.members import Member
from holdfast.master.placement.policy import Policy, Spread, keeps

#: Partitions in one answer.
LIMIT_MAX = 10_000


class Explainer:
    """Answers on the leader."""

    def __init__(self, leader: Leader, fleet: Fleet, locations: Locations) -> None:
        self._leader, self._fleet, self._locations = leader, fleet, locations

    async def explain(self, request: pb.ExplainPlacementRequest) -> pb.ExplainPlacementReply:
        """Return where every partition is now, whether that is as wished now, and what this leader chose of it."""
        if len(request.instance) != INSTANCE_BYTES or request.generation > U32_MAX:
            raise bad_request(f"a shuffle is named by an instance of {INSTANCE_BYTES} bytes and numbers of 32 bits")
        shuffle = await self._leader.confirmed(lambda state: _find(state, request))
        if shuffle is None:
            name = shuffle_name(request.instance.hex()[:8], request.shuffle, max(request.generation, 0))
            text = f"there is no shuffle {name}: see `holdfast shuffles`"
            raise GiveUpError(text, status=Status.UNKNOWN_SHUFFLE)
        pairs = await self._pairs(shuffle)
        places = self._fleet.places_now()
        workers = self._leader.peek(lambda state: list(state.workers.values()))
        members = {each.id: Member(each.id, each.host, places[each.id]) for each in workers}
        policy = self._fleet.policy
        limit = min(request.limit or LIMIT_MAX, LIMIT_MAX)
        adhering = await off_loop(len(pairs), lambda: _adhering(pairs, members, policy, shuffle.copies_wanted))
        rows = range(request.first, min(request.first + limit, len(pairs)))
        key = shuffle.key
        return pb.ExplainPlacementReply(
            key=key_message(key),
            kind=pb.PARTITION_KIND_MAP if shuffle.kind == KIND_MAP else pb.PARTITION_KIND_REDUCE,
            copies_wanted=shuffle.copies_wanted,
            copies=shuffle.copies,
            policy=policy.constraint,
            order=policy.order,
            locations=[
                pb.NewLocation(partition=at, epoch=pairs[at][0], primary=pairs[at][1], replica=pairs[at][2])
                for at in rows
            ],
            adheres=[adhering[at] for at in rows],
            total=len(pairs),
            not_adhering=adhering.count(False),
            decisions=self._fleet.decisions.of(key),
        )

    async def _pairs(self, shuffle: Shuffle) -> list[tuple[int, int, int]]:
        """Return epoch, primary and replica of each partition; of MAP partitions the ring, each with its neighbour."""
        if shuffle.kind == KIND_MAP:
            ring = MapAssignment.decode(shuffle.assignment).workers
            if shuffle.copies < 2:
                return [(0, worker, NO_WORKER) for worker in ring]
            return [(0, worker, ring[(at + 1) % len(ring)]) for at, worker in enumerate(ring)]
        return [(each.epoch, each.primary, each.replica) for each in await self._locations.newest(shuffle)]


def _find(state: State, request: pb.ExplainPlacementRequest) -> Shuffle | None:
    """Return the record asked for: of the newest generation if none is named."""
    number = request.generation
    if number < 0:
        newest = state.head(request.instance, request.shuffle)
        if newest is None:
            return None
        number = newest
    return state.shuffle(ShuffleKey(Instance(request.instance), ShuffleId(request.shuffle), Generation(number)))


def _adhering(
    pairs: Sequence[tuple[int, int, int]], members: dict[int, Member], policy: Policy, copies: int
) -> list[bool]:
    there = Spread.of(members.values())
    return [
        copies < 2 or keeps(policy, members.get(primary), members.get(replica), there) for _, primary, replica in pairs
    ]
