"""How fast each worker took and gave data in the last hour, and how much it stored: one ring of samples a worker. Pure.

A ring takes some 1.2 kB with 60 samples. Called by web/pace.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from holdfast.master.core.rates import Rates, Totals, rates_between


class Trend(NamedTuple):
    """Samples of one worker or of several together, oldest first: bytes a second, and bytes that are stored."""

    push: tuple[float, ...] = ()
    fetch: tuple[float, ...] = ()
    stored: tuple[float, ...] = ()


@dataclass(slots=True)
class _Ring:
    #: 0: there is nothing to compare the next sample with
    incarnation: int = 0
    totals: Totals | None = None
    push: array[float] = field(default_factory=lambda: array("f"))
    fetch: array[float] = field(default_factory=lambda: array("f"))
    stored: array[float] = field(default_factory=lambda: array("f"))


class History:
    """The last samples of every worker."""

    def __init__(self, samples: int) -> None:
        """`samples`: how many of each worker are kept."""
        self._samples = samples
        self._rings: dict[int, _Ring] = {}

    def sample(self, worker: int, incarnation: int, totals: Totals | None, stored: int, passed_ns: int) -> None:
        """Add what a worker did in the time since the sample before, by the totals of its last heartbeat."""
        ring = self._rings.setdefault(worker, _Ring())
        before = ring.totals if ring.incarnation == incarnation else Totals() if ring.incarnation else None
        if totals is None:  # it has registered, and sent no heartbeat since
            totals = before
        self._add(ring, rates_between(before, totals, passed_ns, Rates()), stored)
        ring.incarnation, ring.totals = incarnation, totals

    def silent(self, worker: int) -> None:
        """Add a sample of nothing for a worker that was silent; what it did meanwhile is no rate of one sample."""
        if (ring := self._rings.get(worker)) is not None:
            self._add(ring, Rates(), 0)
            ring.incarnation = 0

    def keep(self, workers: Container[int]) -> None:
        """Forget all other workers."""
        self._rings = {number: ring for number, ring in self._rings.items() if number in workers}

    def clear(self) -> None:
        """Forget all."""
        self._rings.clear()

    def of(self, workers: Iterable[int]) -> Trend:
        """The samples of these together; a worker with fewer of them than another is younger."""
        rings = [self._rings[number] for number in workers if number in self._rings]
        return Trend(*(_sums(getattr(ring, name) for ring in rings) for name in Trend._fields))

    def _add(self, ring: _Ring, rates: Rates, stored: int) -> None:
        for series, value in ((ring.push, rates.push), (ring.fetch, rates.fetch), (ring.stored, stored)):
            series.append(value)
            if len(series) > self._samples:
                del series[0]


def _sums(series: Iterable[array[float]]) -> tuple[float, ...]:
    """Add up by place, counted from the newest one."""
    return tuple(sum(each) for each in zip_longest(*(reversed(one) for one in series), fillvalue=0.0))[::-1]
