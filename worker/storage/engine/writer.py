"""Writes one map file: checks every batch, appends, and gathers the index records. Runs on the loop thread.

Rules: a byte that was not checked is never written; what `append` has returned for is in the kernel (WRITTEN); the
first write that fails ends the file for good; a file that was refused once takes nothing more, the client begins anew.
`complete` is a seal's, in a thread; nothing else here waits for the disk. Made by unsealed.py.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.common.errors import CorruptError, GiveUpError, HoldfastError, ProtocolError, RerouteError
from holdfast.common.formats.messages import Ack, FileTotals, PushFlag
from holdfast.common.ids import BROADCAST_PARTITION, Incarnation, MapFileKey
from holdfast.common.limits import PARTITIONS_MAX, U32_MAX
from holdfast.common.statuses import Status
from holdfast.worker.core.write.epochs import Life
from holdfast.worker.storage import layout
from holdfast.worker.storage.engine.answers import failed_copy, not_sealed
from holdfast.worker.storage.engine.partition import HandedOver
from holdfast.worker.storage.engine.parts import DirectoryParts
from holdfast.worker.storage.engine.scan import Seeds, scan_run
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.interfaces import Handle
from holdfast.worker.storage.index.records import MapRecord, make_map_file
from holdfast.worker.storage.index.region_chunks import RegionEntries, RegionFlag
from holdfast.worker.storage.read.handles import OpenFiles

#: The kernel is asked to begin writing every time so much has come, so that the seal of a big file finds little left
#: to sync. Four files of 64 MiB at once, 16 rounds, on two busy cores: seals take 0.04 instead of 0.08 s, writing with
#: sealing 1.08 instead of 1.05 GB/s, CPU the same. Small files are left to the seal.
WRITE_BACK_BYTES = 16 << 20
_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF


class CopyTable(Protocol):
    """Who has the table of all copies."""

    def give_up(self, key: MapFileKey, error: Exception) -> None:
        """A write or sync of this copy failed."""

    def wrote(self, copy: MapFileWriter, began_ns: int) -> None:
        """A write of it succeeded."""


class Leftover(NamedTuple):
    """An unsealed map file that goes with its shuffle, or before."""

    path: Path
    size_bytes: int


class MapFileWriter:
    """One unsealed map file. Make it with Store.begin."""

    #: nothing of it is in the push log
    pending = ()

    def __init__(
        self,
        parts: DirectoryParts,
        keeper: CopyTable,
        key: MapFileKey,
        *,
        partitions: int,
        ack: Ack,
        incarnation: Incarnation,
    ) -> None:
        """Create the file; raises OSError, or ProtocolError for an impossible number of partitions."""
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ProtocolError(f"{key}: {partitions} partitions, allowed are 1 to {PARTITIONS_MAX}")
        self.key = key
        self.ack = ack
        self.partitions = partitions
        #: HARD: the client sent what cannot be, and the bytes are of no use
        self.life = Life.OPEN
        self.file_bytes = 0
        self.path = parts.root / layout.open_path(key, layout.OpenNote(incarnation, ack))
        self.path_text = str(self.path)
        self.sealed_path = parts.root / layout.sealed_path(key)
        self._files = parts.env.files
        self._now_ns = parts.env.clock.now_ns
        self._incarnation = incarnation
        self._keeper = keeper
        self._room = parts.room
        self.write_back_from = 0
        self.handle = parts.env.files.create(self.path)
        self._record: MapRecord | None = None
        #: the name, which is the note of epoch, level and incarnation, is on the disk
        self.noted = False
        self._seeds = Seeds(key.shuffle)
        #: number of the batch that is due, per partition; the last item is for the broadcast partition
        self._due = array("I", bytes(4 * (partitions + 1)))
        self._batches = 0
        self._crc_sum = 0
        self._regions = 0
        self._region: RegionEntries | None = None
        self._chunks: list[bytes] = []

    @property
    def write_back_bytes(self) -> int:
        """How much comes before the kernel is asked to begin writing it."""
        return WRITE_BACK_BYTES

    def opened(self, writers: OpenFiles) -> Handle:
        """Its file."""
        return self.handle

    def needs(self, segment: int) -> bool:
        """Nothing of it is in the push log."""
        return False

    def hand_over(self) -> HandedOver:
        """From here on a thread has it."""
        return HandedOver(self.file_bytes, -1)

    def append(self, region: int, flags: int, runs: list[tuple[int, int]], body: memoryview) -> None:
        """Check and write one frame: `runs` of (partition, length in bytes), back to back in `body`.

        Raises GiveUpError BAD_ORDER, CorruptError or ProtocolError for what the client did wrong, and RerouteError
        FAILED_COPY if the write fails. After any of them the file takes nothing more.
        """
        if self.life is not Life.OPEN:
            raise self.refusal()
        try:
            entries = self._entries(region, flags)
            checked = self._check(entries, runs, body)
        except HoldfastError as error:
            self.life = Life.HARD
            raise type(error)(f"{self.key} region {region}: {error}", status=error.status) from None
        self._write(body)
        for partition, length, batches in checked:
            if batches:
                entries.add(partition, length, batches)
        if flags & PushFlag.END:
            self._chunks += entries.chunks()
            self._regions += 1
            self._region = None

    def refusal(self) -> HoldfastError:
        """Why nothing more is taken."""
        if self.life is Life.FAILED:
            return failed_copy(self.key, "a write or sync failed")
        return not_sealed(f"{self.key} (closed by an earlier error or a later open)")

    def _entries(self, region: int, flags: int) -> RegionEntries:
        """The entries of the region that the frame continues or begins."""
        if region != self._regions:
            raise GiveUpError(f"region {self._regions} is due", status=Status.BAD_ORDER)
        broadcast = int(RegionFlag.BROADCAST) if flags & PushFlag.BROADCAST else 0
        if self._region is None:
            self._region = RegionEntries.begin(region, self.file_bytes, broadcast)
        elif self._region.flags != broadcast:
            raise GiveUpError("a region is broadcast as a whole or not at all", status=Status.BAD_ORDER)
        return self._region

    def _check(
        self, entries: RegionEntries, runs: list[tuple[int, int]], body: memoryview
    ) -> list[tuple[int, int, int]]:
        """Check order and every batch; return (partition, length, batches) of every run."""
        if entries.length + len(body) > U32_MAX:
            raise ProtocolError("longer than 4 GiB", status=Status.TOO_LARGE)
        key, due, seed_of = self.key, self._due, self._seeds.of
        broadcast = bool(entries.flags & RegionFlag.BROADCAST)
        checked = []
        offset, last, crc_sum, total = 0, entries.last, 0, 0
        for partition, length in runs:
            end = offset + length
            if partition < last:
                raise GiveUpError(f"partition {partition} after {last}", status=Status.BAD_ORDER)
            if broadcast != (partition == BROADCAST_PARTITION) or (not broadcast and partition >= self.partitions):
                raise ProtocolError(f"partition {partition} in a shuffle of {self.partitions}")
            if end > len(body):
                break
            slot = self.partitions if broadcast else partition
            try:
                batches, crcs = scan_run(body, offset, end, seed_of(partition), key.map, key.attempt, due[slot])
            except HoldfastError as error:
                raise type(error)(f"partition {partition}: {error}", status=error.status) from None
            due[slot] += batches
            total += batches
            crc_sum += crcs
            checked.append((partition, length, batches))
            last, offset = partition, end
        if offset != len(body) or len(checked) != len(runs):
            raise ProtocolError(f"the runs do not make up the {len(body)} bytes of the frame")
        self._batches += total
        self._crc_sum = (self._crc_sum + crc_sum) & _CRC_SUM_MASK
        return checked

    def _write(self, data: bytes | memoryview) -> None:
        began = self._now_ns()
        try:
            self._room.take(len(data))
            self._files.write(self.handle, data, self.file_bytes)
        except OSError as error:
            self.life = Life.FAILED
            self._keeper.give_up(self.key, error)
            why = f"cannot write {self.path} ({error.strerror})"
            if is_shortage(error):
                raise RerouteError(f"{self.key}: no room: {why}", status=Status.DISK_FULL) from error
            raise failed_copy(self.key, why) from error
        self.file_bytes += len(data)
        self._keeper.wrote(self, began)

    def totals(self) -> FileTotals:
        """What was written so far, whole regions only."""
        return FileTotals(
            regions=self._regions, batches=self._batches, size_bytes=self.file_bytes, crc_sum=self._crc_sum
        )

    def finish(self, totals: FileTotals) -> None:
        """Compare totals and append the footer. Raises CorruptError if they differ."""
        if self.life is not Life.OPEN:
            raise self.refusal()
        held = self.totals()
        if held != totals or self._region is not None:
            self.life = Life.HARD
            raise CorruptError(f"{self.key}: the writer counted {totals}, here are {held}")
        self._record, footer = make_map_file(
            self.key,
            totals,
            self._chunks,
            partitions=self.partitions,
            ack=self.ack,
            incarnation=self._incarnation,
        )
        self._write(footer)
        self.life = Life.SEALING

    def complete(self) -> MapRecord:
        """Sync the finished file and give it its sealed name. Raises OSError."""
        assert self._record is not None, "it is finished"
        self._files.sync(self.handle)
        self._files.rename(self.path, self.sealed_path)
        return self._record
