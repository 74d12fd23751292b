"""Places for all partitions of a new shuffle at once: shares of workers kept to the unit, copies in different domains.

The partitions are dealt out by shares (largest remainder), as primaries and again as replicas. The workers' entries are
laid out domain by domain, those of one domain interleaved; entry i is the primary and entry i + n / 2 the replica of
one partition. No domain has more than half of the entries, so both are in different ones; and since the workers of a
domain take turns, each round from another one on, what one worker has is spread over many others when it is lost.

Rules: pure. A domain with more than half is cut to half: distance of copies comes before shares. Linear but for sorts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.common.ids import NO_WORKER
from holdfast.master.placement.members import Draw
from holdfast.master.placement.policy import Candidates, Policy, choose_field, shares
from holdfast.master.placement.topology import region_of


class CopyPlace(NamedTuple):
    """The workers of one epoch of a partition; `replica` is NO_WORKER with one copy."""

    primary: int
    replica: int


class Assigned(NamedTuple):
    """Places of the partitions, how many copies each has, and how many of them do not keep to what was wished."""

    places: list[CopyPlace]
    copies: int
    not_adhering: int


def assign(policy: Policy, candidates: Candidates, count: int, copies: int, draw: Draw) -> Assigned:
    """Return a place for each of `count` partitions; none if there are no candidates. Where there is one host only,
    there is one copy. Raises NotEnoughError where that breaks what is enforced."""
    field = choose_field(policy, candidates, copies)
    if not field.members:
        return Assigned([], copies, 0)
    workers = [one.worker for one in field.members]
    parts = shares(policy, field.members, candidates.disks)
    missing = 0 if field.adheres else count
    if copies < 2 or len(set(field.domains)) < 2:
        return Assigned(assign_single(count, workers, parts, draw), 1, missing)
    places = assign_pairs(count, workers, field.domains, parts, draw)
    first = {one.worker for one in field.members[: field.wanted]}
    if not first and policy.constraint == "regionaware" and policy.regions.local:
        first = {one.worker for one in field.members if region_of(one.place) == policy.regions.local}
    places = [CopyPlace(two, one) if two in first and one not in first else CopyPlace(one, two) for one, two in places]
    return Assigned(places, copies, missing)


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Return whole numbers that add up to `total` and differ from the shares of it by less than 1."""
    exact = [total * share for share in shares]
    found = [int(one) for one in exact]
    rest = sorted(range(len(shares)), key=lambda at: (found[at] - exact[at], at))
    for at in rest[: total - sum(found)]:
        found[at] += 1
    return found


def interleave(counts: Sequence[int]) -> list[int]:
    """Return each number i counts[i] times, its occurrences as evenly apart as can be."""
    if len(set(counts)) == 1:
        return list(range(len(counts))) * counts[0]
    keys = [((turn + 0.5) / count, number) for number, count in enumerate(counts) for turn in range(count)]
    keys.sort()
    return [number for _, number in keys]


def cut_to_half(shares: Mapping[str, float]) -> dict[str, float]:
    """Return shares of domains that add up to 1, none above a half; there have to be two or more."""
    largest = max(shares, key=lambda one: shares[one])
    total = sum(shares.values())
    rest = total - shares[largest]
    if shares[largest] <= rest:
        return {one: share / total for one, share in shares.items()}
    return {one: 0.5 if one == largest else share / rest / 2 for one, share in shares.items()}


def assign_single(count: int, workers: Sequence[int], shares: Sequence[float], draw: Draw) -> list[CopyPlace]:
    """Return a place for each partition, with one copy. `shares` of the workers add up to 1."""
    drawn = list(range(len(workers)))
    draw.shuffle(drawn)
    counts = apportion(count, [shares[at] for at in drawn])
    return [CopyPlace(workers[drawn[number]], NO_WORKER) for number in interleave(counts)]


def assign_pairs(
    count: int, workers: Sequence[int], domains: Sequence[str], shares: Sequence[float], draw: Draw
) -> list[CopyPlace]:
    """Return a place for each partition, primary and replica in different domains, of which there are two or more."""
    inside: dict[str, list[int]] = {}
    for at, domain in enumerate(domains):
        inside.setdefault(domain, []).append(at)
    for found in inside.values():
        draw.shuffle(found)
    order = list(inside)
    draw.shuffle(order)
    halves = cut_to_half({domain: sum([shares[at] for at in inside[domain]]) for domain in order})
    # Twice as many entries: each is once a primary and once a replica, and none is left out if count is odd.
    flat: list[int] = []
    for domain, size in zip(order, _at_most_half(2 * count, [halves[domain] for domain in order]), strict=True):
        own = [shares[at] for at in inside[domain]]
        turns = interleave(apportion(size, [share / sum(own) for share in own]))
        numbers = [workers[at] for at in inside[domain]]
        flat += [numbers[turn] for turn in _turned(turns, len(numbers), draw)]
    # Neighbours in number are far apart in the list; half of the pairs the other way round, or the first domains were
    # primaries only.
    step = _step(count)
    pairs = [(flat[at], flat[at + count]) for at in [number * step % count for number in range(count)]]
    places = list(map(CopyPlace._make, pairs))
    places[1::2] = [CopyPlace(two, one) for one, two in pairs[1::2]]
    return places


def _turned(turns: Sequence[int], length: int, draw: Draw) -> list[int]:
    """Begin each round of so many turns somewhere else: or the same two workers would be pairs in every round."""
    found: list[int] = []
    for start in range(0, len(turns), length):
        round_ = turns[start : start + length]
        at = int(draw.random() * len(round_))
        found += round_[at:]
        found += round_[:at]
    return found


def _step(count: int) -> int:
    """Return a step that visits each of `count` numbers once, about a golden section of them long."""
    step = max(1, int(count * 0.618))
    while math.gcd(step, count) > 1:
        step += 1
    return step


def _at_most_half(total: int, shares: Sequence[float]) -> list[int]:
    """As `apportion`, with none above half of the total, which is even."""
    found = apportion(total, shares)
    over = max(range(len(found)), key=lambda at: found[at])
    if found[over] > total // 2:
        other = min((at for at in range(len(found)) if at != over), key=lambda at: found[at] - total * shares[at])
        found[other] += found[over] - total // 2
        found[over] = total // 2
    return found
