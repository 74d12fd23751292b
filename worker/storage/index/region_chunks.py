"""The chunks of a map file: for every region which partitions have bytes there, and where.

Every region has at least one chunk, of at most 64 entries: one for every partition with bytes in it. A chunk stands by
itself: it names its region and where that lies, so opening one partition reads one chunk per region, however large the
file is. Bytes in disk_format.md. Pure: every length is checked before anything is read, and what does not fit is a
CorruptError. Called by the writer, the reader and records.py.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from holdfast.common.errors import CorruptError

#: region offset u64; region, region length, start within the region, last partition u32; entries u16, flags, zero u8
CHUNK = struct.Struct("<QIIIIHBB")
ENTRY_BYTES = 12
CHUNK_ENTRIES_MAX = 64

assert CHUNK.size == 28, "this is a disk format"


class RegionFlag(IntEnum):
    """Flags of a region, a bit each."""

    BROADCAST = 1  #: stored once, belongs to every partition


class Entry(NamedTuple):
    """The bytes of one partition in one region; `offset` counts from the start of the region."""

    partition: int
    offset: int
    length: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Up to 64 entries of one region, by ascending partition. `ends` count from the start of the region."""

    region: int
    region_offset: int
    region_length: int
    flags: int
    #: where the first entry starts, from the start of the region
    start: int
    last: int
    partitions: tuple[int, ...]
    ends: tuple[int, ...]
    batches: tuple[int, ...]

    def encode(self) -> bytes:
        count = len(self.partitions)
        head = CHUNK.pack(
            self.region_offset, self.region, self.region_length, self.start, self.last, count, self.flags, 0
        )
        return head + struct.pack(f"<{3 * count}I", *self.partitions, *self.ends, *self.batches)

    @classmethod
    def decode(cls, data: bytes | memoryview, offset: int = 0) -> tuple[Chunk, int]:
        """Return the chunk at `offset` and where it ends."""
        body = offset + CHUNK.size
        if body > len(data):
            raise CorruptError("a region record is cut")
        region_offset, region, region_length, start, last, count, flags, zero = CHUNK.unpack_from(data, offset)
        end = body + count * ENTRY_BYTES
        if count > CHUNK_ENTRIES_MAX or zero or end > len(data):
            raise CorruptError(f"a record of region {region} has {count} entries in {len(data) - body} bytes")
        values = struct.unpack_from(f"<{3 * count}I", data, body)
        chunk = cls(
            region=region,
            region_offset=region_offset,
            region_length=region_length,
            flags=flags,
            start=start,
            last=last,
            partitions=values[:count],
            ends=values[count : 2 * count],
            batches=values[2 * count :],
        )
        return chunk, end

    def entries(self) -> Iterator[Entry]:
        """Yield every entry."""
        offset = self.start
        for partition, end, batches in zip(self.partitions, self.ends, self.batches, strict=True):
            yield Entry(partition, offset, end - offset, batches)
            offset = end

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Return [first, past) of the entries whose partition is in [begin, end)."""
        return bisect_left(self.partitions, begin), bisect_left(self.partitions, end)

    def offset_of(self, entry: int) -> int:
        """Where entry number `entry` starts (or the last one ends), from the start of the region."""
        return self.ends[entry - 1] if entry else self.start


@dataclass(slots=True)
class RegionEntries:
    """Gathers the entries of one region while it is written; runs of equal partitions become one entry."""

    region: int
    offset: int
    flags: int
    partitions: array[int]
    ends: array[int]
    batches: array[int]
    length: int = 0

    @classmethod
    def begin(cls, region: int, offset: int, flags: int) -> RegionEntries:
        return cls(region, offset, flags, array("I"), array("I"), array("I"))

    @property
    def last(self) -> int:
        """The last partition so far, or -1."""
        return self.partitions[-1] if self.partitions else -1

    def add(self, partition: int, length: int, batches: int) -> None:
        """Add a run; partitions must ascend, equal ones may follow one another."""
        self.length += length
        if partition == self.last:
            self.ends[-1] = self.length
            self.batches[-1] += batches
            return
        self.partitions.append(partition)
        self.ends.append(self.length)
        self.batches.append(batches)

    def chunks(self) -> list[bytes]:
        """The region's records, at least one."""
        return [self._chunk(first).encode() for first in range(0, max(1, len(self.partitions)), CHUNK_ENTRIES_MAX)]

    def _chunk(self, first: int) -> Chunk:
        past = first + CHUNK_ENTRIES_MAX
        partitions = tuple(self.partitions[first:past])
        return Chunk(
            region=self.region,
            region_offset=self.offset,
            region_length=self.length,
            flags=self.flags,
            start=self.ends[first - 1] if first else 0,
            last=partitions[-1] if partitions else 0,
            partitions=partitions,
            ends=tuple(self.ends[first:past]),
            batches=tuple(self.batches[first:past]),
        )


def find_chunk(data: bytes, region: int, partition: int) -> Chunk | None:
    """Among chunks that stand back to back, the first of a region whose last partition is `partition` or behind it."""
    offset = 0
    while offset + CHUNK.size <= len(data):
        _, found, _, _, last, count, _, _ = CHUNK.unpack_from(data, offset)
        if found == region and last >= partition:
            return Chunk.decode(data, offset)[0]
        offset += CHUNK.size + count * ENTRY_BYTES
    return None


def split_chunks(data: bytes, count: int) -> tuple[bytes, ...]:
    """Cut chunks that stand back to back; raises CorruptError unless they are exactly `count`."""
    chunks = []
    offset = 0
    while offset < len(data):
        _, end = Chunk.decode(data, offset)
        chunks.append(data[offset:end])
        offset = end
    if len(chunks) != count:
        raise CorruptError(f"{len(chunks)} region records where {count} are named")
    return tuple(chunks)


def check_regions(chunks: Sequence[bytes], regions: int, size_bytes: int, batches: int) -> None:
    """Check that chunks tile the data: regions back to back, entries ascending; raises CorruptError."""
    found, at, length, counted, position, last = 0, 0, 0, 0, 0, -1
    for chunk in (Chunk.decode(encoded)[0] for encoded in chunks):
        if chunk.region == found:
            at, found, position, last = at + length, found + 1, 0, -1
            length = chunk.region_length
        if chunk.region != found - 1 or chunk.region_offset != at or chunk.region_length != length:
            raise CorruptError(f"region {chunk.region} is not where the one before it ends")
        for entry in chunk.entries():
            if entry.partition <= last or entry.offset != position or entry.length < 0:
                raise CorruptError(f"the entries of region {chunk.region} do not ascend")
            last, position, counted = entry.partition, entry.offset + entry.length, counted + entry.batches
        if chunk.partitions and chunk.last != last:
            raise CorruptError(f"a record of region {chunk.region} names another last partition")
    if (found, at + length, counted) != (regions, size_bytes, batches):
        raise CorruptError("the region records do not add up to the totals of the file")
