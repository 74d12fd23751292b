"""The placement policy: an order of workers, and a constraint on which may hold copies together.

    order         roundrobin   equal shares
                  loadaware    disks in groups by their flush and fetch times, each group's share above the next one's
                  weighted     shares by free bytes, capped at a multiple of the median
    constraint    random       copies on different hosts
                  rackaware    on different racks where there are two
                  regionaware  in different regions where there are two, else on different racks
                  other names  as a class of a user says

Rules: pure. Wishes alone: in which order they are given up is said, and decided, in chooser.py. Called by
fleet/fleet.py.
Source: the slots allocation of Apache Celeborn for orders, the policies of Apache BookKeeper for constraints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal, NamedTuple

from holdfast.common.sizes import counted
from holdfast.master.placement.deal import Levels
from holdfast.master.placement.members import Member, capped
from holdfast.master.placement.topology import region_of
from holdfast.master.placement.wishes import Adherence, OwnPolicy, Racks, Regions, Wish

#: The workers of one partition, the first of which clients push to.
Workers = tuple[int, ...]
Order = Literal["roundrobin", "loadaware", "weighted"]


class DirectoryLoad(NamedTuple):
    """A worker's report of a directory that takes data; times are means of the last window, 0 if nothing was done."""

    free_bytes: int
    flush_us: int
    fetch_us: int


@dataclass(frozen=True, slots=True)
class Policy:
    """What is wished."""

    constraint: str = "rackaware"
    order: Order = "roundrobin"
    racks: Racks = Racks()
    regions: Regions = Regions()
    #: weighted: no worker counts as more than so many medians; 0: no cap
    multiple: float = 3.0
    #: loadaware: so many groups of disks, and how much more each takes than the next
    groups: int = 5
    gradient: float = 0.1
    flush_weight: float = 0.0
    fetch_weight: float = 1.0
    #: who is to be avoided gets nothing, even where there is nobody else
    avoid_holds: bool = False
    #: the constraint, if it is none of the three
    own: OwnPolicy | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who may be given data, and what is known of their disks; the `spared` ones only where the rest is not enough.
    `tags` are what all of them have to have."""

    members: Sequence[Member]
    spared: Sequence[Member] = ()
    disks: Mapping[int, Sequence[DirectoryLoad]] = field(default_factory=dict)
    #: places of all workers with these tags that ever were, lost and full ones too: whether there are racks to keep
    #: apart at all
    places: Collection[str] = ()
    tags: frozenset[str] = frozenset()

    @property
    def everybody(self) -> list[Member]:
        """All of them, the best ones first."""
        return [*self.members, *self.spared]

    def __len__(self) -> int:
        return len(self.members) + len(self.spared)

    def without(self, workers: Collection[int]) -> Candidates:
        """The same, without these workers."""
        members = [one for one in self.members if one.worker not in workers]
        spared = [one for one in self.spared if one.worker not in workers]
        return replace(self, members=members, spared=spared)

    def sparing(self, workers: Collection[int]) -> Candidates:
        """The same, with these workers among the spared ones."""
        spared = [one for one in self.members if one.worker in workers]
        if not spared:
            return self
        members = [one for one in self.members if one.worker not in workers]
        return replace(self, members=members, spared=[*self.spared, *spared])


def admitted(policy: Policy, members: Iterable[Member], copies: int = 2) -> list[Member]:
    """The workers that may hold a copy at all."""
    return [one for one in members if _admits(policy, one.place, copies)]


def _admits(policy: Policy, place: str, copies: int = 2) -> bool:
    if policy.constraint == "regionaware" and not policy.regions.take(region_of(place)):
        return False
    return not (copies > 1 and policy.racks.enforced and place == policy.racks.default)


def spreads(policy: Policy) -> bool:
    """Whether more than different hosts is wished."""
    return (policy.constraint != "random" and policy.racks.least > 1) or _durable(policy) > 1


def _durable(policy: Policy) -> int:
    return policy.regions.durable if policy.constraint == "regionaware" else 0


def enforced(policy: Policy, copies: int) -> bool:
    """Whether something is wished of so many copies that is rather not had at all than broken."""
    return copies > 1 and spreads(policy) and (policy.racks.enforced or _durable(policy) > 1)


def levels(policy: Policy) -> Levels:
    """What copies are spread over, the widest first."""
    if not spreads(policy) or policy.own is not None:
        return Levels((Member.host_of,))
    if policy.constraint == "rackaware":
        return Levels((Member.place_of, Member.host_of))
    return Levels((Member.region_of, Member.place_of, Member.host_of), policy.regions.equal, policy.regions.local)


@dataclass(frozen=True, slots=True)
class There:
    """What there is to spread over: places of all workers there are, and regions of those that may be used."""

    places: int
    regions: int

    @classmethod
    def of(cls, policy: Policy, places: Collection[str], used: Collection[str] | None = None) -> There:
        """Count them; `used` is where those are that may be used, None: wherever a worker is."""
        regions = {region_of(one) for one in (places if used is None else used) if _admits(policy, one)}
        return cls(len(set(places)), len(regions))


def wishes(policy: Policy, copies: int, there: There, *, replacing: bool = False) -> tuple[Wish, Wish]:
    """What is wished of the racks and of the regions of a group. `replacing`: it has members already."""
    racks, wish = policy.racks, policy.regions
    of_racks = Wish(min(copies, racks.least), racks.enforced, racks.default if racks.enforced else "")
    if policy.constraint != "regionaware":
        return of_racks, Wish(0, False)
    hard = wish.durable > 1 and (wish.enforced_in_replace or not replacing)
    return of_racks, Wish(wish.durable or min(copies, racks.least, there.regions), hard)


def adherence(policy: Policy, places: Sequence[str | None], copies: int, there: There) -> Adherence:
    """How the copies of a partition keep to what is wished of so many, given where they are and what there is at all;
    None is somebody unknown. Where everybody is at one place, known or not, nothing is wished of places."""
    if copies < 2:
        return Adherence.STRICT
    known = [one for one in places if one is not None]
    if len(known) < copies:
        return Adherence.FAIL
    if policy.own is not None:
        return Adherence(policy.own.adherence(known))
    if not spreads(policy) or (there.places < 2 and not policy.racks.enforced):
        return Adherence.STRICT
    racks, regions = wishes(policy, copies, there)
    if not regions.kept([region_of(one) for one in known]):
        return Adherence.FAIL
    if racks.kept(known):
        return Adherence.STRICT
    return Adherence.SOFT if policy.constraint == "regionaware" and not racks.enforced else Adherence.FAIL


def patterns_of(groups: Iterable[Workers], places: Mapping[int, str]) -> list[tuple[str | None, ...]]:
    """Return where the members of each group are, None for somebody unknown and for who is missing in a shorter group.
    Of many groups few are different, so that each needs to be judged once."""
    columns = zip_longest(*groups)
    return list(zip(*[map(places.get, column) for column in columns], strict=True))


def holds(policy: Policy, places: Sequence[str | None], copies: int, there: There) -> bool:
    """Whether a group with a copy at each of these places breaks nothing that is enforced; None is nowhere."""
    if not enforced(policy, copies):
        return True
    racks, regions = wishes(policy, copies, there)
    known = [one for one in places if one is not None]
    return len(known) == copies and all(
        wish.kept(domains) or not wish.enforced
        for wish, domains in ((racks, known), (regions, [region_of(one) for one in known]))
    )


def broken(policy: Policy, places: Sequence[str], copies: int) -> str:
    """Say what is enforced and cannot be had of so many copies, one at each of these places at most or anywhere among
    them; "" if nothing is."""
    if not enforced(policy, copies):
        return ""
    racks, least = set(places), min(copies, policy.racks.least)
    if policy.racks.enforced and len(racks - {policy.racks.default}) < least:
        found = len(racks - {policy.racks.default})
        return (
            f"{counted(least, 'rack')} are enforced for {copies} copies; workers that take data, and of a known rack,"
            f" are on {found}"
        )
    regions = min(len(set(map(region_of, racks))), copies)
    if regions < _durable(policy):
        wanted = f"{policy.regions.durable} regions are wanted for durability"
        return f"{wanted}, and {copies} copies on workers that take data are in {regions}"
    return ""


def too_few_acknowledge(policy: Policy, copies: int, ack_copies: int) -> str:
    """Say why so few of the copies may not acknowledge a push; "" if they may. Which copies lag is chance: all that are
    complete may be in fewer regions than are wanted."""
    if _durable(policy) < 2 or copies < 2 or ack_copies in (0, copies):
        return ""
    return (
        f"{ack_copies} of {copies} copies may be in fewer than {policy.regions.durable} regions, which are wanted for"
        " durability (placement.durable_regions): leave ack_copies out, so that all copies acknowledge a push"
    )


def shares(policy: Policy, members: Sequence[Member], disks: Mapping[int, Sequence[DirectoryLoad]]) -> list[float]:
    """Return the share of the work of each member; they add up to 1."""
    if policy.order == "weighted":
        return capped([sum(each.free_bytes for each in disks.get(one.worker, ())) for one in members], policy.multiple)
    if policy.order == "loadaware":
        return gradient_shares(policy, [disks.get(one.worker, ()) for one in members])
    return [1 / len(members) for _ in members]


#: The disks of a worker without a heartbeat yet: neither fast nor slow.
_UNHEARD = (DirectoryLoad(0, 0, 0),)


def gradient_shares(policy: Policy, disks: Sequence[Sequence[DirectoryLoad]]) -> list[float]:
    """Return the shares of workers by their disks: all disks ranked by their times and cut into groups, a disk's part
    in each being 1 + gradient times that of one in the next."""
    ranked = sorted(
        (each.flush_us * policy.flush_weight + each.fetch_us * policy.fetch_weight, at)
        for at, own in enumerate(disks)
        for each in own or _UNHEARD
    )
    parts = [0.0] * len(disks)
    size = -(-len(ranked) // policy.groups)
    group = 0
    for number, (time, at) in enumerate(ranked):
        # Disks that are equally fast are of one group: which of them comes first says nothing.
        if number and time != ranked[number - 1][0]:
            group = number // size
        parts[at] += (1 + policy.gradient) ** (policy.groups - 1 - group)
    total = sum(parts)
    return [part / total for part in parts]
