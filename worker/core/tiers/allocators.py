"""Chooses the directory of a new file: greedy, maxfree (the default) or roundrobin.

Rules of all: a directory fits if its own room is enough, rooms are never added up; any tier is walked from the fastest;
media are filtered in every request; a directory that is named is not reviewed, and is the answer or nothing is; who is
refused by the reviewer is never the answer, in the last tier either (ADR 0017, A1). Source: the allocators of Alluxio,
without their defects.

Pure but for the cursors of roundrobin. Called by storage/tiers/tiering.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from holdfast.worker.core.tiers.reviewers import AcceptAll, Reviewer
from holdfast.worker.core.tiers.view import DirectorySet, DirectoryView, StoreView

#: Whether the reviewer, if there is one in this request, accepts a directory.
Accept = Callable[[DirectoryView], bool]


class Allocator(ABC):
    """The walk over tiers; a kind of allocator adds the order inside one."""

    def __init__(self, reviewer: Reviewer | None = None) -> None:
        self.reviewer: Reviewer = reviewer or AcceptAll()

    def allocate(
        self,
        view: StoreView,
        size_bytes: int,
        location: DirectorySet,
        *,
        reviewed: bool = True,
    ) -> DirectoryView | None:
        """Return a directory of the location with room for `size_bytes`, or None."""
        reviewer = self.reviewer if reviewed and location.directory is None else AcceptAll()
        for tier in view.tiers:
            fits = [one for one in tier if location.holds(one) and one.free_bytes >= size_bytes]
            if not fits:
                continue
            chosen = fits[0] if location.directory is not None else self._choose(fits, reviewer.accepts)
            if chosen is not None:
                return chosen
        return None

    @abstractmethod
    def _choose(self, fits: Sequence[DirectoryView], accept: Accept) -> DirectoryView | None:
        """One of these directories of one tier, which all fit and come by number, or None to try the next tier."""


class Greedy(Allocator):
    """The first that is accepted, by number."""

    def _choose(self, fits: Sequence[DirectoryView], accept: Accept) -> DirectoryView | None:
        return next(filter(accept, fits), None)


class MaxFree(Allocator):
    """The one with most room, the lowest number among equals. If it is refused, no other of its tier is tried."""

    def _choose(self, fits: Sequence[DirectoryView], accept: Accept) -> DirectoryView | None:
        best = max(fits, key=lambda one: one.free_bytes)
        return best if accept(best) else None


class RoundRobin(Allocator):
    """In turn, from the one after the last that was chosen. A lap without a choice leaves the turn as it was.

    The cursor is a number, and the directories are those of each call: one that was removed cannot come out (A3).
    """

    def __init__(self, reviewer: Reviewer | None = None) -> None:
        super().__init__(reviewer)
        #: by tier; bounded by the number of tiers
        self._last: dict[int, int] = {}

    def _choose(self, fits: Sequence[DirectoryView], accept: Accept) -> DirectoryView | None:
        last = self._last.get(fits[0].tier, -1)
        lap = sorted(fits, key=lambda one: (one.number <= last, one.number))
        chosen = next(filter(accept, lap), None)
        if chosen is not None:
            self._last[chosen.tier] = chosen.number
        return chosen


KINDS: dict[str, type[Allocator]] = {"greedy": Greedy, "maxfree": MaxFree, "roundrobin": RoundRobin}


def make_allocator(name: str, reviewer: Reviewer | None = None) -> Allocator:
    """By its name in the configuration: "greedy", "maxfree" or "roundrobin". Raises ValueError."""
    if name not in KINDS:
        raise ValueError(f'there is no allocator "{name}"; known are {", ".join(KINDS)}')
    return KINDS[name](reviewer)
