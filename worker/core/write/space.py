"""How much REDUCE partitions may grow in one directory, and which limit says no. Pure; called by storage/store.py."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.common.sizes import in_bytes


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
        """What may be used in all."""
        return min(self.limit or self.size, self.size)

    @property
    def kept_free(self) -> int:
        """What stays free."""
        return min(self.reserve, int(self.share * self.capacity))

    @property
    def unused(self) -> int:
        """What of the capacity nothing takes or is about to take; below 0 where too much was promised."""
        return min(self.free, self.capacity - self.used) - self.pending

    @property
    def room(self) -> int:
        """How many bytes REDUCE partitions may grow here; 0: none."""
        return max(0, self.unused - self.kept_free)

    def full(self, least: int) -> str:
        """Say which limit leaves less than `least` bytes of room; "" if none does."""
        if self.room >= least:
            return ""
        if self.free < self.capacity - self.used:
            told = f"{in_bytes(self.free)} free of {in_bytes(self.size)} on its file system"
        else:
            told = f"{in_bytes(self.used)} used of {in_bytes(self.capacity)}"
            told += ", the capacity in worker.directories" if self.limit and self.limit <= self.size else ""
        if self.pending:
            told += f", {in_bytes(self.pending)} more to be written out of the push log"
        if self.unused >= least:
            told += f", and {in_bytes(self.kept_free)} are to stay free (worker.disk_reserve)"
        return told
