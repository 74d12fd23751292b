"""Compresses payloads before they become batches, and undoes it.

Rules: a compressed payload is u32 length of the original, then one LZ4 block (Codec.LZ4) or one zstd frame
(Codec.ZSTD). What does not shrink by an eighth is sent as it is, and the next few payloads are then not even tried:
hashes, media and data that is compressed already would only cost time. Nor is what is longer than a region, so that a
length that is wrong makes no reader take more memory than that. The codecs are those of pyarrow, imported
when first needed. Called by region.py and reader.py.
"""

from __future__ import annotations

import struct
from typing import Any

from holdfast.common.batch import Codec
from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.limits import REGION_BYTES_MAX

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct("<I")
#: Smaller payloads gain less than their handling costs.
COMPRESS_BYTES_MIN = 256
#: Payloads sent as they are after one that did not shrink.
SKIPS = 31
_NAMES = {Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}
_codecs: dict[Codec, Any] = {}


class PayloadError(CorruptError):
    """A payload cannot be undone though its checksum is right: every copy has the same bytes, and none helps. Its batch
    was counted already, so reading it again would drop it as a duplicate."""


def kind_of(error: Exception) -> type[CorruptError]:
    """The error that says of a chunk or region what `error` says of something in it."""
    return PayloadError if isinstance(error, PayloadError) else CorruptError


def _codec(codec: Codec) -> Any:
    found = _codecs.get(codec)
    if found is None:
        try:
            import pyarrow
        except ImportError:
            raise ConfigError(f"{codec.name} payloads need pyarrow: pip install '.[arrow]' in a clone") from None
        found = _codecs[codec] = pyarrow.Codec(_NAMES[codec])
    return found


class Compressor:
    """Compresses the payloads of one writer; remembers what did not shrink."""

    __slots__ = ("_codec", "_skip")

    def __init__(self, codec: Codec) -> None:
        if codec is not Codec.NONE and codec not in _NAMES:
            raise ConfigError(f"payloads are compressed with NONE, LZ4 or ZSTD, not {codec.name}")
        self._codec = codec
        self._skip = 0

    def compress(self, payload: Buffer) -> tuple[Codec, Buffer]:
        """Return the payload as it should be sent, and with which codec."""
        size = len(payload)
        if self._codec is Codec.NONE or not COMPRESS_BYTES_MIN <= size <= REGION_BYTES_MAX:
            return Codec.NONE, payload
        if self._skip:
            self._skip -= 1
            return Codec.NONE, payload
        small = _codec(self._codec).compress(payload)
        if len(small) > size - size // 8:
            self._skip = SKIPS
            return Codec.NONE, payload
        return self._codec, b"".join((_LENGTH.pack(size), small))


def decompress(codec: Codec, payload: Buffer) -> Buffer:
    """Return the original of a payload. Raises PayloadError if it cannot be one."""
    if codec is Codec.NONE:
        return payload
    if codec not in _NAMES:
        raise ConfigError(f"this payload was compressed by the engine ({codec.name}); only the engine can undo it")
    if len(payload) < _LENGTH.size:
        raise PayloadError("a compressed payload without its length")
    (size,) = _LENGTH.unpack_from(payload)
    if size > REGION_BYTES_MAX:
        raise PayloadError(f"a compressed payload claims {size} bytes, at most {REGION_BYTES_MAX} are possible")
    try:
        return memoryview(_codec(codec).decompress(memoryview(payload)[_LENGTH.size :], decompressed_size=size))
    except (OSError, ValueError) as error:
        raise PayloadError(f"a payload cannot be decompressed: {error}") from error
