"""New places for partitions that have to move: the copies that can stay do, the others are replaced.

Rules: pure. Who may take a place is for the constraint (racks.py, regions.py): the rack of the one that is replaced
first, unless that cannot be reached. Who does is for the order: those that move take turns by shares, together, so what
one worker had is spread over many. A partition of which nobody can stay is placed as in a new shuffle, and so is one
beside whose copies nobody can stand without breaking what is enforced.

What is given up, in this order, as in a new shuffle: what is wished of regions and racks and not enforced; the sparing
of workers; that workers are avoided, unless that holds; copies.

Source: replaceBookie of Apache BookKeeper, without B7 (it is no ring, and what is excluded is the caller's own).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import NamedTuple

from holdfast.master.placement.deal import Part
from holdfast.master.placement.groups import Adhering, PlacedGroups, Workers, enforced, place, there_of
from holdfast.master.placement.members import Draw, Member, NotEnoughError
from holdfast.master.placement.policy import Candidates, Policy, adherence, admitted, shares, spreads
from holdfast.master.placement.racks import ANYWHERE, Step
from holdfast.master.placement.turns import Turns
from holdfast.master.placement.windows import Adherence


class Moving(NamedTuple):
    """One partition that moves."""

    workers: Workers
    #: of these, who cannot keep it
    leaves: frozenset[int]
    #: workers that must not get it
    avoid: frozenset[int]


class Replaced(NamedTuple):
    """Groups in the order asked, and how far they keep to what is wished."""

    groups: list[Workers]
    adhering: Adhering


#: Better groups by their number, and how far they keep to what is wished.
Repaired = dict[int, tuple[Workers, Adherence]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What is known of those that are replaced."""

    #: where workers are, those that are gone included
    places: Mapping[int, str]
    #: racks that are not gone back to
    unreachable: Collection[str] = ()


def replace_all(
    policy: Policy, candidates: Candidates, rows: Sequence[Moving], copies: int, draw: Draw, *, gone: Gone
) -> Replaced:
    """Return a new group for each row; no groups at all if there are no candidates. Raises NotEnoughError where that
    breaks what is enforced."""
    if not len(candidates):
        return Replaced([], Adhering())
    return _Replacing(policy, candidates, rows, copies, draw, gone).all()


def repair(
    policy: Policy, candidates: Candidates, groups: Sequence[Workers], copies: int, draw: Draw, *, gone: Gone
) -> Repaired:
    """Return, by its number, a group in place of each that does not keep to what is wished where there is a better one:
    with as few new members as can be."""
    if not len(candidates):
        return {}
    return _Replacing(policy, candidates, (), copies, draw, gone).repaired(groups)


class _Replacing:
    """One call."""

    def __init__(
        self,
        policy: Policy,
        candidates: Candidates,
        rows: Sequence[Moving],
        copies: int,
        draw: Draw,
        gone: Gone,
    ) -> None:
        self._policy, self._candidates, self._rows = policy, candidates, rows
        self._copies, self._draw, self._gone = copies, draw, gone
        self._known = {one.worker: one for one in candidates.everybody}
        self._there = there_of(candidates, [Part(admitted(policy, list(self._known.values())), (), copies)])
        self._found_fields: list[tuple[Turns, bool]] | None = None
        #: by where the others are, and whose place it is
        self._steps: dict[tuple[tuple[str | None, ...], int, str], list[Step]] = {}
        self._verdicts: dict[tuple[str, ...], Adherence] = {}

    def all(self) -> Replaced:
        """Groups for all rows."""
        found: list[Workers] = [()] * len(self._rows)
        anew: dict[frozenset[int], list[int]] = {}
        counts: Counter[Adherence] = Counter()
        for number, row in enumerate(self._rows):
            group = self._filled(row)
            if group is None:
                anew.setdefault(row.avoid, []).append(number)
                continue
            found[number] = group
            counts[self._adherence(group)] += 1
        for avoid, numbers in anew.items():
            placed = self._anew(avoid, [self._rows[number] for number in numbers])
            for number, group in zip(numbers, placed.groups, strict=True):
                found[number] = group
            counts.update(dict(zip((Adherence.STRICT, Adherence.SOFT, Adherence.FAIL), placed.adhering, strict=True)))
        return Replaced(found, Adhering.of(counts))

    def repaired(self, groups: Sequence[Workers]) -> Repaired:
        """Better groups by number."""
        found: Repaired = {}
        #: whoever stands like these cannot be helped
        hopeless: set[tuple[str | None, ...]] = set()
        for number, group in enumerate(groups):
            places = tuple([self._gone.places.get(one) for one in group])
            now = adherence(self._policy, places, self._copies, self._there)
            if now is Adherence.STRICT or places in hopeless:
                continue
            better = self._better(group, now)
            if better is None:
                hopeless.add(places)
            else:
                found[number] = better
        return found

    def _better(self, group: Workers, now: Adherence) -> tuple[Workers, Adherence] | None:
        best: tuple[Workers, Adherence] | None = None
        for size in range(len(group)):
            for going in combinations(group, size):
                leaves = frozenset(going)
                made = self._filled(Moving(group, leaves, leaves))
                how = now if made is None else self._adherence(made)
                if made is not None and how.rank < (best[1] if best else now).rank:
                    best = made, how
            if best is not None:
                break
        return best

    def _stays(self, row: Moving) -> list[Member | None]:
        """Who stays, in its place; None for those who do not."""
        return [None if one in row.leaves else self._known.get(one) for one in row.workers]

    # One beside those that stay.

    def _filled(self, row: Moving) -> Workers | None:
        """The group with others in the places of those that leave; None if nobody stays, or nobody may stand beside."""
        standing = self._stays(row)
        # A partition with one copy keeps no rack: it goes anywhere.
        if self._copies < 2 or not any(standing):
            return None
        standing += [None] * (self._copies - len(standing))
        for at, one_there in enumerate(standing):
            if one_there is not None:
                continue
            home = self._gone.places.get(row.workers[at], "") if at < len(row.workers) else ""
            standing[at] = self._beside(standing, at, "" if home in self._gone.unreachable else home, row.avoid)
            if standing[at] is None and enforced(self._policy, self._copies):
                return None
        return tuple([one.worker for one in standing if one is not None])

    def _beside(self, standing: Sequence[Member | None], at: int, home: str, avoid: frozenset[int]) -> Member | None:
        hosts = {one.host for one in standing if one is not None}
        steps = self._steps_of(tuple([None if one is None else one.place for one in standing]), at, home)
        nobody: frozenset[int] = frozenset()
        for turns, avoided in self._fields():
            for step in steps:
                found = turns.take(step, partial(_fits, hosts, nobody if avoided else avoid))
                if found is not None:
                    return found
        return None

    def _steps_of(self, left: tuple[str | None, ...], at: int, home: str) -> list[Step]:
        """Which racks may have that place, the best first."""
        key = left, at, home
        if key not in self._steps:
            racks, wish, quorum = self._policy.racks, self._policy.regions, len(left)
            if not spreads(self._policy) or (self._there.places < 2 and not racks.enforced):
                found = [ANYWHERE]
            elif self._policy.constraint == "regionaware":
                found = [*wish.steps(racks, left, at, (quorum, quorum), home, self._there.regions)]
            else:
                found = [*racks.steps(left, at, quorum, home)]
            self._steps[key] = found
        return self._steps[key]

    def _fields(self) -> Sequence[tuple[Turns, bool]]:
        """Who may come, and whether those to avoid are among them; the best ones first."""
        if self._found_fields is None:
            always = frozenset.intersection(*[row.avoid for row in self._rows]) if self._rows else frozenset[int]()

            def turns(members: Sequence[Member]) -> Turns:
                some = admitted(self._policy, members)
                return Turns(some, shares(self._policy, some, self._candidates.disks) if some else (), self._draw)

            first, second = self._candidates.members, self._candidates.spared
            pools = [[one for one in some if one.worker not in always] for some in (first, second)]
            own, spared = map(turns, pools)
            self._found_fields = [(own, False), (spared, False)]
            if not self._policy.avoid_holds:
                # Whoever has to be avoided by all is not looked at before; those that are spared still come last.
                own_rest, spared_rest = (
                    turns([one for one in some if one.worker in always]) for some in (first, second)
                )
                self._found_fields += [(own, True), (own_rest, True), (spared, True), (spared_rest, True)]
        return self._found_fields

    def _adherence(self, group: Workers) -> Adherence:
        places = tuple([self._known[one].place for one in group])
        if places not in self._verdicts:
            self._verdicts[places] = adherence(self._policy, places, self._copies, self._there)
        return self._verdicts[places]

    # All of a group.

    def _anew(self, avoid: frozenset[int], rows: Sequence[Moving]) -> PlacedGroups:
        """Places as in a new shuffle. Raises NotEnoughError."""
        holds = self._policy.avoid_holds
        candidates = self._candidates.without(avoid) if holds else self._candidates.avoiding(avoid)
        try:
            if len(candidates):
                return place(self._policy, candidates, len(rows), self._copies, self._draw)
            problem = "all workers that take data are to be avoided, and avoid_holds is set"
        except NotEnoughError as error:
            problem = str(error)
        staying = next((one.worker for row in rows for one in self._stays(row) if one is not None), None)
        if staying is not None and self._copies > 1:
            problem = f"no worker may hold another copy of what worker {staying} has: placement is enforced"
        raise NotEnoughError(problem)


def _fits(hosts: Collection[str], avoid: Collection[int], one: Member) -> bool:
    return one.host not in hosts and one.worker not in avoid
