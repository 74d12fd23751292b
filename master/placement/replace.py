"""New places for partitions that have to move: the healthy copy stays, the other one is replaced.

Rules: pure. Who takes the victim's place is of the victim's rack first, unless that rack cannot be reached; else of
another rack than the copy that stays; else, where racks are not enforced, anybody on another host. Partitions of one
kind (the same copy stays, the same workers are avoided) are dealt together, by the shares of the order, so what one
worker had is spread over many. Workers to avoid are avoided where there is another choice; a copy is dropped for no
wish. A partition without a copy that can stay is placed as in a new shuffle.

Source: replaceBookie of Apache BookKeeper, without B7 (it is no ring, and what is excluded is the caller's own).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.common.ids import NO_WORKER
from holdfast.master.placement.assign import Assigned, CopyPlace, apportion, assign, interleave
from holdfast.master.placement.members import Draw, Member, NotEnoughError
from holdfast.master.placement.policy import Candidates, Policy, admitted, shares, spreads
from holdfast.master.placement.topology import region_of


class Moving(NamedTuple):
    """One partition that moves."""

    primary: int
    replica: int
    #: of these two, the one that cannot keep it
    leaves: frozenset[int]
    #: workers that must not get it
    avoid: frozenset[int]


class Replaced(NamedTuple):
    """Places in the order asked; how many of them do not keep to what was wished."""

    places: list[CopyPlace]
    not_adhering: int


def replace_all(
    policy: Policy,
    candidates: Candidates,
    rows: Sequence[Moving],
    copies: int,
    draw: Draw,
    *,
    places: Mapping[int, str],
    unreachable: Collection[str] = (),
) -> Replaced:
    """Return a new place for each row; no places at all if there are no candidates.

    `places` are the places of workers, lost ones included; racks in `unreachable` are not used again. Raises
    NotEnoughError where that breaks what is enforced.
    """
    if not len(candidates):
        return Replaced([], 0)
    known = {one.worker: one for one in (*candidates.members, *candidates.spared)}
    kinds: dict[tuple[int, int, frozenset[int]], list[int]] = {}
    for number, row in enumerate(rows):
        kinds.setdefault(_kind(row, copies, known), []).append(number)
    found: list[CopyPlace] = [CopyPlace(NO_WORKER, NO_WORKER)] * len(rows)
    not_adhering = 0
    for (kept, victim, avoid), numbers in kinds.items():
        others = _without(candidates, avoid)
        if kept == NO_WORKER:
            dealt = _assigned(policy, (others, candidates), len(numbers), copies, draw)
            not_adhering += dealt.not_adhering
            for number, place in zip(numbers, dealt.places, strict=True):
                found[number] = place
            if dealt.copies == copies or len(others) == len(candidates):
                continue
            # One host is left without those to avoid: it has the first copy, and one of them the second.
            kept, victim = dealt.places[0].primary, NO_WORKER
            not_adhering -= dealt.not_adhering
        home = places.get(victim, "")
        workers, adheres = _instead(policy, (others, candidates), known[kept], "" if home in unreachable else home)
        not_adhering += len(numbers) * (not adheres)
        taking = _dealt(policy, candidates, workers, len(numbers), draw)
        for number, worker in zip(numbers, taking, strict=True):
            at = rows[number] if victim != NO_WORKER else found[number]
            found[number] = _with(at, kept, worker)
    return Replaced(found, not_adhering)


def _kind(row: Moving, copies: int, known: dict[int, Member]) -> tuple[int, int, frozenset[int]]:
    """Return the worker that stays (NO_WORKER: none), the one that is replaced, and whom to avoid."""
    stays = [one for one in (row.primary, row.replica) if one in known and one not in row.leaves]
    if copies < 2 or len(stays) != 1 or NO_WORKER in (row.primary, row.replica):
        return NO_WORKER, NO_WORKER, row.avoid
    return stays[0], row.replica if stays[0] == row.primary else row.primary, row.avoid


def _assigned(policy: Policy, fields: Sequence[Candidates], count: int, copies: int, draw: Draw) -> Assigned:
    """Places among the first field that can keep to what is enforced. Raises NotEnoughError."""
    try:
        return assign(policy, fields[0], count, copies, draw)
    except NotEnoughError:
        return assign(policy, fields[-1], count, copies, draw)


def _without(candidates: Candidates, avoid: frozenset[int]) -> Candidates:
    """The candidates without those to avoid, unless that leaves none."""
    left = Candidates(
        [one for one in candidates.members if one.worker not in avoid],
        [one for one in candidates.spared if one.worker not in avoid],
        candidates.disks,
        candidates.places,
    )
    return left if len(left) else candidates


def _instead(policy: Policy, fields: Sequence[Candidates], kept: Member, home: str) -> tuple[list[Member], bool]:
    """Return a worker of the first field with a candidate for the copy beside `kept`, and whether it is as configured;
    none if the copy that stays is all there can be. `home` is where the victim was, "" if that is not to be used.

    Raises NotEnoughError.
    """
    anybody: list[Member] = []
    for candidates in fields:
        first = [one for one in admitted(policy, candidates.members) if one.host != kept.host]
        every = [*first, *(one for one in admitted(policy, candidates.spared) if one.host != kept.host)]
        anybody = anybody or first or every
        if not spreads(policy):
            if anybody:
                return anybody, True
            continue
        at_home = [one for one in first if one.place == home and one.place != kept.place]
        for members in (at_home, first, every):
            if found := _apart(policy, every, kept, members):
                return found, True
    if policy.racks.enforced or (policy.constraint == "regionaware" and policy.regions.durable_in_replace):
        raise NotEnoughError(f"no worker may hold the other copy of worker {kept.worker}: placement is enforced")
    return anybody, bool(anybody) and fields[-1].alike


def _apart(policy: Policy, every: Sequence[Member], kept: Member, members: Sequence[Member]) -> list[Member]:
    """Return those of `members` in another region than `kept` if `every` has such, else on another rack."""
    if policy.constraint == "regionaware":
        region = region_of(kept.place)
        if policy.regions.durable_in_replace or any(region_of(one.place) != region for one in every):
            return [one for one in members if region_of(one.place) != region]
    return [one for one in members if one.place != kept.place]


def _dealt(policy: Policy, candidates: Candidates, members: list[Member], count: int, draw: Draw) -> list[int]:
    """Return a worker for each of so many partitions, NO_WORKER without candidates."""
    if not members:
        return [NO_WORKER] * count
    draw.shuffle(members)
    counts = apportion(count, shares(policy, members, candidates.disks))
    return [members[number].worker for number in interleave(counts)]


def _with(at: Moving | CopyPlace, kept: int, worker: int) -> CopyPlace:
    """The copy that stays keeps its part, unless it is alone now; workers of one host are as good as one another."""
    if worker == NO_WORKER or at.replica != kept:
        return CopyPlace(at.primary if at.replica == NO_WORKER else kept, worker)
    return CopyPlace(worker, kept)
