"""The records of a sealed map file: what the index holds, and what the file's footer repeats.

Bytes in docs/disk_format.md. A file has one HEAD (totals, lengths, who sealed it) and, for every region, CHUNKS of at
most 64 entries: one entry for every partition with bytes there. A chunk stands by itself: it names its region and where
that lies, so opening one partition reads one chunk per region, however large the file is. Pure: bytes in, values out;
every length is checked before anything is read, and what does not fit is a CorruptError.

Called by the writer, the reader, recovery, `inspect` and `verify`.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.messages import Ack, FileTotals
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Incarnation,
    Instance,
    MapFileKey,
    MapId,
    ShuffleKey,
)
from holdfast.worker.storage import layout

VERSION = 2
#: file bytes, data bytes, crc sum, batches u64; CRC of the name, regions, partitions, chunks, incarnation u32;
#: version, ack u8, zero u16
HEAD = struct.Struct("<QQQQIIIIIBBH")
#: region offset u64; region, region length, start within the region, last partition u32; entries u16, flags, zero u8
CHUNK = struct.Struct("<QIIIIHBB")
ENTRY_BYTES = 12
CHUNK_ENTRIES_MAX = 64
#: The key of a file as bytes that sort like the key: instance, shuffle, generation, state, map, attempt, epoch; big
#: endian.
KEY = struct.Struct(">16sIIQIQI")
SHUFFLE_KEY = struct.Struct(">16sIIQ")
#: Head and chunks that are not longer than this are one record of the index.
INLINE_BYTES_MAX = 1_800

#: magic "HFMF", version u16, zero u16, then the key, all big endian as in the index
_FOOTER = struct.Struct("<4sHH")
_FOOTER_MAGIC = b"HFMF"
#: footer bytes u64 (trailer included), version u16, zero u16, magic "HFME", CRC-32C of the whole footer before it
TRAILER = struct.Struct("<QHH4sI")
_TRAILER_MAGIC = b"HFME"
_CRC_BYTES = 4
FOOTER_BYTES_MIN = _FOOTER.size + KEY.size + HEAD.size + TRAILER.size

assert (HEAD.size, CHUNK.size, TRAILER.size) == (56, 28, 20), "these are disk formats"


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
class Head:
    """What is known of a sealed map file as a whole; the persisted answer to its seal."""

    totals: FileTotals
    #: length of the file, footer included
    file_bytes: int
    #: CRC-32C of the file's name in its folder: with it a listing is compared without building names
    name_crc: int
    #: reduce partitions of the shuffle
    partitions: int
    chunks: int
    incarnation: Incarnation
    ack: Ack

    def encode(self) -> bytes:
        totals = self.totals
        return HEAD.pack(
            self.file_bytes,
            totals.size_bytes,
            totals.crc_sum,
            totals.batches,
            self.name_crc,
            totals.regions,
            self.partitions,
            self.chunks,
            self.incarnation,
            VERSION,
            self.ack,
            0,
        )

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Head:
        if len(data) < HEAD.size:
            raise CorruptError(f"a file record of {len(data)} bytes is too short")
        (
            size,
            data_bytes,
            crc_sum,
            batches,
            name_crc,
            regions,
            partitions,
            chunks,
            incarnation,
            version,
            ack,
            zero,
        ) = HEAD.unpack_from(data)
        if version != VERSION or ack > Ack.SYNCED or zero:
            raise CorruptError(f"a file record of version {version}, acknowledgement level {ack} is not known here")
        totals = FileTotals(regions=regions, batches=batches, size_bytes=data_bytes, crc_sum=crc_sum)
        return cls(
            totals=totals,
            file_bytes=size,
            name_crc=name_crc,
            partitions=partitions,
            chunks=chunks,
            incarnation=Incarnation(incarnation),
            ack=Ack(ack),
        )


def head_counts(data: bytes) -> tuple[int, int]:
    """Return (regions, chunks) of an encoded head, which is all that a lookup needs; raises CorruptError."""
    if len(data) < HEAD.size:
        raise CorruptError(f"a file record of {len(data)} bytes is too short")
    _, _, _, _, _, regions, _, chunks, _, version, _, _ = HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptError(f"a file record of version {version} is not known here")
    return regions, chunks


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


def encode_key(key: MapFileKey) -> bytes:
    """48 bytes that sort like the key."""
    one = key.shuffle
    return KEY.pack(one.instance, one.shuffle, one.generation, one.state, key.map, key.attempt, key.epoch)


def decode_key(data: bytes) -> MapFileKey:
    """The opposite of encode_key; raises CorruptError for another length."""
    if len(data) != KEY.size:
        raise CorruptError(f"a file key has {KEY.size} bytes, not {len(data)}")
    instance, shuffle, generation, state, map_id, attempt, epoch = KEY.unpack(data)
    owner = layout.shuffle_of(Instance(instance), shuffle, generation, state)
    return MapFileKey(owner, MapId(map_id), AttemptId(attempt), Epoch(epoch))


def encode_shuffle(key: ShuffleKey) -> bytes:
    """32 bytes: the first part of the key of every file of the shuffle."""
    return SHUFFLE_KEY.pack(key.instance, key.shuffle, key.generation, key.state)


def decode_shuffle(data: bytes) -> ShuffleKey:
    """The opposite of encode_shuffle."""
    instance, shuffle, generation, state = SHUFFLE_KEY.unpack(data)
    return layout.shuffle_of(Instance(instance), shuffle, generation, state)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Everything that the index and the footer say of one sealed file."""

    key: MapFileKey
    head: Head
    #: encoded, in order of region and partition
    chunks: tuple[bytes, ...]

    def decoded(self) -> Iterator[Chunk]:
        """Yield every chunk."""
        for chunk in self.chunks:
            yield Chunk.decode(chunk)[0]


def make_record(
    key: MapFileKey, totals: FileTotals, chunks: Iterable[bytes], *, partitions: int, ack: Ack, incarnation: Incarnation
) -> FileRecord:
    """Put together the record of a file whose data is complete."""
    parts = tuple(chunks)
    size = totals.size_bytes + FOOTER_BYTES_MIN + sum(map(len, parts))
    head = Head(
        totals=totals,
        file_bytes=size,
        name_crc=crc32c(layout.sealed_name(key).encode()),
        partitions=partitions,
        chunks=len(parts),
        incarnation=incarnation,
        ack=ack,
    )
    return FileRecord(key, head, parts)


def encode_footer(record: FileRecord) -> bytes:
    """What stands behind the data of a sealed file, trailer included."""
    start = _FOOTER.pack(_FOOTER_MAGIC, VERSION, 0)
    body = b"".join([start, encode_key(record.key), record.head.encode(), *record.chunks])
    size = len(body) + TRAILER.size
    body += TRAILER.pack(size, VERSION, 0, _TRAILER_MAGIC, 0)[:-_CRC_BYTES]
    return body + crc32c(body).to_bytes(_CRC_BYTES, "little")


def footer_bytes(trailer: bytes, file_bytes: int) -> int:
    """Return the length of the footer that ends in `trailer`; raises CorruptError."""
    if len(trailer) != TRAILER.size:
        raise CorruptError(f"a file of {file_bytes} bytes has no footer")
    size, version, zero, magic, _ = TRAILER.unpack(trailer)
    if magic != _TRAILER_MAGIC or version != VERSION or zero or not FOOTER_BYTES_MIN <= size <= file_bytes:
        raise CorruptError("the file does not end in a footer")
    return int(size)


def decode_footer(footer: bytes, file_bytes: int) -> FileRecord:
    """Return the record that a footer holds; raises CorruptError unless every byte of it is right."""
    size = footer_bytes(footer[-TRAILER.size :], file_bytes)
    crc = int.from_bytes(footer[-_CRC_BYTES:], "little")
    if size != len(footer) or crc32c(memoryview(footer)[:-_CRC_BYTES]) != crc:
        raise CorruptError("the footer does not match its checksum")
    magic, version, zero = _FOOTER.unpack_from(footer)
    if magic != _FOOTER_MAGIC or version != VERSION or zero:
        raise CorruptError(f"a footer of version {version} is not known here")
    offset = _FOOTER.size + KEY.size
    key = decode_key(footer[_FOOTER.size : offset])
    head = Head.decode(footer[offset:])
    chunks = split_chunks(footer[offset + HEAD.size : -TRAILER.size], head.chunks)
    if head.file_bytes != file_bytes or head.totals.size_bytes + size != file_bytes:
        raise CorruptError(f"the footer speaks of {head.file_bytes} bytes, the file has {file_bytes}")
    return FileRecord(key, head, chunks)


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


def check_record(record: FileRecord) -> None:
    """Check that the chunks tile the data: regions back to back, entries ascending; raises CorruptError."""
    regions, at, batches, position, last = 0, 0, 0, 0, -1
    length = 0
    for chunk in record.decoded():
        if chunk.region == regions:
            at, regions, position, last = at + length, regions + 1, 0, -1
            length = chunk.region_length
        if chunk.region != regions - 1 or chunk.region_offset != at or chunk.region_length != length:
            raise CorruptError(f"region {chunk.region} is not where the one before it ends")
        for entry in chunk.entries():
            if entry.partition <= last or entry.offset != position or entry.length < 0:
                raise CorruptError(f"the entries of region {chunk.region} do not ascend")
            last, position, batches = entry.partition, entry.offset + entry.length, batches + entry.batches
        if chunk.partitions and chunk.last != last:
            raise CorruptError(f"a record of region {chunk.region} names another last partition")
    totals = record.head.totals
    if (regions, at + length, batches) != (totals.regions, totals.size_bytes, totals.batches):
        raise CorruptError("the region records do not add up to the totals of the file")
