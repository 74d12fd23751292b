"""Chooses the ordered ring of workers that a shuffle of MAP partitions writes to.

Rules: pure; the order depends on the seed and the candidates alone. Copies of one file stand on neighbours of the ring,
so with two copies no neighbours share a host: spread is given up for that before a copy is. Where there is only one
host, one copy is placed and the caller says so.
Called by master/service on the leader; the result travels in the command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

#: Workers in one ring. More would not spread a shuffle better, and every reader opens a stream to each.
RING_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that may be given data."""

    worker: int
    host: str


@dataclass(frozen=True, slots=True)
class Ring:
    """Workers in order, and how many copies they can hold: as many as asked for, or 1."""

    workers: tuple[int, ...]
    copies: int


def map_ring(candidates: Sequence[Candidate], copies: int, seed: bytes) -> Ring:
    """Return the ring for `copies` copies (1 or 2); no workers if there are no candidates.

    Shuffles draw different seeds, so that few maps do not all go to the same worker.
    """
    drawn = sorted(candidates, key=lambda candidate: _draw(seed, candidate.worker))[:RING_MAX]
    if copies == 1 or len({candidate.host for candidate in drawn}) < 2:
        return Ring(tuple(candidate.worker for candidate in drawn), 1)
    return Ring(_hosts_apart(drawn), copies)


def _hosts_apart(drawn: Sequence[Candidate]) -> tuple[int, ...]:
    """Order workers of two or more hosts so that neighbours, first and last included, never share one.

    That is possible as soon as no host has more than half of the places; so the largest host is cut to what the others
    have together. Then the places 0, 2, 4, … and 1, 3, 5, … are filled host by host, the largest first: workers of one
    host end up two places apart, and only a host with more than half could meet itself.
    """
    hosts: dict[str, list[int]] = {}
    for candidate in drawn:
        hosts.setdefault(candidate.host, []).append(candidate.worker)
    groups = sorted(hosts.values(), key=len, reverse=True)
    groups[0] = groups[0][: sum(map(len, groups[1:]))]
    flat = [worker for group in groups for worker in group]
    places = [*range(0, len(flat), 2), *range(1, len(flat), 2)]
    ring = dict(zip(places, flat, strict=True))
    return tuple(ring[place] for place in range(len(flat)))


def _draw(seed: bytes, worker: int) -> bytes:
    return hashlib.blake2b(worker.to_bytes(4, "little"), key=seed[:64], digest_size=8).digest()
