"""Rows of Spark SQL, from the planes they were compressed as (docs/internals/protocol.md, "Row planes").

Rules: nothing that planes say of themselves is believed: all their rows must be in them, to the byte, before one is
made. Memory is a few times that of the rows, however many they are. The twin of wire/RowPlanes.java, which turns rows
into planes; tests/fuzz/payloads.py compares the two. Pure.
"""

from __future__ import annotations

import struct
import sys
from array import array

#: rows, words of the fixed part of each
_HEAD = struct.Struct("<II")
_LENGTH_BYTES = 4
#: Writers turn no fewer.
_ROWS_MIN = 8
#: The bits of so many rows are turned together.
_GROUP = 64
#: The three rounds that turn eight bytes: by how much, and which of their bits.
_ROUNDS = ((7, b"\xaa\0\xaa\0\xaa\0\xaa\0"), (14, b"\xcc\xcc\0\0\xcc\xcc\0\0"), (28, b"\xf0\xf0\xf0\xf0\0\0\0\0"))


def rows_of(planes: memoryview) -> bytearray:
    """The rows one after another, each behind its length. Raises ValueError where that cannot be."""
    size = len(planes) - _HEAD.size
    if size < 0:
        raise ValueError(f"planes of {len(planes)} bytes")
    count, words = _HEAD.unpack_from(planes)
    fixed = 8 * words
    step = _LENGTH_BYTES + fixed
    if count < _ROWS_MIN or count * step > size:
        raise ValueError(f"planes of {count} rows of {words} words in {size} bytes")
    fronts = bytearray(count * step)
    whole = count // _GROUP * _GROUP
    masks = [(shift, int.from_bytes(mask * (whole // 8), "little")) for shift, mask in _ROUNDS]
    for at in range(step):
        column = _HEAD.size + at * count
        fronts[at::step] = _column(planes[column : column + count], whole, masks)
    lengths = _lengths(fronts, step, count)
    if min(lengths) < fixed or sum(lengths) + count * _LENGTH_BYTES != size:
        raise ValueError(f"planes of {size} bytes of rows, whose lengths say otherwise")
    variable = planes[_HEAD.size + count * step :]
    return _joined(fronts, step, lengths, variable) if variable else fronts


def _column(planes: memoryview, whole: int, masks: list[tuple[int, int]]) -> bytes | memoryview:
    """One byte of each row, from eight planes of a bit of the first `whole`, and the others behind."""
    if not whole:
        return planes
    turned = bytearray(whole)
    for bit in range(8):
        turned[bit::8] = planes[bit * whole // 8 : (bit + 1) * whole // 8]
    column = int.from_bytes(turned, "little")
    for shift, mask in masks:
        different = (column >> shift ^ column) & mask
        column ^= different ^ different << shift
    return b"".join((column.to_bytes(whole, "little"), planes[whole:]))


def _lengths(fronts: bytearray, step: int, count: int) -> array[int]:
    raw = bytearray(_LENGTH_BYTES * count)
    for at in range(_LENGTH_BYTES):
        raw[at::_LENGTH_BYTES] = fronts[at::step]
    lengths = array("I", bytes(raw))
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths


def _joined(fronts: bytearray, step: int, lengths: array[int], variable: memoryview) -> bytearray:
    """Each front with the variable part of its row behind it."""
    rows = bytearray(len(fronts) + len(variable))
    at = taken = 0
    for front, length in zip(range(0, len(fronts), step), lengths, strict=True):
        rows[at : at + step] = fronts[front : front + step]
        more = length + _LENGTH_BYTES - step
        rows[at + step : at + step + more] = variable[taken : taken + more]
        at += step + more
        taken += more
    return rows
