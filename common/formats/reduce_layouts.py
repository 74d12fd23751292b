"""Layouts of the arrays of REDUCE partitions: locations, winners and the manifest. See docs/protocol.md, "Arrays".

Each is u8 version, u8 kind, u16 flags, two u32 counts, u64 length of the rest when inflated, and the rest, deflated.
Decoders check counts against lengths before they allocate; all raise ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.layouts import ArrayKind, bitmap_bytes, deflated, deflated_head, inflate
from holdfast.common.ids import NO_WORKER, AttemptId, Epoch, PartitionId, WorkerId
from holdfast.common.limits import EPOCHS_MAX, MAPS_MAX, PARTITIONS_MAX
from holdfast.common.statuses import Status

_LOCATION = struct.Struct("<IIIH")
_ATTEMPT = struct.Struct("<Q")
#: partition, epoch, then worker, status and bytes of each copy.
_EPOCH = struct.Struct("<IIIHQIHQ")
_BITMAPS = 0x0001
_Size = Callable[[int, int, int], int]
#: Attempt of a map that has no winner: it wrote nothing and is not expected.
NO_ATTEMPT = AttemptId(0xFFFF_FFFF_FFFF_FFFF)


class Location(NamedTuple):
    """Where a partition takes batches: its newest epoch, on one worker or two of different hosts."""

    epoch: Epoch
    primary: WorkerId
    #: NO_WORKER where there is one copy
    replica: WorkerId = NO_WORKER
    #: directory the masters advise, by number; 0 = the worker chooses
    hint: int = 0


class CopyResult(NamedTuple):
    """What one worker said when it sealed an epoch. `status` as in SealedEpoch; NO_WORKER has UNKNOWN_FILE."""

    worker: WorkerId
    status: Status
    size_bytes: int

    @property
    def unsealed(self) -> bool:
        """Whether the worker was away and said nothing: it is asked to seal the copy when it is back."""
        return self.status == Status.UNAVAILABLE


class EpochResult(NamedTuple):
    """The final word on one epoch of one partition. Lost if no copy is OK and none is UNKNOWN_FILE: both copies hold
    what was acknowledged, so if one never had a batch nothing was."""

    partition: PartitionId
    epoch: Epoch
    primary: CopyResult
    replica: CopyResult

    @property
    def copies(self) -> tuple[CopyResult, ...]:
        """The copies that can be read."""
        return tuple(copy for copy in (self.primary, self.replica) if copy.status == Status.OK)

    @property
    def lost(self) -> bool:
        """Whether acknowledged batches may be missing."""
        asked = [copy for copy in (self.primary, self.replica) if copy.worker != NO_WORKER]
        return not self.copies and all(copy.status != Status.UNKNOWN_FILE for copy in asked)

    def under_replicated(self, wanted: int) -> bool:
        """Whether it has batches, and fewer sealed copies than `wanted` (1 or 2). What is lost is counted as that."""
        asked = [copy for copy in (self.primary, self.replica) if copy.worker != NO_WORKER]
        return 0 < len(self.copies) < wanted and all(copy.status != Status.UNKNOWN_FILE for copy in asked)


@dataclass(frozen=True, slots=True)
class ReduceLocations:
    """REDUCE_LOCATIONS: the location of every partition, by index. What RegisterShuffle answers."""

    partitions: tuple[Location, ...]

    def encode(self) -> bytes:
        """Counts: partitions, 0. Per partition u32 epoch, u32 primary, u32 replica or 2^32 - 1, u16 hint."""
        if not 1 <= len(self.partitions) <= PARTITIONS_MAX:
            raise ProtocolError(f"REDUCE_LOCATIONS: {len(self.partitions)} partitions")
        pack = _LOCATION.pack
        return _encode(ArrayKind.REDUCE_LOCATIONS, 0, len(self.partitions), 0, [pack(*one) for one in self.partitions])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls(tuple(Location(Epoch(e), WorkerId(p), WorkerId(r), hint) for e, p, r, hint in cls.rows(data)))

    @staticmethod
    def rows(data: bytes) -> Iterator[tuple[int, int, int, int]]:
        """Yield the fields of each location, of which nothing is kept."""
        _, count, _, raw = _decode(data, ArrayKind.REDUCE_LOCATIONS, lambda _, count, __: count * _LOCATION.size)
        if not 1 <= count <= PARTITIONS_MAX:
            raise ProtocolError(f"REDUCE_LOCATIONS: {count} partitions")
        return _LOCATION.iter_unpack(raw)


@dataclass(frozen=True, slots=True)
class ReduceWinners:
    """REDUCE_WINNERS: the attempt that counts for every map, by index (NO_ATTEMPT: none), and, if the committer has it,
    for which partitions each wrote something: bit p (byte p // 8, bit p % 8) of its bitmap."""

    partitions: int
    attempts: tuple[AttemptId, ...]
    #: one per map, or none at all
    bitmaps: tuple[bytes, ...] = ()

    def has(self, map_id: int, partition: int) -> bool | None:
        """Return whether this map wrote for the partition, None if the committer did not say."""
        if not self.bitmaps:
            return None
        return bool(self.bitmaps[map_id][partition >> 3] & (1 << (partition & 7)))

    def encode(self) -> bytes:
        """Flag bit 0: with bitmaps. Counts: maps, partitions. Per map u64 attempt; then per map its bitmap."""
        width = bitmap_bytes(self.partitions)
        if self.bitmaps and (
            len(self.bitmaps) != len(self.attempts) or any(len(bitmap) != width for bitmap in self.bitmaps)
        ):
            raise ProtocolError(f"REDUCE_WINNERS: {len(self.attempts)} maps need a bitmap of {width} bytes each")
        rows = [_ATTEMPT.pack(attempt) for attempt in self.attempts]
        flags = _BITMAPS if self.bitmaps else 0
        return _encode(ArrayKind.REDUCE_WINNERS, flags, len(self.attempts), self.partitions, [*rows, *self.bitmaps])

    @classmethod
    def announced(cls, data: bytes) -> tuple[int, int, int]:
        """Return maps, partitions and bytes inflated from the head of an array, after checking them; nothing
        is inflated."""
        flags, maps, partitions, size = _head(data, ArrayKind.REDUCE_WINNERS, _winners_size)
        if flags & ~_BITMAPS or maps > MAPS_MAX or not 1 <= partitions <= PARTITIONS_MAX:
            raise ProtocolError(f"REDUCE_WINNERS: {maps} maps, {partitions} partitions, flags {flags:#06x}")
        return maps, partitions, size

    @classmethod
    def inflated(cls, data: bytes) -> tuple[memoryview, list[memoryview]]:
        """Return the attempts of all maps, u64 each, and the bitmap of each map, if the committer gave any."""
        maps, partitions, size = cls.announced(data)
        raw = memoryview(inflate(data, size, ArrayKind.REDUCE_WINNERS))
        start, width = maps * _ATTEMPT.size, bitmap_bytes(partitions)
        return raw[:start], [raw[at : at + width] for at in range(start, len(raw), width)]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        _, partitions, _ = cls.announced(data)
        attempts, bitmaps = cls.inflated(data)
        numbers = tuple(AttemptId(attempt) for (attempt,) in _ATTEMPT.iter_unpack(attempts))
        return cls(partitions, numbers, tuple(map(bytes, bitmaps)))


@dataclass(frozen=True, slots=True)
class ReduceManifest:
    """REDUCE_MANIFEST: the final word on every epoch of a generation, by (partition, epoch)."""

    partitions: int
    epochs: tuple[EpochResult, ...]

    def encode(self) -> bytes:
        """Counts: epochs, partitions. Per epoch u32 partition, u32 epoch; per copy u32 worker, u16 status, u64 size."""
        rows = [_EPOCH.pack(one.partition, one.epoch, *one.primary, *one.replica) for one in self.epochs]
        return _encode(ArrayKind.REDUCE_MANIFEST, 0, len(rows), self.partitions, rows)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        _, count, partitions, raw = _decode(data, ArrayKind.REDUCE_MANIFEST, lambda _, count, __: count * _EPOCH.size)
        if count > EPOCHS_MAX or partitions > PARTITIONS_MAX:
            raise ProtocolError(f"REDUCE_MANIFEST: {count} epochs of {partitions} partitions")
        epochs = []
        try:
            for partition, epoch, worker, status, size, other, other_status, other_size in _EPOCH.iter_unpack(raw):
                primary = CopyResult(WorkerId(worker), Status(status), size)
                replica = CopyResult(WorkerId(other), Status(other_status), other_size)
                epochs.append(EpochResult(PartitionId(partition), Epoch(epoch), primary, replica))
        except ValueError as error:
            raise ProtocolError(f"REDUCE_MANIFEST: {error}") from None
        return cls(partitions, tuple(epochs))


def _winners_size(flags: int, maps: int, partitions: int) -> int:
    return maps * (_ATTEMPT.size + (bitmap_bytes(partitions) if flags & _BITMAPS else 0))


def _encode(kind: ArrayKind, flags: int, first: int, second: int, rows: Iterable[bytes]) -> bytes:
    return deflated(kind, flags, first, second, b"".join(rows))


def _head(data: bytes, kind: ArrayKind, expected: _Size) -> tuple[int, int, int, int]:
    flags, first, second, size = deflated_head(data, kind)
    if size != expected(flags, first, second):
        raise ProtocolError(f"{kind.name}: counts {first} and {second} do not make {size} bytes")
    return flags, first, second, size


def _decode(data: bytes, kind: ArrayKind, expected: _Size) -> tuple[int, int, int, bytes]:
    flags, first, second, size = _head(data, kind, expected)
    return flags, first, second, inflate(data, size, kind)
