"""What a map attempt reports to its driver: where its output is and how much of what.

Rules: a value; small, picklable, and with bytes of its own for engines that move bytes. The bytes are the winners
layout of docs/protocol.md for one map, behind its number. Called by writer.py, session.py and the Spark API.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.common.errors import ConfigError, ConflictError, ProtocolError
from holdfast.common.ids import Generation, Instance, MapId, ShuffleId, ShuffleKey
from holdfast.common.layouts import MapWinner, MapWinners

_HEAD = struct.Struct("<16sIII")


@dataclass(frozen=True, slots=True)
class MapStatus:
    """The sealed output of one attempt of one map."""

    shuffle: ShuffleKey
    map: MapId
    partitions: int
    winner: MapWinner

    def to_bytes(self) -> bytes:
        """The shuffle (instance, number, generation) and u32 map, then the winners array of just this map."""
        key = self.shuffle
        head = _HEAD.pack(key.instance, key.shuffle, key.generation, self.map)
        return head + MapWinners(self.partitions, (self.winner,)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MapStatus:
        """Undo to_bytes; raises ProtocolError."""
        if len(data) < _HEAD.size:
            raise ProtocolError(f"a map status of {len(data)} bytes is too short")
        winners = MapWinners.decode(data[_HEAD.size :])
        if len(winners.maps) != 1:
            raise ProtocolError(f"a map status holds one map, not {len(winners.maps)}")
        instance, shuffle, generation, map_id = _HEAD.unpack_from(data)
        key = ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(generation))
        return cls(key, MapId(map_id), winners.partitions, winners.maps[0])


def winners_of(statuses: Iterable[MapStatus], shuffle: ShuffleKey, partitions: int) -> MapWinners:
    """Put the statuses in the order of their maps. Raises ConflictError if one is missing, there twice, or of another
    shuffle."""
    by_map: dict[MapId, MapStatus] = {}
    if not isinstance(statuses, Iterable):
        raise ConfigError(f"commit takes the statuses that the writers' `close` returned, not {statuses!r}")
    for status in statuses:
        if not isinstance(status, MapStatus):
            raise ConfigError(f"commit takes the statuses that the writers' `close` returned, not {status!r}")
        if by_map.setdefault(status.map, status) != status:
            raise ConflictError(
                f"two attempts of map {status.map} are named as winners; name the one whose task succeeded"
            )
        if status.shuffle != shuffle:
            raise ConflictError(f"map {status.map} was written for shuffle {status.shuffle}, not for {shuffle}")
        if status.partitions != partitions:
            raise ConflictError(f"map {status.map} wrote {status.partitions} partitions, the shuffle has {partitions}")
    missing = [number for number in range(len(by_map)) if number not in by_map]
    if missing:
        raise ConflictError(f"maps are numbered from 0 without gaps; no status for map {missing[0]}")
    return MapWinners(partitions, tuple(by_map[MapId(number)].winner for number in range(len(by_map))))
