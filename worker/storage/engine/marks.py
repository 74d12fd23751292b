"""Copies that are given up for good: an empty file with the name of each says so, also after a restart.

What cannot be marked now is tried again after the next good check of the disk, which is not used for new data before.
Loop thread only, but for what is done in the lane. Made by unsealed.py, one for each directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from holdfast.common.ids import ShuffleKey
from holdfast.worker.storage import names
from holdfast.worker.storage.engine.parts import DirectoryParts
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.layout import OpenKey, failed_path, sealed_path


def mark_failed(files: Files, root: Path, key: OpenKey, path: Path | None = None) -> None:
    """Give a copy up for good, also after a restart; what a map wrote to `path`, which is of no use to anybody, goes.
    Raises OSError."""
    mark = root / failed_path(key)
    for folder in (mark.parent.parent, mark.parent):  # of what was in the log alone a power cut may have left none
        files.make_folder(folder)
    written = [one for one in (path, root / sealed_path(key)) if files.exists(one)] if path is not None else []
    if written:
        files.rename(written[0], mark)
        files.truncate(mark, 0)
    elif not files.exists(mark):
        files.create(mark)
    # Nothing in it may have been synced before, and then its own name was not either.
    for folder in (mark.parent, mark.parent.parent, root / names.DATA):
        files.sync_folder(folder)


class FailureMarks:
    """Of one directory."""

    def __init__(self, parts: DirectoryParts, failed: set[OpenKey]) -> None:
        self._files, self._root, self._broke = parts.env.files, parts.root, parts.broke
        _, self._lane, self._owner = parts.threads
        self.failed = failed
        #: those that the disk does not say yet; with the file, of a map
        self.due: dict[OpenKey, Path | None] = {}
        self._running = False
        #: who waits for that
        self._waiting: list[Callable[[], None]] = []

    def add(self, keys: Mapping[OpenKey, Path | None]) -> None:
        """These are given up; `mark` is to follow."""
        self.failed.update(keys)
        self.due |= keys

    def mark(self, then: Callable[[], None] | None = None) -> None:
        """Have the disk say which copies are given up. `then` is called when it was tried."""
        if then is not None:
            self._waiting.append(then)
        if self._running or not (self.due or self._waiting):
            return
        self._running = True
        due = self.due.copy()
        done = self._lane.submit(self._mark_all, due)
        done.add_done_callback(lambda done: self._owner(partial(self._marked, due, done)))

    def _mark_all(self, due: Mapping[OpenKey, Path | None]) -> list[tuple[OpenKey, OSError]]:
        """In the lane; returns those that have no mark."""
        errors: list[tuple[OpenKey, OSError]] = []
        for key, path in due.items():
            try:
                mark_failed(self._files, self._root, key, path)
            except OSError as error:
                errors.append((key, error))
        return errors

    def _marked(self, due: Mapping[OpenKey, Path | None], done: Future[list[tuple[OpenKey, OSError]]]) -> None:
        self._running = False
        failure = done.exception()
        errors = dict(done.result()) if failure is None else dict.fromkeys(due, OSError(str(failure)))
        for key in due.keys() - errors.keys():
            self.due.pop(key, None)
        for error in list(errors.values())[:1]:
            self._broke(error)
        if self.due and not errors:
            self.mark()  # those that came meanwhile
            return
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def drop(self, shuffle: ShuffleKey) -> None:
        """The files of a shuffle are about to go: a mark that came behind that would bring its folder back."""
        for key in [key for key in self.due if key.shuffle == shuffle]:
            del self.due[key]

    def removed(self, shuffle: ShuffleKey) -> None:
        """They are gone."""
        self.failed.difference_update([key for key in self.failed if key.shuffle == shuffle])
