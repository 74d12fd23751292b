"""Workers that come and go: a grace before one that left is forgotten, and a time-out for those with many errors.

Rules: pure; the clock is handed in. Both only ever narrow a first attempt: what they hold back is used when there is
not enough without it.

Source: the stabilised topology and the quarantine of Apache BookKeeper's client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from holdfast.master.placement.members import Draw


class Changed(NamedTuple):
    """What a full set of workers changed."""

    joined: frozenset[int]
    left: frozenset[int]
    #: left: neither writable nor read-only, and their grace is over
    dead: frozenset[int]


@dataclass(slots=True)
class Stabiliser:
    """Remembers recent members."""

    #: how long one that left is kept in reserve; 0: not at all
    period_ns: int = 0
    _here: set[int] = field(default_factory=set)
    _read_only: frozenset[int] = frozenset()
    #: those that left, with the time at which they are forgotten; a second leave does not extend it
    _absent_until: dict[int, int] = field(default_factory=dict)
    #: when each was last put
    _present_ns: dict[int, int] = field(default_factory=dict)

    def update(self, writable: Collection[int], read_only: Collection[int], now_ns: int) -> Changed:
        """Take in the full sets of now, empty ones too (B4)."""
        new = frozenset(writable)
        joined, left = new - self._here, frozenset(self._here) - new
        for worker in joined:
            self._present_ns[worker] = now_ns
            self._absent_until.pop(worker, None)
        for worker in left:
            self._absent_until.setdefault(worker, now_ns + self.period_ns)
        self._here = set(new)
        self._read_only = frozenset(read_only)
        return Changed(joined, left, self.expired(now_ns))

    def expired(self, now_ns: int) -> frozenset[int]:
        """Those whose grace is over by now: they are dead, unless they are read-only. Each is returned once."""
        over = {worker for worker, until in self._absent_until.items() if now_ns >= until}
        for worker in over:
            del self._absent_until[worker]
            self._present_ns.pop(worker, None)
        return frozenset(over - self._read_only)

    @property
    def writable(self) -> frozenset[int]:
        """Those that are there."""
        return frozenset(self._here)

    @property
    def read_only(self) -> frozenset[int]:
        """Those that serve and take nothing new."""
        return self._read_only

    @property
    def reserve(self) -> frozenset[int]:
        """Those that left and may be back in a moment: for requests that no other can serve."""
        return frozenset(self._absent_until)


@dataclass(slots=True)
class Flapping:
    """Counts starts by worker: one that starts again and again is a bad place for new data, alive as it may be."""

    starts_max: int = 3
    window_ns: int = 60 * 10**9
    #: the latest starts of each, by the last one
    _starts: dict[int, list[int]] = field(default_factory=dict)

    def started(self, worker: int, now_ns: int) -> None:
        """It registered anew."""
        # The latest few decide, so a worker costs no more memory however often it starts.
        self._starts[worker] = [*self._starts.pop(worker, []), now_ns][-self.starts_max :]

    def look(self, now_ns: int) -> frozenset[int]:
        """Who started so often within a window, and has not stayed for one since; forgets starts that are over."""
        for one in list(takewhile(lambda one: now_ns - self._starts[one][-1] >= self.window_ns, self._starts)):
            del self._starts[one]
        return frozenset(
            one
            for one, at in self._starts.items()
            if len(at) >= self.starts_max and at[-1] - at[-self.starts_max] < self.window_ns
        )


@dataclass(slots=True)
class Quarantine:
    """Counts errors by worker."""

    #: 0: off
    errors_max: int = 0
    interval_ns: int = 60 * 10**9
    duration_ns: int = 1_800 * 10**9
    #: share of those over the bound that are held back
    ratio: float = 1.0
    _errors: dict[int, int] = field(default_factory=dict)
    _since_ns: int = 0
    _until_ns: dict[int, int] = field(default_factory=dict)

    def failed(self, workers: Iterable[int]) -> None:
        """An operation failed there; "not found" and a plain restart are no failures, and are not reported."""
        if self.errors_max:
            for worker in workers:
                self._errors[worker] = self._errors.get(worker, 0) + 1

    def tick(self, now_ns: int, draw: Draw) -> frozenset[int]:
        """At the end of an interval: hold back members with too many errors in it. Returns those held back now."""
        if now_ns - self._since_ns >= self.interval_ns:
            for worker in sorted(self._errors):
                if self._errors[worker] >= self.errors_max and draw.random() < self.ratio:
                    self._until_ns[worker] = now_ns + self.duration_ns
            self._errors.clear()
            self._since_ns = now_ns
        self._until_ns = {worker: until for worker, until in self._until_ns.items() if until > now_ns}
        return frozenset(self._until_ns)
