"""What a map attempt reports to its driver: where its output is and how much of what.

Rules: a value; small, picklable, and with bytes of its own for engines that move bytes. The bytes are the winners
layout of docs/internals/protocol.md for one map, behind its number. Called by writer.py, push_writer.py, the shuffles
and the Spark API.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from holdfast.common.errors import ConfigError, ConflictError, ProtocolError
from holdfast.common.formats.layouts import MapWinner, MapWinners, bitmap_bytes
from holdfast.common.formats.reduce_layouts import ReduceWinners
from holdfast.common.ids import AttemptId, Generation, Instance, MapId, ShuffleId, ShuffleKey, StateId
from holdfast.common.limits import PARTITIONS_MAX

_HEAD = struct.Struct("<16sIIQI")
_PUSHED = struct.Struct("<16sIIQIQI")
#: Maps that an error names; there may be many.
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class MapStatus:
    """The sealed output of one attempt of one map."""

    shuffle: ShuffleKey
    map: MapId
    partitions: int
    winner: MapWinner

    def to_bytes(self) -> bytes:
        """The shuffle (instance, number, generation, state), u32 map, then the winners array of this map."""
        key = self.shuffle
        head = _HEAD.pack(key.instance, key.shuffle, key.generation, key.state, self.map)
        return head + MapWinners(self.partitions, (self.winner,)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MapStatus:
        """Undo to_bytes; raises ProtocolError."""
        if len(data) < _HEAD.size:
            raise ProtocolError(f"a map status of {len(data)} bytes is too short")
        winners = MapWinners.decode(data[_HEAD.size :])
        if len(winners.maps) != 1:
            raise ProtocolError(f"a map status holds one map, not {len(winners.maps)}")
        instance, shuffle, generation, state, map_id = _HEAD.unpack_from(data)
        key = ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(generation), StateId(state))
        return cls(key, MapId(map_id), winners.partitions, winners.maps[0])


@dataclass(frozen=True, slots=True)
class PushStatus:
    """The pushed output of one attempt of one map, all acknowledged.

    Bit p of the bitmap (byte p // 8, bit p % 8): it wrote for partition p.
    """

    shuffle: ShuffleKey
    map: MapId
    attempt: AttemptId
    partitions: int
    bitmap: bytes

    def __repr__(self) -> str:
        """Without the bitmap, which may be long."""
        wrote = int.from_bytes(self.bitmap, "little").bit_count()
        return (
            f"PushStatus(shuffle {self.shuffle}, map {self.map}, attempt {self.attempt}, "
            f"wrote for {wrote} of {self.partitions} partitions)"
        )

    def to_bytes(self) -> bytes:
        """The shuffle (instance, number, generation, state), u32 map, u64 attempt, u32 partitions, then the bitmap."""
        key = self.shuffle
        numbers = (key.shuffle, key.generation, key.state, self.map, self.attempt, self.partitions)
        return _PUSHED.pack(key.instance, *numbers) + self.bitmap

    @classmethod
    def from_bytes(cls, data: bytes) -> PushStatus:
        """Undo to_bytes; raises ProtocolError."""
        if len(data) < _PUSHED.size:
            raise ProtocolError(f"a push status of {len(data)} bytes is too short")
        instance, shuffle, generation, state, map_id, attempt, partitions = _PUSHED.unpack_from(data)
        bitmap = data[_PUSHED.size :]
        if not 1 <= partitions <= PARTITIONS_MAX or len(bitmap) != bitmap_bytes(partitions):
            raise ProtocolError(f"a push status of {partitions} partitions with a bitmap of {len(bitmap)} bytes")
        key = ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(generation), StateId(state))
        return cls(key, MapId(map_id), AttemptId(attempt), partitions, bitmap)


def winners_of(statuses: Iterable[MapStatus], shuffle: ShuffleKey, partitions: int) -> MapWinners:
    """Put the statuses in the order of their maps. Raises ConflictError if one is missing, there twice, or of another
    shuffle."""
    by_map = _by_map(MapStatus, statuses, shuffle, partitions)
    return MapWinners(partitions, tuple(status.winner for status in by_map))


def push_winners_of(
    statuses: Iterable[PushStatus], shuffle: ShuffleKey, partitions: int, maps: int | None = None
) -> ReduceWinners:
    """The same for maps that pushed; `maps`: how many there are, if that is known. Raises ConfigError where it is not
    known and there is no status at all: a commit is final, and an empty one is never intended."""
    by_map = _by_map(PushStatus, statuses, shuffle, partitions, maps)
    if maps is None and not by_map:
        raise ConfigError(
            f"no status for shuffle {shuffle}: give what the writers' `close` returned, and register the shuffle with "
            "`maps=` so that none can be missing; maps=0 if it has no map at all"
        )
    return ReduceWinners(
        partitions, tuple(status.attempt for status in by_map), tuple(status.bitmap for status in by_map)
    )


def _not_the_maps(given: Iterable[int], maps: int) -> str:
    """What is wrong with the statuses of a shuffle that was registered with so many maps, "" if nothing is."""
    there = set(given)
    said = f"{len(there)} status{'' if len(there) == 1 else 'es'} for {maps} map{'' if maps == 1 else 's'}"
    missing = [f"map {number}" for number in range(maps) if number not in there]
    if missing:
        more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
        return f"{said}; missing: {', '.join(missing[:_NAMED_MAX])}{more}"
    return "" if len(there) == maps else f"{said}; there is no map {max(there)}, they are numbered from 0"


Either = TypeVar("Either", MapStatus, PushStatus)


def _by_map(
    kind: type[Either], statuses: Iterable[Either], shuffle: ShuffleKey, partitions: int, maps: int | None = None
) -> list[Either]:
    by_map: dict[MapId, Either] = {}
    if not isinstance(statuses, Iterable):
        raise ConfigError(f"commit takes the statuses that the writers' `close` returned, not {statuses!r}")
    for status in statuses:
        if not isinstance(status, kind):
            raise ConfigError(f"commit takes the statuses that the writers' `close` returned, not {status!r}")
        if by_map.setdefault(status.map, status) != status:
            raise ConflictError(
                f"two attempts of map {status.map} are named as winners; pass only the one whose task succeeded"
            )
        if status.shuffle != shuffle:
            raise ConflictError(f"map {status.map} was written for shuffle {status.shuffle}, not for {shuffle}")
        if status.partitions != partitions:
            raise ConflictError(f"map {status.map} wrote {status.partitions} partitions, the shuffle has {partitions}")
    wrong = "" if maps is None else _not_the_maps(by_map, maps)
    if wrong:
        raise ConflictError(f"shuffle {shuffle}: {wrong}")
    missing = [number for number in range(len(by_map)) if number not in by_map]
    if missing:
        raise ConflictError(f"maps are numbered from 0 without gaps; no status for map {missing[0]}")
    return [by_map[MapId(number)] for number in range(len(by_map))]
