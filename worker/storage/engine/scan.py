"""Checks a run of batches: whole, of one map attempt, numbered one after another, each with its seeded CRC.

The loop that every written byte passes: about 1 µs a batch beside the CRC itself, which is why it does not build a
`batch.Batch` for each. Pure. Called by the writer for what comes in and by `verify` for what lies on the disk.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from holdfast.common.errors import CorruptError, GiveUpError
from holdfast.common.formats.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LAST,
    MAGIC,
    MORE,
    PAYLOAD_BYTES_MAX,
    TOTALS,
    VERSION,
)
from holdfast.common.formats.checksum import SEED, crc32c
from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status

#: The batch header with magic, version and flags as one number.
_HEADER = struct.Struct("<IIQIII")
_TAG = MAGIC | VERSION << 16
_TAG_MASK = 0x00FF_FFFF
_UNKNOWN_FLAGS = (0xFF & ~(LAST | MORE | CODEC_MASK)) << 24
_LAST = LAST << 24
_CRC_OFFSET = 24
_PARTITION = struct.Struct("<I")

assert _HEADER.size == HEADER_BYTES, "the same bytes as batch.HEADER"


class Scanned(NamedTuple):
    """What a run holds."""

    batches: int
    #: sum of the CRCs, not reduced
    crc_sum: int


class Seeds:
    """CRC seeds of one shuffle's partitions; the same as checksum.partition_seed, without its table."""

    __slots__ = ("_shuffle",)

    def __init__(self, shuffle: ShuffleKey) -> None:
        whole = SEED.pack(shuffle.instance, shuffle.shuffle, shuffle.generation, shuffle.state, 0)
        self._shuffle = crc32c(whole[: -_PARTITION.size])

    def of(self, partition: int) -> int:
        """The CRC state with which every batch of this partition starts."""
        return crc32c(_PARTITION.pack(partition), self._shuffle)


def scan_run(data: memoryview, start: int, end: int, seed: int, map_id: int, attempt: int, number: int) -> Scanned:
    """Check the batches in data[start:end], the first of which must have `number`.

    Raises CorruptError (offsets count from the start of `data`), and GiveUpError BAD_ORDER for a number out of turn.
    """
    unpack, crc_of = _HEADER.unpack_from, crc32c
    first, crc_sum, offset = number, 0, start
    while offset < end:
        body = offset + HEADER_BYTES
        if body > end:
            raise CorruptError(f"batch header cut at offset {offset}")
        tag, batch_map, batch_attempt, batch_number, length, crc = unpack(data, offset)
        stop = body + length
        if tag & _TAG_MASK != _TAG or tag & _UNKNOWN_FLAGS or stop > end or length > PAYLOAD_BYTES_MAX:
            raise CorruptError(f"no whole batch at offset {offset}")
        if crc_of(data[body:stop], crc_of(data[offset : offset + _CRC_OFFSET], seed)) != crc:
            raise CorruptError(f"batch checksum mismatch at offset {offset} (batch {batch_number})")
        if batch_map != map_id or batch_attempt != attempt:
            raise CorruptError(f"batch of map {batch_map} attempt {batch_attempt} at offset {offset}")
        if batch_number != number:
            raise GiveUpError(f"batch {batch_number} where {number} is due", status=Status.BAD_ORDER)
        if tag & _LAST and length < TOTALS.size:
            raise CorruptError(f"LAST batch without totals at offset {offset}")
        number += 1
        crc_sum += crc
        offset = stop
    return Scanned(number - first, crc_sum)
