"""Moves between adjacent tiers that nobody waits for: give the reserve back, put hot files above cold ones, promote.

Rules: from the fastest pair of tiers down, the first that has something to do. A swap that found no room goes first of
all, wherever it was. Aligning and promoting are off by default: shuffle data is mostly read once. Demotion by
watermarks is not among these: it makes room that is needed, and does not wait for them (watermarks.py).

Source: the tier management tasks of Alluxio and their back-off. Pure; time comes in as a value. Called by
storage/tiers/tiering.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from holdfast.worker.core.tiers.draft import Draft
from holdfast.worker.core.tiers.swaps import Swaps, align, evictable, is_aligned, restore
from holdfast.worker.core.tiers.view import FileId, Heat, Order, Pair, StoreView, Tier, TierMove


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What an operator switched on."""

    align: bool
    promote: bool
    #: promotion ends at this share of a tier
    quota: float
    #: files that are looked at, on either side
    files_max: int


def upkeep(
    view: StoreView,
    wishes: Wishes,
    coldest: Order[FileId],
    heat: Heat[FileId],
    *,
    restore_first: bool,
    busy: Collection[int] = (),
) -> Swaps[FileId]:
    """Plan what is to be done next; directories that are `busy` are left alone. `restore_first`: a swap ended without
    room and the reserve was not restored since, which is `lacks_room` of what is returned."""
    for pair in view.pairs:
        if restore_first:
            found = restore(view, coldest)
            return Swaps(found.moves, found.lacks_room and bool(found.moves))
        if wishes.align and not is_aligned(pair, heat):
            return align(view, pair, heat, wishes.files_max, busy)
        if wishes.promote and is_below_quota(pair.above, wishes.quota) and evictable(heat.hottest, pair.below, 1):
            return Swaps(promote(view, pair, heat.hottest, wishes, busy), lacks_room=False)
    return Swaps((), restore_first)


def is_below_quota(tier: Tier, quota: float) -> bool:
    """Whether less than this share of the tier's capacity is taken."""
    return sum(one.used_bytes for one in tier) < quota * sum(one.capacity_bytes for one in tier)


def promote(
    view: StoreView, pair: Pair, hottest: Order[FileId], wishes: Wishes, busy: Collection[int] = ()
) -> tuple[TierMove[FileId], ...]:
    """Move up the hottest files below until the tier above is used to its quota.

    The quota is looked at before each move, so the last one may pass it, but never the room of its directory. Files
    that fit nowhere are left out.
    """
    draft = Draft[FileId](view)
    capacity = sum(one.capacity_bytes for one in pair.above)
    idle = [one for one in pair.above if one.number not in busy]
    for file in evictable(hottest, pair.below, wishes.files_max, busy):
        if capacity - sum(draft.unused_bytes(one) for one in pair.above) >= wishes.quota * capacity:
            break
        target = draft.roomiest(idle, file)
        if target is not None:
            draft.move(file, target)
    return tuple(draft.moves)


@dataclass(slots=True)
class Backoff:
    """Keeps upkeep out of the way of clients: where they read, and for a while after."""

    #: everything pauses while any directory is in use, not only moves from or to that one
    any_stops_all: bool
    cooldown_ns: int
    #: when each directory was used last
    _used_ns: dict[int, int] = field(default_factory=dict)

    def used(self, directory: int, now_ns: int) -> None:
        self._used_ns[directory] = now_ns

    def busy(self, now_ns: int) -> frozenset[int]:
        """Directories that moves should leave alone now."""
        return frozenset(number for number, at in self._used_ns.items() if now_ns - at < self.cooldown_ns)

    def pauses_all(self, now_ns: int) -> bool:
        """Whether nothing should move now."""
        return self.any_stops_all and bool(self.busy(now_ns))
