"""Puts hot files above cold ones: swaps between adjacent tiers, and what gives the reserve back after one that failed.

Rules: two tiers are aligned if no file above is colder than one below. A swap is two moves, one each way, which may use
the reserve; the first is the one that has room now. Where a swap finds none, the reserve has to be restored first:
files move down, coldest first, until every tier has its reserve unused, then between directories of a tier. The last
tier has nothing below it and keeps its files. Only what is evictable moves.

Source: the align and swap-restore tasks of Alluxio. Pure. Called by upkeep.py.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Generic, NamedTuple

from holdfast.worker.core.tiers.draft import Draft
from holdfast.worker.core.tiers.space import LOOKS_MAX
from holdfast.worker.core.tiers.view import FileId, FileView, Heat, Order, Pair, StoreView, Tier, TierMove


class Swaps(NamedTuple, Generic[FileId]):
    """Moves to be done in this order; of swaps always two."""

    moves: tuple[TierMove[FileId], ...]
    #: a swap found no room, not even in the reserve, so that this has to be restored; of a restoration: it is not whole
    lacks_room: bool


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
    draft = Draft[FileId](view)
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
    draft = Draft[FileId](view)
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
