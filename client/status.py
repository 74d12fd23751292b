"""What a map attempt reports to its driver: where its output is and how much of what.

Rules: a value; small, picklable, and with bytes of its own for engines that move bytes. The bytes are the winners
layout of docs/protocol.md for one map, behind its number. Called by writer.py, session.py and the Spark API.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.common.errors import ConfigError, ConflictError, ProtocolError
from holdfast.common.ids import MapId
from holdfast.common.layouts import MapWinner, MapWinners

_MAP = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class MapStatus:
    """The sealed output of one attempt of one map."""

    map: MapId
    partitions: int
    winner: MapWinner

    def to_bytes(self) -> bytes:
        """u32 map, then the winners array of just this map."""
        return _MAP.pack(self.map) + MapWinners(self.partitions, (self.winner,)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MapStatus:
        """Undo to_bytes; raises ProtocolError."""
        if len(data) < _MAP.size:
            raise ProtocolError(f"a map status of {len(data)} bytes is too short")
        winners = MapWinners.decode(data[_MAP.size :])
        if len(winners.maps) != 1:
            raise ProtocolError(f"a map status holds one map, not {len(winners.maps)}")
        return cls(MapId(_MAP.unpack_from(data)[0]), winners.partitions, winners.maps[0])


def winners_of(statuses: Iterable[MapStatus], partitions: int) -> MapWinners:
    """Put the statuses in the order of their maps. Raises ConflictError if one is missing or there twice."""
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
        if status.partitions != partitions:
            raise ConflictError(f"map {status.map} wrote {status.partitions} partitions, the shuffle has {partitions}")
    missing = [number for number in range(len(by_map)) if number not in by_map]
    if missing:
        raise ConflictError(f"maps are numbered from 0 without gaps; no status for map {missing[0]}")
    return MapWinners(partitions, tuple(by_map[MapId(number)].winner for number in range(len(by_map))))
