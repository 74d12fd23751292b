"""Which copy is read first.

Rules: pure, a tuple sort; nothing is ever dropped. Categories: those that take data and never failed here, in the own
region; those of it that failed; the same of other regions; those that only serve; slow ones; lost ones.
Within a category: the one whose failure is longest ago, of slow ones the one with the fewest requests under way, then
the given order. A failure and a slow answer are forgotten after a while. Without an own region none is another one; a
worker of which no region is known is in another one. Called by read_book.py.

Source: the read order of Apache BookKeeper's policies, without B1, B2, B3 and B5 (ADR 23).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, unique

EXPIRE_NS = 60 * 10**9
#: Workers of which a failure, or a slow answer, is remembered; the oldest is forgotten first.
REMEMBERED_MAX = 4_096
#: After how many local copies the first of another region comes.
REMOTE_AT = 2


@unique
class Category(IntEnum):
    """The lower the earlier."""

    CLEAN = 1
    FAILED = 2
    REMOTE = 3
    REMOTE_FAILED = 4
    READ_ONLY = 5
    SLOW = 6
    UNAVAILABLE = 7


@unique
class Interleave(Enum):
    """How copies of other regions are put among local ones."""

    #: one, behind the first two local ones
    ONCE = "once"
    #: one behind every two local ones
    EVERY = "every"


@dataclass(slots=True)
class ReadHealth:
    """What this reader met at each worker."""

    failure_expire_ns: int = EXPIRE_NS
    slow_expire_ns: int = EXPIRE_NS
    #: the newest last
    _failed_ns: dict[int, int] = field(default_factory=dict)
    _slow_ns: dict[int, int] = field(default_factory=dict)

    def failed(self, worker: int, now_ns: int) -> None:
        """A read from it failed."""
        _note(self._failed_ns, worker, now_ns)

    def slow(self, worker: int, now_ns: int) -> None:
        """Another copy that was asked later answered first."""
        _note(self._slow_ns, worker, now_ns)

    def look(self, now_ns: int) -> None:
        """Forget what is long ago."""
        for times, expire_ns in ((self._failed_ns, self.failure_expire_ns), (self._slow_ns, self.slow_expire_ns)):
            for worker in [one for one, at in times.items() if now_ns - at >= expire_ns]:
                del times[worker]

    def failure_ns(self, worker: int) -> int:
        """When it failed last, 0 if it did not lately."""
        return self._failed_ns.get(worker, 0)

    def is_slow(self, worker: int) -> bool:
        """Whether it was too slow lately."""
        return worker in self._slow_ns


def _note(times: dict[int, int], worker: int, now_ns: int) -> None:
    times.pop(worker, None)
    times[worker] = now_ns
    if len(times) > REMEMBERED_MAX:
        del times[next(iter(times))]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of the cluster for a reader."""

    writable: Collection[int]
    read_only: Collection[int] = ()
    regions: Mapping[int, str] = field(default_factory=dict)
    #: the reader's, "" if it is not known
    region: str = ""
    #: requests under way by worker
    pending: Mapping[int, int] = field(default_factory=dict)
    #: so many more than the least loaded one, and the first copy is not asked first; 0: off
    pending_threshold: int = 0
    interleave: Interleave = Interleave.ONCE


def category(worker: int, view: ClusterView, health: ReadHealth) -> Category:
    """Where a copy belongs."""
    if worker in view.writable:
        failed = health.failure_ns(worker) > 0
        if health.is_slow(worker) and not failed and not view.pending_threshold:
            return Category.SLOW
        remote = bool(view.region) and view.regions.get(worker, "") != view.region
        return Category(1 + 2 * remote + failed)
    return Category.READ_ONLY if worker in view.read_only else Category.UNAVAILABLE


def read_order(copies: Sequence[int], view: ClusterView, health: ReadHealth, now_ns: int) -> list[int]:
    """Return all copies, the one to ask first first."""
    health.look(now_ns)
    given = _least_pending_first(copies, view)
    keys = {}
    for at, worker in enumerate(given):
        found = category(worker, view, health)
        pending = view.pending.get(worker, 0) if found is Category.SLOW else 0
        keys[worker] = found, health.failure_ns(worker), pending, at
    ordered = sorted(given, key=keys.__getitem__)
    return _interleaved(ordered, [keys[worker][0] for worker in ordered], view) if view.region else ordered


def _least_pending_first(copies: Sequence[int], view: ClusterView) -> list[int]:
    given = list(copies)
    if view.pending_threshold and given:
        least = min(given, key=lambda one: view.pending.get(one, 0))
        if view.pending.get(given[0], 0) - view.pending.get(least, 0) >= view.pending_threshold:
            given.remove(least)
            given.insert(0, least)
    return given


def _interleaved(ordered: list[int], categories: list[Category], view: ClusterView) -> list[int]:
    """Put copies of other regions among local ones, so that a region that is slow as a whole is found out early."""
    local = [one for one, found in zip(ordered, categories, strict=True) if found <= Category.FAILED]
    remote = [
        one
        for one, found in zip(ordered, categories, strict=True)
        if found in (Category.REMOTE, Category.REMOTE_FAILED)
    ]
    rest = ordered[len(local) + len(remote) :]
    if view.interleave is Interleave.ONCE:
        at = min(REMOTE_AT, len(local))
        return [*local[:at], *remote[:1], *local[at:], *remote[1:], *rest]
    mixed: list[int] = []
    for start in range(0, len(local), REMOTE_AT):
        mixed += local[start : start + REMOTE_AT]
        if remote:
            mixed.append(remote.pop(0))
    return [*mixed, *remote, *rest]
