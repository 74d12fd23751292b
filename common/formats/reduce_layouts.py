"""Layouts of the arrays of REDUCE partitions: locations, winners and the manifest. See protocol.md, "Arrays".

Each is u8 version, u8 kind, u16 flags, two u32 counts, u64 length of the rest when inflated, and the rest, deflated.
Decoders check counts against lengths before they allocate; all raise ProtocolError.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat, zip_longest
from typing import NamedTuple, Self

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.layouts import (
    ArrayKind,
    bitmap_bytes,
    check_copies,
    deflated,
    deflated_head,
    inflate,
    placed,
)
from holdfast.common.ids import NO_WORKER, AttemptId, Epoch, PartitionId, WorkerId
from holdfast.common.limits import EPOCHS_MAX, MAPS_MAX, PARTITIONS_MAX
from holdfast.common.statuses import Status

_ATTEMPT = struct.Struct("<Q")
#: Of a worker's number in a row.
_WORKER_BYTES = 4
_BITMAPS = 0x0001
_Size = Callable[[int, int, int], int]
#: Attempt of a map that has no winner: it wrote nothing and is not expected.
NO_ATTEMPT = AttemptId(0xFFFF_FFFF_FFFF_FFFF)
#: In place of a copy that was not placed.
_NO_COPY = (NO_WORKER, Status.UNKNOWN_FILE, 0)


class Location(NamedTuple):
    """Where a partition takes batches: its newest epoch, on workers of different hosts, the primary first."""

    epoch: Epoch
    workers: tuple[WorkerId, ...]
    #: directory the masters advise, by number; 0 = the worker chooses
    hint: int = 0

    @property
    def primary(self) -> WorkerId:
        """The worker that clients push to; it repeats what it takes to the others."""
        return self.workers[0]


class CopyResult(NamedTuple):
    """What one worker said when it sealed an epoch. `status` as in SealedEpoch, or what is not said yet: UNAVAILABLE of
    a worker that was away, NOT_SEALED of a copy that is made of another one."""

    worker: WorkerId
    status: Status
    size_bytes: int

    @property
    def readable(self) -> bool:
        """Whether it can be read."""
        return self.status == Status.OK

    @property
    def restoring(self) -> bool:
        """Whether the worker is to make it of another copy."""
        return self.status == Status.NOT_SEALED

    @property
    def unsealed(self) -> bool:
        """Whether it may be readable later: its worker has said nothing of it yet."""
        return self.restoring or self.status == Status.UNAVAILABLE


class EpochResult(NamedTuple):
    """The final word on one epoch of one partition. Lost if no copy is OK and none is UNKNOWN_FILE: all copies that are
    not INCOMPLETE hold what was acknowledged, so if one never had a batch nothing was."""

    partition: PartitionId
    epoch: Epoch
    #: all that were placed, the primary's first
    copies: tuple[CopyResult, ...]

    @property
    def readable(self) -> tuple[CopyResult, ...]:
        """The copies that can be read."""
        return tuple(copy for copy in self.copies if copy.readable)

    @property
    def lost(self) -> bool:
        """Whether acknowledged batches may be missing."""
        return all(copy.status not in (Status.OK, Status.UNKNOWN_FILE) for copy in self.copies)

    def under_replicated(self, wanted: int) -> bool:
        """Whether it has batches, and fewer sealed copies than `wanted`. What is lost is counted as that."""
        unwritten = any(copy.status == Status.UNKNOWN_FILE for copy in self.copies)
        return not unwritten and 0 < len(self.readable) < wanted


@dataclass(frozen=True, slots=True)
class ReduceLocations:
    """REDUCE_LOCATIONS: the location of every partition, by index. What RegisterShuffle answers."""

    partitions: tuple[Location, ...]

    def encode(self) -> bytes:
        """Flags: copies. Counts: partitions, 0. Per partition u32 epoch, per copy u32 worker or 2^32 - 1, u16 hint."""
        places = [one.workers for one in self.partitions]
        return _locations([one.epoch for one in self.partitions], places, [one.hint for one in self.partitions])

    @staticmethod
    def encode_first(places: Sequence[tuple[int, ...]]) -> bytes:
        """The array of partitions that are all in epoch 0, each on these workers, and without hints."""
        return _locations(repeat(0), places, repeat(0))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        kind, (_, rows) = ArrayKind.REDUCE_LOCATIONS, cls.rows(data)
        return cls(tuple([Location(Epoch(epoch), placed(row, kind), hint) for epoch, *row, hint in rows]))

    @staticmethod
    def rows(data: bytes) -> tuple[int, Iterator[tuple[int, ...]]]:
        """Return how many workers each location has, and an iterator of epoch, workers and hint of each, of which
        nothing is kept."""
        copies, raw = _location_rows(data)
        return copies, _location(copies).iter_unpack(raw)

    @staticmethod
    def columns(data: bytes) -> list[array[int]]:
        """Return the first worker of every partition, then the second of every one, and so on; NO_WORKER for none."""
        copies, raw = _location_rows(data)
        return [_column(raw, at * _WORKER_BYTES, _location(copies).size) for at in range(1, copies + 1)]


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
        """Flags: copies. Counts: epochs, partitions. Per epoch u32 partition, u32 epoch; per copy u32 worker or
        2^32 - 1, u16 status, u64 size."""
        most = max((len(one.copies) for one in self.epochs), default=1)
        pack = _epoch(check_copies(most, ArrayKind.REDUCE_MANIFEST)).pack
        rows = [
            pack(one.partition, one.epoch, *chain(*one.copies, *repeat(_NO_COPY, most - len(one.copies))))
            for one in self.epochs
        ]
        return _encode(ArrayKind.REDUCE_MANIFEST, most, len(rows), self.partitions, rows)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        partitions, epochs = cls.each(data)
        return cls(partitions, tuple(epochs))

    @staticmethod
    def each(data: bytes) -> tuple[int, Iterator[EpochResult]]:
        """Return how many partitions there are, and an iterator of the epochs, of which nothing is kept. Both raise
        ProtocolError."""
        kind = ArrayKind.REDUCE_MANIFEST
        copies, count, partitions, raw = _decode(
            data, kind, lambda copies, count, _: count * _epoch(check_copies(copies, kind)).size
        )
        if count > EPOCHS_MAX or partitions > PARTITIONS_MAX:
            raise ProtocolError(f"REDUCE_MANIFEST: {count} epochs of {partitions} partitions")
        return partitions, _results(copies, raw)


def _results(copies: int, raw: bytes) -> Iterator[EpochResult]:
    try:
        for partition, epoch, *row in _epoch(copies).iter_unpack(raw):
            triples = zip(placed(row[::3], ArrayKind.REDUCE_MANIFEST), row[1::3], row[2::3], strict=False)
            found = tuple([CopyResult(worker, Status(status), size) for worker, status, size in triples])
            yield EpochResult(PartitionId(partition), Epoch(epoch), found)
    except ValueError as error:
        raise ProtocolError(f"REDUCE_MANIFEST: {error}") from None


def _locations(epochs: Iterable[int], places: Sequence[tuple[int, ...]], hints: Iterable[int]) -> bytes:
    if not 1 <= len(places) <= PARTITIONS_MAX:
        raise ProtocolError(f"REDUCE_LOCATIONS: {len(places)} partitions")
    # By column: a master places 100,000 partitions in one call.
    workers = list(zip_longest(*places, fillvalue=NO_WORKER))
    copies = check_copies(len(workers), ArrayKind.REDUCE_LOCATIONS)
    rows = map(_location(copies).pack, epochs, *workers, hints)
    return _encode(ArrayKind.REDUCE_LOCATIONS, copies, len(places), 0, rows)


def _location_rows(data: bytes) -> tuple[int, bytes]:
    """How many workers each location has, and the rows."""

    def size(copies: int, count: int, _: int) -> int:
        return count * _location(check_copies(copies, ArrayKind.REDUCE_LOCATIONS)).size

    copies, count, _, raw = _decode(data, ArrayKind.REDUCE_LOCATIONS, size)
    if not 1 <= count <= PARTITIONS_MAX:
        raise ProtocolError(f"REDUCE_LOCATIONS: {count} partitions")
    return copies, raw


def _column(rows: bytes, at: int, width: int) -> array[int]:
    """The u32 at this place of every row, taken out byte by byte of all rows at once."""
    found = bytearray(len(rows) // width * _WORKER_BYTES)
    for byte in range(_WORKER_BYTES):
        found[byte::_WORKER_BYTES] = rows[at + byte :: width]
    numbers = array("I", bytes(found))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


@cache
def _location(copies: int) -> struct.Struct:
    return struct.Struct(f"<I{copies}IH")


@cache
def _epoch(copies: int) -> struct.Struct:
    """Partition, epoch, then worker, status and bytes of each copy."""
    return struct.Struct("<II" + "IHQ" * copies)


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
