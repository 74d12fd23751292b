"""A plan in the making: moves one after another, each checked against the room that the ones before it leave.

Rules: a move takes the room of its target before its source gets any back; a file moves once; what was tried in vain is
taken back. So the moves that remain can be carried out in their order and no directory is ever over its room.

Called by space.py, watermarks.py, swaps.py and upkeep.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from holdfast.worker.core.tiers.view import DirectoryView, FileId, FileView, StoreView, TierMove


class Draft(Generic[FileId]):
    """Moves so far and what they leave unused."""

    def __init__(self, view: StoreView) -> None:
        self.view = view
        self.moves: list[TierMove[FileId]] = []
        self._unused = {one.number: one.unused_bytes for one in view.directories}
        self._taken: set[FileId] = set()

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
