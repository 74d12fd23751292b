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


class Totals(NamedTuple):
    """Bytes since a worker started."""

    push: int = 0
    fetch: int = 0


def totals_in(counters: Mapping[str, int]) -> Totals | None:
    """Return what the counters of a heartbeat say; None if they do not."""
    push, fetch = counters.get("push_bytes"), counters.get("stream_bytes")
    return Totals(push, fetch) if push is not None and fetch is not None else None


def rates_between(before: Totals | None, now: Totals | None, passed_ns: int, known: Rates) -> Rates:
    """Return the pace between two heartbeats of one start of a worker; `known` is what held until now."""
    if passed_ns < _NEAR_NS:
        return known
    if before is None or now is None:
        return Rates()
    push, fetch = (max(after - each, 0) * 1_000_000_000 // passed_ns for each, after in zip(before, now, strict=True))
    return Rates(push, fetch)


def rates_of(rates: Iterable[Rates]) -> Rates:
    """Return the pace of several together."""
    pushes, fetches = zip(Rates(), *rates, strict=True)
    return Rates(sum(pushes), sum(fetches))
