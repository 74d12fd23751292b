"""Moves between adjacent tiers that nobody waits for: give the reserve back, put hot files above cold ones, promote.

Rules: from the fastest pair of tiers down, the first that has something to do. Two tiers are aligned if no file above
is colder than one below. A swap is two moves, one each way, which may use the reserve; the first is the one that has
room now. One that found no room goes first of all, wherever it was: the reserve is restored. Files move down, coldest
first, until every tier has its reserve unused, then between directories of a tier. The last tier has nothing below it
and keeps its files. Only what is evictable moves. Aligning and promoting are off by default: shuffle data is mostly
read once. Demotion by watermarks is not among these: it makes room that is needed, and does not wait for them
(watermarks.py).

Source: the tier management tasks of Alluxio and their back-off. Pure; time comes in as a value. Called by
storage/tiers/tiering.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple

from holdfast.worker.core.tiers.draft import LOOKS_MAX, Draft
from holdfast.worker.core.tiers.view import FileId, FileView, Heat, Order, Pair, StoreView, Tier, TierMove


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What an operator switched on."""

    align: bool
    promote: bool
    #: promotion ends at this share of a tier
    quota: float
    #: files that are looked at, on either side
    files_max: int


class Swaps(NamedTuple, Generic[FileId]):
    """Moves to be done in this order; of swaps always two."""

    moves: tuple[TierMove[FileId], ...]
    #: a swap found no room, not even in the reserve, so that this has to be restored; of a restoration: it is not whole
    lacks_room: bool


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
    draft = Draft[FileId](view, hottest)
    capacity = sum(one.capacity_bytes for one in pair.above)
    idle = [one for one in pair.above if one.number not in busy]
    for file in evictable(hottest, pair.below, wishes.files_max, busy):
        if capacity - sum(draft.unused_bytes(one) for one in pair.above) >= wishes.quota * capacity:
            break
        target = draft.roomiest(idle, file)
        if target is not None:
            draft.move(file, target)
    return tuple(draft.moves)


def evictable(files: Order[FileId], tier: Tier, count: int, busy: Collection[int] = ()) -> list[FileView[FileId]]:
    """The first `count` files of a tier that may be moved, in their order, but for those of busy directories."""
    numbers = [one.number for one in tier if one.number not in busy]
    found = (file for file in islice(files(numbers), LOOKS_MAX) if file.is_evictable)
    return list(islice(found, count))


def is_aligned(pair: Pair, heat: Heat[FileId]) -> bool:
    """Whether nothing above is colder than something below; an empty side is aligned."""
    cold, hot = evictable(heat.coldest, pair.above, 1), evictable(heat.hottest, pair.below, 1)
    return not cold or not hot or heat.score(cold[0].file) >= heat.score(hot[0].file)


def align(view: StoreView, pair: Pair, heat: Heat[FileId], pairs_max: int, busy: Collection[int] = ()) -> Swaps[FileId]:
    """Swap the k-th coldest above with the k-th hottest below, while the one above is colder.

    Files in directories that are busy are left out.
    """
    draft = Draft[FileId](view, heat.coldest)
    above = evictable(heat.coldest, pair.above, pairs_max, busy)
    below = evictable(heat.hottest, pair.below, pairs_max, busy)
    for cold, hot in zip(above, below, strict=False):
        if heat.score(cold.file) >= heat.score(hot.file):
            break
        if not (cold.may_lie_in(view.by_number[hot.directory]) and hot.may_lie_in(view.by_number[cold.directory])):
            continue
        if not (_swap(draft, cold, hot) or _swap(draft, hot, cold)):
            return Swaps(tuple(draft.moves), lacks_room=True)
    return Swaps(tuple(draft.moves), lacks_room=False)


def _swap(draft: Draft[FileId], first: FileView[FileId], second: FileView[FileId]) -> bool:
    """Add both moves, or none if one of them has no room."""
    before = len(draft.moves)
    for file, other in ((first, second), (second, first)):
        target = draft.view.by_number[other.directory]
        if draft.unused_bytes(target) < file.size_bytes:
            draft.back_to(before)
            return False
        draft.move(file, target)
    return True


def restore(view: StoreView, coldest: Order[FileId]) -> Swaps[FileId]:
    """Give every directory its reserve back, as far as that can be."""
    draft = Draft[FileId](view, coldest)
    for position in reversed(range(len(view.tiers) - 1)):
        _push_down(draft, view.tiers[position], view.tiers[position + 1], _overflow(view, position), coldest)
    for tier in view.tiers:
        _rebalance(draft, tier, coldest)
    lacks = any(draft.unused_bytes(one) < one.reserved_bytes for one in view.directories)
    return Swaps(tuple(draft.moves), lacks)


def _overflow(view: StoreView, position: int) -> int:
    """What has to leave a tier: what it uses of its reserve, and what comes down into it that it has no room for."""
    overflow = 0
    for tier in view.tiers[: position + 1]:
        overflow = max(0, overflow + sum(one.reserved_bytes - one.unused_bytes for one in tier))
    return overflow


def _push_down(draft: Draft[FileId], tier: Tier, below: Tier, overflow_bytes: int, coldest: Order[FileId]) -> None:
    moved = 0
    for file in evictable(coldest, tier, LOOKS_MAX) if overflow_bytes else ():
        if moved >= overflow_bytes:
            return
        target = draft.roomiest(below, file) or draft.roomiest(below, file, with_reserve=True)
        if target is not None and draft.may_move(file):
            draft.move(file, target)
            moved += file.size_bytes


def _rebalance(draft: Draft[FileId], tier: Tier, coldest: Order[FileId]) -> None:
    for directory in tier:
        if draft.unused_bytes(directory) >= directory.reserved_bytes:
            continue
        for file in evictable(coldest, (directory,), LOOKS_MAX):
            target = draft.roomiest(tier, file)
            if target is not None and draft.may_move(file):
                draft.move(file, target)
            if draft.unused_bytes(directory) >= directory.reserved_bytes:
                break


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
