"""Chooses where REDUCE partitions live: all of a new shuffle, or new places for those that must move.

Rules: pure; places depend on the candidates and the seed alone. Primaries go round a ring of the candidates, hosts
taking turns, so they differ by at most one in number. A replica stands on another host, on another neighbour in each
round, so that what one worker has is spread over several others when it is lost; where no second host is there is one
copy. Workers to avoid are avoided where there is another choice: a replica is given up for no wish, and two copies
never share a host. Called by master/service on the leader; the result travels in the command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import NamedTuple

from holdfast.common.ids import NO_WORKER
from holdfast.master.placement.ring import Candidate

#: Neighbours that take turns as replica of one worker's partitions.
_TURNS = 16


class Place(NamedTuple):
    """Where one epoch of a partition goes; `replica` is NO_WORKER where there is one copy."""

    primary: int
    replica: int


def spread(avoids: Sequence[Collection[int]], candidates: Sequence[Candidate], copies: int, seed: bytes) -> list[Place]:
    """Return a place for each partition, `avoids` naming the workers that it avoids; [] if there are no candidates."""
    ring = _ring(candidates, seed)
    if not ring:
        return []
    turns: dict[int, list[Candidate]] = {}
    places = []
    for number, avoid in enumerate(avoids):
        at = _primary(ring, number % len(ring), avoid)
        if copies < 2:
            places.append(Place(ring[at].worker, NO_WORKER))
            continue
        if at not in turns:
            turns[at] = _others(ring, at)
        places.append(Place(ring[at].worker, _replica(turns[at], number // len(ring), avoid)))
    return places


def _ring(candidates: Sequence[Candidate], seed: bytes) -> list[Candidate]:
    """Order the candidates: hosts and their workers as the seed draws them, one worker of each host in turn."""
    hosts: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda candidate: _draw(seed, candidate.worker)):
        hosts.setdefault(candidate.host, []).append(candidate)
    turns = zip_longest(*hosts.values())
    return [candidate for turn in turns for candidate in turn if candidate is not None]


def _primary(ring: Sequence[Candidate], at: int, avoid: Collection[int]) -> int:
    if not avoid:
        return at
    steps = (step % len(ring) for step in range(at, at + len(ring)))
    return next((step for step in steps if ring[step].worker not in avoid), at)


def _others(ring: Sequence[Candidate], at: int) -> list[Candidate]:
    """The next workers of other hosts along the ring."""
    host, found = ring[at].host, []
    for step in range(at + 1, at + len(ring)):
        other = ring[step % len(ring)]
        if other.host != host:
            found.append(other)
            if len(found) == _TURNS:
                break
    return found


def _replica(others: Sequence[Candidate], turn: int, avoid: Collection[int]) -> int:
    if not others:
        return NO_WORKER
    start = turn % len(others)
    turned = (others[(start + step) % len(others)].worker for step in range(len(others)))
    return next((worker for worker in turned if worker not in avoid), others[start].worker)


def _draw(seed: bytes, worker: int) -> bytes:
    return hashlib.blake2b(worker.to_bytes(4, "little"), key=seed[:64], digest_size=8).digest()
