"""What changes between two looks: directories and DFS of workers that fail, fill up and recover; masters away.

Rules: pure; in the leader's memory, so a new leader reports failures again. The common case, a worker
that is well and was, costs a look at each directory. Called by api/registry.py with every heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.common.log_events import LogEvent
from holdfast.master.core.events import Happened


class Spot(NamedTuple):
    """A directory, or the DFS, in a heartbeat."""

    path: str
    problem: str
    full: str = ""
    is_dfs: bool = False


class Conditions:
    """What was not well at the last heartbeat of each worker."""

    def __init__(self) -> None:
        self._ill: dict[int, dict[str, Spot]] = {}

    def heard(self, worker: int, name: str, spots: Iterable[Spot]) -> list[Happened]:
        """Take in a heartbeat; return what has changed. `spots` are those that are not well."""
        now = {spot.path: spot for spot in spots}
        before = self._ill.get(worker)
        if not now:
            if before is None:
                return []
            del self._ill[worker]
        else:
            self._ill[worker] = now
        return list(_changes(name, before or {}, now))

    def failing(self) -> dict[int, frozenset[str]]:
        """The directories that cannot be used, by worker, of workers that have some."""
        found = {
            worker: frozenset([path for path, spot in spots.items() if spot.problem and not spot.is_dfs])
            for worker, spots in self._ill.items()
        }
        return {worker: paths for worker, paths in found.items() if paths}


def _changes(name: str, before: dict[str, Spot], now: dict[str, Spot]) -> Iterator[Happened]:
    for path, spot in now.items():
        was = before.get(path)
        if spot.problem and not (was is not None and was.problem):
            failing = LogEvent.DFS_FAILING if spot.is_dfs else LogEvent.DIRECTORY_FAILING
            yield Happened(failing, worker=name, **_place(spot), reason=spot.problem)
        if spot.full and not (was is not None and was.full):
            yield Happened(LogEvent.DIRECTORY_FULL, worker=name, **_place(spot), reason=spot.full)
    for path, spot in before.items():
        left = now.get(path)
        if spot.problem and not (left is not None and left.problem):
            recovered = LogEvent.DFS_RECOVERED if spot.is_dfs else LogEvent.DIRECTORY_RECOVERED
            yield Happened(recovered, worker=name, **_place(spot), was=spot.problem)
        elif spot.full and not (left is not None and left.full):
            yield Happened(LogEvent.DIRECTORY_RECOVERED, worker=name, **_place(spot), was=spot.full)


def _place(spot: Spot) -> dict[str, str]:
    return {"dfs": spot.path} if spot.is_dfs else {"directory": spot.path}


class ConnectedPeers:
    """Which other masters are connected."""

    def __init__(self) -> None:
        self._connected: dict[str, bool] = {}

    def look(self, connected: dict[str, bool], settled: bool) -> list[Happened]:
        """Record the connected masters; return the changes. Until `settled`, one that never connected is no change."""
        found = []
        for name, is_now in connected.items():
            was = self._connected.get(name)
            if is_now:
                if was is False:
                    found.append(Happened(LogEvent.MASTER_CONNECTED, master=name))
                self._connected[name] = True
            elif was or (was is None and settled):
                found.append(Happened(LogEvent.MASTER_DISCONNECTED, master=name))
                self._connected[name] = False
        return found
