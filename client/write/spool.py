"""Keeps the frames of a map attempt until it is sealed, so that a worker's restart does not fail the task.

Rules: the newest frames stay in memory; beyond a bound the older ones go to an unnamed temporary file, from where
they are read only if everything has to be sent again. Such files die with the process. `add` runs in the caller's
thread, `pieces` on the loop: a frame is moved by replacing its entry in one step. Called by writer.py.
"""

from __future__ import annotations

import os
import tempfile
from typing import IO

from holdfast.client.compress import Buffer
from holdfast.client.write.region import MapPushFrame
from holdfast.common.limits import MIB

#: Frames kept in memory. A map of less output never touches the disk.
SPOOL_BYTES = 64 * MIB
#: Pieces that one writev takes (IOV_MAX on Linux is 1024).
_IOV_MAX = 1024


class Spool:
    """Frames by index."""

    def __init__(self, memory_bytes: int = SPOOL_BYTES) -> None:
        self._memory_bytes = memory_bytes
        #: bytes of the frames that are in memory
        self.in_memory = 0
        self._frames: list[MapPushFrame] = []
        #: pieces in memory, or the place (offset, size) in the file
        self._locations: list[list[Buffer] | tuple[int, int]] = []
        self._file: IO[bytes] | None = None
        self._file_bytes = 0
        self._first_in_memory = 0

    def add(self, frame: MapPushFrame) -> None:
        """Keep a frame; older ones may move to the file. Raises OSError if that is not possible."""
        self._frames.append(frame)
        self._locations.append(frame.pieces)
        self.in_memory += frame.size
        while self.in_memory > self._memory_bytes and self._first_in_memory < len(self._frames) - 1:
            self._move(self._first_in_memory)
            self._first_in_memory += 1

    def frame(self, index: int) -> MapPushFrame:
        """Return region, flags and runs of a frame; its body comes from `pieces`."""
        return self._frames[index]

    def pieces(self, index: int) -> list[Buffer]:
        """Return the body of a frame. Raises OSError if it cannot be read back."""
        place = self._locations[index]
        if isinstance(place, list):
            return place
        assert self._file is not None
        offset, size = place
        data = os.pread(self._file.fileno(), size, offset)
        if len(data) != size:
            raise OSError(f"the temporary file of a map's output is {size - len(data)} bytes short")
        return [data]

    def _move(self, index: int) -> None:
        frame = self._frames[index]
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="holdfast-spool-")  # noqa: SIM115 - closed by close()
        pieces = frame.pieces if len(frame.pieces) <= _IOV_MAX else [b"".join(frame.pieces)]
        written = os.pwritev(self._file.fileno(), pieces, self._file_bytes)
        if written != frame.size:
            raise OSError(f"no room for the temporary copy of a map's output in {tempfile.gettempdir()}")
        self._locations[index] = (self._file_bytes, frame.size)
        frame.pieces = []
        self._file_bytes += frame.size
        self.in_memory -= frame.size

    def close(self) -> None:
        """Drop everything."""
        self._frames.clear()
        self._locations.clear()
        self.in_memory = 0
        if self._file is not None:
            self._file.close()
            self._file = None
