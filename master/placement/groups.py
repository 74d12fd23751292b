"""Places of new partitions: groups of any number of copies, by an order and a constraint.

The order deals all groups of a shuffle at once (deal.py); those that were dealt and are not as wished are chosen one
by one (chooser.py) where there are better ones.

Rules: pure. What is given up, and in which order, is for the chooser.
Called by fleet/fleet.py, ring.py and replace.py.
Source: the slots allocation of Apache Celeborn for orders, the policies of Apache BookKeeper for constraints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.master.placement.chooser import NOBODY, Chooser, tiers
from holdfast.master.placement.deal import Part, deal
from holdfast.master.placement.members import Draw, Member, NotEnoughError
from holdfast.master.placement.policy import (
    Candidates,
    Policy,
    Workers,
    adherence,
    broken,
    holds,
    levels,
    patterns_of,
    shares,
    spreads,
)
from holdfast.master.placement.wishes import Adherence

#: So many groups that are not as wished are chosen anew, unless what they break is enforced.
_CHOSEN_MAX = 1_000


class Adhering(NamedTuple):
    """How many groups keep to what is wished, and how far."""

    strict: int = 0
    soft: int = 0
    failed: int = 0

    @classmethod
    def of(cls, found: Mapping[Adherence, int]) -> Adhering:
        """Count them."""
        return cls(*(found.get(each, 0) for each in (Adherence.STRICT, Adherence.SOFT, Adherence.FAIL)))

    @property
    def not_strict(self) -> int:
        """Those that do not keep to all that is wished."""
        return self.soft + self.failed


class PlacedGroups(NamedTuple):
    """The groups of partitions in the order asked, how many copies each has, and how far they are as wished."""

    groups: list[Workers]
    copies: int
    adhering: Adhering


def place(
    policy: Policy, candidates: Candidates, count: int, copies: int, draw: Draw, avoid: Collection[int] = NOBODY
) -> PlacedGroups:
    """Return a group for each of `count` partitions; none if there are no candidates. Fewer hosts have fewer copies,
    and workers to avoid get what nobody else can have. Raises NotEnoughError where that breaks what is enforced."""
    if not len(candidates):
        return PlacedGroups([], copies, Adhering())
    chooser = Chooser(policy, candidates, copies, draw, avoid=avoid)
    if policy.own is not None and copies > 1:
        return _chosen(count, copies, chooser)
    parts = parts_of(policy, candidates, copies, chooser, avoid)
    groups = _dealt(policy, parts, count, draw)
    return _judged(policy, groups, copies, chooser)


def parts_of(
    policy: Policy, candidates: Candidates, copies: int, chooser: Chooser, avoid: Collection[int] = NOBODY
) -> list[Part]:
    """Of whom groups are made: how many copies of each are on workers of which tier, as few as can be on later ones.
    Raises NotEnoughError."""
    found: list[list[Member]] = []
    hosts: set[str] = set()
    for some in tiers(policy, candidates, avoid, copies):
        own = [one for one in some if one.host not in hosts]
        hosts.update([one.host for one in own])
        if own:
            found.append(own)
    problem = broken(policy, [one.place for own in found for one in own], copies)
    if problem or not found:
        raise NotEnoughError(problem or "all workers that take data are in regions that take nothing new")
    numbers = [min(copies, len(hosts))]
    if len(found) > 1 or len(hosts) < copies:
        group = chooser.filled([None] * copies)
        if group is None:
            raise NotEnoughError(f"what is enforced of {copies} copies cannot be had of {len(candidates)} workers")
        members = [chooser.known[one].host for one in group]
        numbers = [sum(host in members for host in {one.host for one in own}) for own in found]
    parts = [(_fresh(policy, found[:at], found[at], number), number) for at, number in enumerate(numbers) if number]
    return [Part(who, shares(policy, who, candidates.disks), number) for who, number in parts]


def _fresh(policy: Policy, before: Sequence[Sequence[Member]], own: list[Member], number: int) -> list[Member]:
    """Those of other regions than the ones before, or racks, if they are enough; else all."""
    for domain_of in levels(policy).of[:-1] if before else ():
        used = {domain_of(one) for some in before for one in some}
        apart = [one for one in own if domain_of(one) not in used]
        if len({one.host for one in apart}) >= number:
            return apart
    return own


def _dealt(policy: Policy, parts: Sequence[Part], count: int, draw: Draw) -> list[Workers]:
    groups = deal(parts, count, levels(policy), draw)
    local = policy.regions.local if policy.constraint == "regionaware" else ""
    if not local:
        return groups
    here = {one.worker for part in parts for one in part.members if one.region_of() == local}
    return [_led_by(each, here) for each in groups]


def _led_by(group: Workers, here: set[int]) -> Workers:
    """The group with a worker of these first, if it has one."""
    at = next((at for at, one in enumerate(group) if one in here), 0)
    return (group[at], *group[:at], *group[at + 1 :])


def _judged(policy: Policy, groups: list[Workers], copies: int, chooser: Chooser) -> PlacedGroups:
    """Count how far the groups adhere; those that could do better are chosen one by one."""
    size, there = len(groups[0]) if groups else copies, chooser.there
    if copies < 2 or (size == copies and (not spreads(policy) or (there.places < 2 and not policy.racks.enforced))):
        return PlacedGroups(groups, size, Adhering(strict=len(groups)))
    places = {number: one.place for number, one in chooser.known.items()}
    patterns = patterns_of(groups, places)
    verdicts = {each: adherence(policy, each, copies, there) for each in set(patterns)}
    broken_ones = {each for each in verdicts if not holds(policy, each, copies, there)}
    if not broken_ones and set(verdicts.values()) <= {Adherence.STRICT}:
        return PlacedGroups(groups, size, Adhering(strict=len(groups)))
    bad = [at for at, each in enumerate(patterns) if verdicts[each] is not Adherence.STRICT]
    found = Counter({Adherence.STRICT: len(groups) - len(bad)})
    # Whoever is chosen first is as good as can be: all that is chosen is.
    best = chooser.filled([None] * copies) if bad else None
    rank = chooser.adherence(best).rank if best else 0
    for number, at in enumerate(bad):
        verdict, must = verdicts[patterns[at]], patterns[at] in broken_ones
        if must or (best and number < _CHOSEN_MAX and verdict.rank > rank):
            chosen = chooser.filled([None] * copies)
            if chosen is None:
                raise NotEnoughError(f"what is enforced of {copies} copies cannot be had of {len(places)} workers")
            groups[at], verdict = chosen, chooser.adherence(chosen)
        found[verdict] += 1
    return PlacedGroups(groups, size, Adhering.of(found))


def _chosen(count: int, copies: int, chooser: Chooser) -> PlacedGroups:
    """Choose every group: what a user's policy says cannot be dealt."""
    groups = [chooser.filled([None] * copies) or () for _ in range(count)]
    if not all(groups):
        raise NotEnoughError("the policy lets no worker that takes data have a copy")
    adhering = Adhering.of(Counter(map(chooser.adherence, groups)))
    return PlacedGroups(groups, max(map(len, groups), default=copies), adhering)


def taking(policy: Policy, candidates: Candidates, copies: int, draw: Draw) -> list[Member]:
    """Who takes part in placing so many copies."""
    parts = parts_of(policy, candidates, copies, Chooser(policy, candidates, copies, draw))
    return [one for part in parts for one in part.members]
