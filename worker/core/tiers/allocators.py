"""Chooses the directory of a new file: greedy, maxfree (the default) or roundrobin.

Rules of all: a directory fits if its own room is enough, rooms are never added up; any tier is walked from the fastest;
media are filtered in every request; a directory that is named is not reviewed, and is the answer or nothing is; who is
refused by the reviewer is never the answer, in the last tier either (ADR 0017, A1). Source: the allocators of Alluxio,
without their defects.

Pure but for the cursors of roundrobin. Called by storage/tiers/tiering.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from holdfast.worker.core.tiers.reviewers import Reviewer, accept_all
from holdfast.worker.core.tiers.view import DirectorySet, DirectoryView, StoreView


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
