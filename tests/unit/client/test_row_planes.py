"""Planes become the rows they were made of, or are refused."""

import random
import struct
import tracemalloc

import pytest

from holdfast.client.checks import compression_of
from holdfast.client.compress import Compression, Compressor, PayloadError, decompress
from holdfast.client.core.read.row_planes import rows_of
from holdfast.common.errors import ConfigError
from holdfast.common.formats.batch import Codec
from tests.support.row_planes import planes, row

HEAD = struct.Struct("<II")


@pytest.mark.parametrize("words", [0, 1, 3, 40])
@pytest.mark.parametrize("count", [8, 9, 63, 64, 65, 128, 1_000])
def test_rows_come_back(words: int, count: int) -> None:
    """Rows of one length, rows whose variable parts differ, and rows of no field at all are the same again."""
    chance = random.Random(count)
    even = [row(words, bytes(16), chance) for _ in range(count)]
    mixed = [row(words, chance.randbytes(8 * chance.randrange(4)), chance) for _ in range(count)]
    for rows in (even, mixed, [row(words, b"", chance) for _ in range(count)]):
        assert rows_of(memoryview(planes(rows, words))) == b"".join(rows)
    assert rows_of(memoryview(planes(even, words + 2))) == b"".join(even), "of one length: planes from end to end"


def test_every_cut_is_refused() -> None:
    """So is a byte too many: rows take all that is there, and nothing else."""
    whole = planes([row(2, bytes(8 * each)) for each in range(9)], 2)
    for end in range(len(whole)):
        with pytest.raises(ValueError, match="planes of"):
            rows_of(memoryview(whole[:end]))
    with pytest.raises(ValueError, match="planes of"):
        rows_of(memoryview(whole + b"x"))


@pytest.mark.parametrize("count", [10, 64, 70])
def test_flipped_bits_are_refused_or_change_as_many(count: int) -> None:
    """A bit of the number of rows or of their lengths that is turned is found; one of their content changes one byte.
    (Other words, or two lengths whose sum is right, give as many bytes: that is for the checksum of the batch.)"""
    rows = [row(2, bytes(8 * (each % 3))) for each in range(count)]
    whole = planes(rows, 2)
    lengths_end = 8 * (HEAD.size + 4 * len(rows))
    for bit in (*range(32), *range(64, lengths_end), *range(lengths_end, 8 * len(whole), 29)):
        damaged = bytearray(whole)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        if bit < lengths_end:
            with pytest.raises(ValueError, match="planes of"):
                rows_of(memoryview(damaged))
        else:
            back, before = rows_of(memoryview(damaged)), b"".join(rows)
            assert sum(one != other for one, other in zip(back, before, strict=True)) == 1


@pytest.mark.parametrize(
    ("count", "words"), [(0, 0), (7, 0), (8, 0xFFFF_FFFF), (0xFFFF_FFFF, 0), (0xFFFF_FFFF, 0xFFFF_FFFF), (9, 1 << 29)]
)
def test_no_memory_is_taken_for_what_cannot_be(count: int, words: int) -> None:
    """A head that names more rows than there are bytes, or longer ones, is refused before anything is allocated."""
    data = memoryview(HEAD.pack(count, words) + bytes(100))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="planes of"):
            rows_of(data)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_compressed_planes_are_undone(codec: Codec) -> None:
    """A payload of either codec of rows gives the rows, and is smaller than without planes; one whose planes are none
    is a PayloadError."""
    chance = random.Random(3)
    rows = [row(5, b"", chance) for _ in range(1_000)]
    used, payload = Compressor(Compression(codec)).compress(0, planes(rows, 5))
    assert used is codec
    of_rows = Codec[f"{codec.name}_ROWS"]
    assert bytes(decompress(of_rows, payload)) == b"".join(rows)
    _, plain = Compressor(Compression(codec)).compress(0, b"".join(rows))
    assert len(payload) < 0.9 * len(plain)
    with pytest.raises(PayloadError, match="planes of 0 rows"):
        decompress(of_rows, Compressor(Compression(codec)).compress(0, bytes(2_000))[1])


def test_python_makes_no_planes() -> None:
    """A Python writer has payloads, of which it does not know whether they are rows: it refuses these codecs."""
    with pytest.raises(ConfigError, match=r"`codec` is none, lz4, zstd, or .* not <Codec.LZ4_ROWS"):
        compression_of("codec", Codec.LZ4_ROWS)
