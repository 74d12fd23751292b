"""Makes epochs final: of partitions one pack file for what is small, a footer for what has a file, one transaction for
all; of a map its one file, which has its footer already.

The seal's own steps: what is pending goes from the log into the file, or all small epochs together into one pack file;
footers; data synced; files renamed to their sealed names; the rest is sealing.py's. Killed before the transaction the
log and the files are still there, and a sealed name stands for itself by its footer. No sync is tried again on a file
for which it failed. A map is written anew elsewhere, so whatever fails gives its copy up; partitions wait for room.
Runs in the sync threads of a directory, with copies that are handed over to it. Called by unsealed.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.common.errors import CorruptError, HoldfastError, NoRoomError
from holdfast.common.formats.batch import parse_batch
from holdfast.common.formats.messages import FileTotals
from holdfast.common.ids import Incarnation, MapFileKey, ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.worker.storage.engine.answers import failed_copy
from holdfast.worker.storage.engine.partition import PACKED_BYTES_MAX, PartitionCopy
from holdfast.worker.storage.engine.rounds import Copy
from holdfast.worker.storage.engine.scan import Seeds
from holdfast.worker.storage.engine.sealing import Items
from holdfast.worker.storage.engine.writer import MapFileWriter
from holdfast.worker.storage.env.errors import is_shortage, never_again
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Env, Files, Handle
from holdfast.worker.storage.index.index import FINAL_SPACE, epoch_items, file_items
from holdfast.worker.storage.index.records import (
    FILE_HEAD_BYTES,
    ChunkRow,
    DataRecord,
    EpochRecord,
    FileHead,
    FileRecord,
    encode_shuffle,
    given_up,
    make_file,
)
from holdfast.worker.storage.layout import EpochKey, OpenKey, PackKey, folder_in, sealed_path
from holdfast.worker.storage.log.push_log import SEGMENT_SHIFT
from holdfast.worker.storage.names import MOVING_SUFFIX
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.recovery.reduce_recovery import Left, recover

_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(slots=True, eq=False)
class EpochSeal:
    """Epochs of one shuffle that are sealed together in one directory, as the loop knows them."""

    shuffle: ShuffleKey
    keys: tuple[OpenKey, ...]
    #: of a map: what its writer counted, and the names of its file before and after
    totals: FileTotals | None = None
    paths: tuple[Path, ...] = ()
    #: the answers by epoch, or that of the map
    future: Future[Any] = field(default_factory=Future)
    #: the shuffle was forgotten meanwhile
    dropped: bool = False

    def answer(self, work: SealWork) -> None:
        """Answer whoever waits."""
        if work.error is not None:
            self.future.set_exception(work.error)
        elif work.map is None:
            answers = {key: record.answer(key) for key, record in work.records.items() if isinstance(key, EpochKey)}
            self.future.set_result(answers)
        elif work.map in work.broken:
            self.future.set_exception(failed_copy(work.map, f"cannot seal it ({work.broken[work.map]})"))
        else:
            self.future.set_result(work.records[work.map].map_answer)


@dataclass(slots=True)
class SealWork:
    """All that a seal needs, and all that it finds. It is handed to the thread and handed back: nobody else has it, nor
    the copies in it, meanwhile."""

    env: Env
    root: Path
    boot_id: bytes
    shuffle: ShuffleKey
    incarnation: Incarnation
    #: hears on the loop when it has ended
    ended: Callable[[SealWork], None]
    copies: list[Copy]
    #: the one that is sealed, of a map
    map: MapFileKey | None = None
    final: bool = False
    #: number of the pack file, if one is needed
    pack: int = 0
    left: list[Left] = field(default_factory=list)
    #: the disk was too full for its folder; it may have room now, and there is no folder all the same
    no_room: OSError | None = None
    #: epochs whose copy is given up already, and what they are answered
    failed: dict[OpenKey, Status] = field(default_factory=dict)
    #: those whose batches in the log are looked at: the cache may have lost them when a sync of a segment failed
    doubted: set[OpenKey] = field(default_factory=set)
    #: files that an earlier seal of these epochs finished before it met a full disk; and those of this one
    finished: dict[OpenKey, DataRecord] = field(default_factory=dict)
    #: epochs of which an earlier seal did
    named: frozenset[OpenKey] = frozenset()
    #: what became of each
    records: dict[OpenKey, EpochRecord] = field(default_factory=dict)
    #: copies that were given up, and why
    broken: dict[OpenKey, Exception] = field(default_factory=dict)
    data: list[FileRecord[Any, Any]] = field(default_factory=list)
    #: its files have their names, and only the record is missing
    complete: bool = False
    #: why nothing was recorded, and it is asked for again; None if it has ended
    error: Exception | None = None
    #: it has ended, and the index has none of its answers
    unrecorded: bool = False

    @property
    def folder(self) -> Path | None:
        """Where it has files with sealed names; None if it has none."""
        return folder_in(self.root, self.shuffle) if self.data else None

    def give_up_before(self, copy: Copy, error: Exception) -> None:
        """A copy is given up while the seal waits for its turn."""
        self.copies.remove(copy)
        self.failed[copy.key] = Status.FAILED_COPY
        self.broken[copy.key] = error

    def finish(self) -> Items:
        """In a thread: write, sync and rename the files; return what is to be recorded. Raises OSError if the disk is
        full."""
        if self.no_room is not None:
            raise self.no_room
        self._write_all()
        items = [item for record in self.data for item in file_items(record)]
        done = {key for record in self.data for key, _ in record.epochs}
        for key, record in self.records.items():
            if isinstance(key, EpochKey) and key not in done:
                items += epoch_items(key, record)
        if self.final:
            items.append((FINAL_SPACE + encode_shuffle(self.shuffle), b"\x01"))
        self.complete = True
        return items

    def over(self, error: Exception | None) -> None:
        """All is recorded, or nothing. A full disk is NoRoomError in the end: then ask again."""
        if error is not None and self.map is not None:
            self.data.clear()
            self._give_up(self.map, error)
        elif isinstance(error, NoRoomError) or (isinstance(error, OSError) and is_shortage(error)):
            self._remove_packs()
            why = error.strerror if isinstance(error, OSError) else error
            self.error = NoRoomError(f"{self.shuffle}: no room in {self.root} ({why})", status=Status.DISK_FULL)
        elif isinstance(error, OSError) and self.complete:
            # What is not recorded is not sealed: this disk takes no answer, so nobody should wait for it to.
            self.data.clear()
            self.unrecorded = True
            for key in [one for one in self.records if one not in self.failed]:
                self._give_up(key, error)
        elif error is not None:
            self.error = error if isinstance(error, HoldfastError) else HoldfastError(f"{self.shuffle}: {error}")
        self.ended(self)

    def _remove_packs(self) -> None:
        """The next try makes another one: what is in this one is in the log."""
        for record in self.data:
            if isinstance(record.key, PackKey):
                with suppress(OSError):  # a later start takes it in
                    self.env.files.remove(self.root / sealed_path(record.key))

    def _write_all(self) -> None:
        for key, status in self.failed.items():
            self.finished.pop(key, None)
            self.records[key] = given_up(self.incarnation, status)
        recovered = [one for left in self.left if (one := self._recovered(left)) is not None]
        writers = OpenFiles(self.env, 1, write=True)
        small: list[PartitionCopy] = []
        large: list[PartitionCopy] = []
        for copy in (*self.copies, *recovered):
            if isinstance(copy, MapFileWriter):
                self._attempt([copy.key], copy.complete)
                continue
            finished = self.finished.get(copy.key)
            if finished is not None:
                self.data.append(finished)
                self.records.update(finished.epochs)
                continue
            if not copy.file_bytes and not copy.pending:  # its first write failed: nothing was acknowledged
                self.records[copy.key] = EpochRecord(
                    status=Status.UNKNOWN_FILE, ack=copy.ack, incarnation=self.incarnation
                )
                continue
            if copy.key in self.doubted and not _is_whole(copy):
                self._give_up(copy.key, OSError(errno.EIO, "the log has lost what was not synced"))
                continue
            packed = not copy.file_bytes and copy.pending.size_bytes < PACKED_BYTES_MAX
            (small if packed else large).append(copy)
        self._start_write_back(writers, large)
        left = {copy.key for copy in recovered}
        for copy in large:
            earlier = copy.file_bytes if copy.key in left else 0
            self._attempt([copy.key], partial(self._finish, writers, copy, earlier))
        if small:
            self._attempt([copy.key for copy in small], lambda: self._pack(small))

    def _start_write_back(self, writers: OpenFiles, copies: Sequence[PartitionCopy]) -> None:
        """Have the kernel write what is left of all files while the first of them is synced."""
        for copy in copies:
            left = copy.file_bytes - copy.write_back_from
            if left > 0:
                with suppress(OSError):  # the sync tells, or the file begins with the flush that is still to come
                    handle = writers.open(copy.path_text)
                    self.env.files.start_write_back(handle, copy.write_back_from, left)

    def _attempt(self, keys: Sequence[OpenKey], act: Callable[[], FileRecord[Any, Any]]) -> None:
        """Write one file; an error that is not a full disk gives up the epochs in it."""
        try:
            record = act()
        except OSError as error:
            if is_shortage(error):
                raise
            for key in keys:
                self._give_up(key, error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours with one file costs its epochs, and no others
            log_event(LogEvent.SEAL_INTERNAL_ERROR, shuffle=self.shuffle, trace=error)
            for key in keys:
                self._give_up(key, error)
        else:
            self.data.append(record)
            self.records.update(record.epochs)

    def _give_up(self, key: OpenKey, error: Exception) -> None:
        self.broken[key] = error
        self.finished.pop(key, None)
        self.records[key] = given_up(self.incarnation)

    def _recovered(self, left: Left) -> PartitionCopy | None:
        """The same; what cannot be read is given up, and holds up no other."""
        try:
            return self._recover(left)
        except OSError as error:
            if is_shortage(error):
                raise
            self._give_up(left.key, error)
            return None

    def _recover(self, left: Left) -> PartitionCopy | None:
        """What an earlier start left, as a copy that can be sealed; None if it is lost."""
        lost = EpochRecord(status=Status.DATA_LOST, ack=left.ack, incarnation=self.incarnation)
        if left.doubt(self.boot_id):
            self.records[left.key] = lost
            return None
        if left.key in self.finished:
            return PartitionCopy(self.root, FileHead(left.key, left.ack, self.incarnation, self.boot_id), {})
        try:
            found = recover(self.env.files, left, self.boot_id)
        except CorruptError:
            self.records[left.key] = lost
            return None
        views = dict(enumerate(found.extra))
        copy = PartitionCopy(
            self.root, found.head or FileHead(left.key, left.ack, self.incarnation, self.boot_id), views
        )
        for number, view in views.items():
            copy.pending.add(number << SEGMENT_SHIFT, len(view))
        if found.sizes:
            self.env.files.truncate(copy.path, found.file_bytes)
            copy.take_in(found.sizes, found.maps)
            copy.crc_sum = found.crc_sum & _CRC_SUM_MASK
            return copy
        if left.path is not None:  # no batch of it was written whole: what takes part is in the log only
            self.env.files.remove(left.path)
            left.path, left.file_bytes = None, 0
        if not found.extra:
            self.records[left.key] = EpochRecord(status=Status.UNKNOWN_FILE, ack=left.ack, incarnation=self.incarnation)
            return None
        return copy

    def _finish(self, writers: OpenFiles, copy: PartitionCopy, earlier: int) -> DataRecord:
        """Flush the rest of a partition file, append the footer, sync and rename it; so many of its bytes an `earlier`
        start wrote. Raises OSError."""
        files, key = self.env.files, copy.key
        copy.flush(files, writers)
        assert copy.chunks, "an epoch that is sealed has a batch"
        epoch = EpochRecord(
            status=Status.OK,
            ack=copy.ack,
            incarnation=self.incarnation,
            size_bytes=copy.size_bytes,
            offset=FILE_HEAD_BYTES,
            crc_sum=copy.crc_sum,
            batches=copy.batches,
            chunks=tuple(copy.chunks),
        )
        record, footer = make_file(key, ((key, epoch),))
        handle = writers.open(copy.path_text)
        files.write(handle, footer, copy.file_bytes)
        if files.size(handle) > record.file_bytes:  # a write that failed halfway may have left more
            files.truncate(copy.path, record.file_bytes)
        try:
            files.sync(handle)
        except OSError as error:
            raise never_again(error) from error
        _compare_with_disk(files, handle, earlier)
        files.rename(copy.path, self.root / sealed_path(key))
        writers.close(copy.path_text)
        self.finished[key] = record
        return record

    def _pack(self, copies: Sequence[PartitionCopy]) -> DataRecord:
        """Put small epochs together into one new file, and sync it. Raises OSError."""
        key = PackKey(self.shuffle, self.incarnation, self.pack)
        parts: list[bytes | memoryview] = []
        epochs = []
        at = 0
        for copy in copies:
            found = copy.gather()
            parts += found.parts
            row = ChunkRow(at, found.size_bytes, len(found.parts), min(found.maps), max(found.maps))
            epoch = EpochRecord(
                status=Status.OK,
                ack=copy.ack,
                incarnation=self.incarnation,
                size_bytes=found.size_bytes,
                offset=at,
                crc_sum=found.crc_sum & _CRC_SUM_MASK,
                batches=len(found.parts),
                pack=self.pack,
                chunks=(row,),
            )
            epochs.append((copy.key, epoch))
            at += found.size_bytes
        record, footer = make_file(key, tuple(epochs))
        path = self.root / sealed_path(key)
        new = path.with_name(path.name + MOVING_SUFFIX)  # the sealed name would be taken for its word after a power cut
        self.env.files.remove(new)
        handle = self.env.files.create(new)
        try:
            self.env.files.write_parts(handle, [*parts, footer], record.file_bytes, 0)
            try:
                self.env.files.sync(handle)
            except OSError as error:
                raise never_again(error) from error
            self.env.files.rename(new, path)
        except OSError:
            self.env.files.remove(new)
            raise
        return record


def _is_whole(copy: PartitionCopy) -> bool:
    """Whether every batch that is in the log only is what it was."""
    seed = Seeds(copy.key.shuffle).of(copy.key.partition)
    try:
        return all(parse_batch(part, 0, seed)[1] == len(part) for part in copy.gather().parts)
    except CorruptError:
        return False


def _compare_with_disk(files: Files, handle: Handle, size: int) -> None:
    """What an earlier start wrote lies on the disk as in the cache. It may have been killed after a sync had failed and
    before the mark of that was down; the kernel tells an error once, and calls the next sync of these pages good.
    Raises OSError."""
    for at in range(0, size, MIB):
        length = min(MIB, size - at)
        if files.read(handle, length, at) != files.read_back(handle, length, at):
            raise OSError(errno.EIO, "the disk has not what was synced to it")
