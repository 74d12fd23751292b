"""Epochs that another worker has sealed, on their way here: one new pack file for all that come together.

The order, as of a file that moves (moving.py): the bytes go into a file that has no sealed name, each batch checked as
it comes; a footer; synced; renamed; the folder synced; one index transaction. Killed before, the next start removes the
file, and nothing says that anything of it was here. Whoever seals these epochs, or forgets their shuffle, waits for
the end; of a shuffle that is forgotten nothing more is taken.
The loop takes one step after the other; files are written in the threads of the directory. Made by reduce_store.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.common.errors import CorruptError, NoRoomError
from holdfast.common.formats.batch import parse_batches
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.statuses import Status
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.folders import Unsynced
from holdfast.worker.storage.engine.scan import Seeds
from holdfast.worker.storage.engine.seal import EpochSeal
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Files, Handle
from holdfast.worker.storage.index.records import ChunkRow, DataRecord, EpochRecord, make_file
from holdfast.worker.storage.layout import EpochKey, PackKey, sealed_path
from holdfast.worker.storage.names import MOVING_SUFFIX
from holdfast.worker.storage.tiers.moving import take_in

_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF


class Arrival:
    """Epochs of one shuffle that come into one directory. `take` their chunks in order, `finish`, and `end` it in any
    case; what a step raises is the end."""

    def __init__(
        self,
        directory: StorageDirectory,
        pack: PackKey,
        ack: Ack,
        wanted: Sequence[tuple[EpochKey, int]],
        sealed: Callable[[StorageDirectory, Sequence[DataRecord]], None],
    ) -> None:
        """`wanted`: the epochs, in the order in which they come, and their bytes. `sealed` hears of the file. Raises
        OSError."""
        self._files: Files = directory.files
        self._directory, self._pack, self._ack = directory, pack, ack
        self._sealed = sealed
        self._wanted = dict(wanted)
        self._seeds = Seeds(pack.shuffle)
        self._final = directory.root / sealed_path(pack)
        self._new = self._final.with_name(self._final.name + MOVING_SUFFIX)
        self._size = sum(self._wanted.values())
        directory.folders.make(self._final.parent)
        self._job = EpochSeal(pack.shuffle, tuple(self._wanted))
        directory.unsealed.jobs.append(self._job)
        directory.unsealed.sealing.update(dict.fromkeys(self._wanted, self._job))
        directory.count_sealed(pack.shuffle, [])  # so that its folder goes with the shuffle, whatever becomes of this
        directory.coming_bytes += self._size
        directory.room.keep(self._size)
        self._handle: Handle | None = None
        self._at = 0
        self._epochs: dict[EpochKey, EpochRecord] = {}
        self._folders: Unsynced = ()
        self._record: DataRecord | None = None

    def take(self, key: EpochKey, chunk: memoryview) -> Future[None]:
        """The next chunk of an epoch. The future raises CorruptError, NoRoomError or OSError."""
        return self._in_thread(partial(self._append, key, chunk))

    def finish(self) -> Future[None]:
        """Everything has come. The future raises as `take`, and HoldfastError of the index."""
        self._folders = self._directory.folders.unsynced(self._final.parent)
        return self._in_thread(self._seal)

    def remove(self) -> Future[None]:
        """Where it did not come to `finish`: nothing stays."""
        return self._in_thread(partial(self._files.remove, self._new))

    def end(self, error: Exception) -> dict[EpochKey, SealedEpoch]:
        """No step runs any more: tell everybody; return what is sealed now, nothing where `error` came before that."""
        directory, record = self._directory, self._record
        directory.coming_bytes -= self._size
        for key in self._wanted:
            del directory.unsealed.sealing[key]
        directory.unsealed.jobs.remove(self._job)
        if record is None:
            self._job.future.set_exception(error)
            return {}
        answers = {key: epoch.answer(key) for key, epoch in record.epochs}
        directory.folders.synced(self._folders)
        if not self._job.dropped:
            directory.count_sealed(self._pack.shuffle, [record.file_bytes])
            self._sealed(directory, [record])
        self._job.future.set_result(answers)
        return answers

    def _in_thread(self, work: Callable[[], Any]) -> Future[Any]:
        return self._directory.pool.submit(partial(self._guarded, work))

    def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except OSError as error:
            if is_shortage(error):
                reason = f"{self._pack.shuffle}: no room in {self._directory.root} ({error.strerror})"
                raise NoRoomError(reason, status=Status.DISK_FULL) from error
            self._directory.condition.broke(error)
            raise

    # In a thread.

    def _append(self, key: EpochKey, chunk: memoryview) -> None:
        batches = list(parse_batches(chunk, self._seeds.of(key.partition)))
        maps = [batch.map for batch in batches]
        known = self._epochs.get(key)
        if key not in self._wanted or (known is not None and known.offset + known.size_bytes != self._at):
            raise CorruptError(f"a chunk of {key} came where it was not due")
        here = 0 if known is None else known.size_bytes
        if not batches or here + len(chunk) > self._wanted[key]:
            raise CorruptError(f"of {key} came an empty chunk, or more than the {self._wanted[key]} bytes that it has")
        if known is None:
            known = EpochRecord(
                status=Status.OK,
                ack=self._ack,
                incarnation=self._pack.incarnation,
                offset=self._at,
                pack=self._pack.number,
            )
        self._files.write(self._writable(), chunk, self._at)
        row = ChunkRow(self._at, len(chunk), len(batches), min(maps), max(maps))
        self._at += len(chunk)
        self._epochs[key] = replace(
            known,
            size_bytes=known.size_bytes + len(chunk),
            batches=known.batches + len(batches),
            crc_sum=(known.crc_sum + sum([batch.crc for batch in batches])) & _CRC_SUM_MASK,
            chunks=(*known.chunks, row),
        )

    def _writable(self) -> Handle:
        if self._handle is None:
            self._files.remove(self._new)
            self._handle = self._files.create(self._new)
        return self._handle

    def _seal(self) -> None:
        found = {key: record.size_bytes for key, record in self._epochs.items()}
        if found != self._wanted:
            raise CorruptError(f"{self._pack.shuffle}: {found} bytes came where {self._wanted} were sealed")
        handle = self._writable()
        record, footer = make_file(self._pack, tuple(self._epochs.items()))
        self._files.write(handle, footer, self._at)
        self._files.sync(handle)
        take_in(self._files, self._directory.index, self._new, self._final, self._folders, record)
        self._record = record
