"""The one way in which files of all kinds are sealed: when each step is taken, on the loop; what waits for the disk, in
threads.

The order of a seal, each step only after the one before it has succeeded:

    1  data and footers written            4  folder synced: the sealed names are on the disk
    2  data and footers synced             5  index transaction committed, synced
    3  renamed to the sealed names         6  answered

What is done in 1 to 3 is the seal's own: of a map file, or of the epochs of a shuffle in a directory (seal.py).
4 and 5 are done once for all seals that wait at the moment (group commit). Killed before 3 a file is unsealed; from 3
on it is whole and carries its own record, so a restart takes it in (see recovery.py). No sync is tried again. The loop
owns all tables; threads get paths, handles and records. Made by unsealed.py, one for each directory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from holdfast.common.errors import HoldfastError
from holdfast.worker.storage.engine.folders import Folders, Unsynced, sync_folders
from holdfast.worker.storage.engine.owner import DirectoryThreads
from holdfast.worker.storage.env.errors import never_again
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.index.index import Index

#: Seals that one transaction takes; more wait for the next one.
GROUP_MAX = 256

#: Records of the index.
Items = Sequence[tuple[bytes, bytes]]


class SealJob(Protocol):
    """A seal on its way."""

    @property
    def folder(self) -> Path | None:
        """Where its files have their names now; None if it has none."""

    def finish(self) -> Items:
        """Steps 1 to 3, in a thread; returns what is to be recorded. What it raises ends the seal."""

    def over(self, error: Exception | None) -> None:
        """On the loop: all is recorded, or nothing is, and why."""


def _record(
    files: Files, index: Index, folders: dict[Path, Unsynced], seals: Sequence[tuple[Path | None, Items]]
) -> tuple[dict[Path | None, Exception], Exception | None]:
    """In a thread: bring the sealed names to the disk, then record what is in folders for which that was done. Returns
    what was wrong with each folder, and with the transaction."""
    errors: dict[Path | None, Exception] = {}
    for folder, paths in folders.items():
        try:
            sync_folders(files, paths)
        except OSError as error:
            errors[folder] = never_again(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            errors[folder] = error
    try:
        good = [item for folder, items in seals if folder not in errors for item in items]
        if good:
            index.put_items(good)
    except Exception as error:  # noqa: BLE001 - the same
        return errors, error
    return errors, None


class Sealer:
    """The seals of one directory. Loop thread only."""

    def __init__(self, files: Files, folders: Folders, index: Index, threads: DirectoryThreads) -> None:
        self._files = files
        self._folders = folders
        self._index = index
        self._threads = threads
        self._waiting: list[tuple[SealJob, Items]] = []
        self._committing = False

    def run(self, work: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Do something in a thread, and go on behind it."""
        try:
            future = self._threads.pool.submit(work)
        except RuntimeError:  # the directory closes, and lets the seals end: this is one of its threads
            future = Future()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - as executors do
                future.set_exception(error)
        future.add_done_callback(lambda done: self._threads.owner(partial(then, done)))

    def seal(self, job: SealJob) -> None:
        """Start a seal; it hears when it is over."""
        self.run(job.finish, partial(self._finished, job))

    def _finished(self, job: SealJob, done: Future[Items]) -> None:
        error = done.exception()
        if error is not None:
            job.over(plain(error))
        else:
            self._waiting.append((job, done.result()))
            self._commit()

    def _commit(self) -> None:
        """One transaction for all that waits, and no other beside it."""
        if self._committing or not self._waiting:
            return
        self._committing = True
        group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        seals = [(job.folder, items) for job, items in group]
        folders = {folder: self._folders.unsynced(folder) for folder, _ in seals if folder is not None}
        work = partial(_record, self._files, self._index, folders, seals)
        self.run(work, partial(self._committed, [job for job, _ in group], folders))

    def _committed(self, jobs: Sequence[SealJob], folders: dict[Path, Unsynced], done: Future[Any]) -> None:
        errors, failure = done.result()
        for folder, paths in folders.items():
            if folder not in errors:
                self._folders.synced(paths)
        self._committing = False
        for job in jobs:  # each by itself: what one meets is no concern of the others
            self._threads.owner(partial(job.over, errors.get(job.folder) or failure))
        self._commit()


def plain(error: BaseException) -> Exception:
    """An error that may be kept and passed on."""
    return error if isinstance(error, Exception) else HoldfastError(repr(error))
