"""The bytes of REDUCE partitions on disk: index records, footers, heads of partition files, the push log.

Bytes in docs/disk_format.md. An epoch has one EPOCH record: what became of it, where its data lies and its chunks,
with the maps that each chunk has batches of (the batch index: which chunks a range of maps needs; within a chunk the
batch headers say the rest). A partition file holds one epoch, a pack file many; both end in a footer that repeats the
records. Pure: every length is checked before anything is read, and what does not fit is a CorruptError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import PUSH_ENTRY, SealedEpoch
from holdfast.common.ids import Epoch, Incarnation, PartitionId, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.storage.index.records import SHUFFLE_KEY, TRAILER, decode_shuffle, encode_shuffle
from holdfast.worker.storage.layout import DataKey, EpochKey, PackKey

VERSION = 2
#: data bytes, offset of the first, crc sum u64; batches, chunks, incarnation, pack u32; status u16, ack, version u8
EPOCH = struct.Struct("<QQQIIIIHBB")
#: offset u64; length, batches, lowest map, highest map u32
CHUNK_ROW = struct.Struct("<QIIII")
#: Rows of one index record.
ROWS_MAX = 73
_EPOCH_NUMBERS = struct.Struct(">II")
EPOCH_KEY_BYTES = SHUFFLE_KEY.size + _EPOCH_NUMBERS.size
_DATA_NUMBERS = struct.Struct(">BII")
DATA_KEY_BYTES = SHUFFLE_KEY.size + _DATA_NUMBERS.size
#: file bytes u64, CRC of the name in its folder u32, epochs u32
DATA_FILE = struct.Struct("<QII")

#: magic, version u16, zero u16, shuffle key, epochs u32
_FOOTER = struct.Struct(f"<4sHH{SHUFFLE_KEY.size}sI")
_FOOTER_MAGIC, _TRAILER_MAGIC = b"HFRF", b"HFRE"
_FOOTER_EPOCH = struct.Struct("<II")
#: magic, version u16, ack u8, zero u8, shuffle key, partition, epoch, incarnation u32, boot id; CRC of all before
_FILE_HEAD = struct.Struct(f"<4sHBB{SHUFFLE_KEY.size}sIII16s")
_FILE_MAGIC = b"HFRP"
FILE_HEAD_BYTES = _FILE_HEAD.size + 4
#: magic, version u16, zero u16, incarnation, number u32, boot id; CRC of all before
_SEGMENT_HEAD = struct.Struct("<4sHHII16s")
_SEGMENT_MAGIC = b"HFLG"
SEGMENT_HEAD_BYTES = _SEGMENT_HEAD.size + 4
_SEGMENT_VERSION = 3
#: acknowledged end, lowest live segment u32, closed u8 and how far it was synced u24; CRC of the head and all before
_SEGMENT_NOTE = struct.Struct("<III")
#: The unit in which a note says how far its segment was synced: 64 MiB fit into 24 bits.
_SYNCED_UNIT = 16
SEGMENT_NOTE_BYTES = _SEGMENT_NOTE.size + 4
#: Where the records of a segment begin: behind its head and its note.
RECORDS_AT = SEGMENT_HEAD_BYTES + SEGMENT_NOTE_BYTES
#: magic 8, shuffle key 32, map u32, attempt u64, entries, body bytes, CRC of the body, CRC of the entries, number of
#: the segment u32, ack u8, zero 3; CRC of all before
_RECORD = struct.Struct(f"<8s{SHUFFLE_KEY.size}sIQIIIIIB3x")
RECORD_MAGIC = b"HFpushed"
RECORD_BYTES = _RECORD.size + 4
_CRC_BYTES = 4

assert RECORD_BYTES >= _SYNCED_UNIT, "the last record that was synced begins before what is left of the rounded end"
assert (EPOCH.size, CHUNK_ROW.size, FILE_HEAD_BYTES) == (44, 24, 72), "these are disk formats"


class ChunkRow(NamedTuple):
    """One chunk: whole batches back to back; `offset` counts from the start of the file."""

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
    chunks: tuple[ChunkRow, ...] = ()

    def place(self, key: EpochKey) -> DataKey:
        """The file with the data."""
        return PackKey(key.shuffle, self.incarnation, self.pack) if self.pack else key

    def answer(self, key: EpochKey) -> SealedEpoch:
        """What the leader is told."""
        return SealedEpoch(
            key.partition, key.epoch, self.status, self.size_bytes, self.batches, len(self.chunks), self.crc_sum
        )

    def encode_head(self) -> bytes:
        return EPOCH.pack(
            self.size_bytes,
            self.offset,
            self.crc_sum,
            self.batches,
            len(self.chunks),
            self.incarnation,
            self.pack,
            self.status,
            self.ack,
            VERSION,
        )

    def encode_rows(self) -> bytes:
        return b"".join([CHUNK_ROW.pack(*row) for row in self.chunks])


def decode_epoch(data: bytes, more: bytes | None = None) -> EpochRecord:
    """Read a head with its rows behind it, or with `more` as its rows; raises CorruptError."""
    if len(data) < EPOCH.size:
        raise CorruptError(f"an epoch record of {len(data)} bytes is too short")
    size, offset, crc_sum, batches, chunks, incarnation, pack, status, ack, version = EPOCH.unpack_from(data)
    rows = data[EPOCH.size :] if more is None else more
    if version != VERSION or ack > Ack.SYNCED or len(rows) != chunks * CHUNK_ROW.size:
        raise CorruptError(f"an epoch record of version {version} with {chunks} chunks in {len(rows)} bytes")
    try:
        known = Status(status)
    except ValueError:
        raise CorruptError(f"an epoch record with status {status}") from None
    found = tuple(ChunkRow(*row) for row in CHUNK_ROW.iter_unpack(rows))
    _check_rows(found, offset, size, batches)
    return EpochRecord(
        status=known,
        ack=Ack(ack),
        incarnation=Incarnation(incarnation),
        size_bytes=size,
        offset=offset,
        crc_sum=crc_sum,
        batches=batches,
        pack=pack,
        chunks=found,
    )


def chunk_count(data: bytes) -> int:
    """How many chunks an encoded head speaks of."""
    if len(data) < EPOCH.size:
        raise CorruptError(f"an epoch record of {len(data)} bytes is too short")
    return int(EPOCH.unpack_from(data)[4])


def _check_rows(rows: tuple[ChunkRow, ...], offset: int, size: int, batches: int) -> None:
    at = offset
    for row in rows:
        if row.offset != at or not row.length or row.map_min > row.map_max:
            raise CorruptError(f"the chunk at {row.offset} is not where the one before it ends")
        at += row.length
    if at != offset + size or sum([row.batches for row in rows]) != batches:
        raise CorruptError("the chunks do not add up to the totals of the epoch")


def encode_epoch_key(key: EpochKey) -> bytes:
    """32 bytes that sort like the key."""
    return encode_shuffle(key.shuffle) + _EPOCH_NUMBERS.pack(key.partition, key.epoch)


def decode_epoch_key(data: bytes) -> EpochKey:
    """The opposite of encode_epoch_key; raises CorruptError for another length."""
    if len(data) != EPOCH_KEY_BYTES:
        raise CorruptError(f"an epoch key has {EPOCH_KEY_BYTES} bytes, not {len(data)}")
    partition, epoch = _EPOCH_NUMBERS.unpack(data[SHUFFLE_KEY.size :])
    return EpochKey(decode_shuffle(data[: SHUFFLE_KEY.size]), PartitionId(partition), Epoch(epoch))


def encode_data_key(key: DataKey) -> bytes:
    """33 bytes that name a sealed file: the shuffle, and what kind it is."""
    if isinstance(key, PackKey):
        return encode_shuffle(key.shuffle) + _DATA_NUMBERS.pack(1, key.incarnation, key.number)
    return encode_shuffle(key.shuffle) + _DATA_NUMBERS.pack(0, key.partition, key.epoch)


def decode_data_key(data: bytes) -> DataKey:
    """The opposite of encode_data_key; raises CorruptError."""
    if len(data) != DATA_KEY_BYTES:
        raise CorruptError(f"the key of a data file has {DATA_KEY_BYTES} bytes, not {len(data)}")
    shuffle = decode_shuffle(data[: SHUFFLE_KEY.size])
    kind, first, second = _DATA_NUMBERS.unpack(data[SHUFFLE_KEY.size :])
    return (
        PackKey(shuffle, Incarnation(first), second) if kind else EpochKey(shuffle, PartitionId(first), Epoch(second))
    )


@dataclass(frozen=True, slots=True)
class DataRecord:
    """Everything that the index and the footer say of one sealed partition or pack file."""

    key: DataKey
    file_bytes: int
    epochs: tuple[tuple[EpochKey, EpochRecord], ...]


def encode_data_footer(record: DataRecord) -> bytes:
    """What stands behind the data of a sealed partition or pack file, trailer included."""
    parts = [_FOOTER.pack(_FOOTER_MAGIC, VERSION, 0, encode_shuffle(record.key.shuffle), len(record.epochs))]
    for key, epoch in record.epochs:
        parts += [_FOOTER_EPOCH.pack(key.partition, key.epoch), epoch.encode_head(), epoch.encode_rows()]
    body = b"".join(parts)
    body += TRAILER.pack(len(body) + TRAILER.size, VERSION, 0, _TRAILER_MAGIC, 0)[:-_CRC_BYTES]
    return body + crc32c(body).to_bytes(_CRC_BYTES, "little")


def begins_footer(data: memoryview, at: int, key: EpochKey) -> bool:
    """Return whether a partition file's footer, or the beginning of one whose write was cut, stands at `at`."""
    head = _FOOTER.pack(_FOOTER_MAGIC, VERSION, 0, encode_shuffle(key.shuffle), 1)
    found = bytes(data[at : at + len(head)])
    return bool(found) and head.startswith(found)


def data_footer_bytes(trailer: bytes, file_bytes: int) -> int:
    """Return the length of the footer that ends in `trailer`; raises CorruptError."""
    if len(trailer) != TRAILER.size:
        raise CorruptError(f"a file of {file_bytes} bytes has no footer")
    size, version, zero, magic, _ = TRAILER.unpack(trailer)
    if magic != _TRAILER_MAGIC or version != VERSION or zero or not _FOOTER.size + TRAILER.size <= size <= file_bytes:
        raise CorruptError("the file does not end in a footer")
    return int(size)


def decode_data_footer(footer: bytes, key: DataKey, file_bytes: int) -> DataRecord:
    """Return the record that a footer holds; raises CorruptError unless every byte of it is right."""
    size = data_footer_bytes(footer[-TRAILER.size :], file_bytes)
    crc = int.from_bytes(footer[-_CRC_BYTES:], "little")
    if size != len(footer) or crc32c(memoryview(footer)[:-_CRC_BYTES]) != crc:
        raise CorruptError("the footer does not match its checksum")
    magic, version, zero, shuffle, count = _FOOTER.unpack_from(footer)
    if magic != _FOOTER_MAGIC or version != VERSION or zero or decode_shuffle(shuffle) != key.shuffle:
        raise CorruptError("the footer is that of another shuffle, or of another version")
    at, epochs = _FOOTER.size, []
    for _ in range(count):
        partition, epoch = _FOOTER_EPOCH.unpack_from(footer, at)
        at += _FOOTER_EPOCH.size
        end = at + EPOCH.size + chunk_count(footer[at:]) * CHUNK_ROW.size
        record = decode_epoch(footer[at:end])
        found = EpochKey(key.shuffle, PartitionId(partition), Epoch(epoch))
        if record.place(found) != key or record.offset + record.size_bytes > file_bytes - size:
            raise CorruptError(f"the footer speaks of {found}, which is not in {key}")
        epochs.append((found, record))
        at = end
    if at != len(footer) - TRAILER.size:
        raise CorruptError("the footer has bytes that belong to nothing")
    return DataRecord(key, file_bytes, tuple(epochs))


class FileHead(NamedTuple):
    """The note at the start of a partition file: whose it is, at which level, and who began it in which boot."""

    key: EpochKey
    ack: Ack
    incarnation: Incarnation
    boot_id: bytes

    def encode(self) -> bytes:
        key = self.key
        shuffle = encode_shuffle(key.shuffle)
        body = _FILE_HEAD.pack(
            _FILE_MAGIC, VERSION, self.ack, 0, shuffle, key.partition, key.epoch, self.incarnation, self.boot_id
        )
        return body + crc32c(body).to_bytes(_CRC_BYTES, "little")


def decode_file_head(data: bytes) -> FileHead:
    """Read the head of a partition file; raises CorruptError."""
    body = data[: _FILE_HEAD.size]
    crc = data[_FILE_HEAD.size : FILE_HEAD_BYTES]
    if len(data) < FILE_HEAD_BYTES or crc32c(body) != int.from_bytes(crc, "little"):
        raise CorruptError("the head of the partition file is damaged")
    magic, version, ack, _, shuffle, partition, epoch, incarnation, boot_id = _FILE_HEAD.unpack(body)
    if magic != _FILE_MAGIC or version != VERSION or ack > Ack.SYNCED:
        raise CorruptError(f"a partition file of version {version} is not known here")
    key = EpochKey(decode_shuffle(shuffle), PartitionId(partition), Epoch(epoch))
    return FileHead(key, Ack(ack), Incarnation(incarnation), boot_id)


class SegmentHead(NamedTuple):
    """The start of a log segment: who wrote it, in which boot. Number 0: nothing refers to it, it is kept for reuse."""

    incarnation: Incarnation
    number: int
    boot_id: bytes

    def encode(self) -> bytes:
        body = _SEGMENT_HEAD.pack(_SEGMENT_MAGIC, _SEGMENT_VERSION, 0, self.incarnation, self.number, self.boot_id)
        return body + crc32c(body).to_bytes(_CRC_BYTES, "little")


def decode_segment_head(data: bytes) -> SegmentHead:
    """Read the head of a log segment; raises CorruptError."""
    body = data[: _SEGMENT_HEAD.size]
    crc = data[_SEGMENT_HEAD.size : SEGMENT_HEAD_BYTES]
    if len(data) < SEGMENT_HEAD_BYTES or crc32c(body) != int.from_bytes(crc, "little"):
        raise CorruptError("the head of the log segment is damaged")
    magic, version, _, incarnation, number, boot_id = _SEGMENT_HEAD.unpack(body)
    if magic != _SEGMENT_MAGIC or version != _SEGMENT_VERSION:
        raise CorruptError(f"a log segment of version {version} is not known here")
    return SegmentHead(Incarnation(incarnation), number, boot_id)


class SegmentNote(NamedTuple):
    """What a segment says of itself and its neighbours; written over in place behind its head."""

    #: records up to here were written whole, and may have been acknowledged
    end: int
    #: number of the oldest segment of this incarnation that is still needed
    lowest: int
    #: a later segment of this incarnation was begun
    closed: bool
    #: records up to here were on the disk before this was written, rounded down: in every boot they are whole
    synced: int

    def encode(self, seed: int) -> bytes:
        """16 bytes; `seed` is the checksum of the head, so that the note of another use of the file is none."""
        body = _SEGMENT_NOTE.pack(self.end, self.lowest, self.closed | self.synced // _SYNCED_UNIT << 8)
        return body + crc32c(body, seed).to_bytes(_CRC_BYTES, "little")


def decode_segment_note(data: bytes) -> SegmentNote | None:
    """Read the note behind the head of a segment, from the start of the file; None if it is damaged."""
    body = data[SEGMENT_HEAD_BYTES : RECORDS_AT - _CRC_BYTES]
    crc = data[RECORDS_AT - _CRC_BYTES : RECORDS_AT]
    seed = crc32c(data[:SEGMENT_HEAD_BYTES])
    if len(data) < RECORDS_AT or crc32c(body, seed) != int.from_bytes(crc, "little"):
        return None
    end, lowest, rest = _SEGMENT_NOTE.unpack(body)
    return SegmentNote(end, lowest, bool(rest & 0xFF), (rest >> 8) * _SYNCED_UNIT)


class RecordHead(NamedTuple):
    """A record of the push log: the small batches of one frame, then their entries as they came."""

    shuffle: ShuffleKey
    map: int
    attempt: int
    entries: int
    body_bytes: int
    body_crc: int
    entries_crc: int
    #: a record of another segment is what the file held before it was used again
    segment: int
    ack: Ack

    @property
    def size_bytes(self) -> int:
        """The whole record."""
        return RECORD_BYTES + self.body_bytes + self.entries * PUSH_ENTRY.size

    def encode(self) -> bytes:
        shuffle = encode_shuffle(self.shuffle)
        body = _RECORD.pack(RECORD_MAGIC, shuffle, *self[1:])
        return body + crc32c(body).to_bytes(_CRC_BYTES, "little")


def decode_record_head(data: bytes | memoryview, offset: int, of_segment: int) -> RecordHead | None:
    """Read the head of a record; None if there is none of this segment, or it is damaged."""
    end = offset + RECORD_BYTES
    if end > len(data):
        return None
    raw = bytes(data[offset:end])
    if crc32c(raw[: _RECORD.size]) != int.from_bytes(raw[_RECORD.size :], "little"):
        return None
    magic, shuffle, map_id, attempt, entries, size, body_crc, entries_crc, segment, ack = _RECORD.unpack_from(raw)
    if magic != RECORD_MAGIC or ack > Ack.SYNCED or segment != of_segment:
        return None
    head = RecordHead(decode_shuffle(shuffle), map_id, attempt, entries, size, body_crc, entries_crc, segment, Ack(ack))
    return head if offset + head.size_bytes <= len(data) else None


def rows_of(data: bytes | memoryview) -> Iterator[tuple[int, ...]]:
    """The entries of a record."""
    return PUSH_ENTRY.iter_unpack(data)
