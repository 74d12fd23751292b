"""Chooses the directory of a new file: greedy, maxfree (the default) or roundrobin.

Rules of all: a directory fits if its own room is enough, rooms are never added up; any tier is walked from the fastest;
media are filtered in every request; a directory that is named is not reviewed, and is the answer or nothing is; who is
refused by the reviewer is never the answer, in the last tier either (ADR 0017, A1). Source: the allocators of Alluxio,
without their defects.

A reviewer says whether a directory that is proposed should take a new file, so that growing files find room in it: a
file asks for little when it begins and grows. A directory that just about fits is filled by what already grows in it,
so the less is free, the more often new files are sent elsewhere. Source: the ProbabilisticBufferReviewer of Alluxio.

Pure but for the cursors of roundrobin; chance comes in as a callable. Called by storage/tiers/tiering.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from holdfast.worker.core.tiers.view import DirectorySet, DirectoryView, StoreView

#: Whether a new file may begin in a directory.
Reviewer = Callable[[DirectoryView], bool]
#: What the limits are at most, in tenths of a directory's capacity; the ratio is that of the defaults.
HARD_TENTHS, SOFT_TENTHS = 1, 4


def accept_all(_: DirectoryView) -> bool:
    """The reviewer "accepting"."""
    return True


def probabilistic(draw: Callable[[], float], hard_limit_bytes: int, soft_limit_bytes: int) -> Reviewer:
    """The reviewer that draws once, from [0, 1), and accepts below `chance`."""
    return lambda directory: draw() < chance(directory, hard_limit_bytes, soft_limit_bytes)


def chance(directory: DirectoryView, hard_limit_bytes: int, soft_limit_bytes: int) -> float:
    """How likely it is that a new file may begin there: 1 above the soft limit of unused bytes, 0 up to the hard one, a
    straight line between. The reserve is not subtracted: the hard limit is for it. On small directories both shrink."""
    hard = min(hard_limit_bytes, directory.capacity_bytes * HARD_TENTHS // 10)
    soft = min(soft_limit_bytes, directory.capacity_bytes * SOFT_TENTHS // 10)
    if directory.unused_bytes > soft:
        return 1.0
    return 0.0 if directory.unused_bytes <= hard else (directory.unused_bytes - hard) / (soft - hard)


class Allocator:
    """The walk over tiers, and the order inside one:

    greedy      the first that is accepted, by number
    maxfree     the one with most room, the lowest number among equals; if it is refused, no other of its tier is tried
    roundrobin  in turn, from the one after the last that was chosen. A lap without a choice leaves the turn as it was.
                The cursor is a number, and the directories are those of each call: one that was removed cannot come out
                (ADR 0017, A3)
    """

    def __init__(self, order: Literal["greedy", "maxfree", "roundrobin"], reviewer: Reviewer = accept_all) -> None:
        self._order = order
        self._reviewer = reviewer
        #: the last that was chosen in each tier
        self._last: dict[int, int] = {}

    def allocate(
        self,
        view: StoreView,
        size_bytes: int,
        location: DirectorySet,
        *,
        reviewed: bool = True,
    ) -> DirectoryView | None:
        """Return a directory of the location with room for `size_bytes`, or None."""
        reviewer = self._reviewer if reviewed else accept_all
        for tier in view.tiers:
            fits = [one for one in tier if location.holds(one) and one.free_bytes >= size_bytes]
            if fits and location.directory is not None:
                return fits[0]
            for one in self._candidates(fits):
                if reviewer(one):
                    self._last[one.tier] = one.number
                    return one
        return None

    def _candidates(self, fits: Sequence[DirectoryView]) -> Sequence[DirectoryView]:
        """Who may be chosen of these directories of one tier, which all fit and come by number; the first first."""
        if not fits or self._order == "greedy":
            return fits
        if self._order == "maxfree":
            return [max(fits, key=lambda one: one.free_bytes)]
        last = self._last.get(fits[0].tier, -1)
        return sorted(fits, key=lambda one: (one.number <= last, one.number))
