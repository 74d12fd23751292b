"""The bytes of the push log: heads and notes of its segments, heads of its records.

Bytes in docs/internals/disk_format.md. Pure: every length is checked before anything is read. Called by push_log.py and
log_recovery.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.checksum import CRC_BYTES, crc32c, with_crc, without_crc
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import PUSH_ENTRY
from holdfast.common.ids import Incarnation, ShuffleKey
from holdfast.worker.storage.index.records import SHUFFLE_KEY, decode_shuffle, encode_shuffle
from holdfast.worker.storage.names import FORMAT

#: magic, version u16, zero u16, incarnation, number u32, boot id; CRC of all before
_SEGMENT_HEAD = struct.Struct("<4sHHII16s")
_SEGMENT_MAGIC = b"HFLG"
SEGMENT_HEAD_BYTES = _SEGMENT_HEAD.size + CRC_BYTES
#: acknowledged end, lowest live segment u32, closed u8 and how far it was synced u24; CRC of the head and all before
_SEGMENT_NOTE = struct.Struct("<III")
#: The unit in which a note says how far its segment was synced: 64 MiB fit into 24 bits.
_SYNCED_UNIT = 16
SEGMENT_NOTE_BYTES = _SEGMENT_NOTE.size + CRC_BYTES
#: Where the records of a segment begin: behind its head and its note.
RECORDS_AT = SEGMENT_HEAD_BYTES + SEGMENT_NOTE_BYTES
#: magic 8, shuffle key 32, map u32, attempt u64, entries, body bytes, CRC of the body, CRC of the entries, number of
#: the segment u32, ack u8, zero 3; CRC of all before
_RECORD = struct.Struct(f"<8s{SHUFFLE_KEY.size}sIQIIIIIB3x")
RECORD_MAGIC = b"HFpushed"
RECORD_BYTES = _RECORD.size + CRC_BYTES

assert RECORD_BYTES >= _SYNCED_UNIT, "the last record that was synced begins before what is left of the rounded end"


class SegmentHead(NamedTuple):
    """The start of a log segment: who wrote it, in which boot. Number 0: nothing refers to it, it is kept for reuse."""

    incarnation: Incarnation
    number: int
    boot_id: bytes

    def encode(self) -> bytes:
        body = _SEGMENT_HEAD.pack(_SEGMENT_MAGIC, FORMAT, 0, self.incarnation, self.number, self.boot_id)
        return with_crc(body)


def decode_segment_head(data: bytes) -> SegmentHead:
    """Read the head of a log segment; raises CorruptError."""
    if len(data) < SEGMENT_HEAD_BYTES:
        raise CorruptError("the head of the log segment is cut")
    body = without_crc(data[:SEGMENT_HEAD_BYTES], "the head of the log segment")
    magic, version, _, incarnation, number, boot_id = _SEGMENT_HEAD.unpack(body)
    if magic != _SEGMENT_MAGIC or version != FORMAT:
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
        return with_crc(body, seed)


def decode_segment_note(data: bytes) -> SegmentNote | None:
    """Read the note behind the head of a segment, from the start of the file; None if it is damaged."""
    if len(data) < RECORDS_AT:
        return None
    try:
        seed = crc32c(data[:SEGMENT_HEAD_BYTES])
        body = without_crc(data[SEGMENT_HEAD_BYTES:RECORDS_AT], "the note of the log segment", seed)
    except CorruptError:
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
        return with_crc(body)


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
