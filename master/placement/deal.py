"""Deals the places of many groups at once: shares of workers kept to the unit, members of a group apart at every level.

All workers stand on a line, region by region, rack by rack, host by host, each as wide as its share of all copies. A
comb of so many teeth as there are copies, with a random start, is laid on the line; teeth that are `count` apart make
a group. Whatever is together on the line (a worker, a host, a rack, a region) so has its share of all copies to the
unit, and of each group its share rounded down or up: a host that is no wider than one copy of each group never has two
of one. Widths are cut to that: what is spread comes before shares, the widest level first.

What lies within the width of one copy of each group is of one group once at most, in whatever order; so it is mixed
there, and what one worker has is spread over many others when it is lost.

Rules: pure; chance is handed in. Any number of copies. Exact: widths are whole numbers. Linear in workers and copies,
but for sorting workers of different shares. Who may stand together is judged by wishes.py.
Source: systematic sampling (Madow, 1949).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from holdfast.master.placement.members import Draw, Member

#: The width of one copy on the line: shares are as exact as that.
_COPY = 1 << 32

#: Of a host: its workers, and how many teeth are on each.
_Taken = list[tuple[int, int]]
#: The domain of a worker: its region, rack or host.
DomainOf = Callable[[Member], str]


class Part(NamedTuple):
    """Workers that have `copies` members of each group."""

    members: Sequence[Member]
    #: of each, above 0
    weights: Sequence[float]
    copies: int


class Levels(NamedTuple):
    """What copies are spread over, the widest first; the last one is hosts."""

    of: Sequence[DomainOf]
    #: domains of the widest level have equal parts
    equal: bool = False
    #: the domain of the widest level that has a copy of each group; "" for none
    local: str = ""


def deal(parts: Sequence[Part], count: int, levels: Levels, draw: Draw) -> list[tuple[int, ...]]:
    """Return `count` groups of workers; members of the first part come first. Each part has at least as many hosts as
    copies, no host is in two parts, and no part is empty."""
    if not count:
        return []
    columns: list[list[int]] = []
    for part in parts:
        line = _Line(part, count, levels, draw)
        flat = line.entries()
        columns += [flat[at : at + count] for at in range(0, len(flat), count)]
    if len(columns) > 1:
        # Neighbours in number are far apart on the line.
        step = _step(count)
        order = [number * step % count for number in range(count)]
        columns = [[column[at] for at in order] for column in columns]
    first = parts[0].copies
    for turn in range(1, first):  # or the first workers on the line would be primaries only
        turned = [column[turn::first] for column in (*columns[turn:first], *columns[:turn])]
        for column, workers in zip(columns, turned, strict=False):
            column[turn::first] = workers
    return list(zip(*columns, strict=True))


@dataclass(slots=True)
class _Domain:
    """Workers that are together on the line: domains, or hosts."""

    weight: float
    #: how many there are: it can have so many copies of one group
    hosts: int
    inside: list[_Domain] = field(default_factory=list)
    #: where there are no domains inside: the members of each host, as numbers
    by_host: list[list[int]] = field(default_factory=list)
    local: bool = False


class _Line:
    """The line of one part."""

    def __init__(self, part: Part, count: int, levels: Levels, draw: Draw) -> None:
        self._draw, self._levels, self._copies = draw, levels, part.copies
        #: the width of one copy of each group
        self._unit = count * _COPY
        self._workers = [one.worker for one in part.members]
        self._weights = part.weights
        self._names = [list(map(of, part.members)) for of in levels.of]
        self._root = self._tree(range(len(part.members)), 0)
        #: how far the line goes by now, seen from the first tooth, and how many teeth are on it
        self._at = -int(draw.random() * _COPY)
        self._teeth = 0

    def entries(self) -> list[int]:
        """The worker below each tooth of the comb."""
        flat: list[int] = []
        for block in self._blocks(self._root, self._copies * self._unit):
            flat += self._mixed(block)
        assert len(flat) * _COPY == self._copies * self._unit, (len(flat), self._copies, self._unit)
        return flat

    def _tree(self, at: Sequence[int], level: int) -> _Domain:
        """The domains of these members, from a level on, in any order."""
        found: dict[str, list[int]] = {}
        names = self._names[level]
        for one in at:
            found.setdefault(names[one], []).append(one)
        order = list(found)
        self._draw.shuffle(order)
        if level == len(self._names) - 1:
            for numbers in found.values():
                if len(numbers) > 1:
                    self._draw.shuffle(numbers)
            return _Domain(sum([self._weights[one] for one in at]), len(order), by_host=[found[name] for name in order])
        inside = [self._tree(found[name], level + 1) for name in order]
        if not level and self._levels.local in found:
            inside[order.index(self._levels.local)].local = True
        return _Domain(sum([one.weight for one in inside]), sum([one.hosts for one in inside]), inside)

    def _widths(self, domain: _Domain, width: int) -> list[int]:
        """What each domain inside has of this width: its share, but none more of a group than has to be, and each as
        much as can be had evenly."""
        if not domain.inside:
            weights = [self._weights[one[0]] if len(one) == 1 else self._sum(one) for one in domain.by_host]
            return fill(width, weights, [0] * len(weights), [self._unit] * len(weights))
        wanted = -(-width // self._unit)
        hosts = [one.hosts for one in domain.inside]
        most = next(most for most in range(1, wanted + 1) if sum([min(one, most) for one in hosts]) >= wanted)
        highest = [min(one, most) * self._unit for one in hosts]
        lowest = [min(one, most - 1) * self._unit for one in hosts]
        weights = [one.weight for one in domain.inside]
        if domain is self._root:
            local = [one.local for one in domain.inside]
            if any(local):
                lowest = [max(low, self._unit) if here else low for here, low in zip(local, lowest, strict=True)]
                if sum(lowest) > width:  # the local one has its copy, and others as much less
                    lowest = [self._unit if here else 0 for here in local]
            if self._levels.equal:
                weights = [1.0] * len(weights)
        return fill(width, weights, lowest, highest)

    def _sum(self, numbers: Sequence[int]) -> float:
        return sum([self._weights[one] for one in numbers])

    def _blocks(self, domain: _Domain, width: int) -> list[list[_Taken]]:
        """Cut the line into what may be mixed: whole domains that are no wider together than one copy of each group."""
        if width <= self._unit:
            return [self._taken(domain, width)]
        blocks: list[list[_Taken]] = []
        left = 0
        inside: Sequence[_Domain | list[int]] = domain.inside or domain.by_host
        for one, own in zip(inside, self._widths(domain, width), strict=True):
            if isinstance(one, _Domain) and own > self._unit:
                blocks += self._blocks(one, own)
                left = 0
                continue
            if own > left:
                blocks.append([])
                left = self._unit
            blocks[-1] += self._taken(one, own)
            left -= own
        return blocks

    def _taken(self, domain: _Domain | list[int], width: int) -> list[_Taken]:
        """What each host of a domain has, or one host."""
        if not width:
            return []
        if isinstance(domain, _Domain):
            inside: Sequence[_Domain | list[int]] = domain.inside or domain.by_host
            widths = self._widths(domain, width)
            return [found for one, own in zip(inside, widths, strict=True) for found in self._taken(one, own)]
        widths = [width]
        if len(domain) > 1:
            weights = [self._weights[one] for one in domain]
            widths = fill(width, weights, [0] * len(domain), [width] * len(domain))
        taken: _Taken = []
        for one, own in zip(domain, widths, strict=True):
            self._at += own
            teeth = -(-self._at // _COPY) - self._teeth
            if teeth:
                self._teeth += teeth
                taken.append((self._workers[one], teeth))
        return [taken] if taken else []

    def _mixed(self, block: Sequence[_Taken]) -> list[int]:
        """The teeth of a block in turns, each round from another one on: or the same two workers would be in one group
        in every round. Workers of a host are far apart."""
        hosts = list(block)
        self._draw.shuffle(hosts)
        # A worker of each host, then a second one of each.
        order = [one for some in zip_longest(*hosts) for one in some if one is not None]
        workers = [worker for worker, _ in order]
        turns = interleave([teeth for _, teeth in order])
        if self._copies == 1:
            return [workers[turn] for turn in turns]
        found: list[int] = []
        length = max(len(workers), 1)
        for start in range(0, len(turns), length):
            round_ = turns[start : start + length]
            at = int(self._draw.random() * len(round_))
            found += [workers[turn] for turn in round_[at:]]
            found += [workers[turn] for turn in round_[:at]]
        return found


def fill(total: int, weights: Sequence[float], lowest: Sequence[int], highest: Sequence[int]) -> list[int]:
    """Return whole numbers that add up to `total`, by weight, none below its lowest nor above its highest one; sums of
    these must allow it."""
    found = [0] * len(weights)
    if len(set(weights)) == 1 and max(lowest) * len(found) <= total < min(highest) * len(found):
        each, more = divmod(total, len(found))
        return [each + 1] * more + [each] * (len(found) - more)
    free: Iterable[int] = range(len(weights))
    rest = total
    while free:
        sum_of = sum([weights[one] for one in free])
        wanted = {one: rest * (weights[one] / sum_of) for one in free}
        low = [one for one in free if wanted[one] <= lowest[one]]
        high = [one for one in free if wanted[one] >= highest[one]]
        under = sum([lowest[one] - wanted[one] for one in low])
        over = sum([wanted[one] - highest[one] for one in high])
        if not low and not high:
            for one, share in wanted.items():
                found[one] = int(share)
            break
        bound = dict.fromkeys(high, highest) if high and over >= under else dict.fromkeys(low, lowest)
        for one, values in bound.items():
            found[one] = values[one]
            rest -= values[one]
        free = [one for one in free if one not in bound]
    left = total - sum(found)
    for one, each in enumerate(found):
        if not left:
            break
        found[one] = min(max(each + left, lowest[one]), highest[one])
        left -= found[one] - each
    return found


def interleave(counts: Sequence[int]) -> list[int]:
    """Return each number i counts[i] times, its occurrences as evenly apart as can be."""
    least = min(counts, default=0)
    if max(counts, default=0) - least <= 1:
        more = [number for number, count in enumerate(counts) if count > least]
        rounds = list(range(len(counts))) * least
        # So that nobody is beside itself.
        return [*more, *rounds] if more == [len(counts) - 1] else [*rounds, *more]
    keys = [((turn + 0.5) / count, number) for number, count in enumerate(counts) for turn in range(count)]
    keys.sort()
    return [number for _, number in keys]


def _step(count: int) -> int:
    """Return a step that visits each of `count` numbers once, about a golden section of them long."""
    step = max(1, int(count * 0.618))
    while math.gcd(step, count) > 1:
        step += 1
    return step
