"""Divides a bound among owners, such as applications or users, so that none of them takes what the others need.

Rules: an owner may hold at most LEFT times what it leaves free: alone four fifths of all, beside one that holds that
much four fifths of the rest, and so on. So there is room for whoever comes next, however many came before, and nobody
who is alone is kept to a small part (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998). Pure.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

#: What an owner holds is at most so many times what is free beside it.
LEFT = 4


@dataclass(slots=True)
class Shares:
    """What each owner holds of `most`."""

    most: int = field(compare=False)
    total: int = 0
    _of: dict[Hashable, int] = field(default_factory=dict)

    def held(self, owner: Hashable) -> int:
        """What the owner holds."""
        return self._of.get(owner, 0)

    def fits(self, owner: Hashable, size: int) -> bool:
        """Whether the owner may have so much more."""
        held = self._of.get(owner, 0) + size
        return held <= LEFT * (self.most - self.total - size)

    def take(self, owner: Hashable, size: int) -> bool:
        """Give the owner so much more; False where that is too much, and it holds what it held."""
        if size and not self.fits(owner, size):
            return False
        self.add(owner, size)
        return True

    def add(self, owner: Hashable, size: int) -> None:
        """The owner has so much more, whatever it may have."""
        if size:
            self._of[owner] = self._of.get(owner, 0) + size
            self.total += size

    def give(self, owner: Hashable, size: int) -> None:
        """The owner needs so much less."""
        left = self._of.get(owner, 0) - size
        assert left >= 0, (owner, left)
        self.total -= size
        assert self.total >= left, (owner, self.total)
        if left:
            self._of[owner] = left
        else:
            self._of.pop(owner, None)

    def clear(self) -> None:
        """Nobody holds anything."""
        self._of.clear()
        self.total = 0

    def check(self) -> None:
        """Re-derive everything redundant; an AssertionError is a bug."""
        assert self.total == sum(self._of.values())
        assert 0 <= self.total <= self.most
