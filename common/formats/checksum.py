"""CRC-32C (Castagnoli), the one checksum of Holdfast, and the seed that ties a batch to its partition.

`crc32c.crc32c(data, value)` continues a CRC, so seeding with bytes S means starting from crc32c(S): the same as the
CRC of S followed by the data. Any implementation without a start value (java.util.zip.CRC32C) feeds it S first.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from crc32c import crc32c

from holdfast.common.errors import CorruptError
from holdfast.common.ids import PartitionId, ShuffleKey

__all__ = ["CRC_BYTES", "SEED", "crc32c", "partition_seed", "with_crc", "without_crc"]

#: A checksum behind what it is of, little endian.
CRC_BYTES = 4

#: instance 16s, shuffle u32, generation u32, state u64, partition u32: the bytes that seed a batch's CRC.
SEED = struct.Struct("<16sIIQI")


@lru_cache(maxsize=65_536)
def partition_seed(shuffle: ShuffleKey, partition: PartitionId) -> int:
    """Return the CRC state with which every batch of this partition starts (u32)."""
    try:
        seed = SEED.pack(shuffle.instance, shuffle.shuffle, shuffle.generation, shuffle.state, partition)
    except struct.error:
        raise TypeError(f"a partition is a whole number, not {partition!r}") from None
    return crc32c(seed)


def with_crc(body: bytes, seed: int = 0) -> bytes:
    """The bytes, and their checksum behind them."""
    return body + crc32c(body, seed).to_bytes(CRC_BYTES, "little")


def without_crc(data: bytes, what: str, seed: int = 0) -> bytes:
    """The opposite of with_crc; raises CorruptError, which names `what`, unless the checksum is right."""
    body = data[:-CRC_BYTES]
    if len(data) < CRC_BYTES or crc32c(body, seed) != int.from_bytes(data[-CRC_BYTES:], "little"):
        raise CorruptError(f"{what} does not match its checksum")
    return body
