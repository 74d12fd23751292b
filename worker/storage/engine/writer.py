"""Writes one map file: checks every batch, appends, and gathers the index records. Runs on the loop thread.

Rules: a byte that was not checked is never written; what `append` has returned for is in the kernel (WRITTEN); the
first write that fails ends the file for good; a file that was refused once takes nothing more, the client begins anew.
Syncs and the seal's transaction are the sealer's (sealing.py); this module never waits for the disk.

Called by store.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from holdfast.common.errors import CorruptError, GiveUpError, HoldfastError, ProtocolError, RerouteError
from holdfast.common.formats.messages import Ack, FileTotals, PushFlag
from holdfast.common.ids import BROADCAST_PARTITION, Incarnation, MapFileKey
from holdfast.common.limits import PARTITIONS_MAX, U32_MAX
from holdfast.common.statuses import Status
from holdfast.worker.core.health import WindowMean
from holdfast.worker.storage import layout
from holdfast.worker.storage.engine.answers import failed_copy, not_sealed
from holdfast.worker.storage.engine.directory_room import DirectoryRoom
from holdfast.worker.storage.engine.scan import Seeds, scan_run
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.index.records import MapRecord, make_map_file
from holdfast.worker.storage.index.region_chunks import RegionEntries, RegionFlag
from holdfast.worker.storage.log.push_log import is_full

#: The kernel is asked to begin writing every time so much has come, so that the seal of a big file finds little left
#: to sync. Four files of 64 MiB at once, 16 rounds, on two busy cores: seals take 0.04 instead of 0.08 s, writing with
#: sealing 1.08 instead of 1.05 GB/s, CPU the same. Small files are left to the seal.
WRITE_BACK_BYTES = 16 << 20
_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF


class WriterState(Enum):
    """Life of a writer; only OPEN accepts bytes, and there is no way back."""

    OPEN = "open"
    SEALING = "sealing"
    REFUSED = "refused"  #: the client sent what cannot be; the bytes are of no use
    FAILED = "failed"  #: a write or sync failed; the copy is given up, also after a restart
    CLOSED = "closed"


class MapFileWriter:
    """One unsealed map file. Make it with Store.begin."""

    def __init__(
        self,
        env: Env,
        root: Path,
        key: MapFileKey,
        *,
        partitions: int,
        ack: Ack,
        incarnation: Incarnation,
        on_failed: Callable[[MapFileWriter, Exception], None],
        on_grown: Callable[[MapFileWriter, int, int], None],
        room: DirectoryRoom,
        flushes: WindowMean,
    ) -> None:
        """Create the file; raises OSError, or ProtocolError for an impossible number of partitions."""
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ProtocolError(f"{key}: {partitions} partitions, allowed are 1 to {PARTITIONS_MAX}")
        self.key = key
        self.ack = ack
        self.partitions = partitions
        self.state = WriterState.OPEN
        self.size_bytes = 0
        self.path = root / layout.open_path(key, layout.OpenNote(incarnation, ack))
        self.sealed_path = root / layout.sealed_path(key)
        self._files = env.files
        self._now_ns = env.clock.now_ns
        self._incarnation = incarnation
        self._on_failed = on_failed
        self._on_grown = on_grown
        self._room = room
        self._flushes = flushes
        self._write_back_from = 0
        self.handle = env.files.create(self.path)
        #: storage has given the copy up, which stays so whatever the state here becomes
        self.given_up = False
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
    def failed(self) -> bool:
        return self.given_up or self.state is WriterState.FAILED

    def append(self, region: int, flags: int, runs: list[tuple[int, int]], body: memoryview) -> None:
        """Check and write one frame: `runs` of (partition, length in bytes), back to back in `body`.

        Raises GiveUpError BAD_ORDER, CorruptError or ProtocolError for what the client did wrong, and RerouteError
        FAILED_COPY if the write fails. After any of them the file takes nothing more.
        """
        if self.state is not WriterState.OPEN:
            raise self._refusal()
        try:
            entries = self._entries(region, flags)
            checked = self._check(entries, runs, body)
        except HoldfastError as error:
            self.state = WriterState.REFUSED
            raise type(error)(f"{self.key} region {region}: {error}", status=error.status) from None
        self._write(body)
        for partition, length, batches in checked:
            if batches:
                entries.add(partition, length, batches)
        if flags & PushFlag.END:
            self._chunks += entries.chunks()
            self._regions += 1
            self._region = None

    def _refusal(self) -> HoldfastError:
        if self.failed:
            return failed_copy(self.key, "a write or sync failed")
        return not_sealed(f"{self.key} (closed by an earlier error or a later open)")

    def _entries(self, region: int, flags: int) -> RegionEntries:
        """The entries of the region that the frame continues or begins."""
        if region != self._regions:
            raise GiveUpError(f"region {self._regions} is due", status=Status.BAD_ORDER)
        broadcast = int(RegionFlag.BROADCAST) if flags & PushFlag.BROADCAST else 0
        if self._region is None:
            self._region = RegionEntries.begin(region, self.size_bytes, broadcast)
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
            self._files.write(self.handle, data, self.size_bytes)
        except OSError as error:
            self.state = WriterState.FAILED
            self._on_failed(self, error)
            why = f"cannot write {self.path} ({error.strerror})"
            if is_full(error):
                raise RerouteError(f"{self.key}: no room: {why}", status=Status.DISK_FULL) from error
            raise failed_copy(self.key, why) from error
        ended = self._now_ns()
        self._flushes.add(ended, ended - began)
        self.size_bytes += len(data)
        if self.size_bytes - self._write_back_from >= WRITE_BACK_BYTES:
            self._on_grown(self, self._write_back_from, self.size_bytes - self._write_back_from)
            self._write_back_from = self.size_bytes

    def totals(self) -> FileTotals:
        """What was written so far, whole regions only."""
        return FileTotals(
            regions=self._regions, batches=self._batches, size_bytes=self.size_bytes, crc_sum=self._crc_sum
        )

    def finish(self, totals: FileTotals) -> MapRecord:
        """Compare totals and append the footer; syncing it is the sealer's. Raises CorruptError if they differ."""
        if self.state is not WriterState.OPEN:
            raise self._refusal()
        held = self.totals()
        if held != totals or self._region is not None:
            self.state = WriterState.REFUSED
            raise CorruptError(f"{self.key}: the writer counted {totals}, here are {held}")
        record, footer = make_map_file(
            self.key,
            totals,
            self._chunks,
            partitions=self.partitions,
            ack=self.ack,
            incarnation=self._incarnation,
        )
        self._write(footer)
        self.state = WriterState.SEALING
        return record
