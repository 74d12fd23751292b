"""The batch: the unit of exactly-once, on the wire and on disk alike. Format in docs/internals/protocol.md, "Batch".

Header, 28 bytes, little endian:

    0  u16 magic 0x4248 ("HB")   2  u8 version 1   3  u8 flags
    4  u32 map                   8  u64 attempt   16  u32 batch number
   20  u32 payload length       24  u32 CRC-32C of (seed, header[0:24], payload)

Flags: bit 0 LAST, bit 1 MORE (the record continues in the next batch of the same map, attempt and partition),
bits 4 to 6 codec, all others 0. A LAST batch's payload starts with TOTALS: u32 number of batches, itself included,
and u64 sum mod 2^64 of the CRCs of the batches before it (its own CRC covers the totals).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.ids import AttemptId, BatchNo, MapId
from holdfast.common.limits import BATCH_BYTES_MAX

MAGIC = 0x4248
VERSION = 1
HEADER = struct.Struct("<HBBIQIII")
HEADER_BYTES = HEADER.size
_CRC = struct.Struct("<I")
_CRC_OFFSET = 24
TOTALS = struct.Struct("<IQ")

LAST = 0x01
MORE = 0x02
_CODEC_SHIFT = 4
CODEC_MASK = 0x70
_KNOWN_FLAGS = LAST | MORE | CODEC_MASK

PAYLOAD_BYTES_MAX = BATCH_BYTES_MAX - HEADER_BYTES

assert HEADER_BYTES == 28, "the header is a wire format"


class Codec(IntEnum):
    """How a payload was compressed before it was framed."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2
    ENGINE = 3  #: by the engine's own codec; Holdfast passes it through
    LZ4_ROWS = 5  #: rows of Spark SQL as planes, then LZ4
    ZSTD_ROWS = 6


#: By what a batch has in its flags.
_CODECS = frozenset(codec << _CODEC_SHIFT for codec in Codec)


class Batch(NamedTuple):
    """One verified batch; `payload` is a view into the caller's buffer, without the totals of a LAST batch."""

    map: MapId
    attempt: AttemptId
    number: BatchNo
    flags: int
    crc: int
    payload: memoryview
    #: (batches, crc sum) of a LAST batch
    totals: tuple[int, int] | None

    @property
    def codec(self) -> Codec:
        return Codec((self.flags & CODEC_MASK) >> _CODEC_SHIFT)


@dataclass(slots=True)
class BatchWriter:
    """Numbers and seals the batches of one (map, attempt, partition). Pure; not thread-safe.

    `seed` comes from checksum.partition_seed. Callers end with exactly one `last=True` batch if they sent any.
    """

    map: MapId
    attempt: AttemptId
    seed: int
    batches: int = 0
    crc_sum: int = 0

    def header(
        self,
        payload: bytes | bytearray | memoryview,
        *,
        last: bool = False,
        more: bool = False,
        codec: Codec = Codec.NONE,
    ) -> bytes:
        """Return the bytes that go before `payload`: the header, and the totals of a LAST batch.

        Raises ValueError if the payload is longer than PAYLOAD_BYTES_MAX less the totals.
        """
        length = len(payload) + (TOTALS.size if last else 0)
        if length > PAYLOAD_BYTES_MAX:
            raise ValueError(f"a batch holds at most {PAYLOAD_BYTES_MAX} payload bytes, not {length}")
        flags = (LAST if last else 0) | (MORE if more else 0) | (codec << _CODEC_SHIFT)
        head = HEADER.pack(MAGIC, VERSION, flags, self.map, self.attempt, self.batches, length, 0)[:_CRC_OFFSET]
        tail = b""
        crc = crc32c(head, self.seed)
        if last:
            tail = TOTALS.pack(self.batches + 1, self.crc_sum)
            crc = crc32c(tail, crc)
        crc = crc32c(payload, crc)
        self.batches += 1
        self.crc_sum = (self.crc_sum + crc) & 0xFFFF_FFFF_FFFF_FFFF
        return head + _CRC.pack(crc) + tail


def parse_batch(data: memoryview, offset: int, seed: int) -> tuple[Batch, int]:
    """Verify the batch at `offset` and return it with the offset behind it.

    Raises CorruptError (naming what is wrong, the caller adds where) for a bad magic, version, flag, length or CRC,
    and for a batch that does not end within `data`.
    """
    if len(data) - offset < HEADER_BYTES:
        raise CorruptError(f"batch header cut at offset {offset}: {len(data) - offset} of {HEADER_BYTES} bytes")
    magic, version, flags, map_id, attempt, number, length, crc = HEADER.unpack_from(data, offset)
    known = not flags & ~_KNOWN_FLAGS and flags & CODEC_MASK in _CODECS
    if magic != MAGIC or version != VERSION or not known or length > PAYLOAD_BYTES_MAX:
        raise CorruptError(f"not a batch header at offset {offset}")
    start = offset + HEADER_BYTES
    end = start + length
    if end > len(data):
        raise CorruptError(f"batch cut at offset {offset}: {len(data) - start} of {length} payload bytes")
    payload = data[start:end]
    if crc32c(payload, crc32c(data[offset : offset + _CRC_OFFSET], seed)) != crc:
        raise CorruptError(
            f"batch checksum mismatch at offset {offset} (map {map_id} attempt {attempt} batch {number})"
        )
    totals = None
    if flags & LAST:
        if length < TOTALS.size:
            raise CorruptError(f"LAST batch without totals at offset {offset}")
        totals = TOTALS.unpack_from(payload)
        payload = payload[TOTALS.size :]
    return Batch(MapId(map_id), AttemptId(attempt), BatchNo(number), flags, crc, payload, totals), end


def parse_batches(data: memoryview, seed: int) -> Iterator[Batch]:
    """Yield every batch of `data`, which must hold whole batches; raises as parse_batch."""
    offset = 0
    while offset < len(data):
        batch, offset = parse_batch(data, offset, seed)
        yield batch


def whole_batch_bytes(data: memoryview, offset: int) -> int | None:
    """Return the length of the batch that starts at `offset`, or None while its header is not whole there.

    Only the length field is looked at, bounded; raises CorruptError if it cannot be a batch header.
    """
    if len(data) - offset < HEADER_BYTES:
        return None
    magic, version, _, _, _, _, length, _ = HEADER.unpack_from(data, offset)
    if magic != MAGIC or version != VERSION or length > PAYLOAD_BYTES_MAX:
        raise CorruptError(f"not a batch header at offset {offset}")
    return int(HEADER_BYTES + length)
