"""Places of a bounded number that many share, with a bound for each: one that takes its share leaves room for others.

Pure. Used by master/service/sealing.py for commits and calls that wait for them, by waiters.py for long polls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Slots:
    """How many places are taken, in all and by whom."""

    most: int
    most_each: int
    taken: Counter[Hashable] = field(default_factory=Counter)
    count: int = 0

    def full(self) -> bool:
        """Whether nobody gets a place."""
        return self.count >= self.most

    def full_for(self, who: Hashable) -> bool:
        """Whether this one gets none, having its share."""
        return self.taken[who] >= self.most_each if who in self.taken else False

    def take(self, who: Hashable) -> None:
        """Take a place. There is one."""
        assert not self.full(), self.count
        assert not self.full_for(who), self.taken[who]
        self.taken[who] += 1
        self.count += 1

    def give_back(self, who: Hashable) -> None:
        """Give one place back."""
        assert self.taken[who] > 0, who
        self.count -= 1
        self.taken[who] -= 1
        if not self.taken[who]:
            del self.taken[who]
