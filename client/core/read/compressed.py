"""The declared size of a compressed payload, checked before any memory is taken for it.

Rules: a payload is exactly one LZ4 block or one zstd frame that declares its size, which must be possible for
its length: so a few bytes never cost a reader 64 MiB, and nothing behind a frame is taken for a part of it. The twin of
the checks in wire/Codec.java and wire/ZstdFrame.java; tests/fuzz/payloads.py compares the two. Pure.
"""

from __future__ import annotations

import struct

from holdfast.common.limits import KIB, MIB

#: A byte of an LZ4 block decodes to so many bytes at most.
LZ4_RATIO_MAX = 255
#: The longest block that a frame of LZ4 may have; longer ones cannot be put into one.
LZ4_FRAMED_BYTES_MAX = 4 * MIB
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES_MAX = 128 * KIB
_SINGLE_SEGMENT, _CHECKSUM = 0x20, 0x04
_RAW, _RLE, _RESERVED = 0, 1, 3
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
#: Version 1, independent blocks, with the size of the content.
_LZ4_FLAGS = 0x68
_LZ4_SIZES = ((64 * KIB, 0x40), (256 * KIB, 0x50), (MIB, 0x60), (4 * MIB, 0x70))
_MASK = 0xFFFF_FFFF


def lz4_possible(block_bytes: int, size: int) -> bool:
    """Whether a block of LZ4 of this length may hold `size` bytes."""
    return size <= LZ4_RATIO_MAX * block_bytes


def zstd_possible(frame: memoryview, size: int) -> bool:
    """Whether this is one frame of zstd and nothing else, which says that it holds `size` bytes and may do so."""
    if len(frame) < 6 or frame[:4] != _ZSTD_MAGIC:
        return False
    descriptor = frame[4]
    single = bool(descriptor & _SINGLE_SEGMENT)
    at = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    said = int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)
    at += width
    if not width or at > len(frame) or said != size:
        return False
    most, last = 0, False
    while not last:
        if at + 3 > len(frame):
            return False
        head = int.from_bytes(frame[at : at + 3], "little")
        last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
        if kind == _RESERVED or length > _ZSTD_BLOCK_BYTES_MAX:
            return False
        at += 3 + (1 if kind == _RLE else length)
        most += length if kind in (_RAW, _RLE) else _ZSTD_BLOCK_BYTES_MAX
    return at + (4 if descriptor & _CHECKSUM else 0) == len(frame) and most >= size


def lz4_framed(block: memoryview, size: int) -> bytes:
    """Return a frame of LZ4 around a block, which declares `size` bytes: a reader of the frame compares
    that, and of a bare block pyarrow does not. Neither may be above LZ4_FRAMED_BYTES_MAX, and `size` is not 0."""
    longest = max(len(block), size)
    code = next(code for most, code in _LZ4_SIZES if longest <= most)
    descriptor = struct.pack("<BBQ", _LZ4_FLAGS, code, size)
    check = bytes((_xxh32(descriptor) >> 8 & 0xFF,))
    return b"".join((_LZ4_MAGIC, descriptor, check, len(block).to_bytes(4, "little"), block, bytes(4)))


def _xxh32(ten: bytes) -> int:
    """XXH32 with seed 0 of exactly ten bytes, which is how long a descriptor is."""
    value = (374_761_393 + 10) & _MASK
    first, second, *rest = struct.unpack("<IIBB", ten)
    for word in (first, second):
        value = _turned(value + word * 3_266_489_917, 17) * 668_265_263 & _MASK
    for byte in rest:
        value = _turned(value + byte * 374_761_393, 11) * 2_654_435_761 & _MASK
    value = (value ^ value >> 15) * 2_246_822_519 & _MASK
    value = (value ^ value >> 13) * 3_266_489_917 & _MASK
    return value ^ value >> 16


def _turned(value: int, count: int) -> int:
    value &= _MASK
    return (value << count | value >> 32 - count) & _MASK
