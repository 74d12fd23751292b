"""How much REDUCE partitions may grow in one directory, which limit says no, and when to look again; what directories
of one device share.

Pure; called by storage/store.py, storage/disks/directory_states.py and services/push_service.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.common.limits import MIB
from holdfast.common.sizes import in_bytes

#: The room on disks is looked at again when this part of what the fullest had is used up; what goes into the log takes
#: room twice, since it has to be written elsewhere in the end.
ROOM_SHARE = 4
#: A look costs a walk over all that is open, so it is not worth less than so many bytes.
LOOK_BYTES_MIN = 1 * MIB


class Space(NamedTuple):
    """What a directory and its file system hold, in bytes."""

    #: what worker.directories gives; 0: all of the file system
    limit: int
    #: of the file system: its size, and what is free
    size: int
    free: int
    #: by us, the push log included, and what the log has yet to write elsewhere
    used: int
    pending: int
    #: what stays free: the smaller of this and this share of the capacity
    reserve: int
    share: float

    @property
    def capacity(self) -> int:
        return min(self.limit or self.size, self.size)

    @property
    def kept_free(self) -> int:
        return min(self.reserve, int(self.share * self.capacity))

    @property
    def unused(self) -> int:
        """What of the capacity nothing takes or is about to take; below 0 where too much was promised."""
        return min(self.free, self.capacity - self.used) - self.pending

    @property
    def room_bytes(self) -> int:
        """How many bytes REDUCE partitions may grow here; 0: none."""
        return max(0, self.unused - self.kept_free)

    def full(self, least: int) -> str:
        """Say which limit leaves less than `least` bytes of room; "" if none does."""
        if self.room_bytes >= least:
            return ""
        if self.free < self.capacity - self.used:
            text = f"{in_bytes(self.free)} free of {in_bytes(self.size)} on its file system"
        else:
            text = f"{in_bytes(self.used)} used of {in_bytes(self.capacity)}"
            text += ", the capacity in worker.directories" if self.limit and self.limit <= self.size else ""
        if self.pending:
            text += f", {in_bytes(self.pending)} more to be written out of the push log"
        if self.unused >= least:
            text += f", and {in_bytes(self.kept_free)} are to stay free (worker.disk_reserve)"
        return text


def look_after_bytes(free_bytes: Sequence[int]) -> int:
    """Return how many bytes may come before the room in these directories is looked at again."""
    return max(min(filter(None, free_bytes), default=0) // ROOM_SHARE, LOOK_BYTES_MIN)


def divide(free_bytes: int, limits: Sequence[int]) -> list[int]:
    """Share `free_bytes` among directories that may take up to `limits` each (negative: nothing); in their order.

    Whoever may take little leaves the rest to the others, so that all of it is used and none of it is promised twice
    (max-min fairness, Bertsekas and Gallager, Data Networks, section 6.5). The shares add up to all of it, or to all
    limits if that is less.
    """
    shares = [0] * len(limits)
    left = max(0, free_bytes)
    turns = sorted((max(0, limit), number) for number, limit in enumerate(limits))
    for done, (limit, number) in enumerate(turns):
        shares[number] = min(limit, left // (len(turns) - done))
        left -= shares[number]
    return shares
