"""Where workers are: regions, racks, and the paths that name them.

Rules: pure. A place is an absolute path of parts, `/region/rack` with us; a rack is the whole path, so `/a/r1` and
`/b/r1` are two racks. All places in one topology have the same number of parts, or racks of different height would be
compared. A worker that is put again replaces what was known of it.

Source: the network topology of Hadoop, as Apache BookKeeper has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.common.errors import ConfigError

DEFAULT_PLACE = "/default-region/default-rack"
#: Of a path; it comes from scripts and tables.
PLACE_BYTES_MAX = 255


def check_place(path: str) -> str:
    """Return the path without a slash at its end. Raises ConfigError if it is no absolute path."""
    trimmed = path.removesuffix("/")
    parts = trimmed.split("/")
    size = len(path.encode("utf-8", "replace"))
    if len(parts) < 2 or parts[0] or not all(parts[1:]) or size > PLACE_BYTES_MAX or not path.isprintable():
        raise ConfigError(f"{path[:PLACE_BYTES_MAX]!r} is no place: write it as /region/rack, such as {DEFAULT_PLACE}")
    return trimmed


def region_of(place: str) -> str:
    """The first part of a place."""
    return place.split("/", 2)[1]


@dataclass(slots=True)
class Topology:
    """Workers by place."""

    _places: dict[int, str] = field(default_factory=dict)
    _racks: dict[str, dict[int, None]] = field(default_factory=dict)

    def put(self, worker: int, place: str) -> None:
        """A worker is there. Raises ConfigError if that is no place, or one of another depth than those of others;
        nothing has changed then."""
        place = check_place(place)
        others = (each for rack, each in self._racks.items() if each.keys() - {worker} and rack != place)
        other = next((self._places[next(iter(each.keys() - {worker}))] for each in others), place)
        if other.count("/") != place.count("/"):
            raise ConfigError(f"{place} has another depth than {other}: places have the same number of parts")
        self.remove(worker)
        self._places[worker] = place
        self._racks.setdefault(place, {})[worker] = None

    def remove(self, worker: int) -> None:
        """A worker has left; an unknown one is ignored."""
        place = self._places.pop(worker, None)
        if place is not None:
            del self._racks[place][worker]
            if not self._racks[place]:
                del self._racks[place]

    def place_of(self, worker: int) -> str | None:
        """Where a worker is."""
        return self._places.get(worker)

    @property
    def workers(self) -> Iterable[int]:
        """All of them, in the order in which they came."""
        return self._places.keys()

    @property
    def racks(self) -> Iterable[str]:
        """Those that have workers."""
        return self._racks.keys()

    def leaves(self, scope: str = "") -> list[int]:
        """Workers below a path ("" for all), or with `~a,b` outside of all of these paths; in the order they came."""
        if scope.startswith("~"):
            outside = tuple(scope[1:].split(","))
            return [worker for worker, place in self._places.items() if not any(_below(place, one) for one in outside)]
        return [worker for worker, place in self._places.items() if not scope or _below(place, scope)]

    def __contains__(self, worker: int) -> bool:
        return worker in self._places

    def __len__(self) -> int:
        return len(self._places)


def _below(place: str, scope: str) -> bool:
    return place == scope or place.startswith(f"{scope}/")
