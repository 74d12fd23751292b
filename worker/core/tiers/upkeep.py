"""Picks what upkeep does next between adjacent tiers: give the reserve back, align, promote, or nothing.

Rules: from the fastest pair of tiers down, the first that has something to do. A swap that found no room goes first of
all, wherever it was. Aligning and promoting are off by default. Demotion by watermarks is not among these: it
makes room that is needed, and does not wait for them (watermarks.py).

Source: the tier management tasks of Alluxio. Pure. Called by upkeep's edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from holdfast.worker.core.tiers.promote import QUOTA, is_below_quota
from holdfast.worker.core.tiers.swaps import Tier, evictable, is_aligned
from holdfast.worker.core.tiers.view import FileId, Order, StoreView


class Kind(Enum):
    """Tasks of upkeep."""

    RESTORE = "restore"
    ALIGN = "align"
    PROMOTE = "promote"


@dataclass(frozen=True, slots=True)
class Task:
    """What to do between two adjacent tiers; a restoration concerns all."""

    kind: Kind
    above: Tier
    below: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What an operator switched on."""

    align: bool = False
    promote: bool = False
    quota: float = QUOTA


def pick(
    view: StoreView,
    wishes: Wishes,
    restore_first: bool,
    coldest: Order[FileId],
    hottest: Order[FileId],
    score: Callable[[FileId], float],
) -> Task | None:
    """Return the next task. `restore_first`: a swap ended without room and the reserve was not restored since."""
    for above, below in zip(view.tiers, view.tiers[1:], strict=False):
        if restore_first:
            return Task(Kind.RESTORE, above, below)
        if wishes.align and not is_aligned(above, below, coldest, hottest, score):
            return Task(Kind.ALIGN, above, below)
        if wishes.promote and is_below_quota(above, wishes.quota) and evictable(hottest, below, 1):
            return Task(Kind.PROMOTE, above, below)
    return None
