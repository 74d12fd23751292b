"""The bounded pool from which bodies of incoming frames take their memory.

Rules: one pool per event loop, no locks. Every byte handed out counts against one budget, whatever connection asked;
an owner that finds it used up, or has its share of it (common/shares.py), waits, and its connection stops reading
meanwhile. Large buffers
are mappings of their own, so that released memory returns to the system, except for a small stock that saves page
faults.
Called by connection.py; a caller that gets a Body releases it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from holdfast.common.limits import FRAME_BODY_BYTES_MAX, KIB, MIB
from holdfast.common.shares import FairQueue, Shares

#: Below this a buffer is a plain bytearray; the allocator handles those well.
MAPPED_BYTES_MIN = 64 * KIB
#: Free buffers kept for the next frames: a new one costs a page fault for every 4 KiB, more than all that is done with
#: the bytes. A few of the largest usual frames; a server with many connections keeps more, and calls `trim`.
STOCK_BYTES_MAX = 8 * MIB
#: Through this all connections under TLS receive, and through another one they read files: as much as comes at a time,
#: and waits on each while its reading is paused.
SCRATCH_BYTES = 128 * KIB


def capacity_for(size: int) -> int:
    """Return the buffer size for a body: exact when small, else the next quarter step between powers of two."""
    if size <= MAPPED_BYTES_MIN:
        return size
    step = 1 << (max(size - 1, 1).bit_length() - 3)
    return -(-size // step) * step


class Body:
    """The body of one frame, in memory of the pool. `release` gives it back; no view of it may be used afterwards."""

    __slots__ = ("_memory", "_owner", "_pool", "view")

    def __init__(self, pool: BufferPool, memory: bytearray | mmap.mmap, size: int, owner: Hashable) -> None:
        self._pool, self._owner = pool, owner
        self._memory: bytearray | mmap.mmap | None = memory
        #: exactly the body's bytes
        self.view = memoryview(memory)[:size]

    def __len__(self) -> int:
        return len(self.view)

    def release(self) -> None:
        """Give the memory back; a second call does nothing."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self.view = memoryview(b"")
            self._pool._give_back(memory, self._owner)


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A place in the line for memory."""

    size: int
    grant: Callable[[Body], None]
    owner: Hashable


@dataclass(slots=True)
class BufferPool:
    """Memory for bodies, at most `budget_bytes` handed out at a time."""

    budget_bytes: int
    #: free buffers that are kept
    stock_bytes_max: int = STOCK_BYTES_MAX
    used_bytes_peak: int = 0
    #: number of waits
    waits: int = 0
    _stock: dict[int, list[mmap.mmap]] = field(default_factory=dict)
    _stock_bytes: int = 0
    _used: bool = False
    #: handed out now, as capacities
    _shares: Shares = field(init=False)
    _line: FairQueue[Waiter] = field(init=False)
    _scratches: tuple[memoryview, memoryview] | None = None

    def __post_init__(self) -> None:
        if self.budget_bytes < FRAME_BODY_BYTES_MAX:
            raise ValueError(f"a pool of {self.budget_bytes} bytes cannot hold one body of {FRAME_BODY_BYTES_MAX}")
        self._shares = Shares(self.budget_bytes)
        self._line = FairQueue(self._shares)

    @property
    def used_bytes(self) -> int:
        """Handed out now, as capacities."""
        return self._shares.total

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._line)

    @property
    def scratches(self) -> tuple[memoryview, memoryview]:
        """Memory for receiving and for sending that is used within calls, by all connections of the loop; not of the
        budget."""
        if self._scratches is None:
            self._scratches = memoryview(bytearray(SCRATCH_BYTES)), memoryview(bytearray(SCRATCH_BYTES))
        return self._scratches

    def take(self, size: int, owner: Hashable = ()) -> Body | None:
        """Return a body of `size` bytes, or None while the budget or the owner's share is used up or others wait in
        line."""
        capacity = capacity_for(size)
        if self._line or not self._shares.fits(owner, capacity):
            return None
        return self._hand_out(size, capacity, owner)

    def wait(self, size: int, grant: Callable[[Body], None], owner: Hashable = ()) -> Waiter:
        """Join the queue; `grant` is called once, from here or from another caller's release."""
        waiter = Waiter(size, grant, owner)
        self._line.join(waiter, owner)
        self.waits += 1
        self._serve_line()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Leave the line; those behind are served if they fit."""
        self._line.leave(waiter)
        self._serve_line()

    def _hand_out(self, size: int, capacity: int, owner: Hashable) -> Body:
        self._shares.add(owner, capacity)
        self.used_bytes_peak = max(self.used_bytes_peak, self.used_bytes)
        if capacity <= MAPPED_BYTES_MIN:
            return Body(self, bytearray(size), size, owner)
        self._used = True
        kept = self._stock.get(capacity)
        if not kept:
            return Body(self, mmap.mmap(-1, capacity), size, owner)
        self._stock_bytes -= capacity
        return Body(self, kept.pop(), size, owner)

    def _give_back(self, memory: bytearray | mmap.mmap, owner: Hashable) -> None:
        capacity = len(memory)
        self._shares.give(owner, capacity)
        if isinstance(memory, mmap.mmap) and self._stock_bytes + capacity <= self.stock_bytes_max:
            self._stock.setdefault(capacity, []).append(memory)
            self._stock_bytes += capacity
        self._serve_line()

    def trim(self) -> None:
        """Give the stock back to the system unless it was of use since the last call."""
        if not self._used:
            self._stock.clear()
            self._stock_bytes = 0
        self._used = False

    def _serve_line(self) -> None:
        while self._line and (waiter := self._line.next(lambda one: capacity_for(one.size))) is not None:
            waiter.grant(self._hand_out(waiter.size, capacity_for(waiter.size), waiter.owner))
