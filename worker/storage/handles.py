"""Descriptors that close when nobody holds them any more, and a bounded set of those that readers have open.

A descriptor number that is closed while another thread still uses it may by then be another file. So a descriptor is
held as an object; whoever uses it keeps the object, and the last one to let go closes it.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path


class Handle:
    """An open descriptor, closed with the last reference to this object."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class OpenFiles:
    """The files most recently read, at most `limit`; for one thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._files: OrderedDict[Path, Handle] = OrderedDict()

    def open(self, path: Path) -> Handle:
        """Return the file, opened for reading; raises OSError."""
        handle = self._files.get(path)
        if handle is not None:
            self._files.move_to_end(path)
            return handle
        handle = Handle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._files[path] = handle
        if len(self._files) > self._limit:
            self._files.popitem(last=False)
        return handle

    def forget(self, folder: Path) -> None:
        """Let go of every file in a folder that is being deleted, so that its space is free once streams have ended."""
        for path in [path for path in self._files if path.parent == folder]:
            del self._files[path]

    def clear(self) -> None:
        self._files.clear()

    def __len__(self) -> int:
        return len(self._files)
