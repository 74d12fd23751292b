"""Files of a store that are open for reading, kept a while: opening one again costs a request or two.

A handle is with one reader at a time, so a file may have several. There is a bound on those that wait here. What failed
is not brought back. Used by store.py, from any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

#: Handles that wait for a reader: descriptors of a local store, positions of blocks or a length of the others.
HANDLES_MAX = 128


class Handles:
    """The open files of one store."""

    def __init__(self, handles_max: int = HANDLES_MAX) -> None:
        self._max = handles_max
        self._guard = threading.Lock()
        #: Oldest first; several of one name are in one list.
        self._kept: OrderedDict[str, list[Any]] = OrderedDict()
        self._count = 0

    def take(self, name: str) -> Any | None:
        """Return an open file of that name, or None."""
        with self._guard:
            found = self._kept.get(name)
            if not found:
                return None
            handle = found.pop()
            self._count -= 1
            if not found:
                del self._kept[name]
            return handle

    def give(self, name: str, handle: Any) -> None:
        """Keep an open file for the next reader."""
        dropped: list[Any] = []
        with self._guard:
            self._kept.setdefault(name, []).append(handle)
            self._kept.move_to_end(name)
            self._count += 1
            while self._count > self._max:
                _, handles = self._kept.popitem(last=False)
                self._count -= len(handles)
                dropped += handles
        for each in dropped:
            each.close()

    def forget(self, name: str) -> None:
        """Close the handles of a file that is removed."""
        with self._guard:
            handles = self._kept.pop(name, [])
            self._count -= len(handles)
        for each in handles:
            each.close()

    def forget_below(self, folder: str) -> None:
        """Close what is kept of the files in a folder, and below it."""
        with self._guard:
            names = [name for name in self._kept if name.startswith(f"{folder}/")]
        for name in names:
            self.forget(name)

    def close(self) -> None:
        """Close everything."""
        with self._guard:
            kept, self._kept, self._count = self._kept, OrderedDict(), 0
        for handles in kept.values():
            for each in handles:
                each.close()
