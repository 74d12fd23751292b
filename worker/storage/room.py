"""What may still be written into a directory whose capacity is limited, between two looks at its room.

Rules: a look says what is left; everything that is written is taken from it first, and what no longer fits fails as on
a disk whose quota is used up, which is a full disk to everybody. Bytes for the push log are taken twice: they have to
be written elsewhere in the end. What is sealed was taken when it came. Loop thread only. Called by writer.py and
reduce_store.py; store.py looks.
"""

from __future__ import annotations

import errno


class Room:
    """Of one directory."""

    __slots__ = ("kept_bytes", "left_bytes")

    def __init__(self) -> None:
        #: None: without limit
        self.left_bytes: int | None = None
        #: what stays free of the capacity, for heads and footers
        self.kept_bytes = 0

    def take(self, size: int) -> None:
        """So much is about to be written. Raises OSError EDQUOT if it does not fit."""
        left = self.left_bytes
        if left is None:
            return
        if size > left:
            raise OSError(errno.EDQUOT, "the capacity that worker.directories gives is used up")
        self.left_bytes = left - size

    def keep(self, size: int) -> None:
        """So much is about to come from another directory."""
        if self.left_bytes is not None:
            self.left_bytes = max(0, self.left_bytes - size)
