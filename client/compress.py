"""Compresses payloads before they become batches, and undoes it.

Rules: a compressed payload is u32 length of the original, then one LZ4 block (Codec.LZ4) or one zstd frame
(Codec.ZSTD); what Java tasks wrote may be planes (row_planes.py), compressed so. What does not shrink by an eighth is
sent as it is, and the next few payloads of its partition are then not even tried: hashes, media and data that is
compressed already would only cost time. Nor is what is longer than a region, so that a length that is wrong makes no
reader take more memory than that. The codecs are those of pyarrow, imported when first needed. Called by region.py,
batches.py and the readers.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, NamedTuple

from holdfast.client.core.read.compressed import LZ4_FRAMED_BYTES_MAX, lz4_framed, lz4_possible, zstd_possible
from holdfast.client.core.read.row_planes import rows_of
from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.formats.batch import Codec
from holdfast.common.limits import REGION_BYTES_MAX

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct("<I")
#: Smaller payloads gain less than their handling costs.
COMPRESS_BYTES_MIN = 256
#: Payloads of a partition that are sent as they are after one that did not shrink.
SKIPS = 31
#: Tries in vain, one after another, after which a writer's data counts as such that does not shrink; of the payloads of
#: partitions of which nothing is known every so many is tried then.
MISSES = 16
EVERY = 8
#: The last one that was tried has shrunk.
_SHRINKS = -1
_NAMES = {Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}
#: Levels of zstd, and the one where nobody says; as for spark.io.compression.zstd.level.
ZSTD_LEVEL_MIN, ZSTD_LEVEL_MAX, USUAL_LEVEL = -131_072, 22, 1
#: What compressed the planes.
_OF_PLANES = {Codec.LZ4_ROWS: Codec.LZ4, Codec.ZSTD_ROWS: Codec.ZSTD}


class Compression(NamedTuple):
    """How the payloads of a writer are compressed. The twin of push/Compression.java."""

    codec: Codec
    #: of zstd; the other codecs have none
    level: int = USUAL_LEVEL


class PayloadError(CorruptError):
    """A payload cannot be undone though its checksum is right: every copy has the same bytes, and none helps. Its batch
    was counted already, so reading it again would drop it as a duplicate."""


def kind_of(error: Exception) -> type[CorruptError]:
    """The error of a chunk or region, made from `error` of a part of it."""
    return PayloadError if isinstance(error, PayloadError) else CorruptError


@functools.cache
def _codec(name: str, level: int | None = None) -> Any:
    """What pyarrow calls so: one of _NAMES, or "lz4" for frames around blocks; with the level where it compresses."""
    try:
        import pyarrow
    except ImportError:
        called = name.removesuffix("_raw").upper()
        raise ConfigError(f"{called} payloads need pyarrow: pip install '.[arrow]' in a clone") from None
    return pyarrow.Codec(name, compression_level=level)


class Shrinking:
    """Which payloads are worth compressing, from what became of those before, partition by partition: one may hold
    hashes and the next one text. The twin of push/Shrinking.java. Pure."""

    __slots__ = ("_misses", "_passed", "_skips")

    def __init__(self) -> None:
        #: by partition: how many are not tried now, or _SHRINKS; nothing is known of the others
        self._skips: dict[int, int] = {}
        self._misses = 0
        self._passed = 0

    def worth(self, partition: int) -> bool:
        """Whether the next payload of this partition is to be tried; ask once for each."""
        skips = self._skips.get(partition, 0)
        if skips > 0:
            self._skips[partition] = skips - 1
            return False
        if skips == _SHRINKS or self._misses < MISSES:
            return True
        self._passed = (self._passed + 1) % EVERY
        return not self._passed

    def shrank(self, partition: int, before: int, after: int) -> bool:
        """What became of one that was tried; returns whether it shrank enough to be sent so."""
        enough = after <= before - before // 8
        self._skips[partition] = _SHRINKS if enough else SKIPS
        self._misses = 0 if enough else min(MISSES, self._misses + 1)
        return enough


class Compressor:
    """Compresses the payloads of one writer; remembers what did not shrink."""

    __slots__ = ("_codec", "_level", "_shrinking")

    def __init__(self, compression: Compression) -> None:
        self._codec = compression.codec
        self._level = compression.level if compression.codec is Codec.ZSTD else None
        self._shrinking = Shrinking()

    def compress(self, partition: int, payload: Buffer) -> tuple[Codec, Buffer]:
        """Return a payload of this partition as it should be sent, and with which codec."""
        size = len(payload)
        if self._codec is Codec.NONE or not COMPRESS_BYTES_MIN <= size <= REGION_BYTES_MAX:
            return Codec.NONE, payload
        if not self._shrinking.worth(partition):
            return Codec.NONE, payload
        small = _codec(_NAMES[self._codec], self._level).compress(payload)
        if not self._shrinking.shrank(partition, size, len(small)):
            return Codec.NONE, payload
        return self._codec, b"".join((_LENGTH.pack(size), small))


def decompress(codec: Codec, payload: Buffer) -> Buffer:
    """Return the original of a payload. Raises PayloadError if it cannot be one."""
    if codec is Codec.NONE:
        return payload
    if codec in _OF_PLANES:
        return _rows(decompress(_OF_PLANES[codec], payload))
    if codec not in _NAMES:
        raise ConfigError(f"this payload was compressed by the engine ({codec.name}); only the engine can undo it")
    if len(payload) < _LENGTH.size:
        raise PayloadError("a compressed payload without its length")
    (size,) = _LENGTH.unpack_from(payload)
    if size > REGION_BYTES_MAX:
        raise PayloadError(f"a compressed payload claims {size} bytes, at most {REGION_BYTES_MAX} are possible")
    small = memoryview(payload)[_LENGTH.size :]
    possible = zstd_possible(small, size) if codec is Codec.ZSTD else lz4_possible(len(small), size)
    if not possible:
        raise PayloadError(
            f"a compressed payload claims {size} bytes, which {len(small)} bytes of {codec.name} cannot be"
        )
    try:
        if codec is Codec.LZ4:
            return _lz4(small, size)
        return memoryview(_codec(_NAMES[codec]).decompress(small, decompressed_size=size))
    except (OSError, ValueError) as error:
        raise PayloadError(f"a payload cannot be decompressed: {error}") from error


def _rows(planes: Buffer) -> Buffer:
    try:
        return rows_of(memoryview(planes))
    except ValueError as error:
        raise PayloadError(f"a payload cannot be decompressed: {error}") from error


def _lz4(small: memoryview, size: int) -> Buffer:
    """pyarrow does not tell how much a block held, and leaves the rest of its memory as it was: a frame around the
    block has the size compared. Raises OSError, ValueError."""
    if not size:
        if bytes(small) != b"\0":
            raise ValueError("a block of nothing with something in it")
        return b""
    if max(len(small), size) <= LZ4_FRAMED_BYTES_MAX:
        return memoryview(_codec("lz4").decompress(lz4_framed(small, size), decompressed_size=size))
    blocks = _codec(_NAMES[Codec.LZ4])
    original = memoryview(blocks.decompress(small, decompressed_size=size))
    try:
        blocks.decompress(small, decompressed_size=size - 1)
    except OSError:
        return original
    raise ValueError("it holds less than it claims")
