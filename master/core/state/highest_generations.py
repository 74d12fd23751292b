"""The highest generation ever opened of each shuffle of one application, as runs of neighbouring shuffle ids.

An engine numbers its shuffles upwards and nearly all of them stay at generation 0, so the memory of a year of shuffles
is one run. Pure; not thread-safe.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Self


class Run(NamedTuple):
    """Shuffles `begin` to `end`, exclusive, all have this highest generation."""

    begin: int
    end: int
    generation: int


class HighestGenerations:
    """A map from shuffle id to generation; ids only ever gain a higher one."""

    __slots__ = ("_begins", "_runs")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._runs: list[Run] = []

    def __len__(self) -> int:
        """Return the number of runs: what this costs."""
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        """Yield the runs in order of their ids."""
        return iter(self._runs)

    def get(self, shuffle: int) -> int | None:
        """Return the highest generation of a shuffle, None if it never had one."""
        at = bisect_right(self._begins, shuffle) - 1
        return self._runs[at].generation if at >= 0 and shuffle < self._runs[at].end else None

    def raise_to(self, shuffle: int, generation: int) -> None:
        """Set the generation of a shuffle unless it has that or a higher one; O(runs) at worst."""
        known = self.get(shuffle)
        if known is not None and known >= generation:
            return
        at = bisect_right(self._begins, shuffle)
        pieces = [Run(shuffle, shuffle + 1, generation)]
        if known is not None:
            at -= 1
            begin, end, before = self._runs[at]
            pieces = [Run(begin, shuffle, before), *pieces, Run(shuffle + 1, end, before)]
        first, last = max(at - 1, 0), at + 1 + (known is not None)
        joined: list[Run] = []
        for run in [*self._runs[first:at], *pieces, *self._runs[at + (known is not None) : last]]:
            if run.begin == run.end:
                continue
            if joined and joined[-1].end == run.begin and joined[-1].generation == run.generation:
                joined[-1] = joined[-1]._replace(end=run.end)
            else:
                joined.append(run)
        self._runs[first:last] = joined
        self._begins[first:last] = [run.begin for run in joined]
        assert len(self._begins) == len(self._runs), "each run has its beginning"

    def append(self, run: Run) -> None:
        """Add a run behind all others, as a snapshot yields them. Raises ValueError if it is not, or joins the last."""
        if run.begin >= run.end or (self._runs and not _apart(self._runs[-1], run)):
            raise ValueError(f"run {tuple(run)} is out of order")
        self._runs.append(run)
        self._begins.append(run.begin)

    def copy(self) -> Self:
        """Return a copy that later changes do not reach."""
        other = type(self)()
        other._begins, other._runs = self._begins.copy(), self._runs.copy()
        return other

    def check(self) -> list[str]:
        """Return every breach of what must hold, as sentences."""
        return [
            f"runs {tuple(one)} and {tuple(two)} touch" for one, two in pairwise(self._runs) if not _apart(one, two)
        ]


def _apart(one: Run, two: Run) -> bool:
    return one.end < two.begin or (one.end == two.begin and one.generation != two.generation)
