"""A plan in the making: moves one after another, each checked against the room that the ones before it leave.

Rules: a move takes the room of its target before its source gets any back; a file moves once; what was tried in vain is
taken back. So the moves that remain can be carried out in their order and no directory is ever over its room.

Files go down coldest first, to the nearest slower tier that has room; if no slower tier has any, room is made there
first, the same way. Called by space.py, watermarks.py and upkeep.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Generic

from holdfast.worker.core.tiers.view import DirectoryView, FileId, FileView, Order, StoreView, TierMove

#: Files that are looked at for one way to make room (some 10 µs each), so that no plan holds the loop thread for long.
LOOKS_MAX = 2_000


class Draft(Generic[FileId]):
    """Moves so far and what they leave unused."""

    def __init__(self, view: StoreView, coldest: Order[FileId]) -> None:
        self.view = view
        self._coldest = coldest
        self.moves: list[TierMove[FileId]] = []
        self._unused = {one.number: one.unused_bytes for one in view.directories}
        self._taken: set[FileId] = set()
        self.look_anew()

    def look_anew(self) -> None:
        """What comes is another way to make room."""
        self._looks_left = LOOKS_MAX
        #: by directory the least room that could not be made: more cannot be made either
        self._hopeless: dict[int, int] = {}

    def unused_bytes(self, directory: DirectoryView) -> int:
        return self._unused[directory.number]

    def free_bytes(self, directory: DirectoryView) -> int:
        return max(0, self._unused[directory.number] - directory.reserved_bytes)

    def room_bytes(self, directory: DirectoryView, with_reserve: bool) -> int:
        return self.unused_bytes(directory) if with_reserve else self.free_bytes(directory)

    @property
    def moved_bytes(self) -> int:
        return sum(move.size_bytes for move in self.moves)

    def may_move(self, file: FileView[FileId]) -> bool:
        return file.is_evictable and file.file not in self._taken

    def roomiest(
        self, directories: Iterable[DirectoryView], file: FileView[FileId], *, with_reserve: bool = False
    ) -> DirectoryView | None:
        """The directory with most room among those that can take the file, the first of equals; None if none can."""
        able = [
            one
            for one in directories
            if file.may_lie_in(one)
            and one.number != file.directory
            and self.room_bytes(one, with_reserve) >= file.size_bytes
        ]
        return max(able, key=lambda one: self.room_bytes(one, with_reserve), default=None)

    def move(self, file: FileView[FileId], target: DirectoryView) -> None:
        """Add a move; its room was looked up before."""
        assert self.may_move(file), file
        assert file.size_bytes <= self.unused_bytes(target), (file, target)
        assert file.directory != target.number, (file, target)
        self._taken.add(file.file)
        self.moves.append(TierMove(file.file, file.size_bytes, file.directory, target.number))
        self._unused[target.number] -= file.size_bytes
        self._unused[file.directory] += file.size_bytes

    def back_to(self, count: int) -> None:
        while len(self.moves) > count:
            move = self.moves.pop()
            self._taken.discard(move.file)
            self._unused[move.source] -= move.size_bytes
            self._unused[move.target] += move.size_bytes

    def movable(self, numbers: Collection[int]) -> Iterator[FileView[FileId]]:
        """Files of these directories that may be moved, coldest first."""
        for file in self._coldest(numbers):
            self._looks_left -= 1
            if self._looks_left < 0:
                return
            if self.may_move(file):
                yield file

    def make_room(self, directory: DirectoryView, needed_bytes: int) -> bool:
        """Move files of the directory down until it has so much free. If that cannot be, nothing has moved."""
        if self.free_bytes(directory) >= needed_bytes:
            return True
        possible_bytes = directory.capacity_bytes - directory.reserved_bytes
        if needed_bytes > possible_bytes or needed_bytes >= self._hopeless.get(directory.number, needed_bytes + 1):
            return False
        if next(self.view.below(directory.tier), None) is None:
            return False
        before, hopeless = len(self.moves), dict(self._hopeless)
        for file in self.movable((directory.number,)):
            if self.move_down(file) and self.free_bytes(directory) >= needed_bytes:
                return True
        self.back_to(before)
        self._hopeless = {**hopeless, directory.number: needed_bytes}
        return False

    def move_down(self, file: FileView[FileId], outside: Collection[int] = ()) -> bool:
        """Move one file to a slower tier, not to a directory in `outside`; make room there if no tier has any."""
        tiers = [
            [one for one in tier if one.number not in outside and file.may_lie_in(one)]
            for tier in self.view.below(self.view.by_number[file.directory].tier)
        ]
        for tier in tiers:
            target = self.roomiest(tier, file)
            if target is not None:
                self.move(file, target)
                return True
        for tier in tiers:
            for directory in sorted(tier, key=self.free_bytes, reverse=True):
                if self.make_room(directory, file.size_bytes):
                    self.move(file, directory)
                    return True
        return False
