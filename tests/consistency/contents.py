"""The bytes of the harness: a pure function of who wrote them, so that the oracle keeps nothing and makes them again.

What an attempt writes follows from (seed, application, shuffle, generation, map, attempt, partition, number): two
attempts of one map never write the same, so a loser's batch, one of another shuffle, one that came twice and one that
is missing all show, and each says by its first bytes whose it is.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.common.formats.batch import Codec
from holdfast.common.formats.messages import Ack

_SIZES = (0, 40, 900, 9_000, 60_000)
_RARE_BYTES = 700_000
_HEAD = struct.Struct(">8sHQHH")
#: Records that a verdict names.
_NAMED_MAX = 3

#: (map, partition, payload) of what a reader is given.
Found = tuple[int, int, bytes]


class Place(NamedTuple):
    """One generation of one shuffle."""

    seed: int
    app: str
    shuffle: int
    generation: int

    def __str__(self) -> str:
        return f"{self.app} shuffle {self.shuffle} generation {self.generation}"


class Shape(NamedTuple):
    """How a shuffle is registered, the same in all of its generations."""

    reduce: bool
    partitions: int
    maps: int
    copies: int
    ack: Ack
    #: of one map
    records: int


def shape_of(place: Place) -> Shape:
    """The shape that the seed gives to a shuffle."""
    chance = random.Random(f"{place.seed}/{place.app}/{place.shuffle}/shape")
    return Shape(
        reduce=chance.random() < 0.75,
        partitions=chance.choice((1, 3, 6, 12)),
        maps=chance.choice((1, 2, 3, 4)),
        copies=chance.choice((1, 1, 2)),
        ack=chance.choice((Ack.MEMORY, Ack.WRITTEN, Ack.WRITTEN, Ack.SYNCED)),
        records=chance.choice((3, 30, 80)),
    )


def codec_of(place: Place, attempt: int) -> Codec:
    """How an attempt compresses."""
    return random.Random(f"{place}/{attempt}").choice((Codec.NONE, Codec.LZ4))


def records_of(place: Place, map_id: int, attempt: int) -> Iterator[tuple[int, bytes]]:
    """(partition, payload) of an attempt, in the order in which it writes them."""
    shape = shape_of(place)
    chance = random.Random(f"{place.seed}/{place}/{map_id}/{attempt}")
    numbers: Counter[int] = Counter()
    for _ in range(shape.records):
        partition = chance.randrange(shape.partitions)
        size = _RARE_BYTES if chance.random() < 0.01 else chance.choice(_SIZES)
        yield partition, _payload(place, map_id, attempt, partition, numbers[partition], size)
        numbers[partition] += 1


def _payload(place: Place, map_id: int, attempt: int, partition: int, number: int, size: int) -> bytes:
    head = _HEAD.pack(_name(place), map_id, attempt, partition, number)
    third = hashlib.shake_128(head + size.to_bytes(4, "big")).digest(size // 3)
    return head + third * 3  # so that compressing is worth while


def _name(place: Place) -> bytes:
    return hashlib.blake2b(f"{place.seed}/{place}".encode(), digest_size=8).digest()


def difference(
    place: Place, winners: Sequence[int], partitions: Iterable[int], maps: range | None, found: Sequence[Found]
) -> str:
    """What is wrong with what a reader was given of these partitions (and maps), "" if it is exact."""
    wanted: Counter[Found] = Counter()
    chosen = set(partitions)
    for map_id, attempt in enumerate(winners):
        if maps is None or map_id in maps:
            for partition, payload in records_of(place, map_id, attempt):
                if partition in chosen:
                    wanted[map_id, partition, payload] += 1
    came = Counter(found)
    if came == wanted:
        return "" if shape_of(place).reduce else _disorder(found)
    missing, extra = wanted - came, came - wanted
    reported = [f"missing {_reported(place, one)}" for one in _first(missing)]
    reported += [f"too much {_reported(place, one)}" for one in _first(extra)]
    return f"{missing.total()} of {wanted.total()} records are missing, {extra.total()} too many: {'; '.join(reported)}"


def _first(some: Counter[Found]) -> list[Found]:
    return sorted(some)[:_NAMED_MAX]


def _reported(place: Place, one: Found) -> str:
    """Whose record it is."""
    map_id, partition, payload = one
    where = f"in map {map_id} partition {partition}"
    if len(payload) < _HEAD.size:
        return f"{len(payload)} bytes that nobody wrote {where}"
    name, of_map, attempt, of_partition, number = _HEAD.unpack_from(payload)
    whose = "this generation's" if name == _name(place) else "another generation's"
    return f"{whose} map {of_map} attempt {attempt} partition {of_partition} record {number} {where}"


def _disorder(found: Sequence[Found]) -> str:
    """Records of one map and MAP partition come in the order in which they were written."""
    due: Counter[tuple[int, int]] = Counter()
    for map_id, partition, payload in found:
        number = _HEAD.unpack_from(payload)[4]
        if number != due[map_id, partition]:
            return f"map {map_id} partition {partition}: record {number} came where {due[map_id, partition]} was due"
        due[map_id, partition] += 1
    return ""
