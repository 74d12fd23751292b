"""Moves hot files up while the faster tier has room. Off by default: shuffle data is mostly read once.

Source: the promote task of Alluxio. Pure. Called by upkeep.py and its edge.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.worker.core.tiers.draft import Draft
from holdfast.worker.core.tiers.swaps import RANGE, evictable
from holdfast.worker.core.tiers.view import FileId, Order, Pair, StoreView, Tier, TierMove

QUOTA = 0.9


def is_below_quota(tier: Tier, quota: float = QUOTA) -> bool:
    """Whether less than this share of the tier's capacity is taken."""
    return sum(one.used_bytes for one in tier) < quota * sum(one.capacity_bytes for one in tier)


def promote(
    view: StoreView,
    pair: Pair,
    hottest: Order[FileId],
    quota: float = QUOTA,
    files_max: int = RANGE,
    busy: Collection[int] = (),
) -> tuple[TierMove[FileId], ...]:
    """TierMove up the hottest files below until the tier above is used to its quota.

    The quota is looked at before each move, so the last one may pass it, but never the room of its directory. Files
    that fit nowhere are left out.
    """
    draft = Draft[FileId](view)
    capacity = sum(one.capacity_bytes for one in pair.above)
    idle = [one for one in pair.above if one.number not in busy]
    for file in evictable(hottest, pair.below, files_max, busy):
        if capacity - sum(draft.unused_bytes(one) for one in pair.above) >= quota * capacity:
            break
        target = draft.roomiest(idle, file)
        if target is not None:
            draft.move(file, target)
    return tuple(draft.moves)
