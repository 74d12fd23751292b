"""Room that is lent to files without a name, and to what is held in memory for readers.

Rules: a loan is an object, kept by the handle of its file; the last one to let go of it gives its bytes back, and may
do so in any thread and at any moment, so that takes no lock. Such files make nothing durable: they are only made where
much more stays free than what makes pushes split. Called by directory.py, map_range_index.py and away.py.
"""

from __future__ import annotations

from collections import deque

from holdfast.common.limits import GIB

#: A copy leaves this much of its disk and of its directory free, or this share if that is less.
FREE_BYTES_MIN = 10 * GIB
FREE_SHARE_MIN = 0.2


def leaves_enough(capacity: int, free: int, size: int) -> bool:
    """Whether a copy of `size` bytes may take them of the `free` ones."""
    return free - size >= min(FREE_BYTES_MIN, int(FREE_SHARE_MIN * capacity))


class Loans:
    """What is lent, in bytes. Loop thread, but for `take`, and for what lets go."""

    def __init__(self) -> None:
        self._bytes = 0
        #: what was lent (more than 0) and given back since it was added up
        self._changes: deque[int] = deque()

    def take(self, size: int) -> Loan:
        """Lend so much; any thread."""
        return Loan(self._changes, size)

    @property
    def bytes(self) -> int:
        """What is lent now."""
        while self._changes:
            self._bytes += self._changes.popleft()
        return self._bytes


class Loan:
    """Bytes that are given back with the last reference to this object."""

    __slots__ = ("_changes", "_size")

    def __init__(self, changes: deque[int], size: int) -> None:
        self._changes = changes
        self._size = size
        changes.append(size)

    def __del__(self) -> None:
        self._changes.append(-self._size)
