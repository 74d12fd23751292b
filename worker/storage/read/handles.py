"""A bounded set of the files that are open; see Handle of env/interfaces.py for why they are held as objects."""

from __future__ import annotations

from collections import OrderedDict

from holdfast.worker.storage.env.interfaces import Env, Handle


class OpenFiles:
    """The files most recently used, at most `limit`, opened for reading or for `write`; any thread."""

    def __init__(self, env: Env, limit: int, *, write: bool = False) -> None:
        self._opened = env.files.open
        self._limit = limit
        self._write = write
        self._lock = env.threads.lock()
        self._files: OrderedDict[str, Handle] = OrderedDict()

    def open(self, path: str) -> Handle:
        """Return the file, opened; raises OSError."""
        with self._lock:
            handle = self._files.get(path)
            if handle is not None:
                self._files.move_to_end(path)
                return handle
            handle = self._files[path] = self._opened(path, write=self._write)
            if len(self._files) > self._limit:
                self._files.popitem(last=False)
            return handle

    def known(self, path: str) -> Handle | None:
        """Return the file if it is open."""
        return self._files.get(path)

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
