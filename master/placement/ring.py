"""Chooses the ordered ring of workers that a shuffle of MAP partitions writes to.

Rules: pure; chance is handed in. Copies of one file stand on neighbours of the ring,
so as many neighbours as there are copies share no host: spread is given up for that before a copy is. Where there are
fewer hosts, fewer copies are placed and the caller says so.
Called by master/api and master/control on the leader; the result travels in the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.master.placement.chooser import Chooser
from holdfast.master.placement.deal import Part
from holdfast.master.placement.groups import parts_of
from holdfast.master.placement.members import Draw, Member, NotEnoughError
from holdfast.master.placement.policy import Candidates, Policy, adherence, enforced, holds, levels
from holdfast.master.placement.wishes import Adherence

#: Workers in one ring. More would not spread a shuffle better, and every reader opens a stream to each.
RING_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Ring:
    """Workers in order, how many copies they can hold (as many as asked for, or fewer), and whether that is as
    wished."""

    workers: tuple[int, ...]
    copies: int
    adheres: bool


def map_ring(policy: Policy, candidates: Candidates, copies: int, draw: Draw) -> Ring:
    """Return the ring for so many copies; no workers if there are no candidates.

    The order is drawn, so that few maps of many shuffles do not all go to the same worker. Neighbours are of different
    racks or regions if the policy wishes that and no ring of hosts would be longer. Spared workers are not alone among
    neighbours where others are left. Raises NotEnoughError.
    """
    if not len(candidates):
        return Ring((), copies, adheres=True)
    chooser = Chooser(policy, candidates, copies, draw)
    parts = parts_of(policy, candidates, copies, chooser)
    members = sorted([one for part in parts for one in part.members])
    draw.shuffle(members)
    return _ring(policy, parts, members[:RING_MAX], copies, chooser)


def _ring(policy: Policy, parts: Sequence[Part], members: Sequence[Member], copies: int, chooser: Chooser) -> Ring:
    there = chooser.there
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
        chosen = [chooser.known[one] for one in chooser.filled([None] * copies) or ()]
    verdicts = {tuple([chosen[(at + step) % len(chosen)].place for step in range(size)]) for at in range(len(chosen))}
    if not all(holds(policy, each, copies, there) for each in verdicts):
        raise NotEnoughError(f"what is enforced of {copies} copies cannot be had in a ring of {len(members)} workers")
    adheres = all(adherence(policy, each, copies, there) is Adherence.STRICT for each in verdicts)
    return Ring(tuple([one.worker for one in chosen]), size, adheres)


def _widest(policy: Policy, members: Sequence[Member], size: int) -> list[Member]:
    """The ring whose neighbours are apart at the widest level that has so many domains."""
    for domain_of in levels(policy).of:
        domains = list(map(domain_of, members))
        if len(set(domains)) >= size:
            return apart(members, domains, size)
    return []


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
