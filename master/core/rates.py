"""How fast workers take and give data, from the counters of two heartbeats. Pure. Called by leader.py and web."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

#: Nearer to one another than this, two heartbeats say nothing about pace: one that was hurried follows at once.
_NEAR_NS = 200_000_000


class Rates(NamedTuple):
    """Bytes a second."""

    push: int = 0
    fetch: int = 0


def rates_between(before: Mapping[str, int], now: Mapping[str, int], passed_ns: int, known: Rates) -> Rates:
    """Return the pace between two heartbeats of one start of a worker; `known` is what held until now."""
    if passed_ns < _NEAR_NS:
        return known
    names = ("push_bytes", "stream_bytes")
    grown = [max(now.get(name, 0) - before.get(name, 0), 0) * 1_000_000_000 // passed_ns for name in names]
    return Rates(*grown) if all(name in before for name in names) else Rates()


def rates_of(rates: Iterable[Rates]) -> Rates:
    """Return the pace of several together."""
    pushes, fetches = zip(Rates(), *rates, strict=True)
    return Rates(sum(pushes), sum(fetches))
