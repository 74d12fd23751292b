"""New places for partitions that have to move: the copies that can stay do, the others are replaced.

Rules: pure. Who takes a place is for the chooser: the rack of the one that is replaced first, unless that cannot be
reached. A partition of which nobody can stay is placed as in a new shuffle, and so is one beside whose copies nobody
can stand without breaking what is enforced.

Source: replaceBookie of Apache BookKeeper, without B7 (it is no ring, and what is excluded is the caller's own).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.master.placement.chooser import Chooser
from holdfast.master.placement.groups import Adhering, PlacedGroups, place
from holdfast.master.placement.members import Draw, Member, NotEnoughError
from holdfast.master.placement.policy import Candidates, Policy, Workers, adherence
from holdfast.master.placement.wishes import Adherence


class Moving(NamedTuple):
    """One partition that moves."""

    workers: Workers
    #: of these, who cannot keep it
    leaves: frozenset[int]
    #: workers that must not get it; where these are many, rows have the same set
    avoid: frozenset[int]
    #: and of this row alone
    also: frozenset[int] = frozenset()

    @property
    def avoided(self) -> frozenset[int]:
        """All that must not get it."""
        return self.avoid | self.also if self.also else self.avoid


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
    always = _common({row.avoid for row in rows}) | _common({row.also for row in rows})
    chooser = Chooser(policy, candidates, copies, draw, avoid=always, replacing=True)
    found: list[Workers] = [()] * len(rows)
    anew: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    counts: Counter[Adherence] = Counter()
    for number, row in enumerate(rows):
        group = _mended(chooser, row, copies, gone)
        if group is None:
            anew.setdefault((row.avoid, row.also), []).append(number)
            continue
        found[number] = group
        counts[chooser.adherence(group)] += 1
    for numbers in anew.values():
        staying = [one.worker for number in numbers for one in _standing(chooser, rows[number]) if one is not None]
        placed = _anew(policy, candidates, len(numbers), copies, draw, rows[numbers[0]].avoided, staying)
        for number, group in zip(numbers, placed.groups, strict=True):
            found[number] = group
        counts.update(dict(zip((Adherence.STRICT, Adherence.SOFT, Adherence.FAIL), placed.adhering, strict=True)))
    return Replaced(found, Adhering.of(counts))


def repair(
    policy: Policy, candidates: Candidates, groups: Sequence[Workers], copies: int, draw: Draw, *, gone: Gone
) -> Repaired:
    """Return, by its number, a group in place of each that does not keep to what is wished where there is a better one:
    with as few new members as can be."""
    found: Repaired = {}
    if not len(candidates):
        return found
    chooser = Chooser(policy, candidates, copies, draw, replacing=True)
    #: whoever stands like these cannot be helped
    hopeless: set[tuple[str | None, ...]] = set()
    for number, group in enumerate(groups):
        places = tuple([gone.places.get(one) for one in group])
        if places in hopeless or adherence(policy, places, copies, chooser.there) is Adherence.STRICT:
            continue
        better = chooser.better(group, gone.places)
        if better is None:
            hopeless.add(places)
        else:
            found[number] = better
    return found


def _common(sets: Collection[frozenset[int]]) -> frozenset[int]:
    """Who is in all of these, nobody where there are none."""
    return frozenset.intersection(*sets) if sets else frozenset()


def _standing(chooser: Chooser, row: Moving) -> list[Member | None]:
    """Who stays, in its place; None for those who do not."""
    return [None if one in row.leaves else chooser.known.get(one) for one in row.workers]


def _mended(chooser: Chooser, row: Moving, copies: int, gone: Gone) -> Workers | None:
    """The group with others in the places of those that leave; None if nobody stays, or nobody may stand beside."""
    if copies < 2:  # keeps no rack: it goes anywhere
        return chooser.filled([None], avoid=row.avoided) or None
    standing = _standing(chooser, row)
    if not any(standing):
        return None
    homes = {
        at: home
        for at, one in enumerate(row.workers)
        if standing[at] is None and (home := gone.places.get(one, "")) not in gone.unreachable
    }
    return chooser.filled(chooser.padded(standing), homes, row.avoided)


def _anew(
    policy: Policy,
    candidates: Candidates,
    count: int,
    copies: int,
    draw: Draw,
    avoid: frozenset[int],
    staying: Sequence[int],
) -> PlacedGroups:
    """Places as in a new shuffle, whoever of those that are there stays. Raises NotEnoughError."""
    try:
        if policy.avoid_holds and not len(candidates.without(avoid)):
            raise NotEnoughError("all workers that take data are to be avoided, and avoid_holds is set")
        return place(policy, candidates, count, copies, draw, avoid)
    except NotEnoughError:
        if not staying or copies < 2:
            raise
        problem = f"no worker may hold another copy of what worker {staying[0]} has: placement is enforced"
        raise NotEnoughError(problem) from None
