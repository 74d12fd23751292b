"""Gives memory back that was needed in a rush: to the collector what only cycles hold, to the system what is free.

Rules: what a push, a read or a command makes has no cycles, so the collector is seldom asked (`calm_collector`); but
connections that fail, and HTTP, leave some, and each may hold buffers of TLS. They are looked for by time, the young
ones first, and everything far more seldom where that is much, as the state of a master may be: to look at 200,000
objects takes 8 ms, in which no thread runs. The allocator keeps what is freed
below something that stays; while the process is larger than it was, it is asked to give that back, more and more seldom
where nothing comes of it. Loop thread only. Called once a second, by workers and masters.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

from holdfast.common.limits import KIB

#: Seconds between looks for cycles: among what is new, and among everything.
YOUNG_SECONDS = 5
ALL_SECONDS = 30
#: With more objects than these, between looks at everything.
OBJECTS_MAX = 200_000
MANY_SECONDS = 600
#: The allocator is asked where this process has so much more than it had at its least, and how often.
GROWN_BYTES = 8 << 20
TRIM_SECONDS = 15
TRIM_SECONDS_MAX = 240
#: Larger pieces are mappings of their own, which go back when they are freed; glibc would raise this bound by itself.
#: asyncio receives into pieces of 256 KiB: those must be smaller, or each of them costs page faults.
_MMAP_BYTES = 512 << 10
_TRIM_BYTES = 1 << 20
#: Heaps of threads: each keeps what was freed in it.
_HEAPS = 2
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def tame_allocator() -> None:
    """Have glibc give back what is freed; another C library is left as it is."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        set_option(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        set_option(_M_ARENA_MAX, _HEAPS)


def calm_collector() -> None:
    """What is loaded by now stays: the collector need not look at it again, nor look often at what comes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 1_000)


def resident_bytes(process: int | str = "self") -> int:
    """Resident memory of a process without that of mapped files, such as the index and the push log. The buffers for
    bodies are shared mappings without a file, so they count, though the kernel calls them shared."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return sum(int(found[name].removesuffix("kB")) for name in ("RssAnon", "RssShmem")) * KIB


class Idle:
    """Looks at what a server still needs."""

    def __init__(self, resident: Callable[[], int] = resident_bytes) -> None:
        """`resident` is the memory of this process in bytes."""
        self._resident = resident
        self._least = resident()
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._ticks = 0
        #: ticks between two trims, when the next one is, and what there was before the last one
        self._pause = TRIM_SECONDS
        self._next = TRIM_SECONDS
        self._before = 0

    def tick(self) -> None:
        """Once a second."""
        self._ticks += 1
        if self._ticks % ALL_SECONDS == 0 and (self._ticks % MANY_SECONDS == 0 or len(gc.get_objects(2)) < OBJECTS_MAX):
            gc.collect()
        elif self._ticks % YOUNG_SECONDS == 0:
            gc.collect(0)
        if self._ticks % TRIM_SECONDS == 0:
            self._look(self._resident())

    def _look(self, now: int) -> None:
        self._least = min(self._least, now)
        moved = abs(now - self._before) >= GROWN_BYTES
        if moved:  # much was allocated or freed since the last trim
            self._pause, self._next = TRIM_SECONDS, min(self._next, self._ticks)
        if now - self._least >= GROWN_BYTES and self._ticks >= self._next and self._trim is not None:
            self._pause = self._pause if moved else min(2 * self._pause, TRIM_SECONDS_MAX)
            self._next, self._before = self._ticks + self._pause, now
            asyncio.get_running_loop().run_in_executor(None, self._trim, 0)
