"""Workers as placement sees them, and the order in which candidates are tried.

Rules: pure; randomness is handed in. An order only says which worker comes first: whether a worker may hold a copy
beside others is for the constraints (racks.py, regions.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.common.errors import HoldfastError
from holdfast.common.statuses import Status
from holdfast.master.placement.topology import DEFAULT_PLACE


class Draw(Protocol):
    """A random.Random."""

    def random(self) -> float:
        """A number from 0 to 1, 1 excluded."""

    def shuffle(self, x: list[Any], /) -> None:
        """Put a list in any order."""


class Member(NamedTuple):
    """A worker that may be part of a group."""

    worker: int
    #: two members of a group never share one
    host: str
    #: /region/rack
    place: str = DEFAULT_PLACE

    def host_of(self) -> str:
        """Its host."""
        return self.host

    def place_of(self) -> str:
        """Its place."""
        return self.place


class NotEnoughError(HoldfastError):
    """There are too few workers for what was asked."""

    status = Status.NO_ROOM


class Order(Protocol):
    """Who comes first."""

    def arrange(self, members: Sequence[Member]) -> Sequence[Member]:
        """Return each member once, the one to try first first."""

    def took(self, worker: int) -> None:
        """That one was chosen."""


class RandomOrder:
    """By lot."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def arrange(self, members: Sequence[Member]) -> Sequence[Member]:
        """Every order is as likely as every other."""
        drawn = list(members)
        self._draw.shuffle(drawn)
        return drawn

    def took(self, worker: int) -> None:
        """Does not matter."""


class RoundRobinOrder:
    """By turns: the worker chosen longest ago comes first."""

    def __init__(self) -> None:
        self._turn = 0
        self._turns: dict[int, int] = {}

    def arrange(self, members: Sequence[Member]) -> Sequence[Member]:
        """The member whose turn is longest ago first."""
        return sorted(members, key=lambda one: (self._turns.get(one.worker, 0), one.worker))

    def took(self, worker: int) -> None:
        """It had its turn."""
        self._turn += 1
        self._turns[worker] = self._turn


def capped(weights: Sequence[float], multiple: float) -> list[float]:
    """Return shares that add up to 1. Weights of 0 or less count as the smallest other one; none may be more than
    `multiple` times the median (0: no cap), which is that of all weights; all 0 are equal.

    50, 100, 100, 200, 500 with a multiple of 4 are 50:100:100:200:400.
    """
    least = min((one for one in weights if one > 0), default=1.0)
    raised = [one if one > 0 else least for one in weights]
    if multiple > 0 and raised:
        most = multiple * statistics.median(raised)
        raised = [min(one, most) for one in raised]
    total = sum(raised)
    return [one / total for one in raised]


class WeightedOrder:
    """By lot, with odds: mostly free bytes."""

    def __init__(self, weights: Mapping[int, float], multiple: float, draw: Draw) -> None:
        self._weights, self._multiple, self._draw = weights, multiple, draw

    def arrange(self, members: Sequence[Member]) -> Sequence[Member]:
        """The first is each member with the odds of its share, the next one of the others with theirs, and so on.

        One key for each (Efraimidis and Spirakis, 2006) in place of draws that are thrown away.
        """
        shares = capped([self._weights.get(one.worker, 0.0) for one in members], self._multiple)
        keys = [math.log(1.0 - self._draw.random()) / share for share in shares]
        return [member for _, member in sorted(zip(keys, members, strict=True), key=lambda pair: -pair[0])]

    def took(self, worker: int) -> None:
        """Does not matter."""
