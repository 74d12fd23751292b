"""Descriptors that close when nobody holds them any more, and a bounded set of those that readers have open.

A descriptor number that is closed while another thread still uses it may by then be another file. So a descriptor is
held as an object; whoever uses it keeps the object, and the last one to let go closes it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from holdfast.common.system.links import NO_LINK


class Handle:
    """An open descriptor, closed with the last reference to this object."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class OpenFiles:
    """The files most recently used, at most `limit`, opened for reading or as `flags` say; any thread."""

    def __init__(self, limit: int, flags: int = os.O_RDONLY) -> None:
        self._limit = limit
        self._flags = flags | NO_LINK
        self._lock = threading.Lock()
        self._files: OrderedDict[str, Handle] = OrderedDict()

    def open(self, path: str) -> Handle:
        """Return the file, opened; raises OSError."""
        with self._lock:
            handle = self._files.get(path)
            if handle is not None:
                self._files.move_to_end(path)
                return handle
            handle = self._files[path] = Handle(os.open(path, self._flags))
            if len(self._files) > self._limit:
                self._files.popitem(last=False)
            return handle

    def keep(self, path: str, handle: Handle) -> None:
        """Take in a file that was just made."""
        with self._lock:
            self._files[path] = handle
            if len(self._files) > self._limit:
                self._files.popitem(last=False)

    def close(self, path: str) -> None:
        """Let go of one file."""
        with self._lock:
            self._files.pop(path, None)

    def forget(self, folder: str) -> list[Handle]:
        """Let go of every file in a folder that is being deleted, so that its space is free once streams have ended.
        Return them: to close the last descriptor of a deleted file frees its blocks, which is work for a thread."""
        with self._lock:
            inside = [path for path in self._files if path.startswith(f"{folder}/")]
            return [self._files.pop(path) for path in inside]

    def clear(self) -> None:
        with self._lock:
            self._files.clear()

    def __len__(self) -> int:
        return len(self._files)
