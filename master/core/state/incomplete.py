"""The bytes of incomplete copies: rows that a command asks for, and those that a shuffle's record keeps.

A copy is incomplete that lacks a batch which was acknowledged, since others had it: a client has found out, or could
not find out that it has it. It is never a copy again. Used by epochs.py, state.py, the snapshot and the services.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

_MARK = struct.Struct("<IIIB")
_KEPT = struct.Struct("<III")


class Mark(NamedTuple):
    """A copy to be called incomplete, if no more than `most` of its epoch are then."""

    partition: int
    epoch: int
    worker: int
    most: int


def pack_marks(marks: Iterable[Mark]) -> bytes:
    """Return the rows of a command: partition u32, epoch u32, worker u32, most u8."""
    return b"".join([_MARK.pack(*mark) for mark in marks])


def unpack_marks(rows: bytes) -> list[Mark]:
    """Return the rows of a command. Raises ValueError if the last one is cut."""
    if len(rows) % _MARK.size:
        raise ValueError(f"rows of {_MARK.size} bytes do not make {len(rows)}")
    return [Mark(*row) for row in _MARK.iter_unpack(rows)]


def pack_incomplete(marks: Iterable[Mark]) -> bytes:
    """Return copies as they are kept: partition u32, epoch u32, worker u32."""
    return b"".join([_KEPT.pack(*mark[:3]) for mark in marks])


def incomplete_count(kept: bytes) -> int:
    """Return how many copies are kept."""
    return len(kept) // _KEPT.size


def unpack_incomplete(kept: bytes) -> dict[tuple[int, int], frozenset[int]]:
    """Return the workers of the incomplete copies, by (partition, epoch). Raises ValueError if the last one is cut."""
    if len(kept) % _KEPT.size:
        raise ValueError("its incomplete copies are cut")
    found: dict[tuple[int, int], frozenset[int]] = {}
    for partition, epoch, worker in _KEPT.iter_unpack(kept):
        found[partition, epoch] = found.get((partition, epoch), frozenset()) | {worker}
    return found
