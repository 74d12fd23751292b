"""The records of the soak: made from a seed, counted and summed by partition, and known by heart.

A record has 16 bytes: a number that no other has, and a value that follows from it. A map's records are cut into blocks
of a few, each a payload for a random partition. Nothing is kept: who wants to know what a partition must hold makes the
records again.
"""

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

RECORD_BYTES = 16
#: Records in a block.
_BLOCK_MIN, _BLOCK_MAX = 1, 19
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_U64 = (1 << 64) - 1
_Numbers = np.ndarray


class Shape(NamedTuple):
    """One shuffle: `maps` maps of `per_map` records for `partitions` partitions; its records count from `first`."""

    seed: int
    first: int
    maps: int
    per_map: int
    partitions: int


class Totals(NamedTuple):
    """How many records, and the sums of their numbers and of their values mod 2^64."""

    records: int = 0
    numbers: int = 0
    values: int = 0

    def __str__(self) -> str:
        return f"count {self.records}, sums {self.numbers:#018x} {self.values:#018x}"

    def plus(self, other: "Totals") -> "Totals":
        """Both together."""
        return Totals(*((one + two) & _U64 for one, two in zip(self, other, strict=True)))


class BadRecordError(Exception):
    """A record whose value does not follow from its number."""


def _values(numbers: _Numbers) -> _Numbers:
    # The shift keeps the sum of values from following from the sum of numbers.
    return (numbers ^ (numbers >> np.uint64(7))) * _FACTOR


def _numbers(shape: Shape, map_id: int) -> _Numbers:
    first = shape.first + map_id * shape.per_map
    return np.arange(first, first + shape.per_map, dtype=np.uint64)


def _blocks(shape: Shape, map_id: int) -> Iterator[tuple[int, int, int]]:
    """(partition, first record, record behind the last), the records counted from the map's first."""
    rng = random.Random(f"{shape.seed}/{shape.first}/{map_id}")
    start = 0
    while start < shape.per_map:
        end = min(start + rng.randint(_BLOCK_MIN, _BLOCK_MAX), shape.per_map)
        yield rng.randrange(shape.partitions), start, end
        start = end


def payloads(shape: Shape, map_id: int) -> Iterator[tuple[int, bytes]]:
    """(partition, payload) of a map, in order."""
    numbers = _numbers(shape, map_id)
    rows = np.column_stack((numbers, _values(numbers))).astype("<u8").tobytes()
    for partition, start, end in _blocks(shape, map_id):
        yield partition, rows[start * RECORD_BYTES : end * RECORD_BYTES]


def expected(shape: Shape) -> dict[int, Totals]:
    """What each partition must hold."""
    found = dict.fromkeys(range(shape.partitions), Totals())
    for map_id in range(shape.maps):
        blocks = np.array(list(_blocks(shape, map_id)))
        numbers = _numbers(shape, map_id)
        sums = [np.add.reduceat(each, blocks[:, 1]) for each in (numbers, _values(numbers))]
        sizes = blocks[:, 2] - blocks[:, 1]
        for partition in range(shape.partitions):
            mine = blocks[:, 0] == partition
            one = Totals(int(sizes[mine].sum()), *(int(each[mine].sum(dtype=np.uint64)) for each in sums))
            found[partition] = found[partition].plus(one)
    return found


def totals(data: Iterable[bytes]) -> Totals:
    """Count and sums of the records in these payloads. Raises BadRecordError."""
    rows = np.frombuffer(b"".join(data), dtype="<u8").reshape(-1, 2)
    numbers, values = rows[:, 0], rows[:, 1]
    if (wrong := np.flatnonzero(values != _values(numbers))).size:
        raise BadRecordError(f"record {int(numbers[wrong[0]])} has a value that is not its own")
    return Totals(len(rows), int(numbers.sum(dtype=np.uint64)), int(values.sum(dtype=np.uint64)))
