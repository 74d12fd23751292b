"""The bytes of moves: rows that a command asks for, and the segments of epochs that a shuffle's record keeps.

Rules: a record holds its moves as a few segments in the order in which they were made. A new segment is merged with
those before it that are not much longer, so that there are few, and a shuffle with n moves copies each about log n
times. Used by state.py, epochs.py and the services.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

#: A row of a command: partition u32, failed epoch u32, primary u32, replica u32 (2^32 - 1: none), hint u16.
_ROW = struct.Struct("<IIIIH")
#: One epoch as it is kept: partition u32, epoch u32, primary u32, replica u32, hint u16, place in the log u64.
MOVED = struct.Struct("<IIIIHQ")
_U32 = struct.Struct("<I")
#: A segment is merged into the one before it unless that is this many times as long.
_FOLD = 2


class EpochMove(NamedTuple):
    """A new place for a partition, if `failed` is its newest epoch."""

    partition: int
    failed: int
    primary: int
    replica: int
    hint: int = 0


class Moved(NamedTuple):
    """An epoch above a partition's first: where it is, and at which place in the log it was made."""

    partition: int
    epoch: int
    primary: int
    replica: int
    hint: int
    made_index: int


def pack_moves(moves: Iterable[EpochMove]) -> bytes:
    """Return the rows of a command."""
    return b"".join([_ROW.pack(*move) for move in moves])


def count_moves(rows: bytes) -> int:
    """Return how many rows there are. Raises ValueError if the last one is cut."""
    count, rest = divmod(len(rows), _ROW.size)
    if rest:
        raise ValueError(f"rows of {_ROW.size} bytes do not make {len(rows)}")
    return count


def unpack_moves(rows: bytes) -> Iterator[EpochMove]:
    """Yield the rows of a command."""
    return map(EpochMove._make, _ROW.iter_unpack(rows))


def moved_count(segments: Iterable[bytes]) -> int:
    """Return how many epochs the segments hold."""
    return sum(map(len, segments)) // MOVED.size


def unpack_moved(segments: Iterable[bytes]) -> Iterator[Moved]:
    """Yield the epochs in the order in which they were made."""
    for segment in segments:
        yield from map(Moved._make, MOVED.iter_unpack(segment))


def rows_of(segments: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield partition and packed epoch, in the order in which they were made."""
    for segment in segments:
        for at in range(0, len(segment), MOVED.size):
            yield _U32.unpack_from(segment, at)[0], segment[at : at + MOVED.size]


def epoch_of(row: bytes) -> int:
    """Return the epoch of one packed epoch."""
    return int(_U32.unpack_from(row, _U32.size)[0])


def add_segment(segments: tuple[bytes, ...], made: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the segments with these packed epochs behind them."""
    pieces = [b"".join(made)]
    size, kept = len(pieces[0]), len(segments)
    while kept and len(segments[kept - 1]) < _FOLD * size:
        kept -= 1
        pieces.append(segments[kept])
        size += len(segments[kept])
    return (*segments[:kept], b"".join(pieces[::-1]))
