"""The bytes of moves: rows that a command asks for, and the segments of epochs that a shuffle's record keeps.

Rules: a record holds its moves as a few segments in the order in which they were made. A new segment is merged with
those before it that are not much longer, so that there are few, and a shuffle with n moves copies each about log n
times. A row has as many workers as copies are wanted of its shuffle, NO_WORKER in place of those that are not there,
so every function is told how many. Used by state.py, epochs.py and the services.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import NamedTuple

from holdfast.common.ids import NO_WORKER

_U32 = struct.Struct("<I")
#: A segment is merged into the one before it unless that is this many times as long.
_FOLD = 2


class EpochMove(NamedTuple):
    """A new place for a partition, if `failed` is its newest epoch."""

    partition: int
    failed: int
    workers: tuple[int, ...]
    hint: int = 0


class Moved(NamedTuple):
    """An epoch above a partition's first: where it is, and at which place in the log it was made."""

    partition: int
    epoch: int
    workers: tuple[int, ...]
    hint: int
    made_index: int


@cache
def _row(copies: int) -> struct.Struct:
    """A row of a command: partition u32, failed epoch u32, each worker u32, hint u16."""
    return struct.Struct(f"<II{copies}IH")


@cache
def _moved(copies: int) -> struct.Struct:
    """One epoch as it is kept: partition u32, epoch u32, each worker u32, hint u16, place in the log u64."""
    return struct.Struct(f"<II{copies}IHQ")


def moved_bytes(copies: int) -> int:
    """Return what an epoch occupies."""
    return _moved(copies).size


def pack_moves(moves: Iterable[EpochMove], copies: int) -> bytes:
    """Return the rows of a command."""
    pack = _row(copies).pack
    rows = [pack(partition, failed, *_padded(workers, copies), hint) for partition, failed, workers, hint in moves]
    return b"".join(rows)


def count_moves(rows: bytes, copies: int) -> int:
    """Return how many rows there are. Raises ValueError if the last one is cut."""
    count, rest = divmod(len(rows), _row(copies).size)
    if rest:
        raise ValueError(f"rows of {_row(copies).size} bytes do not make {len(rows)}")
    return count


def unpack_moves(rows: bytes, copies: int) -> Iterator[EpochMove]:
    """Yield the rows of a command."""
    for partition, failed, *workers, hint in _row(copies).iter_unpack(rows):
        yield EpochMove(partition, failed, _there(workers), hint)


def pack_moved(moved: Moved, copies: int) -> bytes:
    """Return one epoch as it is kept."""
    partition, epoch, workers, hint, made_index = moved
    return _moved(copies).pack(partition, epoch, *_padded(workers, copies), hint, made_index)


def unpack_moved(segments: Iterable[bytes], copies: int) -> Iterator[Moved]:
    """Yield the epochs in the order in which they were made."""
    for segment in segments:
        for partition, epoch, *workers, hint, made_index in _moved(copies).iter_unpack(segment):
            yield Moved(partition, epoch, _there(workers), hint, made_index)


def moved_count(segments: Iterable[bytes], copies: int) -> int:
    """Return how many epochs the segments hold."""
    return sum(map(len, segments)) // _moved(copies).size


def rows_of(segments: Iterable[bytes], copies: int) -> Iterator[tuple[int, bytes]]:
    """Yield partition and packed epoch, in the order in which they were made."""
    size = _moved(copies).size
    for segment in segments:
        for at in range(0, len(segment), size):
            yield _U32.unpack_from(segment, at)[0], segment[at : at + size]


def _padded(workers: Sequence[int], copies: int) -> tuple[int, ...]:
    return (*workers, *repeat(NO_WORKER, copies - len(workers)))


def _there(workers: Sequence[int]) -> tuple[int, ...]:
    return tuple([worker for worker in workers if worker != NO_WORKER])


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
