"""What may still be written into a directory whose capacity is limited, between two looks at its room.

Rules: a look says what is left; everything that is written is taken from it first, and what no longer fits fails as on
a disk whose quota is used up, which is a full disk to everybody. Bytes for the push log are taken twice: they have to
be written elsewhere in the end. What is sealed was taken when it came. What did not fit is remembered until a look
finds room for it, so that somebody makes some. Loop thread only. Called by writer.py and reduce_store.py; store.py
looks.
"""

from __future__ import annotations

import errno


class DirectoryRoom:
    """Of one directory."""

    __slots__ = ("kept_bytes", "left_bytes", "wanted_bytes")

    def __init__(self) -> None:
        #: None: without limit
        self.left_bytes: int | None = None
        #: the most that did not fit since there was room for it
        self.wanted_bytes = 0
        #: what stays free of the capacity, for heads and footers
        self.kept_bytes = 0

    def take(self, size: int) -> None:
        """So much is about to be written. Raises OSError EDQUOT if it does not fit."""
        left = self.left_bytes
        if left is None:
            return
        if size > left:
            self.wanted_bytes = max(self.wanted_bytes, size)
            raise OSError(errno.EDQUOT, "the capacity that worker.directories gives is used up")
        self.left_bytes = left - size

    def look(self, left_bytes: int | None, most_bytes: int) -> None:
        """So much is left now; nobody is waited for who wants more than `most_bytes`, which never fits."""
        self.left_bytes = left_bytes
        self.wanted_bytes = min(self.wanted_bytes, most_bytes)
        if left_bytes is None or left_bytes >= self.wanted_bytes:
            self.wanted_bytes = 0

    def keep(self, size: int) -> None:
        """So much is about to come from another directory."""
        if self.left_bytes is not None:
            self.left_bytes = max(0, self.left_bytes - size)
