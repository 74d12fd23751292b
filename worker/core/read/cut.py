"""Cuts pieces of files into data frames: pure arithmetic on runs, no bytes. Called by services/stream_service.py."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.limits import FRAME_RUNS_MAX


@dataclass(slots=True)
class Cutter:
    """What is left of one piece: contiguous bytes of a file that are `runs` of (partition, length) back to back."""

    offset: int
    runs: list[tuple[int, int]]
    #: first run that is not sent whole, and how much of it is sent
    _run: int = 0
    _sent: int = 0

    @property
    def done(self) -> bool:
        return self._run == len(self.runs)

    def cut(self, size_max: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Take up to `size_max` bytes (> 0) off the front: (offset in the file, bytes, their runs). Not if `done`."""
        assert size_max > 0
        assert not self.done
        runs: list[tuple[int, int]] = []
        left = size_max
        while left and self._run < len(self.runs) and len(runs) < FRAME_RUNS_MAX:
            partition, length = self.runs[self._run]
            take = min(length - self._sent, left)
            runs.append((partition, take))
            left -= take
            self._sent += take
            if self._sent == length:
                self._run += 1
                self._sent = 0
        size = size_max - left
        offset = self.offset
        self.offset += size
        return offset, size, runs
