"""Whose turn it is, among workers in regions, racks and hosts: by shares, and by what fits.

A region, in it a rack, in it a host, in it a worker is taken whose turn is due first; each is due again the sooner the
larger its share is. Whoever does not fit is passed over, and has its turn when it does. So many are served by shares
together, though each of them has wishes of its own, and little is looked at that does not fit.

Rules: pure; chance is handed in. Logarithmic in workers for each turn.
Source: weighted fair queueing, by virtual times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from holdfast.master.placement.members import Draw, Member
from holdfast.master.placement.wishes import Step

T = TypeVar("T")


class Turns:
    """The turns of some workers."""

    def __init__(self, members: Sequence[Member], weights: Sequence[float], draw: Draw) -> None:
        """`weights` are above 0."""
        tree: dict[str, dict[str, dict[str, list[tuple[Member, float]]]]] = {}
        for member, weight in zip(members, weights, strict=True):
            hosts = tree.setdefault(member.region_of(), {}).setdefault(member.place, {})
            hosts.setdefault(member.host, []).append((member, weight))
        self._regions: _Queue[tuple[str, _Queue[tuple[str, _Hosts]]]] = _Queue(draw)
        #: by rack: what is due of its region, and of it
        self._racks: dict[str, tuple[_Due[tuple[str, _Queue[tuple[str, _Hosts]]]], _Due[tuple[str, _Hosts]]]] = {}
        for region, racks in tree.items():
            inside: _Queue[tuple[str, _Hosts]] = _Queue(draw)
            due = [inside.add((place, _hosts(hosts, draw)), _weight(hosts)) for place, hosts in racks.items()]
            whole = self._regions.add((region, inside), inside.weight)
            self._racks.update({each.item[0]: (whole, each) for each in due})

    def take(self, step: Step, fits: Callable[[Member], bool]) -> Member | None:
        """Return who is due first of those on a rack that is right and who fit; None if there is nobody."""

        def of(hosts: _Hosts) -> Member | None:
            return hosts.take(lambda workers: workers.take(lambda found: found if fits(found) else None))

        if step.only:
            region, rack = self._racks.get(step.only, (None, None))
            if region is None or rack is None or not step.fits(step.only):
                return None
            found = of(rack.item[1])
            if found is not None:
                region.ahead += region.every
                rack.ahead += rack.every
            return found
        return self._regions.take(
            lambda region: (
                region[1].take(lambda rack: of(rack[1]) if step.rack(rack[0]) else None)
                if step.region(region[0])
                else None
            )
        )


@dataclass(slots=True)
class _Due(Generic[T]):
    """An item, after how long it is due again, and for how long it had its turns ahead of their time."""

    item: T
    every: float
    ahead: float = 0.0


class _Queue(Generic[T]):
    """What is due when."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        #: when, and a number that keeps equals in order
        self._due: list[tuple[float, int, _Due[T]]] = []
        self.weight = 0.0

    def add(self, item: T, weight: float) -> _Due[T]:
        """It is due first within the time after which it is due again."""
        self.weight += weight
        due = _Due(item, 1 / weight)
        heappush(self._due, (self._draw.random() / weight, len(self._due), due))
        return due

    def take(self, attempt: Callable[[T], Member | None]) -> Member | None:
        """Return what the first item gives that gives anything; the others keep their turns."""
        passed: list[tuple[float, int, _Due[T]]] = []
        found: Member | None = None
        while self._due and found is None:
            at, number, due = heappop(self._due)
            if due.ahead:
                at, due.ahead = at + due.ahead, 0.0
                heappush(self._due, (at, number, due))
                continue
            found = attempt(due.item)
            passed.append((at + due.every if found is not None else at, number, due))
        for each in passed:
            heappush(self._due, each)
        return found


#: The hosts of a rack, each with its workers.
_Hosts = _Queue[_Queue[Member]]


def _hosts(hosts: dict[str, list[tuple[Member, float]]], draw: Draw) -> _Hosts:
    found: _Hosts = _Queue(draw)
    for host in hosts.values():
        workers: _Queue[Member] = _Queue(draw)
        for member, weight in host:
            workers.add(member, weight)
        found.add(workers, workers.weight)
    return found


def _weight(hosts: dict[str, list[tuple[Member, float]]]) -> float:
    return sum([weight for host in hosts.values() for _, weight in host])
