"""The REDUCE partitions of one storage directory: copies being written, the push log, seals, what earlier starts left.

Rules: everything but seals, syncs and removals runs on the loop thread. A segment of the log goes when nothing pending
refers to it, and, at level SYNCED, when what was flushed from it is synced. The oldest segments are emptied bit by bit,
twice as fast as the log grows. Facts and steps only; reduce_store.py decides what goes where. Made by opening.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

import lmdb

from holdfast.common.errors import CorruptError, NoRoomError, Status
from holdfast.common.ids import Incarnation, ShuffleKey
from holdfast.common.messages import Ack
from holdfast.worker.core.health import WindowMean
from holdfast.worker.storage import layout
from holdfast.worker.storage.answers import failed_copy
from holdfast.worker.storage.disk import Disk, bytes_on_disk
from holdfast.worker.storage.handles import Handle, OpenFiles
from holdfast.worker.storage.index import FINAL_SPACE, Index
from holdfast.worker.storage.partition import PartitionCopy
from holdfast.worker.storage.push_log import SEGMENT_BYTES_MAX, SEGMENT_SHIFT, PushLog, Segment
from holdfast.worker.storage.records import encode_shuffle
from holdfast.worker.storage.reduce_layout import EpochKey, open_path
from holdfast.worker.storage.reduce_records import EpochRecord, FileHead
from holdfast.worker.storage.reduce_recovery import Left
from holdfast.worker.storage.reduce_seal import ReduceSealer, ReduceSealJob, mark_failed
from holdfast.worker.storage.room import Room
from holdfast.worker.storage.sealing import Folders

#: The kernel is asked to begin writing a partition file every time so much has come. What is left is written while its
#: seal waits: for 2 GB in 32 files two cores are idle for 1.3 s with 16 MiB, for 0.5 s with 4 MiB and what seals start
#: themselves. Less would have disks that turn seek too often.
WRITE_BACK_BYTES = 4 << 20


class Round(NamedTuple):
    """What one synced acknowledgement waits for."""

    segments: set[Segment]
    copies: set[PartitionCopy]


class ReduceDirectory:
    """REDUCE data of one directory."""

    def __init__(
        self,
        *,
        root: Path,
        disk: Disk,
        index: Index,
        folders: Folders,
        pool: Executor,
        writers: OpenFiles,
        incarnation: Incarnation,
        boot_id: bytes,
        left: dict[EpochKey, Left],
        aside: dict[ShuffleKey, int],
        old_segments: list[Path],
        old_logs: set[int],
        unnamed: bool,
        failed: set[EpochKey],
        broke: Callable[[Exception], None],
        room: Room,
        flushes: WindowMean,
        segment_bytes: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self.root = root
        self.index = index
        self.left = left
        self.failed = failed
        #: a log of an earlier start lost records of which nobody knows what epochs were in them: what is unknown here
        #: may have been there
        self.unnamed = unnamed
        self.log = PushLog(disk, index, root, incarnation, boot_id, flushes, pool, segment_bytes)
        #: open and being sealed
        self.copies: dict[EpochKey, PartitionCopy] = {}
        self.sealing: dict[EpochKey, ReduceSealJob] = {}
        #: bytes of unsealed files whose epochs have their answer, and that nobody will read; they go with their shuffle
        self._aside = aside
        self._disk = disk
        self._folders = folders
        self._pool = pool
        self._writers = writers
        self._boot_id = boot_id
        self._old_segments = old_segments
        self._old_log_bytes = sum(map(bytes_on_disk, old_segments))
        #: incarnations whose logs need not be there once nothing of them is left
        self._old_logs = old_logs
        #: told of every write, sync or commit that failed
        self.broke = broke
        self.room = room
        self._flushes = flushes
        #: copies that are given up, which the disk does not say yet
        self._unmarked: set[EpochKey] = set()
        self._sealer = ReduceSealer(disk, root, folders, index, writers, boot_id, self.give_up)
        self._emptying: list[PartitionCopy] = []
        self._guard = threading.Lock()
        #: SYNCED copies that were flushed since their last sync
        self._unsynced: set[PartitionCopy] = set()
        self._releasing: tuple[int, Future[None]] | None = None
        self._round: tuple[Round, Future[None]] | None = None
        self._rounds_running = False

    # writing

    def begin(self, key: EpochKey, ack: Ack, incarnation: Incarnation) -> PartitionCopy:
        """Begin an epoch; raises OSError. Its file is made with its first flush."""
        self._folders.make(self.root / layout.shuffle_folder(key.shuffle))
        copy = PartitionCopy(self.root, FileHead(key, ack, incarnation, self._boot_id), self.log.views)
        self.copies[key] = copy
        return copy

    def flush(self, copy: PartitionCopy) -> int:
        """Bring what is pending of a copy into its file; return its bytes. Raises OSError; then it is still pending."""
        began = perf_counter_ns()
        size = copy.flush(self._disk, self._writers)
        if size:
            self._wrote(copy, began)
        return size

    def write_run(self, copy: PartitionCopy, body: memoryview, sizes: Sequence[int], map_id: int) -> None:
        """Write batches of one map straight into the file; raises OSError."""
        self.room.take(len(body))
        began = perf_counter_ns()
        copy.append_run(self._disk, self._writers, body, sizes, map_id)
        self._wrote(copy, began)

    def _wrote(self, copy: PartitionCopy, began_ns: int) -> None:
        ended = perf_counter_ns()
        self._flushes.add(ended, ended - began_ns)
        if copy.ack is Ack.SYNCED:
            self._unsynced.add(copy)
        start = copy.write_back_from
        if copy.file_bytes - start >= WRITE_BACK_BYTES:
            copy.write_back_from = copy.file_bytes
            handle = self._writers.open(copy.path_text)
            self._pool.submit(self._write_back, handle, start, copy.file_bytes - start)

    def _write_back(self, handle: Handle, start: int, length: int) -> None:
        self._disk.start_write_back(handle.fd, start, length)

    def empty_some(self, size: int) -> list[tuple[PartitionCopy, OSError]]:
        """The log grew by `size`: flush twice as much out of its oldest segments; return what failed."""
        if not self.log.crowded:
            return []
        errors = []
        if not self._emptying:
            end = (next(iter(self.log.segments)) + 1) << SEGMENT_SHIFT
            self._emptying = [
                copy
                for key, copy in list(self.copies.items())  # forgetting runs in a thread
                if copy.pending and copy.pending.positions[0] < end and key not in self.sealing
            ]
            if not self._emptying:
                self.release()
        left = 2 * size
        while self._emptying and left > 0:
            copy = self._emptying.pop()
            if copy.key in self.sealing or copy.key not in self.copies:
                continue
            try:
                left -= self.flush(copy)
            except OSError as error:
                errors.append((copy, error))
        if not self._emptying:
            self.release()
        return errors

    def release(self) -> None:
        """Remove the segments that nothing refers to. A disk that fails keeps them, and is told of: it is no concern of
        whoever pushes or seals."""
        try:
            self._release()
        except OSError as error:
            self.broke(error)

    def _release(self) -> None:
        if self._releasing is not None:
            number, synced = self._releasing
            if not synced.done():
                return
            self._releasing = None
            if (
                synced.exception() is None
            ):  # else the copies that failed are given up, and the next round is without them
                self.log.remove_before(number)
        firsts = [copy.pending.positions[:1] for copy in list(self.copies.values())]
        first = min([one[0] for one in firsts if one], default=-1)
        number = first >> SEGMENT_SHIFT if first >= 0 else self.log.newest
        if not self.log.segments or number <= next(iter(self.log.segments)):
            return
        if self._unsynced or self._round is not None or self._rounds_running:
            self._releasing = number, self.sync(Round(set(), set(self._unsynced)))
        else:
            self.log.remove_before(number)

    def tick(self) -> None:
        """Once a second: let go of the log as far as it is not needed."""
        try:
            if not any(copy.pending for copy in list(self.copies.values())):
                self.log.rest()
            self.log.tell_synced()
            self.release()
            if not self.log.size_bytes:
                self.log.remove_spares()
            if not self.left:
                self._remove_old_log()
        except (OSError, lmdb.Error, NoRoomError) as error:
            self.broke(error)

    def _remove_old_log(self) -> None:
        """Nothing is left of earlier starts. The word that their logs must be there goes first."""
        if self._old_logs:
            self.index.remove_logs(self._old_logs)
            self._old_logs = set()
        for path in self._old_segments:
            self._disk.remove(path)
        self._old_segments, self._old_log_bytes = [], 0

    # syncing

    def sync(self, wanted: Round) -> Future[None]:
        """Bring segments and partition files to the disk. Asks that wait together share one round."""
        with self._guard:
            if self._round is None:
                self._round = wanted, Future()
            else:
                self._round[0].segments.update(wanted.segments)
                self._round[0].copies.update(wanted.copies)
            future = self._round[1]
            if self._rounds_running:
                return future
            self._rounds_running = True
        self._pool.submit(self._sync_while_asked)
        return future

    def _sync_while_asked(self) -> None:
        while True:
            with self._guard:
                found, self._round = self._round, None
                if found is None:
                    self._rounds_running = False
                    return
            wanted, future = found
            try:
                self._sync_round(wanted)
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever
                self.broke(error)
                future.set_exception(failed_copy(self.root, f"cannot be synced ({error})"))
            else:
                future.set_result(None)

    def _sync_round(self, wanted: Round) -> None:
        folders: set[Path] = set()
        unnamed = [segment for segment in wanted.segments if not segment.noted]
        for segment in wanted.segments:
            if segment.failed:
                raise OSError(5, "an earlier sync failed")
            end = segment.end
            try:
                self._disk.sync_data(segment.handle.fd)
            except OSError as error:
                segment.failed = True
                self._lose(segment, error)
                raise
            segment.synced = max(segment.synced, end)
        if unnamed:
            folders |= {unnamed[0].path.parent, self.root}
        for copy in wanted.copies:
            self._unsynced.discard(copy)
            try:
                self._disk.sync_data(self._writers.open(copy.path_text).fd)
            except FileNotFoundError:
                if not copy.path.parent.exists():
                    continue  # forgotten
                # Sealed, which synced it, but not its new name yet.
            except OSError as error:
                self.give_up(copy.key, error)
                raise
            folders.add(copy.path.parent)
        if folders:
            self._folders.sync(folders)
        for segment in unnamed:
            segment.noted = True

    def _lose(self, segment: Segment, error: OSError) -> None:
        """What is in a segment that cannot be synced may be lost: give up every copy that needs it."""
        for key, copy in list(self.copies.items()):
            if copy.needs(segment.number):
                self.give_up(key, error)

    # sealing

    def seal(
        self, shuffle: ShuffleKey, final: bool, incarnation: Incarnation, pack: int, keys: Sequence[EpochKey]
    ) -> ReduceSealJob:
        """Start to seal epochs that are in this directory: open, left behind, or given up. `pack` is the number of the
        pack file, of this incarnation over all directories."""
        job = ReduceSealJob(
            shuffle,
            final,
            incarnation,
            pack,
            [self.copies[key] for key in keys if key in self.copies and key not in self.failed],
            [self.left[key] for key in keys if key in self.left and key not in self.copies and key not in self.failed],
            [key for key in keys if key in self.failed],
        )
        for key in keys:
            self.sealing[key] = job
        self._pool.submit(self._sealer.run, job)
        return job

    def sealed(self, job: ReduceSealJob) -> None:
        """A job has ended; what it sealed is in the index, and the log needs it no more. One that failed has recorded
        nothing, however far it came."""
        recorded = job.future.exception() is None
        for key in [key for key, running in self.sealing.items() if running is job]:
            del self.sealing[key]
            if recorded and key in job.records:
                self.copies.pop(key, None)
                self.left.pop(key, None)
                if job.records[key].status is not Status.OK:
                    size = bytes_on_disk(self.root / open_path(key))
                    self._aside[key.shuffle] = self._aside.get(key.shuffle, 0) + size
        self.release()

    def give_up(self, key: EpochKey, error: Exception) -> None:
        """A write or sync of this copy failed: it is given up, also after a restart."""
        self.failed.add(key)
        self.broke(error)
        try:
            mark_failed(self._disk, self.root, key)
        except OSError as second:
            self._unmarked.add(key)
            self.broke(second)

    def pass_over(self, keys: Sequence[EpochKey]) -> None:
        """What the logs have of these is sealed in another directory."""
        for key in keys:
            del self.left[key]

    def mark_unmarked(self) -> None:
        """Mark what could not be marked when it was given up. Blocks; raises OSError."""
        for key in list(self._unmarked):
            with suppress(FileNotFoundError):  # its folder went with its shuffle, and the epoch with it
                mark_failed(self._disk, self.root, key)
            self._unmarked.discard(key)

    def renew(self) -> None:
        """The disk is to be trusted again: what follows goes into a new segment of the log."""
        try:
            self.log.renew()
        except OSError as error:
            self.broke(error)

    # looking up

    def has(self, key: EpochKey) -> bool:
        """Whether anything of it is here that is not sealed."""
        return key in self.copies or key in self.left or key in self.failed

    def find(self, key: EpochKey) -> EpochRecord | None:
        """What became of a sealed epoch; None if it is not recorded. Raises CorruptError."""
        with self.index.reading() as reader:
            return reader.epoch(key)

    def past(self, shuffle: ShuffleKey) -> tuple[bool, list[EpochKey]]:
        """Whether the generation was sealed for good, and its epochs that never accept again."""
        prefix = encode_shuffle(shuffle)
        with self.index.reading() as reader:
            try:
                final = reader.get(FINAL_SPACE + prefix) is not None
                recorded = list(reader.epochs(prefix))
            except CorruptError:
                final, recorded = True, []
        others = [key for key in (*self.left, *self.failed) if key.shuffle == shuffle]
        return final, recorded + others

    @property
    def pending_bytes(self) -> int:
        """Bytes in the logs that a seal has yet to write elsewhere, at most."""
        return self.log.size_bytes + self._old_log_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the logs and of unsealed partition files, those of earlier starts, too."""
        files = sum([copy.file_bytes for copy in list(self.copies.values())])
        left = sum([one.file_bytes for one in list(self.left.values())])
        return self.log.held_bytes + self._old_log_bytes + files + left + sum(list(self._aside.values()))

    def shuffles(self) -> set[ShuffleKey]:
        """Every shuffle of which anything is here that is not sealed."""
        parts = (self.copies, self.left, self.failed)
        return {key.shuffle for part in parts for key in list(part)} | set(self._aside.copy())

    # removing

    def drop(self, shuffle: ShuffleKey) -> None:
        """Let go of everything of a shuffle, whose files are about to go. The caller has waited for its seals."""
        size = 0
        for key in [key for key in list(self.copies) if key.shuffle == shuffle]:
            copy = self.copies.pop(key)
            self._writers.close(copy.path_text)
            size += copy.file_bytes
        for key in [key for key in list(self.left) if key.shuffle == shuffle]:
            size += self.left.pop(key).file_bytes
        self._aside[shuffle] = self._aside.get(shuffle, 0) + size

    def removed(self, shuffle: ShuffleKey) -> None:
        """The files of a dropped shuffle are gone."""
        self._aside.pop(shuffle, None)
        for part in (self.failed, self._unmarked):
            part.difference_update([key for key in list(part) if key.shuffle == shuffle])
        self._sealer.forget(shuffle)
