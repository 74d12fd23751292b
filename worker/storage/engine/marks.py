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
from holdfast.common.statuses import Status
from holdfast.worker.storage import names
from holdfast.worker.storage.engine.parts import DirectoryParts
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.layout import EpochKey, OpenKey, mark_path, open_path, sealed_path


class Due(NamedTuple):
    """What is to become a mark."""

    #: the names that the file of the copy may have, if it is to go
    paths: tuple[Path, ...] = ()
    held_bytes: int = 0
    #: what the copy is answered
    status: Status = Status.FAILED_COPY


def mark_failed(files: Files, root: Path, key: OpenKey, due: Due) -> None:
    """Give a copy up for good, once its folders are synced also after a power cut; its file, which is of no use to
    anybody, goes. Raises OSError."""
    mark = root / mark_path(key, due.status)
    for folder in (mark.parent.parent, mark.parent):  # of what was in the log alone a power cut may have left none
        files.make_folder(folder)
    written = [path for path in due.paths if files.exists(path)]
    for path in written:
        files.rename(path, mark)
    if not (written or files.exists(mark)):
        files.create(mark)
    elif due.paths:
        files.truncate(mark, 0)


class FailureMarks:
    """Of one directory."""

    def __init__(self, parts: DirectoryParts, failed: dict[OpenKey, Status]) -> None:
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
        for key, one in keys.items():
            self.failed.setdefault(key, one.status)
        self.due |= keys

    def add_file(self, key: EpochKey, status: Status, *, named: bool) -> None:
        """The same of one that has this answer; its file goes, if there is one, also if its seal has `named` it."""
        paths = tuple([self._root / path for path in (open_path(key), sealed_path(key))[: 1 + named]])
        held = sum(map(self._files.held_bytes, paths))
        if held:
            self.add({key: Due(paths, held, status)})

    def mark(self, then: Callable[[], None] | None = None) -> None:
        """Have the disk say which copies are given up. `then` is called when it was tried."""
        if then is not None:
            self._waiting.append(then)
        if self._running or not (self.due or self._waiting):
            return
        due, waiting, self._waiting = self.due.copy(), self._waiting, []
        try:
            done = self._lane.submit(self._mark_all, due)
        except RuntimeError:  # the directory closes
            _call(waiting)
            return
        self._running = True
        done.add_done_callback(lambda done: self._owner(partial(self._marked, due, waiting, done)))

    def _mark_all(self, due: Mapping[OpenKey, Due]) -> dict[OpenKey, OSError]:
        """In the lane; returns those that have no mark."""
        errors: dict[OpenKey, OSError] = {}
        folders: dict[Path, list[OpenKey]] = {}
        for key, one in due.items():
            try:
                mark_failed(self._files, self._root, key, one)
            except OSError as error:
                errors[key] = error
            else:
                folders.setdefault((self._root / sealed_path(key)).parent, []).append(key)
        for folder, keys in folders.items():
            try:  # nothing in it may have been synced before, and then its own name was not either
                for name in (folder, folder.parent, self._root / names.DATA):
                    self._files.sync_folder(name)
            except OSError as error:
                errors |= dict.fromkeys(keys, error)
        return errors

    def _marked(
        self, due: Mapping[OpenKey, Due], waiting: Sequence[Callable[[], None]], done: Future[dict[OpenKey, OSError]]
    ) -> None:
        self._running = False
        failure = done.exception()
        errors = done.result() if failure is None else dict.fromkeys(due, OSError(str(failure)))
        for key, one in due.items():
            if key not in errors and self.due.get(key) == one:
                del self.due[key]
        for error in list(errors.values())[:1]:
            self._broke(error)
        _call(waiting)
        if self._waiting or (self.due and not errors):
            self.mark()  # those that came meanwhile

    def drop(self, shuffle: ShuffleKey) -> int:
        """The files of a shuffle are about to go: a mark that came behind that would bring its folder back. Returns
        what those take that were to become marks."""
        return sum([self.due.pop(key).held_bytes for key in list(self.due) if key.shuffle == shuffle])

    def removed(self, shuffle: ShuffleKey) -> None:
        """They are gone."""
        for key in [key for key in self.failed if key.shuffle == shuffle]:
            del self.failed[key]


def _call(waiting: Sequence[Callable[[], None]]) -> None:
    for then in waiting:
        then()
