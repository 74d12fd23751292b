"""Room that is lent to files without a name, and to what is held in memory for readers.

Rules: a loan is an object; the last one to let go of it gives its bytes back, and may do so in any thread and at any
moment, so that takes no lock. Such files make nothing durable: they are only made where much more stays free than what
makes pushes split. Called by directory.py, map_view.py and away.py.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from holdfast.common.limits import GIB
from holdfast.worker.storage.handles import Handle

#: A copy leaves this much of its disk and of its directory free, or this share if that is less.
FREE_BYTES_MIN = 10 * GIB
FREE_SHARE_MIN = 0.2


def leaves_enough(capacity: int, free: int, size: int) -> bool:
    """Whether a copy of `size` bytes may take them of the `free` ones."""
    return free - size >= min(FREE_BYTES_MIN, int(FREE_SHARE_MIN * capacity))


class Loans:
    """What is lent, in bytes."""

    def __init__(self) -> None:
        self._bytes = 0
        #: sizes that are given back, and still in that sum
        self._returned: deque[int] = deque()
        self._guard = Lock()

    def take(self, size: int) -> Loan:
        """Lend so much."""
        with self._guard:
            self._bytes += size
        return Loan(self._returned, size)

    @property
    def bytes(self) -> int:
        """What is lent now."""
        with self._guard:
            while self._returned:
                self._bytes -= self._returned.popleft()
            return self._bytes


class LentHandle(Handle):
    """A file without a name, and the room that it takes."""

    __slots__ = ("_loan",)

    def __init__(self, fd: int, loan: Loan) -> None:
        super().__init__(fd)
        self._loan = loan


class Loan:
    """Bytes that are given back with the last reference to this object."""

    __slots__ = ("_returned", "_size")

    def __init__(self, returned: deque[int], size: int) -> None:
        self._returned = returned
        self._size = size

    def __del__(self) -> None:
        self._returned.append(self._size)
