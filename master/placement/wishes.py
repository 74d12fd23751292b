"""What is wished of racks and regions, and where a member of a group may be, the best place first.

Hosts, racks and regions lie in one another. So whoever takes a region that the group lacks, else a rack that it lacks,
else any host, one member after another, has as many racks and as many regions as can be had at once: no search is
needed. A member for another one prefers the rack, then the region, of that one; it is looked ahead whether the slots
that are left could still make good for it.

Rules: pure. What is only wished refuses nothing; what is enforced is never given up.
Source: the rack-aware and region-aware policies of Apache BookKeeper for groups that are one write quorum, without
their defects B6, B7 and B9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from typing import NamedTuple, Protocol

from holdfast.common.errors import ConfigError
from holdfast.master.placement.topology import DEFAULT_PLACE, region_of


@unique
class Adherence(Enum):
    """How a group keeps to what was wished; FAIL is still of use."""

    STRICT = "strict"
    SOFT = "soft"
    FAIL = "fail"

    @property
    def rank(self) -> int:
        """The better, the smaller."""
        return ("strict", "soft", "fail").index(self.value)


@dataclass(frozen=True, slots=True)
class Racks:
    """What is wished: so many racks in each group, and whether a group that breaks that is refused."""

    least: int = 2
    enforced: bool = False
    #: the rack of all hosts that cannot be resolved
    default: str = DEFAULT_PLACE


@dataclass(frozen=True, slots=True)
class Regions:
    """What is wished of regions."""

    #: those that are written to; () for whatever there is
    write_to: tuple[str, ...] = ()
    #: copies are in so many regions or nowhere; 0: no wish
    durable: int = 0
    #: take no new members
    refused: frozenset[str] = frozenset()
    #: holds the first copy of everything; "" for none
    local: str = ""
    #: regions have equal parts of all copies, whatever workers they have
    equal: bool = False
    #: a member is not replaced at all where that would break durability
    enforced_in_replace: bool = True

    def __post_init__(self) -> None:
        if self.write_to and len(self.write_to) < self.durable:
            raise ConfigError(
                f"{self.durable} regions for durability need as many to write to, not {len(self.write_to)}"
                f" ({', '.join(self.write_to)})"
            )

    def take(self, region: str) -> bool:
        """Whether new members may be there."""
        return region not in self.refused and (not self.write_to or region in self.write_to)


class OwnPolicy(Protocol):
    """A constraint of a user. Hosts, shares, and which workers are spared and avoided are not for it."""

    def rank(self, place: str, others: Sequence[str], home: str) -> int | None:
        """How good a place is for a new copy beside those at the others: the smaller, the better; None: never there.
        `home` is where the copy was that it replaces, "" for a new one, or if that is not to be used."""

    def adherence(self, places: Sequence[str]) -> str:
        """How all copies of a partition stand that are at these places: strict, soft or fail."""


#: Says whether a rack, or a region, may have a member.
Fits = Callable[[str], bool]


def _any(_: str) -> bool:
    return True


class Step(NamedTuple):
    """Where a member may be: on these racks, in these regions, and only there if a rack is named."""

    rack: Fits = _any
    region: Fits = _any
    only: str = ""

    def fits(self, place: str) -> bool:
        """Whether a member may be at a place."""
        return self.only in ("", place) and self.region(region_of(place)) and self.rack(place)


ANYWHERE = Step()


class Wish(NamedTuple):
    """So many domains in a group of copies, of one kind."""

    least: int
    #: rather no member than one that breaks this
    enforced: bool
    #: has no members; "" for none
    never: str = ""

    def kept(self, domains: Sequence[str]) -> bool:
        """Whether a whole group in these domains is as wished."""
        return self.never not in domains and len(set(domains)) >= self.least

    def well(self, others: Sequence[str], slots: int) -> Fits:
        """Say which domains leave enough of the empty slots to make good; `others` is where the members are."""
        has = set(others)

        def fits(domain: str) -> bool:
            return domain != self.never and len(has | {domain}) + slots >= self.least

        return fits


def steps(racks: Wish, regions: Wish, others: Sequence[str], slots: int, home: str, local: str) -> Iterator[Step]:
    """Yield where a new member may be, the best places first. `others` is where those of its group are, `slots` how
    many are still missing besides; `home` is where the one was that it replaces, "" if that is not to be used.

    The rack of that one, another rack of its region, the local region, a region that the group lacks, a rack that it
    lacks, anywhere: with all that is wished, then without the wish for racks, then with what is enforced alone.
    """
    used_racks, used_regions = set(others), set(map(region_of, others))

    def new_rack(rack: str) -> bool:
        return rack not in used_racks

    def new_region(region: str) -> bool:
        return region not in used_regions

    best: list[Step] = []
    if home and new_rack(home):
        best.append(Step(only=home))
    if regions.least > 1:
        if home:
            best.append(Step(rack=new_rack, region=lambda region: region == region_of(home)))
        if local and new_region(local):
            best.append(Step(region=lambda region: region == local))
        best.append(Step(region=new_region))
    best += [Step(rack=new_rack), ANYWHERE]
    rack_well, region_well = racks.well(others, slots), regions.well([region_of(one) for one in others], slots)
    rack_must, region_must = rack_well if racks.enforced else _any, region_well if regions.enforced else _any
    for rack, region in dict.fromkeys([(rack_well, region_well), (rack_must, region_well), (rack_must, region_must)]):
        yield from [_both(one, rack, region) for one in best]


def own_steps(own: OwnPolicy, places: Collection[str], others: Sequence[str], home: str) -> Iterator[Step]:
    """The same by a policy of a user; `places` is where there are candidates."""
    ranked: dict[int, set[str]] = {}
    for place in places:
        rank = own.rank(place, others, home)
        if rank is not None:
            ranked.setdefault(rank, set()).add(place)
    for _, best in sorted(ranked.items()):
        yield Step(best.__contains__)


def _both(step: Step, rack: Fits, region: Fits) -> Step:
    return Step(lambda one: step.rack(one) and rack(one), lambda one: step.region(one) and region(one), step.only)
