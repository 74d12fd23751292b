"""Syncs and seals of map files: when each step is taken, on the loop; what waits for the disk, in threads.

The order of a seal, each step only after the one before it has succeeded:

    1  footer written (writer.py)          4  folder synced: the sealed name is on the disk
    2  data and footer synced              5  index transaction committed, synced
    3  renamed from .open to .map          6  answered

Killed before 3 the file is unsealed; from 3 on it is whole and carries its own record, so a restart takes it in (see
recovery.py). Step 4 is done once per folder and 5 once for all seals that wait at the moment (group commit). Any
failure gives the copy up for good; no sync is tried again. One thread at a time syncs a file: the kernel tells an error
once, and whoever came second would take the file for whole. The loop owns all tables; threads get paths, handles and
records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import MapSealed
from holdfast.worker.storage.engine.answers import failed_copy
from holdfast.worker.storage.engine.folders import Folders, Unsynced, sync_folders
from holdfast.worker.storage.engine.owner import DirectoryThreads
from holdfast.worker.storage.engine.writer import MapFileWriter
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Env, Files, Handle
from holdfast.worker.storage.index.index import Index
from holdfast.worker.storage.index.records import MapRecord

#: Seals that one transaction takes; more wait for the next one.
GROUP_MAX = 256


@dataclass(slots=True)
class SealJob:
    """A seal on its way."""

    writer: MapFileWriter
    record: MapRecord
    future: Future[MapSealed] = field(default_factory=Future)

    @property
    def folder(self) -> Path:
        """Where the file is."""
        return self.writer.sealed_path.parent


def _sync_file(files: Files, handle: Handle, folders: Unsynced) -> None:
    """In a thread. Raises OSError."""
    files.sync(handle)
    sync_folders(files, folders)


def _finish_file(files: Files, handle: Handle, path: Path, sealed: Path) -> None:
    """In a thread. Raises OSError."""
    files.sync(handle)
    files.rename(path, sealed)


def _record(
    files: Files, index: Index, folders: dict[Path, Unsynced], records: Sequence[tuple[Path, MapRecord]]
) -> tuple[dict[Path, Exception], Exception | None]:
    """In a thread: bring the sealed names to the disk, then record what is in folders for which that was done. Returns
    what was wrong with each folder, and with the transaction."""
    errors: dict[Path, Exception] = {}
    for folder, paths in folders.items():
        try:
            sync_folders(files, paths)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            errors[folder] = error
    try:
        good = [record for folder, record in records if folder not in errors]
        if good:
            index.put_files(good)
    except Exception as error:  # noqa: BLE001 - the same
        return errors, error
    return errors, None


class Sealer:
    """The seals and syncs of one directory. `sealed` hears of each seal before it is answered; `failed` gives a copy up
    and calls back when that is done. Loop thread only."""

    def __init__(
        self,
        env: Env,
        folders: Folders,
        index: Index,
        threads: DirectoryThreads,
        sealed: Callable[[SealJob], None],
        failed: Callable[[MapFileWriter, Exception, Callable[[], None]], None],
    ) -> None:
        self._files = env.files
        self._folders = folders
        self._index = index
        self._threads = threads
        self._sealed = sealed
        self._failed = failed
        self._waiting: list[SealJob] = []
        self._committing = False
        self._syncs: dict[MapFileWriter, Future[None]] = {}
        #: files that a thread syncs now, each with the seal that comes behind that
        self._syncing: dict[MapFileWriter, SealJob | None] = {}

    def _run(self, work: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Do something in a thread, and go on behind it."""
        self._threads.pool.submit(work).add_done_callback(lambda done: self._threads.owner(partial(then, done)))

    def write_back(self, writer: MapFileWriter, offset: int, length: int) -> None:
        """Have the kernel begin to write a part of an unsealed file to the disk."""
        self._threads.pool.submit(self._files.start_write_back, writer.handle, offset, length)

    # syncs

    def sync(self, writer: MapFileWriter) -> Future[None]:
        """Bring what is written so far to the disk. Asks that wait together share one sync."""
        future = self._syncs.get(writer)
        if future is None:
            future = self._syncs[writer] = Future()
            if writer not in self._syncing:
                self._syncing[writer] = None
                self._sync_next(writer)
        return future

    def _sync_next(self, writer: MapFileWriter) -> None:
        future = self._syncs.pop(writer, None)
        if future is None:
            job = self._syncing.pop(writer)
            if job is not None:
                self._finish(job)
        elif writer.failed:
            future.set_exception(failed_copy(writer.key, "a write or sync failed"))
            self._sync_next(writer)
        else:
            folders = () if writer.noted else self._folders.unsynced(writer.path.parent)
            self._run(
                partial(_sync_file, self._files, writer.handle, folders), partial(self._synced, writer, future, folders)
            )

    def _synced(self, writer: MapFileWriter, future: Future[None], folders: Unsynced, done: Future[None]) -> None:
        error = done.exception()
        if error is None:
            writer.noted = True
            self._folders.synced(folders)
            future.set_result(None)
        else:
            why = failed_copy(writer.key, f"cannot sync it ({error})")
            self._failed(writer, _plain(error), lambda: future.set_exception(why))
        self._sync_next(writer)

    # seals

    def seal(self, job: SealJob) -> None:
        """Start the seal of a finished file, behind a sync of it that runs; the job's future gets the answer."""
        if job.writer in self._syncing:
            self._syncing[job.writer] = job
        else:
            self._finish(job)

    def _finish(self, job: SealJob) -> None:
        writer = job.writer
        if writer.failed:
            self._give_up(job, failed_copy(writer.key, "a write or sync failed"))
            return
        work = partial(_finish_file, self._files, writer.handle, writer.path, writer.sealed_path)
        self._run(work, partial(self._finished, job))

    def _finished(self, job: SealJob, done: Future[None]) -> None:
        error = done.exception()
        if error is not None:
            self._give_up(job, _plain(error))
        else:
            self._waiting.append(job)
            self._commit()

    def _commit(self) -> None:
        """One transaction for all that waits, and no other beside it."""
        if self._committing or not self._waiting:
            return
        self._committing = True
        jobs, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        folders = {folder: self._folders.unsynced(folder) for folder in {job.folder for job in jobs}}
        work = partial(_record, self._files, self._index, folders, [(job.folder, job.record) for job in jobs])
        self._run(work, partial(self._committed, jobs, folders))

    def _committed(self, jobs: list[SealJob], folders: dict[Path, Unsynced], done: Future[Any]) -> None:
        errors, failure = done.result()
        for folder, paths in folders.items():
            if folder not in errors:
                self._folders.synced(paths)
        self._committing = False
        try:
            for job in jobs:
                error = errors.get(job.folder) or failure
                if error is not None:
                    self._give_up(job, error)
                else:
                    self._sealed(job)
                    job.future.set_result(job.record.epoch.map_answer)
        finally:
            self._commit()

    def _give_up(self, job: SealJob, error: Exception) -> None:
        why = failed_copy(job.writer.key, f"cannot seal it ({error})")
        self._failed(job.writer, error, lambda: job.future.set_exception(why))


def _plain(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else HoldfastError(repr(error))
