"""Plans which files move down so that a request fits. Nothing is ever deleted: shuffle data has no other copy here.

Rules: a plan is made whole before anything is done, and there is none if it cannot succeed (ADR 0017, A5). Room in one
piece is made in one directory, the one for which the fewest bytes move, so no space is freed in vain elsewhere. A
reserve is never used. What is locked or marked stays.

Source: freeSpace of Alluxio, which deletes instead. Called by storage/tiers/tiering.py.
"""

from __future__ import annotations

from holdfast.worker.core.tiers.draft import Draft
from holdfast.worker.core.tiers.view import DirectorySet, FileId, Order, StoreView, Tier, TierMove


def moves_for(
    view: StoreView, location: DirectorySet, size_bytes: int, ahead_bytes: int, coldest: Order[FileId]
) -> tuple[TierMove[FileId], ...]:
    """Return what moves so that a new file fits into one directory of the location; nothing if it fits, or never will.

    So much more is freed ahead; where that cannot be done it is no reason to free nothing (ADR 0017, A5).
    """
    if any(one.free_bytes >= size_bytes for one in view.within(location)):
        return ()
    ahead = plan_space(view, location, size_bytes, size_bytes + ahead_bytes, coldest)
    return ahead or plan_space(view, location, size_bytes, size_bytes, coldest) or ()


def plan_space(
    view: StoreView, location: DirectorySet, contiguous_bytes: int, total_bytes: int, coldest: Order[FileId]
) -> tuple[TierMove[FileId], ...] | None:
    """Plan until one directory of the location has `contiguous_bytes` free and all of them together `total_bytes`.

    Both hold already: no move. None: it cannot be done with what may be moved. `coldest` is asked for one directory, or
    for the directories of one tier.
    """
    wanted = tuple(view.within(location))
    draft: Draft[FileId] | None = Draft(view, coldest)
    if contiguous_bytes and not any(one.free_bytes >= contiguous_bytes for one in wanted):
        draft = _cheapest(view, wanted, contiguous_bytes, coldest)
    if draft is None or not _reach_total(draft, wanted, total_bytes):
        return None
    return tuple(draft.moves)


def _cheapest(view: StoreView, wanted: Tier, contiguous_bytes: int, coldest: Order[FileId]) -> Draft[FileId] | None:
    """Make room in the directory for which the fewest bytes move; the fastest, then first of equals."""
    best: Draft[FileId] | None = None
    for directory in wanted:
        draft = Draft[FileId](view, coldest)
        made = draft.make_room(directory, contiguous_bytes)
        if made and (best is None or draft.moved_bytes < best.moved_bytes):
            best = draft
    return best


def _reach_total(draft: Draft[FileId], wanted: Tier, total_bytes: int) -> bool:
    """Move files out of the location until enough is free in all of it; slower tiers first, coldest first in each.

    What moves from one directory of the location to another frees nothing. Slower tiers first, because what leaves a
    fast one while a slow one can still leave would be read from far away.
    """
    inside = {one.number for one in wanted}

    def missing() -> int:
        return total_bytes - sum(draft.free_bytes(one) for one in wanted)

    for tier in reversed(draft.view.tiers):
        numbers = {one.number for one in tier} & inside
        for file in draft.movable(numbers) if numbers and missing() > 0 else ():
            draft.move_down(file, outside=inside)
            if missing() <= 0:
                break
    return missing() <= 0
