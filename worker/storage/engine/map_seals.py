"""Syncs and seals of map files. One thread at a time syncs a file: the kernel tells an error once, and whoever came
second would take the file for whole; so a seal waits for the sync of its file that runs. Any failure gives the copy up
for good. Loop thread only, but for what is done in threads. Made by directory.py, one for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.common.formats.messages import MapSealed
from holdfast.worker.storage.engine.answers import failed_copy
from holdfast.worker.storage.engine.folders import Folders, Unsynced, sync_folders
from holdfast.worker.storage.engine.sealing import Items, Sealer, plain
from holdfast.worker.storage.engine.writer import MapFileWriter
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Files, Handle
from holdfast.worker.storage.index.index import file_items
from holdfast.worker.storage.index.records import MapRecord


@dataclass(slots=True)
class MapSealJob:
    """The seal of a map file whose footer is written."""

    writer: MapFileWriter
    record: MapRecord
    files: Files
    #: hears of it before it is answered
    sealed: Callable[[MapSealJob], None]
    #: gives the copy up and calls back when that is done
    failed: Callable[[MapFileWriter, Exception, Callable[[], None]], None]
    future: Future[MapSealed] = field(default_factory=Future)

    @property
    def folder(self) -> Path:
        """Where the file is."""
        return self.writer.sealed_path.parent

    def finish(self) -> Items:
        """In a thread. Raises OSError."""
        self.files.sync(self.writer.handle)
        self.files.rename(self.writer.path, self.writer.sealed_path)
        return list(file_items(self.record))

    def over(self, error: Exception | None) -> None:
        """It is recorded, or failed."""
        if error is None:
            self.sealed(self)
            self.future.set_result(self.record.epoch.map_answer)
        else:
            why = failed_copy(self.writer.key, f"cannot seal it ({error})")
            self.failed(self.writer, error, lambda: self.future.set_exception(why))


def _sync_file(files: Files, handle: Handle, folders: Unsynced) -> None:
    """In a thread. Raises OSError."""
    files.sync(handle)
    sync_folders(files, folders)


class MapSeals:
    """The seals and syncs of the map files of one directory."""

    def __init__(
        self,
        files: Files,
        folders: Folders,
        sealer: Sealer,
        failed: Callable[[MapFileWriter, Exception, Callable[[], None]], None],
    ) -> None:
        self._files = files
        self._folders = folders
        self._sealer = sealer
        self._failed = failed
        self._syncs: dict[MapFileWriter, Future[None]] = {}
        #: files that a thread syncs now, each with the seal that comes behind that
        self._syncing: dict[MapFileWriter, MapSealJob | None] = {}

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
            work = partial(_sync_file, self._files, writer.handle, folders)
            self._sealer.run(work, partial(self._synced, writer, future, folders))

    def _synced(self, writer: MapFileWriter, future: Future[None], folders: Unsynced, done: Future[None]) -> None:
        error = done.exception()
        if error is None:
            writer.noted = True
            self._folders.synced(folders)
            future.set_result(None)
        else:
            why = failed_copy(writer.key, f"cannot sync it ({error})")
            self._failed(writer, plain(error), lambda: future.set_exception(why))
        self._sync_next(writer)

    def seal(self, job: MapSealJob) -> None:
        """Start the seal of a finished file, behind a sync of it that runs; the job's future gets the answer."""
        if job.writer in self._syncing:
            self._syncing[job.writer] = job
        else:
            self._finish(job)

    def _finish(self, job: MapSealJob) -> None:
        if job.writer.failed:
            job.over(failed_copy(job.writer.key, "a write or sync failed"))
        else:
            self._sealer.seal(job)
