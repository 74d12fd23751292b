"""Keeps how reads from each worker of a cluster went, and orders copies by that.

Rules: pure; time is a number that comes with the calls. What the masters said of a worker holds for as long as a
failure is remembered: then it counts as healthy again, and the next read shows whether it is. A worker of which
nothing is known is one that takes data. Everything is bounded. Called by reads.py, one for all readers of a process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, unique
from typing import NamedTuple

from holdfast.client.core.read.read_order import ClusterView, Interleave, ReadHealth, read_order
from holdfast.common.ids import WorkerId

#: Workers of which it is remembered what the masters said; the oldest word is forgotten first.
SEEN_MAX = 16_384
#: First data of this many streams, the newest, say when a stream is late.
LATENCIES_MAX = 128
#: Before so many were seen nothing is known.
LATENCIES_MIN = 16
#: A stream is late then after what BookKeeper waits for its first speculative read.
DELAY_NS = 2_000_000_000
#: Never sooner than this: a worker that collects garbage or syncs is not slow.
DELAY_NS_MIN = 100_000_000
#: Of 100 streams so many were in time ...
_IN_TIME = 95
#: ... and one that takes so many times as long as the latest of these is late.
_TIMES = 2


@unique
class OrderBy(Enum):
    """By what copies are put in order."""

    #: as the manifest has them
    GIVEN = "given"
    #: by what the masters say of their workers, and what was met there
    HEALTH = "health"
    #: by that, and those of the own region first
    REGION = "region"


class Sight(NamedTuple):
    """What the masters said of a worker."""

    alive: bool = True
    draining: bool = False
    #: "" if it is not known
    region: str = ""


class Latencies:
    """How long the first data of a stream took lately, and from when on one is late."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque(maxlen=LATENCIES_MAX)

    def took(self, ns: int) -> None:
        """The first data of a stream came after so long. Streams that were closed for another one do not count."""
        self._newest.append(ns)

    def delay_ns(self) -> int:
        """Return from when on a stream is late.

        Twice what the slowest of the quickest 95 in 100 took, of the last 128 that delivered, and never under 100 ms;
        2 s until 16 have delivered. Losers are not among them, so one slow worker does not raise it; all slow ones do.
        """
        if len(self._newest) < LATENCIES_MIN:
            return DELAY_NS
        ordered = sorted(self._newest)
        return max(DELAY_NS_MIN, _TIMES * ordered[(len(ordered) * _IN_TIME - 1) // 100])


@dataclass(slots=True)
class ReadBook:
    """The books of a process. Not thread-safe."""

    by: OrderBy = OrderBy.HEALTH
    health: ReadHealth = field(default_factory=ReadHealth)
    #: the process's own, "" if it is not known
    region: str = ""
    #: as ClusterView has it
    pending_threshold: int = 0
    interleave: Interleave = Interleave.ONCE
    #: None: from what was observed
    delay_fixed_ns: int | None = None
    latencies: Latencies = field(default_factory=Latencies)
    #: what the masters said, and when; the newest last
    _seen: dict[WorkerId, tuple[Sight, int]] = field(default_factory=dict)
    #: open streams by worker
    _pending: dict[int, int] = field(default_factory=dict)

    def learn(self, seen: Mapping[WorkerId, Sight], now_ns: int) -> None:
        """The masters said this of workers, just now."""
        for worker, sight in seen.items():
            self._seen.pop(worker, None)
            self._seen[worker] = (sight, now_ns)
        while len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    def ordered(self, copies: Sequence[WorkerId], now_ns: int) -> tuple[WorkerId, ...]:
        """Return all copies, the one to ask first first. `copies`: as they are to be asked if all are the same."""
        if self.by is OrderBy.GIVEN or len(copies) < 2:
            return tuple(copies)
        return tuple(map(WorkerId, read_order(copies, self._view(copies, now_ns), self.health, now_ns)))

    def _view(self, copies: Sequence[WorkerId], now_ns: int) -> ClusterView:
        sights = {worker: self._sight(worker, now_ns) for worker in copies}
        return ClusterView(
            writable={worker for worker, sight in sights.items() if sight.alive and not sight.draining},
            read_only={worker for worker, sight in sights.items() if sight.alive and sight.draining},
            regions={worker: sight.region for worker, sight in sights.items()},
            region=self.region if self.by is OrderBy.REGION else "",
            pending=self._pending,
            pending_threshold=self.pending_threshold,
            interleave=self.interleave,
        )

    def _sight(self, worker: WorkerId, now_ns: int) -> Sight:
        sight, at_ns = self._seen.get(worker, (Sight(), now_ns))
        return sight if now_ns - at_ns < self.health.failure_expire_ns else Sight(region=sight.region)

    def opened(self, worker: WorkerId) -> None:
        """A stream of it was asked for."""
        self._pending[worker] = self._pending.get(worker, 0) + 1

    def closed(self, worker: WorkerId) -> None:
        """A stream of it is over."""
        left = self._pending[worker] - 1
        if left:
            self._pending[worker] = left
        else:
            del self._pending[worker]

    def delay_ns(self) -> int:
        """Return after how long without its first data a stream is late, if reads are speculative."""
        return self.latencies.delay_ns() if self.delay_fixed_ns is None else self.delay_fixed_ns


def region_of(place: str) -> str:
    """Return the region of "/region/rack", "" if the place is not known."""
    return place.lstrip("/").partition("/")[0]
