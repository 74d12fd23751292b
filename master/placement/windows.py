"""Whether members of a group are far enough apart: the test of a candidate, and the verdict on a group.

A group of E members is a ring, and entry i of what they keep is on W adjacent ones, from i on; so
every W neighbours, the ring closed, are a window. A window adheres if its members are of `least` domains or more: racks
mostly, regions sometimes. A group of copies of one partition has E = W, and then all windows are the whole group.

Rules: pure. Positions are filled from 0 on. A candidate is refused only if no seats would be left to make good for it.
Source: the coverage predicates of Apache BookKeeper's rack-aware policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique


@unique
class Adherence(Enum):
    """How a group keeps to what was wished; FAIL is still of use."""

    STRICT = "strict"
    SOFT = "soft"
    FAIL = "fail"


class Windows:
    """The windows of a group of `size` whose members are being chosen."""

    def __init__(self, size: int, quorum: int, least: int) -> None:
        """`quorum` adjacent members are of `least` domains or more; raises nothing, the caller has checked."""
        self._size, self._quorum = size, quorum
        self.least = min(quorum, least)
        self._domains: list[str | None] = [None] * size

    def _through(self, position: int) -> Sequence[Sequence[str]]:
        """What is in each window that `position` is part of, without it."""
        starts = range(position - self._quorum + 1, position + 1) if self._quorum < self._size else (0,)
        windows = []
        for start in starts:
            inside = ((start + step) % self._size for step in range(self._quorum))
            windows.append([found for one in inside if one != position and (found := self._domains[one]) is not None])
        return windows

    def passes(self, position: int, domain: str) -> bool:
        """Whether a member of this domain may take the position."""
        if self._quorum < 2:
            return True
        return all(self._quorum_possible(inside, domain) for inside in self._through(position))

    def _quorum_possible(self, inside: Sequence[str], domain: str) -> bool:
        others = self._quorum - len(inside) - 1
        return others >= self.least - len({*inside, domain})

    def put(self, position: int, domain: str | None) -> None:
        """A member of this domain takes the position; None: it is empty."""
        self._domains[position] = domain


def adheres(domains: Sequence[str | None], quorum: int, least: int) -> bool:
    """Whether every window of a whole group has enough domains; None is an unknown member. Not if empty."""
    least, size = min(quorum, least), len(domains)
    for start in range(size if quorum < size else 1):
        inside = {domains[(start + step) % size] for step in range(min(quorum, size))}
        if None in inside or len(inside) < least:
            return False
    return size > 0


def acknowledged_enough(domains: Sequence[str], quorum: int, least: int) -> bool:
    """Whether the members that acknowledged a write are of as many domains as it needs."""
    return len(set(domains)) >= min(quorum, least)
