"""Plans which files move down so that a request fits. Nothing is ever deleted: shuffle data has no other copy here.

Rules: a plan is made whole before anything is done, and there is none if it cannot succeed (ADR 0017, A5). Room in one
piece is made in one directory, the one for which the fewest bytes move, so no space is freed in vain elsewhere. Files
go coldest first, to the nearest slower tier that has room; if no slower tier has any, room is made there first, the
same way. A reserve is never used. What is locked or marked stays.

Source: freeSpace of Alluxio, which deletes instead. Called by storage/tiers/tiering.py; some steps by watermarks.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Generic

from holdfast.worker.core.tiers.draft import Draft
from holdfast.worker.core.tiers.view import (
    DirectorySet,
    DirectoryView,
    FileId,
    FileView,
    Order,
    StoreView,
    Tier,
    TierMove,
)

#: Files that are looked at for one way to make room (some 10 µs each), so that no plan holds the loop thread for long.
LOOKS_MAX = 2_000


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
    mover: TierMover[FileId] | None = TierMover(Draft(view), coldest)
    if contiguous_bytes and not any(one.free_bytes >= contiguous_bytes for one in wanted):
        mover = _cheapest(view, wanted, contiguous_bytes, coldest)
    if mover is None or not _reach_total(mover, wanted, total_bytes):
        return None
    return tuple(mover.draft.moves)


def _cheapest(view: StoreView, wanted: Tier, contiguous_bytes: int, coldest: Order[FileId]) -> TierMover[FileId] | None:
    """Make room in the directory for which the fewest bytes move; the fastest, then first of equals."""
    best: TierMover[FileId] | None = None
    for directory in wanted:
        mover = TierMover(Draft[FileId](view), coldest)
        if mover.make_room(directory, contiguous_bytes) and (
            best is None or mover.draft.moved_bytes < best.draft.moved_bytes
        ):
            best = mover
    return best


def _reach_total(mover: TierMover[FileId], wanted: Tier, total_bytes: int) -> bool:
    """Move files out of the location until enough is free in all of it; slower tiers first, coldest first in each.

    What moves from one directory of the location to another frees nothing. Slower tiers first, because what leaves a
    fast one while a slow one can still leave would be read from far away.
    """
    inside = {one.number for one in wanted}
    draft = mover.draft

    def missing() -> int:
        return total_bytes - sum(draft.free_bytes(one) for one in wanted)

    for tier in reversed(mover.draft.view.tiers):
        numbers = {one.number for one in tier} & inside
        for file in mover.movable(numbers) if numbers and missing() > 0 else ():
            mover.move_down(file, outside=inside)
            if missing() <= 0:
                break
    return missing() <= 0


class TierMover(Generic[FileId]):
    """Moves files down in a draft."""

    def __init__(self, draft: Draft[FileId], coldest: Order[FileId]) -> None:
        self.draft = draft
        self._coldest = coldest
        self._looks_left = LOOKS_MAX
        #: by directory the least room that could not be made: more cannot be made either
        self._hopeless: dict[int, int] = {}

    def movable(self, numbers: Collection[int]) -> Iterator[FileView[FileId]]:
        """Files of these directories that may be moved, coldest first."""
        for file in self._coldest(numbers):
            self._looks_left -= 1
            if self._looks_left < 0:
                return
            if self.draft.may_move(file):
                yield file

    def make_room(self, directory: DirectoryView, needed_bytes: int) -> bool:
        """Move files of the directory down until it has so much free. If that cannot be, nothing has moved."""
        draft = self.draft
        if draft.free_bytes(directory) >= needed_bytes:
            return True
        possible_bytes = directory.capacity_bytes - directory.reserved_bytes
        if needed_bytes > possible_bytes or needed_bytes >= self._hopeless.get(directory.number, needed_bytes + 1):
            return False
        if next(draft.view.below(directory.tier), None) is None:
            return False
        before, hopeless = len(draft.moves), dict(self._hopeless)
        for file in self.movable((directory.number,)):
            if self.move_down(file) and draft.free_bytes(directory) >= needed_bytes:
                return True
        draft.back_to(before)
        self._hopeless = {**hopeless, directory.number: needed_bytes}
        return False

    def move_down(self, file: FileView[FileId], outside: Collection[int] = ()) -> bool:
        """Move one file to a slower tier, not to a directory in `outside`; make room there if no tier has any."""
        draft = self.draft
        tiers = [
            [one for one in tier if one.number not in outside and file.may_lie_in(one)]
            for tier in draft.view.below(draft.view.by_number[file.directory].tier)
        ]
        for tier in tiers:
            target = draft.roomiest(tier, file)
            if target is not None:
                draft.move(file, target)
                return True
        for tier in tiers:
            for directory in sorted(tier, key=draft.free_bytes, reverse=True):
                if self.make_room(directory, file.size_bytes):
                    draft.move(file, directory)
                    return True
        return False
