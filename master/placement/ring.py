"""Chooses the ordered ring of workers that a shuffle of MAP partitions writes to.

Rules: pure; the order depends on the seed and the candidates alone. Copies of one file are on neighbours of the ring,
so with two copies no neighbours share a host: spread is dropped for that before a copy is. Where there is only one
host, one copy is placed and the caller says so.
Called by master/api and master/control on the leader; the result travels in the command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.master.placement.members import Member
from holdfast.master.placement.policy import Candidates, Policy, choose_field

#: Workers in one ring. More would not spread a shuffle better, and every reader opens a stream to each.
RING_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Ring:
    """Workers in order, how many copies they can hold (as many as asked for, or 1), and whether that is as wished."""

    workers: tuple[int, ...]
    copies: int
    adheres: bool


def map_ring(policy: Policy, candidates: Candidates, copies: int, seed: bytes) -> Ring:
    """Return the ring for `copies` copies (1 or 2); no workers if there are no candidates.

    Shuffles draw different seeds, so that few maps do not all go to the same worker. Neighbours are of different racks
    or regions if the policy wishes that and no ring of hosts would be longer. Spared workers are no neighbours of one
    another where others are left. Raises NotEnoughError.
    """
    field = choose_field(policy, candidates, copies)
    order = sorted(range(len(field.members)), key=lambda at: _draw(seed, field.members[at].worker))[:RING_MAX]
    members = [field.members[at] for at in order]
    if copies == 1 or len({one.host for one in members}) < 2:
        return Ring(tuple([one.worker for one in members]), 1, field.adheres)
    wide = _apart(members, [field.domains[at] for at in order])
    if field.wanted:
        return Ring(wide, copies, field.adheres)
    near = _apart(members, [one.host for one in members])
    if len(wide) == len(near) or (wide and (policy.racks.enforced or policy.regions.durable)):
        return Ring(wide, copies, field.adheres)
    return Ring(near, copies, adheres=False)


def _apart(drawn: Sequence[Member], domains: Sequence[str]) -> tuple[int, ...]:
    """Order workers of two or more domains so that neighbours, first and last included, are never of the same.

    That is possible as soon as no domain has more than half of the places; so the largest one is cut to what the others
    have together. Then the places 0, 2, 4, … and 1, 3, 5, … are filled domain by domain, the largest first: workers of
    one domain end up two places apart, and only one with more than half could meet itself.
    """
    inside: dict[str, list[int]] = {}
    for member, domain in zip(drawn, domains, strict=True):
        inside.setdefault(domain, []).append(member.worker)
    groups = sorted(inside.values(), key=len, reverse=True)
    groups[0] = groups[0][: sum(map(len, groups[1:]))]
    flat = [worker for group in groups for worker in group]
    places = [*range(0, len(flat), 2), *range(1, len(flat), 2)]
    ring = dict(zip(places, flat, strict=True))
    return tuple(ring[place] for place in range(len(flat)))


def _draw(seed: bytes, worker: int) -> bytes:
    return hashlib.blake2b(worker.to_bytes(4, "little"), key=seed[:64], digest_size=8).digest()
