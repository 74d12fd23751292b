"""The records of sealed files, one family for all of them: what the index holds, and what a file's footer repeats.

Bytes in disk_format.md. A sealed file has a FileRecord: its length, and an EpochRecord for each epoch in it, of
which a pack file has many, all others one. An epoch's record is the persisted answer to its seal, says where its data
lies, and has its chunks. They are what differs: those of a partition are rows, whole batches with the maps that they
are of (which chunks a range of maps needs; within a chunk the batch headers say the rest); those of a map file say
where each partition lies (region_chunks.py). Pure: bytes in, values out; every length is checked before anything is
read, and what does not fit is a CorruptError.

Called by writers, readers, recovery, `inspect` and `verify`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.common.errors import CorruptError
from holdfast.common.formats.checksum import CRC_BYTES, with_crc, without_crc
from holdfast.common.formats.messages import Ack, FileTotals, MapSealed
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import AttemptId, Epoch, Incarnation, Instance, MapFileKey, MapId, PartitionId, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.storage import layout
from holdfast.worker.storage.index.region_chunks import Chunk, check_regions, split_chunks
from holdfast.worker.storage.layout import DataKey, EpochKey, FileKey, PackKey
from holdfast.worker.storage.names import FORMAT

#: data bytes, offset of the first, crc sum, batches u64; chunks, sealing incarnation, pack, regions, partitions u32;
#: status u16, ack, version u8
EPOCH = struct.Struct("<QQQQIIIIIHBB")
#: offset u64; length, batches, lowest map, highest map u32
CHUNK_ROW = struct.Struct("<QIIII")
#: Rows of one index record.
ROWS_MAX = 72
#: Head and chunks that are not longer than this are one record of the index.
INLINE_BYTES_MAX = 1_800

#: Keys as bytes that sort like the keys, big endian: instance, shuffle, generation, state; then what kind of file it is
#: and two numbers (0: partition, epoch; 1: incarnation, number of the pack), or (2) map, attempt, epoch.
SHUFFLE_KEY = struct.Struct(">16sIIQ")
DATA_KEY = struct.Struct(">16sIIQBII")
MAP_KEY = struct.Struct(">16sIIQBIQI")
_PARTITION, _PACK, _MAP = range(3)

#: magic "HFSF", version u16, zero u16, epochs u32; the key of the file follows
_FOOTER = struct.Struct("<4sHHI")
_FOOTER_MAGIC = b"HFSF"
#: In a pack file, before each epoch: partition, epoch u32
_NUMBERS = struct.Struct("<II")
#: footer bytes u64 (trailer included), version u16, zero u16, magic "HFSE", CRC-32C of the whole footer before it
TRAILER = struct.Struct("<QHH4sI")
_TRAILER_MAGIC = b"HFSE"
_TRAILER_BODY = struct.Struct("<QHH4s")

#: magic, version u16, ack u8, zero u8, shuffle key, partition, epoch, incarnation u32, boot id; CRC of all before
_FILE_HEAD = struct.Struct(f"<4sHBB{SHUFFLE_KEY.size}sIII16s")
_FILE_MAGIC = b"HFRP"
FILE_HEAD_BYTES = _FILE_HEAD.size + CRC_BYTES

assert (EPOCH.size, CHUNK_ROW.size, TRAILER.size, FILE_HEAD_BYTES) == (56, 24, 20, 72), "these are disk formats"

_Key_co = TypeVar("_Key_co", covariant=True)
_Epoch_co = TypeVar("_Epoch_co", covariant=True)
_Key = TypeVar("_Key", MapFileKey, EpochKey, PackKey)
_Epoch = TypeVar("_Epoch", MapFileKey, EpochKey)


class ChunkRow(NamedTuple):
    """One chunk of a partition: whole batches back to back; `offset` counts from the start of the file."""

    offset: int
    length: int
    batches: int
    map_min: int
    map_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """What became of an epoch: the persisted answer to its seal, and where its data is."""

    status: Status
    ack: Ack
    #: that sealed it
    incarnation: Incarnation
    size_bytes: int = 0
    offset: int = 0
    crc_sum: int = 0
    batches: int = 0
    #: number of the pack file of that incarnation; 0 is a file of its own
    pack: int = 0
    #: of a map file: its regions, and the reduce partitions of its shuffle
    regions: int = 0
    partitions: int = 0
    chunks: tuple[ChunkRow, ...] = ()
    #: of a map file: encoded, in order of region and partition
    region_chunks: tuple[bytes, ...] = ()

    def place(self, key: EpochKey) -> DataKey:
        """The file with the data."""
        return PackKey(key.shuffle, self.incarnation, self.pack) if self.pack else key

    def answer(self, key: EpochKey) -> SealedEpoch:
        """What the leader is told."""
        return SealedEpoch(
            key.partition, key.epoch, self.status, self.size_bytes, self.batches, len(self.chunks), self.crc_sum
        )

    @property
    def map_answer(self) -> MapSealed:
        """What the writer of a map file is told."""
        totals = FileTotals(
            regions=self.regions, batches=self.batches, size_bytes=self.size_bytes, crc_sum=self.crc_sum
        )
        return MapSealed(totals=totals, incarnation=self.incarnation)

    def decoded(self) -> Iterator[Chunk]:
        """Yield every chunk of a map file."""
        for chunk in self.region_chunks:
            yield Chunk.decode(chunk)[0]

    def encode_head(self) -> bytes:
        return EPOCH.pack(
            self.size_bytes,
            self.offset,
            self.crc_sum,
            self.batches,
            len(self.chunks) + len(self.region_chunks),
            self.incarnation,
            self.pack,
            self.regions,
            self.partitions,
            self.status,
            self.ack,
            FORMAT,
        )

    def encode_chunks(self) -> bytes:
        return b"".join([*[CHUNK_ROW.pack(*row) for row in self.chunks], *self.region_chunks])


def given_up(incarnation: Incarnation, status: Status = Status.FAILED_COPY) -> EpochRecord:
    """What the seal of a copy that was given up, or that nobody can vouch for, records."""
    return EpochRecord(status=status, ack=Ack.MEMORY, incarnation=incarnation)


def _head(data: bytes, offset: int = 0) -> tuple[Any, ...]:
    """The fields of an encoded head; raises CorruptError."""
    if len(data) - offset < EPOCH.size:
        raise CorruptError(f"an epoch record of {len(data) - offset} bytes is too short")
    fields = EPOCH.unpack_from(data, offset)
    if fields[-1] != FORMAT or fields[-2] > Ack.SYNCED:
        raise CorruptError(f"an epoch record of version {fields[-1]}, acknowledgement level {fields[-2]}")
    return fields


def head_counts(data: bytes, offset: int = 0) -> tuple[int, int]:
    """Return (regions, chunks) of an encoded head, which is all that a lookup needs; raises CorruptError."""
    fields = _head(data, offset)
    return fields[7], fields[4]


def decode_epoch(data: bytes, more: bytes = b"") -> EpochRecord:
    """Read a head and its chunks, those in `more` behind those in `data`; raises CorruptError."""
    fields = _head(data)
    size, offset, _, batches, count, _, _, regions, *_ = fields
    chunks = data[EPOCH.size :] + more
    if regions:
        parts = split_chunks(chunks, count)
        check_regions(parts, regions, size, batches)
        return _record(fields, (), parts)
    if len(chunks) != count * CHUNK_ROW.size:
        raise CorruptError(f"an epoch record with {count} chunks in {len(chunks)} bytes")
    rows = tuple([ChunkRow(*row) for row in CHUNK_ROW.iter_unpack(chunks)])
    _check_rows(rows, offset, size, batches)
    return _record(fields, rows, ())


def _record(fields: tuple[Any, ...], rows: tuple[ChunkRow, ...], region_chunks: tuple[bytes, ...]) -> EpochRecord:
    size, offset, crc_sum, batches, _, incarnation, pack, regions, partitions, status, ack, _ = fields
    try:
        known = Status(status)
    except ValueError:
        raise CorruptError(f"an epoch record with status {status}") from None
    return EpochRecord(
        status=known,
        ack=Ack(ack),
        incarnation=Incarnation(incarnation),
        size_bytes=size,
        offset=offset,
        crc_sum=crc_sum,
        batches=batches,
        pack=pack,
        regions=regions,
        partitions=partitions,
        chunks=rows,
        region_chunks=region_chunks,
    )


def _check_rows(rows: tuple[ChunkRow, ...], offset: int, size: int, batches: int) -> None:
    at = offset
    for row in rows:
        if row.offset != at or not row.length or row.map_min > row.map_max:
            raise CorruptError(f"the chunk at {row.offset} is not where the one before it ends")
        at += row.length
    if at != offset + size or sum([row.batches for row in rows]) != batches:
        raise CorruptError("the chunks do not add up to the totals of the epoch")


# keys


def encode_shuffle(key: ShuffleKey) -> bytes:
    """32 bytes: the first part of the key of everything of the shuffle."""
    return SHUFFLE_KEY.pack(key.instance, key.shuffle, key.generation, key.state)


def decode_shuffle(data: bytes) -> ShuffleKey:
    """The opposite of encode_shuffle."""
    instance, shuffle, generation, state = SHUFFLE_KEY.unpack(data)
    return layout.shuffle_of(Instance(instance), shuffle, generation, state)


def encode_key(key: FileKey) -> bytes:
    """49 bytes for a map file, 41 for an epoch or a pack file, that sort like the key."""
    one = key.shuffle
    whose = one.instance, one.shuffle, one.generation, one.state
    if isinstance(key, MapFileKey):
        return MAP_KEY.pack(*whose, _MAP, key.map, key.attempt, key.epoch)
    if isinstance(key, EpochKey):
        return DATA_KEY.pack(*whose, _PARTITION, key.partition, key.epoch)
    return DATA_KEY.pack(*whose, _PACK, key.incarnation, key.number)


def decode_key(data: bytes) -> FileKey:
    """The opposite of encode_key; raises CorruptError."""
    kind = data[SHUFFLE_KEY.size] if len(data) > SHUFFLE_KEY.size else -1
    form = MAP_KEY if kind == _MAP else DATA_KEY
    if len(data) != form.size or not _PARTITION <= kind <= _MAP:
        raise CorruptError(f"{len(data)} bytes, {data.hex()}, are the key of no file")
    instance, shuffle, generation, state, _, *numbers = form.unpack(data)
    owner = layout.shuffle_of(Instance(instance), shuffle, generation, state)
    if kind == _MAP:
        return MapFileKey(owner, MapId(numbers[0]), AttemptId(numbers[1]), Epoch(numbers[2]))
    if kind == _PACK:
        return PackKey(owner, Incarnation(numbers[0]), numbers[1])
    return EpochKey(owner, PartitionId(numbers[0]), Epoch(numbers[1]))


def decode_epoch_key(data: bytes) -> EpochKey:
    """The key of an epoch; raises CorruptError for another."""
    key = decode_key(data)
    if not isinstance(key, EpochKey):
        raise CorruptError(f"{key} is no epoch")
    return key


def data_prefixes(shuffle: ShuffleKey) -> list[bytes]:
    """What the encoded keys of the partition and pack files of a shuffle begin with."""
    return [encode_shuffle(shuffle) + bytes([kind]) for kind in (_PARTITION, _PACK)]


# files


@dataclass(frozen=True, slots=True)
class FileRecord(Generic[_Key_co, _Epoch_co]):
    """Everything that the index and the footer say of one sealed file."""

    key: _Key_co
    file_bytes: int
    #: in the order of their data; that of a map file has its key
    epochs: tuple[tuple[_Epoch_co, EpochRecord], ...]

    @property
    def epoch(self) -> EpochRecord:
        """The one of a map file."""
        ((_, epoch),) = self.epochs
        return epoch


MapRecord = FileRecord[MapFileKey, MapFileKey]
DataRecord = FileRecord[DataKey, EpochKey]


def make_map_file(
    key: MapFileKey,
    totals: FileTotals,
    chunks: Sequence[bytes],
    *,
    partitions: int,
    ack: Ack,
    incarnation: Incarnation,
) -> tuple[MapRecord, bytes]:
    """The record of a map file whose data is complete, and its footer."""
    epoch = EpochRecord(
        status=Status.OK,
        ack=ack,
        incarnation=incarnation,
        size_bytes=totals.size_bytes,
        crc_sum=totals.crc_sum,
        batches=totals.batches,
        regions=totals.regions,
        partitions=partitions,
        region_chunks=tuple(chunks),
    )
    return make_file(key, ((key, epoch),))


def make_file(key: _Key, epochs: tuple[tuple[_Epoch, EpochRecord], ...]) -> tuple[FileRecord[_Key, _Epoch], bytes]:
    """The record of a file whose data is complete, and its footer: what stands behind the data, trailer included."""
    parts: list[bytes] = [_begin(key, len(epochs))]
    for name, epoch in epochs:
        if isinstance(key, PackKey):
            assert isinstance(name, EpochKey), "a pack file has epochs of partitions"
            parts.append(_NUMBERS.pack(name.partition, name.epoch))
        parts += [epoch.encode_head(), epoch.encode_chunks()]
    size = sum(map(len, parts)) + TRAILER.size
    footer = with_crc(b"".join([*parts, _TRAILER_BODY.pack(size, FORMAT, 0, _TRAILER_MAGIC)]))
    last = epochs[-1][1]
    return FileRecord(key, last.offset + last.size_bytes + size, epochs), footer


def _begin(key: FileKey, epochs: int) -> bytes:
    return _FOOTER.pack(_FOOTER_MAGIC, FORMAT, 0, epochs) + encode_key(key)


def begins_footer(data: memoryview, at: int, key: EpochKey) -> bool:
    """Return whether a partition file's footer, or the beginning of one whose write was cut, stands at `at`."""
    head = _begin(key, 1)
    found = bytes(data[at : at + len(head)])
    return bool(found) and head.startswith(found)


def footer_bytes(trailer: bytes, file_bytes: int) -> int:
    """Return the length of the footer that ends in `trailer`; raises CorruptError."""
    if len(trailer) != TRAILER.size:
        raise CorruptError(f"a file of {file_bytes} bytes has no footer")
    size, version, zero, magic, _ = TRAILER.unpack(trailer)
    least = _FOOTER.size + DATA_KEY.size + EPOCH.size + TRAILER.size
    if magic != _TRAILER_MAGIC or version != FORMAT or zero or not least <= size <= file_bytes:
        raise CorruptError("the file does not end in a footer")
    return int(size)


def decode_footer(footer: bytes, key: FileKey, file_bytes: int) -> FileRecord[Any, Any]:
    """Return the record that the footer of this file holds; raises CorruptError unless every byte of it is right."""
    size = footer_bytes(footer[-TRAILER.size :], file_bytes)
    if size != len(footer):
        raise CorruptError(f"a footer of {size} bytes in {len(footer)}")
    body = without_crc(footer, "the footer")[: -_TRAILER_BODY.size]
    count = _FOOTER.unpack_from(body)[-1]
    head = _begin(key, count)
    if not count or not body.startswith(head):
        raise CorruptError("the footer is that of another file, or of another version")
    at, epochs, end_of_data = len(head), [], 0
    for _ in range(count):
        name: Any = key
        if isinstance(key, PackKey):
            partition, number = _NUMBERS.unpack_from(body, at)
            name = EpochKey(key.shuffle, PartitionId(partition), Epoch(number))
            at += _NUMBERS.size
        regions, chunks = head_counts(body[at : at + EPOCH.size])
        end = len(body) if regions else at + EPOCH.size + chunks * CHUNK_ROW.size
        record = decode_epoch(body[at:end])
        if isinstance(name, EpochKey) and record.place(name) != key:
            raise CorruptError(f"the footer names {name}, which is not in {key}")
        epochs.append((name, record))
        at, end_of_data = end, record.offset + record.size_bytes
    if at != len(body) or end_of_data + size != file_bytes:
        raise CorruptError(f"the footer counts {end_of_data + size} bytes, the file has {file_bytes}")
    return FileRecord(key, file_bytes, tuple(epochs))


class FileHead(NamedTuple):
    """The note at the start of a partition file: whose it is, at which level, and who began it in which boot."""

    key: EpochKey
    ack: Ack
    incarnation: Incarnation
    boot_id: bytes

    def encode(self) -> bytes:
        key = self.key
        shuffle = encode_shuffle(key.shuffle)
        return with_crc(
            _FILE_HEAD.pack(
                _FILE_MAGIC, FORMAT, self.ack, 0, shuffle, key.partition, key.epoch, self.incarnation, self.boot_id
            )
        )


def decode_file_head(data: bytes) -> FileHead:
    """Read the head of a partition file; raises CorruptError."""
    if len(data) < FILE_HEAD_BYTES:
        raise CorruptError("the head of the partition file is cut")
    body = without_crc(data[:FILE_HEAD_BYTES], "the head of the partition file")
    magic, version, ack, _, shuffle, partition, epoch, incarnation, boot_id = _FILE_HEAD.unpack(body)
    if magic != _FILE_MAGIC or version != FORMAT or ack > Ack.SYNCED:
        raise CorruptError(f"a partition file of version {version} is not known here")
    key = EpochKey(decode_shuffle(shuffle), PartitionId(partition), Epoch(epoch))
    return FileHead(key, Ack(ack), Incarnation(incarnation), boot_id)
