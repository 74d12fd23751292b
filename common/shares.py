"""Divides a bound among owners, such as users and their applications, so that none takes what the others need.

Rules: an owner may hold at most LEFT times what it leaves free: alone four fifths of all, beside one that holds that
much four fifths of the rest, and so on. So there is room for the next owner, however many came before, and none
an owner that is alone is kept to a small part (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998). What an
owner may hold is divided by the same rule among its own: a tuple names an owner within an owner, as (user,
application), so a user with many applications has one user's share. An empty tuple has no share and only counts. A part
may be reserved for owners that keep the cluster alive. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from holdfast.common.errors import RetryError
from holdfast.common.statuses import Status

T = TypeVar("T", bound=Hashable)

#: What an owner holds is at most so many times what is free beside it.
LEFT = 4


@dataclass(slots=True)
class Shares:
    """What each owner holds of `most`."""

    most: int = field(compare=False)
    #: what no owner may go beyond, however much is free; 0: nothing of the kind
    most_each: int = field(default=0, compare=False)
    #: of the last so many only a vital owner gets any, whatever its share
    reserved: int = field(default=0, compare=False)
    #: how often `claim` found none
    refused: int = field(default=0, compare=False)
    total: int = 0
    _of: dict[Hashable, int] = field(default_factory=dict)

    def held(self, owner: Hashable) -> int:
        """What the owner holds."""
        return self._of.get(owner, 0)

    def fits(self, owner: Hashable, size: int, *, vital: bool = False) -> bool:
        """Whether the owner may have so much more."""
        if vital:
            return self.total + size <= self.most
        return self.total + size <= self.most - self.reserved and self.full(owner, size) is None

    def full(self, owner: Hashable, size: int) -> Hashable | None:
        """The widest owner that this owner is, or is of, and that may not have so much more; None if all may."""
        left = self.most - self.reserved - self.total
        for each in _levels(owner):
            held = self._of.get(each, 0)
            if held + size > LEFT * (left - size) or (self.most_each and held + size > self.most_each):
                return each
            left = (LEFT * left - held) // (LEFT + 1)  # what it may still get
        return None

    def take(self, owner: Hashable, size: int) -> bool:
        """Give the owner so much more; False where that is too much, and it holds what it held."""
        if size and not self.fits(owner, size):
            return False
        self.add(owner, size)
        return True

    def claim(self, owner: Hashable, what: str, size: int = 1, *, vital: bool = False) -> None:
        """Give the owner so much more of `what`. Raises RetryError (BUSY) where that is too much."""
        if size and not self.fits(owner, size, vital=vital):
            self.refused += 1
            taken = f"{self.total} of {self.most} taken, {self.held(owner)} of them by you"
            raise RetryError(f"there is no room for {what} now ({taken}); try again", status=Status.BUSY)
        self.add(owner, size)

    def add(self, owner: Hashable, size: int) -> None:
        """The owner has so much more, whatever it may have."""
        if size:
            self.total += size
            for each in _levels(owner):
                self._of[each] = self._of.get(each, 0) + size

    def give(self, owner: Hashable, size: int) -> None:
        """The owner needs so much less."""
        self.total -= size
        for each in _levels(owner):
            left = self._of.get(each, 0) - size
            assert left >= 0, (each, left)
            assert self.total >= left, (each, self.total)
            if left:
                self._of[each] = left
            else:
                self._of.pop(each, None)
        assert self.total >= 0, self.total

    def clear(self) -> None:
        """Nobody holds anything."""
        self._of.clear()
        self.total = 0

    def check(self) -> None:
        """Re-derive everything redundant; an AssertionError is a bug."""
        below: dict[Hashable, int] = {}
        for owner, held in self._of.items():
            if isinstance(owner, tuple) and len(owner) > 1:
                below[owner[:-1]] = below.get(owner[:-1], 0) + held
        assert all(held <= self._of.get(owner, 0) for owner, held in below.items())
        assert sum(self._of.values()) - sum(below.values()) <= self.total <= self.most


class FairQueue(Generic[T]):
    """Who waits for room of a bound: the owners in turns, what is of one owner first come first served.

    Who has its share is passed over. Who has nothing waits for room, whatever its share, and is not overtaken: so what
    cannot be had in smaller parts is had some day, by one after the other.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._lines: dict[Hashable, dict[T, None]] = {}
        self._owners: dict[T, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, one: object) -> bool:
        return one in self._owners

    def __iter__(self) -> Iterator[T]:
        return iter(self._owners)

    def join(self, one: T, owner: Hashable) -> None:
        """Join the queue at its end, unless it is in it already."""
        self._owners[one] = owner
        self._lines.setdefault(owner, {})[one] = None

    def leave(self, one: T) -> None:
        """Leave the queue; does nothing for one that is not in it."""
        if one in self._owners:
            owner = self._owners.pop(one)
            del self._lines[owner][one]
            if not self._lines[owner]:
                del self._lines[owner]

    def next(self, size_of: Callable[[T], int]) -> T | None:
        """Take the next waiter whose size fits from the queue; None if none does. `add` it before the next call."""
        full: set[Hashable] = set()
        for owner, line in self._lines.items():
            levels = _levels(owner)
            if not full.isdisjoint(levels):
                continue
            one = next(iter(line))
            size = size_of(one)
            over_level = self._shares.full(owner, size) if levels and self._shares.held(levels[0]) else None
            if over_level is not None:
                full.add(over_level)
            elif self._shares.total + size > self._shares.most - self._shares.reserved:
                return None
            else:
                self.leave(one)
                if line:
                    self._lines[owner] = self._lines.pop(owner)
                return one
        return None


def _levels(owner: Hashable) -> list[Hashable]:
    """An owner and those that it is of, the widest first."""
    if not isinstance(owner, tuple):
        return [owner]
    return [owner[: depth + 1] for depth in range(len(owner))]
