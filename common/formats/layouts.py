"""Layouts of the big arrays that travel as one `bytes` field, the same in Raft, gRPC and JSON.

See protocol.md, "Arrays". Each begins with u8 version and u8 kind. Decoders check counts against lengths before
they allocate; all raise ProtocolError.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import repeat
from typing import cast

from holdfast.common.errors import ProtocolError
from holdfast.common.ids import NO_WORKER, AttemptId, Epoch, PartitionId, WorkerId
from holdfast.common.limits import COPIES_MAX, MAPS_MAX, MIB, PARTITIONS_MAX
from holdfast.common.statuses import Status

VERSION = 2


class ArrayKind(IntEnum):
    """What an array holds. 16 and up are those of REDUCE partitions (reduce_layouts.py)."""

    MAP_ASSIGNMENT = 1
    MAP_WINNERS = 2
    REDUCE_LOCATIONS = 16
    REDUCE_WINNERS = 17
    REDUCE_MANIFEST = 18


_PREFIX = struct.Struct("<BB")
_ASSIGNMENT = struct.Struct("<BBHI")
_DEFLATED = struct.Struct("<BBHIIQ")
_U32 = struct.Struct("<I")
WORKERS_MAX = 65_535
#: Winners inflated: a deflated array may grow a thousandfold, all of it in the memory of the reader.
INFLATED_BYTES_MAX = 256 * MIB


def check_prefix(data: bytes, kind: ArrayKind, layout: struct.Struct) -> None:
    """Check that `data` has the fixed part of an array of this kind; raises ProtocolError."""
    if len(data) < layout.size:
        raise ProtocolError(f"{kind.name}: {len(data)} bytes are too few")
    version, got = _PREFIX.unpack_from(data)
    if version != VERSION or got != kind:
        raise ProtocolError(f"expected {kind.name} version {VERSION}, got kind {got} version {version}")


@dataclass(frozen=True, slots=True)
class MapAssignment:
    """Where map files of a shuffle go: an ordered list of workers and how many copies.

    Any attempt of map `m` opens its copy number c in epoch e on `worker_for(m, e + c)`: the workers form a
    ring, an attempt that must move takes the next place of it with the next epoch. The attempt has no part in it:
    Spark numbers attempts along with maps, and their sum would leave every other worker of an even ring idle.
    """

    workers: tuple[WorkerId, ...]
    copies: int = 1

    def encode(self) -> bytes:
        """u8 version, u8 kind, u16 copies, u32 workers, then a u32 each."""
        if not 1 <= self.copies <= COPIES_MAX or not 1 <= len(self.workers) <= WORKERS_MAX:
            raise ProtocolError(f"an assignment has 1 to {WORKERS_MAX} workers and 1 to {COPIES_MAX} copies")
        head = _ASSIGNMENT.pack(VERSION, ArrayKind.MAP_ASSIGNMENT, self.copies, len(self.workers))
        return head + b"".join([_U32.pack(worker) for worker in self.workers])

    @classmethod
    def decode(cls, data: bytes) -> MapAssignment:
        check_prefix(data, ArrayKind.MAP_ASSIGNMENT, _ASSIGNMENT)
        _, _, copies, count = _ASSIGNMENT.unpack_from(data)
        if not 1 <= count <= WORKERS_MAX or len(data) != _ASSIGNMENT.size + 4 * count or not 1 <= copies <= COPIES_MAX:
            raise ProtocolError(f"MAP_ASSIGNMENT: {len(data)} bytes do not hold {count} workers, {copies} copies")
        return cls(tuple(WorkerId(worker) for (worker,) in _U32.iter_unpack(data[_ASSIGNMENT.size :])), copies)

    def worker_for(self, map_id: int, step: int) -> WorkerId:
        """Return the worker that attempts of this map use at `step` = epoch + copy number."""
        return self.workers[(map_id + step) % len(self.workers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapWinner:
    """The attempt whose output counts for one map, and where its sealed copies are."""

    attempt: AttemptId
    epoch: Epoch
    #: one for each copy, all on different hosts
    workers: tuple[WorkerId, ...]
    batches: int
    size_bytes: int
    #: bit p (byte p // 8, bit p % 8) is set if the map wrote at least one batch for partition p
    partitions: bytes

    def has(self, partition: PartitionId) -> bool:
        return bool(self.partitions[partition >> 3] & (1 << (partition & 7)))


@dataclass(frozen=True, slots=True)
class MapWinners:
    """What Commit carries and a manifest repeats: the winner of every map, by map index."""

    partitions: int
    maps: tuple[MapWinner, ...]

    def encode(self) -> bytes:
        """u8 version, u8 kind, u16 copies, u32 maps, u32 partitions, u64 length of the rest inflated.

        Then, deflated, per map u64 attempt, u32 epoch, per copy u32 worker or 2^32 - 1, u64 batches, u64 bytes; then
        per map a bitmap of ceil(partitions / 8) bytes.
        """
        width, copies = bitmap_bytes(self.partitions), columns([winner.workers for winner in self.maps])
        pack, rows = _place(copies).pack, []
        for winner in self.maps:
            if len(winner.partitions) != width or not 1 <= len(winner.workers) <= COPIES_MAX:
                raise ProtocolError(f"MAP_WINNERS: a bitmap has {width} bytes and a map 1 to {COPIES_MAX} workers")
            workers = padded(winner.workers, copies)
            rows.append(pack(winner.attempt, winner.epoch, *workers, winner.batches, winner.size_bytes))
        raw = b"".join(rows + [winner.partitions for winner in self.maps])
        return deflated(ArrayKind.MAP_WINNERS, copies, len(self.maps), self.partitions, raw)

    @classmethod
    def announced(cls, data: bytes) -> tuple[int, int, int]:
        """Return maps, partitions and bytes inflated from the head of an array, after checking them; nothing
        is inflated."""
        _, maps, partitions, size = cls._head(data)
        return maps, partitions, size

    @staticmethod
    def _head(data: bytes) -> tuple[int, int, int, int]:
        copies, maps, partitions, size = deflated_head(data, ArrayKind.MAP_WINNERS)
        row = _place(check_copies(copies, ArrayKind.MAP_WINNERS)).size + bitmap_bytes(partitions)
        if maps > MAPS_MAX or partitions > PARTITIONS_MAX or size != maps * row:
            raise ProtocolError(f"MAP_WINNERS: {maps} maps and {partitions} partitions do not make {size} bytes")
        return copies, maps, partitions, size

    @classmethod
    def each(cls, data: bytes) -> Iterator[MapWinner]:
        """Yield one winner after another: a million of them at once are half a gigabyte."""
        copies, maps, partitions, size = cls._head(data)
        place, width = _place(copies), bitmap_bytes(partitions)
        raw = inflate(data, size, ArrayKind.MAP_WINNERS)
        bitmaps = maps * place.size
        for index, (attempt, epoch, *workers, batches, length) in enumerate(
            place.iter_unpack(memoryview(raw)[:bitmaps])
        ):
            bitmap = raw[bitmaps + index * width : bitmaps + (index + 1) * width]
            yield MapWinner(
                attempt=AttemptId(attempt),
                epoch=Epoch(epoch),
                workers=placed(workers, ArrayKind.MAP_WINNERS),
                batches=batches,
                size_bytes=length,
                partitions=bitmap,
            )

    @classmethod
    def decode(cls, data: bytes) -> MapWinners:
        _, partitions, _ = cls.announced(data)
        return cls(partitions, tuple(cls.each(data)))


@cache
def _place(copies: int) -> struct.Struct:
    return struct.Struct(f"<QI{copies}IQQ")


def columns(places: Iterable[Sequence[WorkerId]]) -> int:
    """Return how many workers each row of an array has in which these are the places."""
    return max(map(len, places), default=1)


def check_copies(copies: int, kind: ArrayKind) -> int:
    """Return how many workers each row has. Raises ProtocolError if that is none, or too many."""
    if not 1 <= copies <= COPIES_MAX:
        raise ProtocolError(f"{kind.name}: {copies} workers in a row; 1 to {COPIES_MAX} are allowed")
    return copies


def padded(workers: Sequence[WorkerId], copies: int) -> tuple[WorkerId, ...]:
    """Return as many workers as a row has, NO_WORKER in place of those that are not there."""
    missing = copies - len(workers)
    return (*workers, *repeat(NO_WORKER, missing)) if missing else tuple(workers)


def placed(row: Sequence[int], kind: ArrayKind) -> tuple[WorkerId, ...]:
    """Return the workers of a row, behind the last of which only NO_WORKER stands. Raises ProtocolError if there is
    none, or that stands between them."""
    there = row[: row.index(NO_WORKER)] if NO_WORKER in row else row
    if not there or any(worker != NO_WORKER for worker in row[len(there) :]):
        raise ProtocolError(f"{kind.name}: the workers of a row are {list(row)}")
    return cast("tuple[WorkerId, ...]", tuple(there))


def bitmap_bytes(partitions: int) -> int:
    """Return how many bytes a bitmap over that many partitions has."""
    return (partitions + 7) // 8


def deflated(kind: ArrayKind, flags: int, first: int, second: int, raw: bytes) -> bytes:
    """An array of u8 version, u8 kind, u16 flags, two u32 counts, u64 length of the rest, and the rest, deflated."""
    return _DEFLATED.pack(VERSION, kind, flags, first, second, len(raw)) + zlib.compress(raw, 1)


def deflated_head(data: bytes, kind: ArrayKind) -> tuple[int, int, int, int]:
    """Return flags, counts and length of the rest inflated of such an array, which is not too much."""
    check_prefix(data, kind, _DEFLATED)
    _, _, flags, first, second, size = _DEFLATED.unpack_from(data)
    if size > INFLATED_BYTES_MAX:
        text = f"{kind.name}: {size} bytes inflated are more than {INFLATED_BYTES_MAX}"
        raise ProtocolError(text, status=Status.TOO_LARGE)
    return flags, first, second, size


def inflate(data: bytes, size: int, kind: ArrayKind) -> bytes:
    """Inflate the rest of such an array to exactly `size` bytes, never allocating more than one beyond."""
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data[_DEFLATED.size :], size + 1)
    except zlib.error as error:
        raise ProtocolError(f"{kind.name}: not deflated data ({error})") from None
    if len(raw) != size or not stream.eof or stream.unused_data:
        raise ProtocolError(f"{kind.name}: inflates to something other than {size} bytes")
    return raw
