"""Keeps room in every tier before anybody asks: past a high mark, the coldest files move down to a low mark.

Rules: what a tier keeps free is its own share above the low mark and the shares of all faster tiers, since theirs comes
down into it. Slower tiers make room first. A tier begins when its use reaches the high mark. One that is small beside
the faster tiers, so that what it is to keep free is not below its high mark, keeps its own share free and no more: it
would empty itself. A directory over its capacity begins by itself, whatever its tier has room for. A tier with nothing
below it keeps its files. Unlike the plan for a request, a demotion that cannot reach its goal goes as far as it can.

Source: the space reserver of Alluxio before 2.3, in which such a small tier never begins, and which knows no directory
over its capacity. Pure. Called by upkeep's edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.worker.core.tiers.draft import Draft
from holdfast.worker.core.tiers.space import TierMover
from holdfast.worker.core.tiers.view import DirectoryView, FileId, Order, StoreView, Tier, TierMove


@dataclass(frozen=True, slots=True)
class Marks:
    """Shares of a tier's capacity."""

    high: float = 0.95
    low: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high <= 1:
            raise ValueError(f"watermarks must be 0 < low < high <= 1, not {self.low} and {self.high}")


@dataclass(frozen=True, slots=True)
class Overfull:
    """A tier past its high mark; `position` is among the tiers of the view. Or one directory over its capacity."""

    position: int
    keep_unused_bytes: int
    #: the directory; None: all of the tier
    number: int | None = None

    def within(self, view: StoreView) -> Tier:
        return tuple([one for one in view.tiers[self.position] if self.number in (None, one.number)])


def hurried(mark: Marks, capacity_bytes: int, used_bytes: int, wanted_bytes: int) -> Marks:
    """The marks of a tier that has just had too little room for a write of `wanted_bytes`: it is past its high mark
    whatever its use, and its low one leaves that much."""
    high = min(mark.high, used_bytes / capacity_bytes) if capacity_bytes else 0.0
    low = min(mark.low, 1 - wanted_bytes / capacity_bytes) if capacity_bytes else 0.0
    return Marks(high, low) if 0 < low < high else mark


def keep_unused(view: StoreView, marks: Sequence[Marks]) -> list[int]:
    """Bytes to keep unused in each tier of the view; `marks` has one entry for each. A tier without a bound adds 0."""
    kept, below_low = [], 0
    for tier, mark in zip(view.tiers, marks, strict=True):
        below_low += _own_share([one for one in tier if one.is_bounded], mark)
        kept.append(below_low)
    return kept


def overfull(view: StoreView, marks: Sequence[Marks]) -> list[Overfull]:
    """Tiers and directories that are to make room: the slowest tier first, all of a tier before its directories."""
    found = []
    for position, kept in reversed(list(enumerate(keep_unused(view, marks)))):
        tier, mark = view.tiers[position], marks[position]
        high = round(sum(one.capacity_bytes for one in tier) * mark.high)
        if all(one.is_bounded for one in tier) and sum(one.used_bytes for one in tier) >= high:
            found.append(Overfull(position, kept if kept < high else _own_share(tier, mark)))
        over = [one for one in tier if one.unused_bytes < 0] if len(tier) > 1 else []
        found += [Overfull(position, _own_share([one], mark), one.number) for one in over]
    return found


def _own_share(tier: Sequence[DirectoryView], mark: Marks) -> int:
    """What is above the low mark of these directories, without the shares of faster tiers."""
    capacity = sum(one.capacity_bytes for one in tier)
    return capacity - round(capacity * mark.low)


def demotion(
    view: StoreView, marks: Sequence[Marks], coldest: Order[FileId], moves_max: int
) -> tuple[TierMove[FileId], ...]:
    """Moves down that bring what is overfull to its low mark, or as near as can be; about `moves_max` at most, the
    rest is for the next look. The moves are in order, each as good without those after it."""
    draft = Draft[FileId](view)
    for found in overfull(view, marks):
        tier = found.within(view)
        if found.position == len(view.tiers) - 1:
            continue
        mover = TierMover(draft, coldest)
        for file in mover.movable([one.number for one in tier]):
            unused = sum(draft.unused_bytes(one) for one in tier)
            if unused >= found.keep_unused_bytes or len(draft.moves) >= moves_max:
                break
            mover.move_down(file)
    return tuple(draft.moves)
