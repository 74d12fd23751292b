"""Where a shuffle's partitions are and why: what `holdfast placement APP/SHUFFLE` asks; and which shuffle is meant.

Runs in the event loop, on the leader. Called by admin.py and adherence.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from holdfast.common.errors import GiveUpError
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.ids import INSTANCE_BYTES, Generation, Instance, ShuffleId, ShuffleKey, shuffle_name
from holdfast.common.limits import U32_MAX
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.master.api.statuses import bad_request
from holdfast.master.control.locations import Locations, off_loop
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state.records import KIND_MAP, Shuffle
from holdfast.master.core.state.state import State
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.leader import Leader
from holdfast.master.observe.describing import Describer
from holdfast.master.placement.policy import Policy, There, Workers, adherence, patterns_of
from holdfast.master.placement.wishes import Adherence

_NAMES = {
    Adherence.STRICT: pb.ADHERENCE_STRICT,
    Adherence.SOFT: pb.ADHERENCE_SOFT,
    Adherence.FAIL: pb.ADHERENCE_FAILED,
}
#: Partitions in one answer.
LIMIT_MAX = 10_000


@dataclass(frozen=True)
class PlacementView:
    """By what shuffles are judged at one moment: the policy, where workers are, and their tags."""

    policy: Policy
    places: Mapping[int, str]
    tags: Mapping[int, frozenset[str]]
    _there: dict[frozenset[str], There] = field(default_factory=dict, compare=False)

    def there(self, wanted: frozenset[str]) -> There:
        """What there is to spread over for who is confined to these tags."""
        if wanted not in self._there:
            pool = [self.places[each] for each, own in self.tags.items() if each in self.places and wanted <= own]
            self._there[wanted] = There.of(self.policy, pool)
        return self._there[wanted]


class Explainer:
    """Answers on the leader."""

    def __init__(self, leader: Leader, fleet: Fleet, locations: Locations) -> None:
        self._leader, self._fleet, self._locations = leader, fleet, locations
        self.describer = Describer(leader, locations)

    async def explain(self, request: pb.ExplainPlacementRequest) -> pb.ExplainPlacementReply:
        """Return where every partition is now, whether that is as wished now, and what this leader chose of it."""
        shuffle = await self.found(request)
        view = self.view()
        policy = view.policy
        rows, adhering = await self.judged(shuffle, view)
        limit = min(request.limit or LIMIT_MAX, LIMIT_MAX)
        shown = range(request.first, min(request.first + limit, len(rows)))
        key = shuffle.key
        return pb.ExplainPlacementReply(
            key=key_message(key),
            kind=pb.PARTITION_KIND_MAP if shuffle.kind == KIND_MAP else pb.PARTITION_KIND_REDUCE,
            copies_wanted=shuffle.copies_wanted,
            copies=shuffle.copies,
            policy=policy.constraint,
            order=policy.order,
            locations=[
                pb.NewLocation(partition=at, epoch=epoch, workers=workers)
                for at, (epoch, workers) in ((at, rows[at]) for at in shown)
            ],
            adheres=[adhering[at] is Adherence.STRICT for at in shown],
            adherence=[_NAMES[adhering[at]] for at in shown],
            total=len(rows),
            not_adhering=len(rows) - adhering.count(Adherence.STRICT),
            soft=adhering.count(Adherence.SOFT),
            decisions=self._fleet.decisions.of(key),
            tags=sorted(self._fleet.tags_of(key)),
        )

    async def found(self, request: pb.ExplainPlacementRequest | pb.DescribeShuffleRequest) -> Shuffle:
        """Return the record asked for: of the newest generation if none is named. Raises GiveUpError
        (UNKNOWN_SHUFFLE)."""
        if len(request.instance) != INSTANCE_BYTES or request.generation > U32_MAX:
            raise bad_request(f"a shuffle is named by an instance of {INSTANCE_BYTES} bytes and numbers of 32 bits")
        shuffle = await self._leader.confirmed(lambda state: _find(state, request))
        if shuffle is None:
            name = shuffle_name(request.instance.hex()[:8], request.shuffle, max(request.generation, 0))
            text = f"there is no shuffle {name}: see `holdfast shuffles`"
            raise GiveUpError(text, status=Status.UNKNOWN_SHUFFLE)
        return shuffle

    def view(self) -> PlacementView:
        """By what shuffles are judged now."""
        tags = self._leader.peek(lambda state: {each.id: frozenset(each.tags) for each in state.workers.values()})
        return PlacementView(self._fleet.policy, self._fleet.places_now(), tags)

    async def judged(self, shuffle: Shuffle, view: PlacementView) -> tuple[list[tuple[int, Workers]], list[Adherence]]:
        """Return epoch and workers of each partition, and how they stand to what is wished."""
        rows, there = await self._rows(shuffle), view.there(self._fleet.tags_of(shuffle.key))
        return rows, await off_loop(len(rows), lambda: _adhering(rows, view, shuffle.copies_wanted, there))

    async def short(self, shuffle: Shuffle, lost: frozenset[int]) -> int:
        """Return how many epochs have fewer copies than asked for that are not on these workers, and lack nothing; of
        MAP partitions how many places of the ring."""
        if shuffle.kind == KIND_MAP:
            there = [lost.isdisjoint(workers) for _, workers in await self._rows(shuffle)]
            return len(there) if shuffle.copies < shuffle.copies_wanted else there.count(False)
        first = await self._locations.first(shuffle)
        complete = first.even and len(first.columns) == shuffle.copies_wanted and not shuffle.incomplete
        if complete and not shuffle.moved and lost.isdisjoint((await self._locations.now(shuffle)).workers):
            return 0  # as nearly always; to look at each of its epochs takes long
        return await self._locations.with_epochs(shuffle, partial(_short, shuffle.copies_wanted, lost))

    async def _rows(self, shuffle: Shuffle) -> list[tuple[int, Workers]]:
        """Return epoch and workers of each partition; of MAP partitions the ring, each with its neighbours."""
        if shuffle.kind == KIND_MAP:
            ring = MapAssignment.decode(shuffle.assignment).workers
            copies = range(shuffle.copies)
            return [(0, tuple([ring[(at + step) % len(ring)] for step in copies])) for at in range(len(ring))]
        return [(each.epoch, each.workers) for each in await self._locations.newest(shuffle)]


def _find(state: State, request: pb.ExplainPlacementRequest | pb.DescribeShuffleRequest) -> Shuffle | None:
    number = request.generation
    if number < 0:
        newest = state.head(request.instance, request.shuffle)
        if newest is None:
            return None
        number = newest
    return state.shuffle(ShuffleKey(Instance(request.instance), ShuffleId(request.shuffle), Generation(number)))


def _short(copies: int, lost: frozenset[int], epochs: Iterator[PlacedEpoch]) -> int:
    return sum(len(set(each.workers) - lost - each.incomplete) < copies for each in epochs)


def _adhering(rows: Sequence[tuple[int, Workers]], view: PlacementView, copies: int, there: There) -> list[Adherence]:
    patterns = patterns_of([workers for _, workers in rows], view.places)
    verdicts = {each: adherence(view.policy, each, copies, there) for each in set(patterns)}
    return list(map(verdicts.__getitem__, patterns))
