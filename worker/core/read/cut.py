"""Cuts pieces of files into data frames: pure arithmetic, no bytes. Called by services/stream_sources.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Cutter:
    """What is left of one piece: `parts` of (name, length), one after the other; a name is a partition or an offset."""

    parts: Sequence[tuple[int, int]]
    #: parts that one frame may have
    parts_max: int
    #: bytes that were taken off the front: in all, and of the first part that is not taken whole
    taken_bytes: int = 0
    _part: int = 0
    _of_part: int = 0

    @property
    def done(self) -> bool:
        return self._part == len(self.parts)

    def cut(self, size_max: int) -> list[tuple[int, int, int]]:
        """Take up to `size_max` bytes off the front: (name, where in the part, bytes) of each."""
        found: list[tuple[int, int, int]] = []
        left = size_max
        while left and self._part < len(self.parts) and len(found) < self.parts_max:
            name, length = self.parts[self._part]
            take = min(length - self._of_part, left)
            found.append((name, self._of_part, take))
            left -= take
            self._of_part += take
            if self._of_part == length:
                self._part, self._of_part = self._part + 1, 0
        self.taken_bytes += size_max - left
        return found
