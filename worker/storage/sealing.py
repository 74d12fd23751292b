"""Syncs, renames and records: everything about a seal that waits for the disk, in a bounded pool of threads.

The order of a seal, each step only after the one before it has succeeded:

    1  footer written (writer.py)          4  folder synced: the sealed name is on the disk
    2  data and footer synced              5  index transaction committed, synced
    3  renamed from .open to .map          6  answered

Killed before 3 the file is unsealed; from 3 on it is whole and carries its own record, so a restart takes it in (see
recovery.py). Step 4 is done once per folder and 5 once for all seals that wait at the moment (group commit): the thread
that finds nobody committing commits for all. Any failure gives the copy up for good; no sync is tried again. One thread
at a time syncs a file: the kernel tells an error once, and whoever came second would take the file for whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import MapSealed
from holdfast.worker.storage.answers import failed_copy
from holdfast.worker.storage.env.futures import Executor, Future
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.index import Index
from holdfast.worker.storage.records import FileRecord
from holdfast.worker.storage.writer import MapFileWriter, answer_of

#: Seals that one transaction takes; more wait for the next one.
GROUP_MAX = 256


@dataclass(slots=True)
class SealJob:
    """A seal on its way."""

    writer: MapFileWriter
    record: FileRecord
    future: Future[MapSealed] = field(default_factory=Future)


class Folders:
    """Makes and removes folders, and remembers whose names are not on the disk yet. Any thread.

    `root` is there and is never made: where it is missing the disk was unmounted, and what lies below is another one.
    """

    def __init__(self, env: Env, root: Path) -> None:
        self._files = env.files
        self._root = root
        #: held while a folder is made or removed, so that nobody takes one for there that goes this moment
        self._lock = env.threads.lock()
        self._known: set[Path] = set()
        #: folders in which others were made since they were synced last, each with a number of its own
        self._unsynced: dict[Path, int] = {}
        self._made = 0

    def make(self, folder: Path) -> None:
        """Make a folder and those above it, below the root; raises OSError."""
        if folder in self._known:
            return
        with self._lock:
            self._make(folder)

    def _make(self, folder: Path) -> None:
        if folder in self._known or folder == self._root:
            return
        self._make(folder.parent)
        self._files.make_folder(folder)
        self._made += 1
        self._unsynced[folder.parent] = self._made  # who made it may have been killed before its name was synced
        self._known.add(folder)

    def sync(self, folder: Path) -> None:
        """Bring the names in a folder to the disk, and its own and those of the folders it lies in, if they are new.
        What belongs to others is left alone: it may be gone any moment. Raises OSError."""
        with self._lock:
            above = [(one, number) for one in folder.parents if (number := self._unsynced.get(one)) is not None]
        self._files.sync_folder(folder)
        for one, number in above:
            self._files.sync_folder(one)
            with self._lock:
                if self._unsynced.get(one) == number:  # else more was made in it meanwhile, or it is gone
                    del self._unsynced[one]

    def known(self) -> set[Path]:
        """The folders that were made or used since the start. Waits for no disk, as whoever makes one may."""
        return self._known.copy()

    def look_again(self) -> None:
        """The disk was away: whether a folder is there is asked again."""
        with self._lock:
            self._known.clear()

    def remove(self, folder: Path) -> bool:
        """Remove a folder if it is empty; False if it is not."""
        with self._lock:
            try:
                self._files.remove_folder(folder)
            except FileNotFoundError:
                pass  # it is gone already
            except OSError:
                return False  # another shuffle is in it, or a file that is being made this moment
            self._known.discard(folder)
            self._unsynced.pop(folder, None)
        return True


class Sealer:
    """The seals and syncs of one directory. `sealed` and `failed` are called in its threads, before a future ends."""

    def __init__(
        self,
        env: Env,
        folders: Folders,
        index: Index,
        pool: Executor,
        sealed: Callable[[SealJob], None],
        failed: Callable[[MapFileWriter, Exception], None],
    ) -> None:
        self._files = env.files
        self._folders = folders
        self._index = index
        self._pool = pool
        self._sealed = sealed
        self._failed = failed
        self._lock = env.threads.lock()
        self._waiting: list[SealJob] = []
        self._committing = False
        self._syncs: dict[MapFileWriter, Future[None]] = {}
        #: files that a thread has now, each with the seal that comes behind its syncs
        self._syncing: dict[MapFileWriter, SealJob | None] = {}

    def seal(self, job: SealJob) -> None:
        """Start the seal of a finished file, behind a sync of it that runs; the job's future gets the answer."""
        with self._lock:
            if job.writer in self._syncing:
                self._syncing[job.writer] = job
                return
        self._pool.submit(self._seal, job)

    def write_back(self, writer: MapFileWriter, offset: int, length: int) -> None:
        """Have the kernel begin to write a part of an unsealed file to the disk."""
        self._pool.submit(self._write_back, writer, offset, length)

    def _write_back(self, writer: MapFileWriter, offset: int, length: int) -> None:
        self._files.start_write_back(writer.handle, offset, length)

    def sync(self, writer: MapFileWriter) -> Future[None]:
        """Bring what is written so far to the disk. Asks that wait together share one sync."""
        with self._lock:
            waiting = self._syncs.get(writer)
            if waiting is not None:
                return waiting
            future = self._syncs[writer] = Future()
            if writer in self._syncing:
                return future
            self._syncing[writer] = None
        self._pool.submit(self._sync_while_asked, writer)
        return future

    def _sync_while_asked(self, writer: MapFileWriter) -> None:
        while True:
            with self._lock:
                future = self._syncs.pop(writer, None)
                job = self._syncing.pop(writer) if future is None else None
            if future is None:
                break
            try:
                self._sync(writer)
            except HoldfastError as error:
                future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
                self._failed(writer, error)
                future.set_exception(failed_copy(writer.key, f"cannot sync it ({error})"))
            else:
                future.set_result(None)
        if job is not None:
            self._seal(job)

    def _sync(self, writer: MapFileWriter) -> None:
        if writer.failed:
            raise failed_copy(writer.key, "a write or sync failed")
        self._files.sync(writer.handle)
        if not writer.noted:
            self._folders.sync(writer.path.parent)
            writer.noted = True

    def _seal(self, job: SealJob) -> None:
        writer = job.writer
        try:
            if writer.failed:
                raise failed_copy(writer.key, "a write or sync failed")
            self._files.sync(writer.handle)
            self._files.rename(writer.path, writer.sealed_path)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
            self._give_up(job, error)
            return
        with self._lock:
            self._waiting.append(job)
            if self._committing:
                return
            self._committing = True
        self._commit_while_asked()

    def _commit_while_asked(self) -> None:
        while True:
            with self._lock:
                jobs, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                if not jobs:
                    self._committing = False
                    return
            jobs = self._synced(jobs)
            try:
                self._index.put_files([job.record for job in jobs])
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
                for job in jobs:
                    self._give_up(job, error)
                continue
            for job in jobs:
                self._sealed(job)
                job.future.set_result(answer_of(job.record))

    def _synced(self, jobs: list[SealJob]) -> list[SealJob]:
        """Bring the sealed names to the disk; those of a folder for which that fails are given up, and no others."""
        errors: dict[Path, Exception | None] = {}
        for folder in {job.writer.sealed_path.parent for job in jobs}:
            try:
                self._folders.sync(folder)
                errors[folder] = None
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
                errors[folder] = error
        good = []
        for job in jobs:
            why = errors[job.writer.sealed_path.parent]
            if why is None:
                good.append(job)
            else:
                self._give_up(job, why)
        return good

    def _give_up(self, job: SealJob, error: Exception) -> None:
        try:
            self._failed(job.writer, error)
        finally:
            job.future.set_exception(failed_copy(job.writer.key, f"cannot seal it ({error})"))
