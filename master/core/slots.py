"""A bounded amount that many share, with a bound for each: one that takes its share leaves room for others.

Amounts are places, or bytes. A part may be reserved: for who keeps the cluster alive, whatever all others take.

Pure. Used by master/control/sealing.py for commits and calls that wait for them, by waiters.py for long polls, by
budgets.py for calls, bodies and answers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from holdfast.common.errors import RetryError
from holdfast.common.limits import MIB
from holdfast.common.statuses import Status

#: Bytes of bodies of calls, in all and of one user; and so of the winners that came in them, of one application.
BODY_BYTES_MAX = 256 * MIB
BODY_BYTES_EACH_MAX = 96 * MIB


@dataclass(slots=True)
class Slots:
    """How much is taken, in all and by whom."""

    most: int
    most_each: int
    #: nobody but who is `vital` gets of the last so many, or is bounded by a share
    reserved: int = 0
    taken: dict[Hashable, int] = field(default_factory=dict)
    count: int = 0
    #: how often somebody was told that there was none
    refused: int = 0

    def full(self, amount: int = 1, *, vital: bool = False) -> bool:
        """Whether nobody gets so much."""
        return self.count + amount > self.most - (0 if vital else self.reserved)

    def full_for(self, who: Hashable, amount: int = 1) -> bool:
        """Whether this one gets no such amount, having its share."""
        return self.taken.get(who, 0) + amount > self.most_each

    def take(self, who: Hashable, amount: int = 1) -> None:
        """Take so much. There is as much."""
        assert self.count + amount <= self.most, self.count
        self.taken[who] = self.taken.get(who, 0) + amount
        self.count += amount

    def claim(self, who: Hashable, what: str, amount: int = 1) -> None:
        """Take so much of `what`. Raises RetryError (BUSY) if there is none, or none for this one."""
        if self.full(amount):
            raise RetryError(f"{self.count} {what}; try again", status=Status.BUSY)
        if self.full_for(who, amount):
            raise RetryError(f"{self.taken.get(who, 0)} {what} for this application; try again", status=Status.BUSY)
        self.take(who, amount)

    def give_back(self, who: Hashable, amount: int = 1) -> None:
        """Give so much back."""
        rest = self.taken.pop(who, 0) - amount
        assert rest >= 0, who
        self.count -= amount
        assert self.count >= 0, f"{who} gives back what was taken"
        if rest:
            self.taken[who] = rest
