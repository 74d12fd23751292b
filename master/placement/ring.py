"""Chooses the ordered ring of workers that a shuffle of MAP partitions writes to.

Rules: pure; the order depends on the seed and the candidates alone. Copies of one file stand on neighbours of the ring,
so as many neighbours as there are copies share no host: spread is given up for that before a copy is. Where there are
fewer hosts, fewer copies are placed and the caller says so.
Called by master/api and master/control on the leader; the result travels in the command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.master.placement.deal import Part
from holdfast.master.placement.groups import enforced, shapes, there_of
from holdfast.master.placement.members import Member, NotEnoughError
from holdfast.master.placement.policy import Candidates, Policy, There, adherence, admitted, broken, levels
from holdfast.master.placement.windows import Adherence

#: Workers in one ring. More would not spread a shuffle better, and every reader opens a stream to each.
RING_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Ring:
    """Workers in order, how many copies they can hold (as many as asked for, or fewer), and whether that is as
    wished."""

    workers: tuple[int, ...]
    copies: int
    adheres: bool


def map_ring(policy: Policy, candidates: Candidates, copies: int, seed: bytes) -> Ring:
    """Return the ring for so many copies; no workers if there are no candidates.

    Shuffles draw different seeds, so that few maps do not all go to the same worker. Neighbours are of different racks
    or regions if the policy wishes that and no ring of hosts would be longer. Spared workers are not alone among
    neighbours where others are left. Raises NotEnoughError.
    """
    if not len(candidates):
        return Ring((), copies, adheres=True)
    every = admitted(policy, candidates.everybody, copies)
    problem = broken(policy, [one.place for one in every], copies)
    if not every:
        raise NotEnoughError(problem or "all workers that take data are in regions that take nothing new")
    for parts in () if problem else shapes(policy, candidates, copies):
        ring = _ring(policy, parts, there_of(candidates, parts), copies, seed)
        if ring.adheres or not enforced(policy, copies):
            return ring
    raise NotEnoughError(problem or f"what is enforced of {copies} copies cannot be had of {len(every)} workers")


def _ring(policy: Policy, parts: Sequence[Part], there: There, copies: int, seed: bytes) -> Ring:
    members = sorted([one for part in parts for one in part.members], key=lambda one: _draw(seed, one.worker))
    members = members[:RING_MAX]
    size = min(copies, len({one.host for one in members}))
    if size < 2:
        return Ring(tuple([one.worker for one in members]), 1, adheres=copies < 2)
    if len(parts) == 1:
        near = apart(members, [one.host for one in members], size)
        wide = _widest(policy, members, size)
        chosen = wide if len(wide) == len(near) or (wide and enforced(policy, copies)) else near
    elif copies == 2:
        first = {one.worker for one in parts[0].members}
        chosen = apart(members, ["" if one.worker in first else "spared" for one in members], 2)
    else:
        chosen = [one for part in parts for one in _of_each_host(part, members)[: part.copies]]
    verdicts = {tuple([chosen[(at + step) % len(chosen)].place for step in range(size)]) for at in range(len(chosen))}
    adheres = all(adherence(policy, each, copies, there) is Adherence.STRICT for each in verdicts)
    return Ring(tuple([one.worker for one in chosen]), size, adheres)


def _widest(policy: Policy, members: Sequence[Member], size: int) -> list[Member]:
    """The ring whose neighbours are apart at the widest level that has so many domains."""
    for domain_of in levels(policy).of:
        domains = list(map(domain_of, members))
        if len(set(domains)) >= size:
            return apart(members, domains, size)
    return []


def _of_each_host(part: Part, drawn: Sequence[Member]) -> list[Member]:
    own = {one.worker for one in part.members}
    return list({one.host: one for one in reversed(drawn) if one.worker in own}.values())


def apart(drawn: Sequence[Member], domains: Sequence[str], size: int) -> list[Member]:
    """Order workers of `size` domains or more so that `size` neighbours, the ring closed, are never of the same one.

    That is possible as soon as no domain has more than one of `size` places; so the larger ones are cut. Then every
    `size`-th place from 0 on, from 1 on, … is filled domain by domain, the largest first: workers of one domain end up
    that far apart, and only one with more could meet itself.
    """
    inside: dict[str, list[Member]] = {}
    for member, domain in zip(drawn, domains, strict=True):
        inside.setdefault(domain, []).append(member)
    groups = sorted(inside.values(), key=len, reverse=True)
    while True:
        total = sum(map(len, groups))
        if len(groups[0]) > total // size:
            groups = [group[: total // size] for group in groups]
        elif size > 2 and total % size:  # columns of unequal length would let the ends meet
            last = max(at for at, group in enumerate(groups) if len(group) == len(groups[0]))
            groups[last] = groups[last][:-1]
        else:
            break
    flat = [member for group in groups for member in group]
    places = [place for first in range(size) for place in range(first, len(flat), size)]
    ring = dict(zip(places, flat, strict=True))
    return [ring[place] for place in range(len(flat))]


def _draw(seed: bytes, worker: int) -> bytes:
    return hashlib.blake2b(worker.to_bytes(4, "little"), key=seed[:64], digest_size=8).digest()
