"""Keeps room in every tier before anybody asks: past a high mark, the coldest files move down to a low mark.

Rules: what a tier keeps free is its own share above the low mark and the shares of all faster tiers, since theirs comes
down into it. Slower tiers make room first. A tier begins when its use reaches the high mark, and only if what it is to
keep free is less than that mark: a tier smaller than what falls into it would empty itself. A tier with nothing below
it keeps its files. Unlike the plan for a request, a demotion that cannot reach its goal goes as far as it can.

Source: the space reserver of Alluxio before 2.3. Pure. Called by upkeep's edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.worker.core.tiers.draft import Draft
from holdfast.worker.core.tiers.space import Mover
from holdfast.worker.core.tiers.view import FileId, Move, Order, StoreView


@dataclass(frozen=True, slots=True)
class Marks:
    """Shares of a tier's capacity."""

    high: float = 0.95
    low: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high <= 1:
            raise ValueError(f"watermarks want 0 < low < high <= 1, not {self.low} and {self.high}")


@dataclass(frozen=True, slots=True)
class Overfull:
    """A tier past its high mark; `position` is among the tiers of the view."""

    position: int
    keep_unused_bytes: int


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
        capacity = sum(one.capacity_bytes for one in tier if one.is_bounded)
        below_low += capacity - round(capacity * mark.low)
        kept.append(below_low)
    return kept


def overfull(view: StoreView, marks: Sequence[Marks]) -> list[Overfull]:
    """Tiers that are to make room, the slowest first."""
    found = []
    for position, kept in enumerate(keep_unused(view, marks)):
        tier = view.tiers[position]
        high = round(sum(one.capacity_bytes for one in tier) * marks[position].high)
        if all(one.is_bounded for one in tier) and high > kept and sum(one.used_bytes for one in tier) >= high:
            found.append(Overfull(position, kept))
    return found[::-1]


def demotion(
    view: StoreView, marks: Sequence[Marks], coldest: Order[FileId], moves_max: int
) -> tuple[Move[FileId], ...]:
    """Moves down that bring overfull tiers to their low marks, or as near as can be; about `moves_max` at most, the
    rest is for the next look. The moves are in order, each as good without those after it."""
    draft = Draft[FileId](view)
    for found in overfull(view, marks):
        tier = view.tiers[found.position]
        if found.position == len(view.tiers) - 1:
            continue
        mover = Mover(draft, coldest)
        for file in mover.movable([one.number for one in tier]):
            unused = sum(draft.unused_bytes(one) for one in tier)
            if unused >= found.keep_unused_bytes or len(draft.moves) >= moves_max:
                break
            mover.move_down(file)
    return tuple(draft.moves)
