"""Has the kernel fetch what a stream sends next, while what is before it is sent. Called by stream_sources.py."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from holdfast.common.limits import KIB, READ_FRAME_BYTES
from holdfast.worker.storage.env.interfaces import Handle

#: A frame: one request to a disk that takes such. It costs 12 µs to ask for one that is in memory.
READ_AHEAD_BYTES = READ_FRAME_BYTES
#: How far the kernel reads ahead by itself where nobody set more.
_KERNEL_BYTES = 128 * KIB


class ReadAhead:
    """What the kernel was asked for of one piece of a file, which is sent from the front.

    It is asked for the beginning, and for the rest in steps as the piece is sent. Where it reads as far ahead by itself
    it is asked for the beginning of a file only: its own requests are larger than those that it is asked for.
    """

    __slots__ = ("_asked", "_end", "_handle")

    def __init__(self, handle: Handle, offset: int, length: int, before: ReadAhead | None = None) -> None:
        """`before`: the piece that is sent before this one."""
        self._handle, self._asked, self._end = handle, offset, offset + length
        if length <= READ_AHEAD_BYTES or _kernel_bytes(os.fstat(handle.fd).st_dev) < READ_AHEAD_BYTES:
            self._ask()
            return
        if before is None or before._handle is not handle or before._end != offset:
            self._ask()
        self._asked = self._end

    def sent(self, left: int) -> None:
        """All of the piece but `left` bytes was sent, or is about to be."""
        if self._asked < self._end and self._end - left >= self._asked - READ_AHEAD_BYTES // 2:
            self._ask()

    def _ask(self) -> None:
        size = min(self._end - self._asked, READ_AHEAD_BYTES)
        os.posix_fadvise(self._handle.fd, self._asked, size, os.POSIX_FADV_WILLNEED)
        self._asked += size


@lru_cache(64)
def _kernel_bytes(device: int) -> int:
    """How far the kernel reads ahead by itself on a device (st_dev)."""
    try:
        number = f"{os.major(device)}:{os.minor(device)}"
        return int(Path("/sys/class/bdi", number, "read_ahead_kb").read_text("ascii")) * KIB
    except (OSError, ValueError):
        return _KERNEL_BYTES
