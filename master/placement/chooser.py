"""Chooses the members that a group lacks: of a new group all, of one that moves those that leave.

Who comes is for the turns of the workers (turns.py), where is for the wishes (wishes.py). What is given up, in this
order, and here alone: what is wished of regions and racks and not enforced; the sparing of workers; that workers are
avoided, unless that holds; copies. Two copies never share a host.

Rules: pure; chance is handed in. One for all groups that are chosen together: then they take turns by shares, so what
one worker had is spread over many. Called by groups.py, replace.py and ring.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import combinations

from holdfast.master.placement.members import Draw, Member
from holdfast.master.placement.policy import (
    Candidates,
    Policy,
    There,
    Workers,
    adherence,
    admitted,
    enforced,
    shares,
    spreads,
    wishes,
)
from holdfast.master.placement.turns import Turns
from holdfast.master.placement.wishes import ANYWHERE, Adherence, Step, own_steps, steps

NOBODY: frozenset[int] = frozenset()


def tiers(policy: Policy, candidates: Candidates, avoid: Collection[int], copies: int) -> list[list[Member]]:
    """Who may have copies at all, those first that are to be taken first: nobody of a later tier where one of an
    earlier tier can be had instead. There are always four, of which some are empty."""
    some = [admitted(policy, each, copies) for each in (candidates.members, candidates.spared)]
    if not avoid:
        return [*some, [], []]
    found = [[one for one in each if one.worker not in avoid] for each in some]
    return [*found, *([] if policy.avoid_holds else [one for one in each if one.worker in avoid] for each in some)]


class Chooser:
    """Chooses among some candidates, for groups of so many copies."""

    def __init__(
        self,
        policy: Policy,
        candidates: Candidates,
        copies: int,
        draw: Draw,
        *,
        avoid: Collection[int] = NOBODY,
        replacing: bool = False,
    ) -> None:
        """`avoid` is who is avoided by all groups; `replacing`: groups have members already."""
        self._policy, self._candidates, self._copies, self._draw = policy, candidates, copies, draw
        self._tiers = tiers(policy, candidates, avoid, copies)
        used = {one.place for one in candidates.everybody}
        self.there = There.of(policy, candidates.places or used, used)
        self._wishes = wishes(policy, copies, self.there, replacing=replacing)
        self.enforced = enforced(policy, copies)
        self._local = policy.regions.local if policy.constraint == "regionaware" else ""
        self._anywhere = not spreads(policy) or (self.there.places < 2 and not policy.racks.enforced)
        self.known = {one.worker: one for one in candidates.everybody}
        #: who may come, and whether those that a group avoids are among them; the best ones first
        self._found_fields: list[tuple[Sequence[Turns], bool]] | None = None
        #: by where the others are, how many are missing besides, and whose place it is
        self._steps: dict[tuple[tuple[str, ...], int, str], list[Step]] = {}
        self._verdicts: dict[tuple[str, ...], Adherence] = {}

    def filled(
        self, standing: Sequence[Member | None], homes: Mapping[int, str] | None = None, avoid: Collection[int] = NOBODY
    ) -> Workers | None:
        """The group with somebody in each place that is empty, with fewer where there are no more hosts; None where
        that breaks what is enforced. `homes` says where those were that had the places, by place."""
        group, homes = list(standing), homes or {}
        others = [one for one in group if one is not None]
        for at, there in enumerate(standing):
            if there is None:
                found = group[at] = self._beside(others, homes.get(at, ""), avoid)
                if found is not None:
                    others.append(found)
                elif self.enforced:
                    return None
        return tuple([one.worker for one in group if one is not None])

    def _beside(self, others: Sequence[Member], home: str, avoid: Collection[int]) -> Member | None:
        hosts = [one.host for one in others]
        best = self._steps_of(tuple([one.place for one in others]), self._copies - len(others) - 1, home)
        for fields, avoided in self._fields():
            fits = partial(_fits, hosts, NOBODY if avoided else avoid)
            for step in best:
                for turns in fields:
                    found = turns.take(step, fits)
                    if found is not None:
                        return found
        return None

    def _steps_of(self, others: tuple[str, ...], slots: int, home: str) -> list[Step]:
        """Where a member may be, the best places first."""
        own = self._policy.own
        if (self._anywhere and own is None) or self._copies < 2:
            return [ANYWHERE]
        key = others, slots, home
        if key not in self._steps:
            self._steps[key] = [
                *(
                    steps(*self._wishes, others, slots, home, self._local)
                    if own is None
                    else own_steps(own, {one.place for one in self.known.values()}, others, home)
                )
            ]
        return self._steps[key]

    def _fields(self) -> Sequence[tuple[Sequence[Turns], bool]]:
        if self._found_fields is None:

            def turns(members: Sequence[Member]) -> Turns:
                return Turns(members, shares(self._policy, members, self._candidates.disks), self._draw)

            first, spared, avoided, avoided_spared = map(turns, self._tiers)
            self._found_fields = [((first,), False), ((spared,), False)]
            if not self._policy.avoid_holds:
                self._found_fields += [((first, avoided), True), ((spared, avoided_spared), True)]
        return self._found_fields

    def adherence(self, group: Workers) -> Adherence:
        """How far a group of candidates keeps to what is wished."""
        places = tuple([self.known[one].place for one in group])
        if places not in self._verdicts:
            self._verdicts[places] = adherence(self._policy, places, self._copies, self.there)
        return self._verdicts[places]

    def better(self, group: Workers, places: Mapping[int, str]) -> tuple[Workers, Adherence] | None:
        """A group that adheres better, with as few new members as can be, and how far; None if there is none. `places`
        is where workers are, those included that are no candidates."""
        now = adherence(self._policy, [places.get(one) for one in group], self._copies, self.there)
        best: tuple[Workers, Adherence] | None = None
        for size in range(len(group)):
            for going in combinations(group, size):
                standing = [None if one in going else self.known.get(one) for one in group]
                if not any(standing):
                    continue
                homes = {at: places.get(one, "") for at, one in enumerate(group)}
                made = self.filled(self.padded(standing), homes, frozenset(going))
                how = now if made is None else self.adherence(made)
                if made is not None and how.rank < (best[1] if best else now).rank:
                    best = made, how
            if best is not None:
                break
        return best

    def padded(self, standing: Sequence[Member | None]) -> list[Member | None]:
        """With as many places as there are copies."""
        return [*standing, *[None] * (self._copies - len(standing))]


def _fits(hosts: Collection[str], avoid: Collection[int], one: Member) -> bool:
    return one.host not in hosts and one.worker not in avoid
