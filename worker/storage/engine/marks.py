"""Copies that are given up for good: an empty file with the name of each says so, also after a restart. What was
written of it becomes that file, so it takes no room any more.

What cannot be marked now is tried again after the next good check of the disk, which is not used for new data before;
for want of room alone, every second.
Loop thread only, but for what is done in the lane. Made by unsealed.py, one for each directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.common.ids import ShuffleKey
from holdfast.worker.storage import names
from holdfast.worker.storage.engine.parts import DirectoryParts
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.layout import EpochKey, OpenKey, failed_path, open_path, sealed_path


def mark_failed(files: Files, root: Path, key: OpenKey, paths: Sequence[Path] = ()) -> None:
    """Give a copy up for good, once its folders are synced also after a power cut; its file, which has one of these
    names, is of no use to anybody, and goes. Raises OSError."""
    mark = root / failed_path(key)
    for folder in (mark.parent.parent, mark.parent):  # of what was in the log alone a power cut may have left none
        files.make_folder(folder)
    written = [path for path in paths if files.exists(path)]
    for path in written:
        files.rename(path, mark)
    if not (written or files.exists(mark)):
        files.create(mark)
    elif paths:
        files.truncate(mark, 0)


class Due(NamedTuple):
    """What is to become a mark."""

    #: the names that the file of the copy may have, if it is to go
    paths: tuple[Path, ...] = ()
    held_bytes: int = 0


class FailureMarks:
    """Of one directory."""

    def __init__(self, parts: DirectoryParts, failed: set[OpenKey]) -> None:
        self._files, self._root, self._broke = parts.env.files, parts.root, parts.broke
        _, self._lane, self._owner = parts.threads
        self.failed = failed
        #: those that the disk does not say yet
        self.due: dict[OpenKey, Due] = {}
        self._running = False
        #: who waits for that
        self._waiting: list[Callable[[], None]] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of files that are to go."""
        return sum(one.held_bytes for one in self.due.values())

    def add(self, keys: Mapping[OpenKey, Due]) -> None:
        """These are given up; `mark` is to follow."""
        self.failed.update(keys)
        self.due |= keys

    def add_file(self, key: EpochKey, *, named: bool) -> None:
        """The same of one that has its answer; if there is a file of it, that goes, also if its seal has `named` it."""
        paths = tuple([self._root / path for path in (open_path(key), sealed_path(key))[: 1 + named]])
        held = sum(map(self._files.held_bytes, paths))
        if held:
            self.add({key: Due(paths, held)})

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

    def _mark_all(self, due: Mapping[OpenKey, Due]) -> dict[OpenKey, OSError]:
        """In the lane; returns those that have no mark."""
        errors: dict[OpenKey, OSError] = {}
        folders: dict[Path, list[OpenKey]] = {}
        for key, one in due.items():
            try:
                mark_failed(self._files, self._root, key, one.paths)
            except OSError as error:
                errors[key] = error
            else:
                folders.setdefault((self._root / failed_path(key)).parent, []).append(key)
        for folder, keys in folders.items():
            try:  # nothing in it may have been synced before, and then its own name was not either
                for name in (folder, folder.parent, self._root / names.DATA):
                    self._files.sync_folder(name)
            except OSError as error:
                errors |= dict.fromkeys(keys, error)
        return errors

    def _marked(self, due: Mapping[OpenKey, Due], done: Future[dict[OpenKey, OSError]]) -> None:
        self._running = False
        failure = done.exception()
        errors = done.result() if failure is None else dict.fromkeys(due, OSError(str(failure)))
        for key, one in due.items():
            if key not in errors and self.due.get(key) == one:
                del self.due[key]
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
