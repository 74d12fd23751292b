"""Picks what upkeep does next between adjacent tiers: give the reserve back, align, promote, or nothing.

Rules: from the fastest pair of tiers down, the first that has something to do. A swap that found no room goes first of
all, wherever it was. Aligning and promoting are off by default. Demotion by watermarks is not among these: it
makes room that is needed, and does not wait for them (watermarks.py).

Source: the tier management tasks of Alluxio. Pure. Called by upkeep's edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.worker.core.tiers.promote import QUOTA, is_below_quota
from holdfast.worker.core.tiers.swaps import evictable, is_aligned
from holdfast.worker.core.tiers.view import FileId, Heat, Pair, StoreView


class UpkeepKind(Enum):
    """Tasks of upkeep."""

    RESTORE = "restore"
    ALIGN = "align"
    PROMOTE = "promote"


@dataclass(frozen=True, slots=True)
class Task:
    """What to do between two adjacent tiers; a restoration concerns all."""

    kind: UpkeepKind
    pair: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What an operator switched on."""

    align: bool = False
    promote: bool = False
    quota: float = QUOTA


def pick(view: StoreView, wishes: Wishes, restore_first: bool, heat: Heat[FileId]) -> Task | None:
    """Return the next task. `restore_first`: a swap ended without room and the reserve was not restored since."""
    for pair in view.pairs:
        if restore_first:
            return Task(UpkeepKind.RESTORE, pair)
        if wishes.align and not is_aligned(pair, heat):
            return Task(UpkeepKind.ALIGN, pair)
        if wishes.promote and is_below_quota(pair.above, wishes.quota) and evictable(heat.hottest, pair.below, 1):
            return Task(UpkeepKind.PROMOTE, pair)
    return None
