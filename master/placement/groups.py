"""Places of new partitions: groups of any number of copies, by an order and a constraint.

The order deals all groups of a shuffle at once (deal.py); the constraint (racks.py, regions.py) judges each of them,
and chooses one of its own where the one that was dealt is not as wished and there is a better one.

Rules: pure. What is given up, in this order: the wish for regions, then that for racks, unless they are enforced; then
the sparing of workers that are to be spared, as many copies of each group as it takes and no first ones; then, in the
same way, that workers are avoided; then copies, where there are fewer hosts. Two copies never share a host.
Called by fleet/fleet.py, ring.py and replace.py.
Source: the slots allocation of Apache Celeborn for orders, the policies of Apache BookKeeper for constraints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.common.ids import NO_WORKER
from holdfast.master.placement.deal import Part, deal
from holdfast.master.placement.members import Draw, Member, NotEnoughError, WeightedOrder
from holdfast.master.placement.policy import (
    Candidates,
    Policy,
    There,
    adherence,
    admitted,
    broken,
    levels,
    shares,
    spreads,
)
from holdfast.master.placement.racks import RackAware
from holdfast.master.placement.regions import RegionAware
from holdfast.master.placement.windows import Adherence

#: The workers of one partition, the first of which clients push to.
Workers = tuple[int, ...]
#: So many groups that are not as wished are chosen anew.
_CHOSEN_MAX = 1_000


def pair_of(group: Workers) -> tuple[int, int]:
    """The primary and the replica of a group of one or two, NO_WORKER where there is none."""
    primary, replica = (*group, NO_WORKER)[:2]
    return primary, replica


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


def place(policy: Policy, candidates: Candidates, count: int, copies: int, draw: Draw) -> PlacedGroups:
    """Return a group for each of `count` partitions; none if there are no candidates. Fewer hosts have fewer copies.
    Raises NotEnoughError where that breaks what is enforced."""
    first = admitted(policy, candidates.members, copies)
    second = admitted(policy, [*candidates.spared, *candidates.avoided], copies)
    if not len(candidates):
        return PlacedGroups([], copies, Adhering())
    problem = broken(policy, [one.place for one in (*first, *second)], copies)
    if not first and not second:
        raise NotEnoughError(problem or "all workers that take data are in regions that take nothing new")
    if not problem:
        for parts in shapes(policy, candidates, copies):
            groups = _dealt(policy, parts, count, draw)
            found = _judged(policy, candidates, parts, groups, copies, draw)
            if not found.adhering.failed or not enforced(policy, copies):
                return found
    raise NotEnoughError(problem or f"what is enforced of {copies} copies cannot be had of {len(candidates)} workers")


def shapes(policy: Policy, candidates: Candidates, copies: int) -> Iterator[list[Part]]:
    """Yield of whom groups may be made, those first that have the fewest copies on workers to be avoided, then those
    with the fewest on spared ones. Nobody of these is alone where there are others."""
    tiers: list[list[Member]] = []
    hosts: set[str] = set()
    for some in (candidates.members, candidates.spared, candidates.avoided):
        own = [one for one in admitted(policy, some, copies) if one.host not in hosts]
        hosts.update([one.host for one in own])
        if own:
            tiers.append(own)
    bounds = [len({one.host for one in own}) for own in tiers]
    wanted = min(copies, len(hosts))
    for numbers in sorted(_splits(wanted, bounds), key=lambda split: split[::-1]):
        if not wanted or numbers[0]:
            parts = [(_fresh(policy, tiers[:at], own, numbers[at]), numbers[at]) for at, own in enumerate(tiers)]
            yield [Part(who, shares(policy, who, candidates.disks), number) for who, number in parts if number]


def _splits(total: int, bounds: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the ways to add up to a total with as many numbers, none above its bound."""
    if not bounds:
        if not total:
            yield ()
        return
    for one in range(min(total, bounds[0]) + 1):
        for rest in _splits(total - one, bounds[1:]):
            yield (one, *rest)


def _fresh(policy: Policy, before: Sequence[Sequence[Member]], own: list[Member], number: int) -> list[Member]:
    """Those of other racks than the ones before, if they are enough; else all."""
    racks = {one.place for some in before for one in some} if spreads(policy) else set()
    apart = [one for one in own if one.place not in racks]
    return apart if len({one.host for one in apart}) >= number else own


def enforced(policy: Policy, copies: int) -> bool:
    """Whether something is wished of so many copies that is rather not had at all than broken."""
    wish = policy.regions.durable if policy.constraint == "regionaware" else 0
    return copies > 1 and spreads(policy) and (policy.racks.enforced or wish > 1)


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


def _judged(
    policy: Policy, candidates: Candidates, parts: Sequence[Part], groups: list[Workers], copies: int, draw: Draw
) -> PlacedGroups:
    """Count how far the groups adhere; those that do not are chosen one by one where that is better."""
    there = there_of(candidates, parts)
    size = len(groups[0]) if groups else copies
    if copies < 2 or (size == copies and (not spreads(policy) or (there.places < 2 and not policy.racks.enforced))):
        return PlacedGroups(groups, size, Adhering(strict=len(groups)))
    places = {one.worker: one.place for part in parts for one in part.members}
    columns = [list(map(places.__getitem__, column)) for column in zip(*groups, strict=True)]
    patterns = list(zip(*columns, strict=True))
    verdicts = {each: adherence(policy, each, copies, there) for each in set(patterns)}
    bad = [at for at, each in enumerate(patterns) if verdicts[each] is not Adherence.STRICT]
    found = Counter({Adherence.STRICT: len(groups) - len(bad)})
    choosing = size == copies > 2 and len(parts) == 1
    for number, at in enumerate(bad):
        verdict = verdicts[patterns[at]]
        if choosing and number < _CHOSEN_MAX:
            better = _chosen(policy, parts[0], copies, verdict, draw)
            choosing = better is not None
            if better is not None:
                groups[at], verdict = better
        found[verdict] += 1
    return PlacedGroups(groups, size, Adhering.of(found))


def _chosen(
    policy: Policy, part: Part, copies: int, verdict: Adherence, draw: Draw
) -> tuple[Workers, Adherence] | None:
    """A group that adheres better than that; None if there is none."""
    try:
        group = chooser(policy, part, draw).new_group(copies, copies, copies)
    except NotEnoughError:
        return None
    return (group.members, group.adherence) if group.adherence.rank < verdict.rank else None


def chooser(policy: Policy, part: Part, draw: Draw) -> RackAware | RegionAware:
    """What chooses a single group of these workers, by lot with the odds of their shares."""
    weights = dict(zip((one.worker for one in part.members), part.weights, strict=True))
    order = WeightedOrder(weights, 0.0, draw)
    if policy.constraint == "regionaware":
        return RegionAware(part.members, order, policy.racks, policy.regions)
    return RackAware(part.members, order, policy.racks)


def there_of(candidates: Candidates, parts: Sequence[Part]) -> There:
    """What there is to spread over: places of all workers there are, regions of those that may be used now."""
    used = [one.place for part in parts for one in part.members]
    every = candidates.places or [one.place for one in candidates.everybody]
    return There(There.of(every).places, There.of(used).regions)


def taking(policy: Policy, candidates: Candidates, copies: int) -> list[Member]:
    """Who takes part in placing so many copies where nothing is enforced."""
    parts = next(shapes(policy, candidates, copies), [])
    return [one for part in parts for one in part.members]
