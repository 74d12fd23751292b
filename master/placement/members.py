"""Workers as placement sees them, and their shares by weight. Rules: pure; chance is handed in."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.common.errors import HoldfastError
from holdfast.common.statuses import Status
from holdfast.master.placement.topology import DEFAULT_PLACE, region_of


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

    def region_of(self) -> str:
        """Its region."""
        return region_of(self.place)


class NotEnoughError(HoldfastError):
    """There are too few workers for what was asked."""

    status = Status.NO_ROOM


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
