"""The placement policy: an order of workers, and a constraint on which may hold copies together.

    order         roundrobin   equal shares
                  loadaware    disks in groups by their flush and fetch times, each group's share above the next one's
                  weighted     shares by free bytes, capped at a multiple of the median
    constraint    random       copies on different hosts
                  rackaware    on different racks where there are two
                  regionaware  in different regions where there are two, else on different racks

Rules: pure. Wishes alone: in which order they are given up is said, and decided, in groups.py. Called by
fleet/fleet.py.
Source: the slots allocation of Apache Celeborn for orders, the policies of Apache BookKeeper for constraints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from holdfast.common.sizes import counted
from holdfast.master.placement.deal import Levels
from holdfast.master.placement.members import Member, capped
from holdfast.master.placement.racks import Racks
from holdfast.master.placement.regions import Regions
from holdfast.master.placement.topology import region_of
from holdfast.master.placement.windows import Adherence

Constraint = Literal["random", "rackaware", "regionaware"]
Order = Literal["roundrobin", "loadaware", "weighted"]


class DirectoryLoad(NamedTuple):
    """A worker's report of a directory that takes data; times are means of the last window, 0 if nothing was done."""

    free_bytes: int
    flush_us: int
    fetch_us: int


@dataclass(frozen=True, slots=True)
class Policy:
    """What is wished."""

    constraint: Constraint = "rackaware"
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


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who may be given data, and what is known of their disks; the `spared` ones only where the rest is not enough, and
    the `avoided` ones only where these are not enough either."""

    members: Sequence[Member]
    spared: Sequence[Member] = ()
    disks: Mapping[int, Sequence[DirectoryLoad]] = field(default_factory=dict)
    #: places of all workers that ever were, lost and full ones too: whether there are racks to keep apart at all
    places: Collection[str] = ()
    avoided: Sequence[Member] = ()

    @property
    def everybody(self) -> list[Member]:
        """All of them, the best ones first."""
        return [*self.members, *self.spared, *self.avoided]

    def __len__(self) -> int:
        return len(self.members) + len(self.spared) + len(self.avoided)

    def without(self, workers: Collection[int]) -> Candidates:
        """The same, without these workers."""
        tiers = (self.members, self.spared, self.avoided)
        members, spared, avoided = ([one for one in some if one.worker not in workers] for some in tiers)
        return replace(self, members=members, spared=spared, avoided=avoided)

    def avoiding(self, workers: Collection[int]) -> Candidates:
        """The same, with these workers among those to be avoided."""
        left = self.without(workers)
        return replace(left, avoided=[*left.avoided, *(one for one in self.everybody if one.worker in workers)])

    def sparing(self, workers: Collection[int]) -> Candidates:
        """The same, with these workers among the spared ones."""
        spared = [one for one in self.members if one.worker in workers]
        if not spared:
            return self
        members = [one for one in self.members if one.worker not in workers]
        return replace(self, members=members, spared=[*self.spared, *spared])


def admitted(policy: Policy, members: Sequence[Member], copies: int = 2) -> list[Member]:
    """The workers that may hold a copy at all."""
    found = list(members)
    if policy.constraint == "regionaware":
        wish = policy.regions
        if wish.write_to or wish.refused:
            wanted = set(wish.write_to)
            found = [
                one
                for one in found
                if (region := region_of(one.place)) not in wish.refused and (not wanted or region in wanted)
            ]
    if copies > 1 and policy.racks.enforced and spreads(policy):
        found = [one for one in found if one.place != policy.racks.default]
    return found


def spreads(policy: Policy) -> bool:
    """Whether more than different hosts is wished."""
    return policy.constraint != "random" and policy.racks.least > 1


def levels(policy: Policy) -> Levels:
    """What copies are spread over, the widest first."""
    if not spreads(policy):
        return Levels((Member.host_of,))
    if policy.constraint == "rackaware":
        return Levels((Member.place_of, Member.host_of))
    return Levels((Member.region_of, Member.place_of, Member.host_of), policy.regions.equal, policy.regions.local)


@dataclass(frozen=True, slots=True)
class There:
    """How many places and regions there are at all."""

    places: int
    regions: int

    @classmethod
    def of(cls, places: Iterable[str]) -> There:
        """Count them."""
        distinct = set(places)
        return cls(len(distinct), len(set(map(region_of, distinct))))


def adherence(policy: Policy, places: Sequence[str | None], copies: int, there: There) -> Adherence:
    """How the copies of a partition keep to what is wished of so many, given where they are and what there is at all;
    None is somebody unknown. Where everybody is at one place, known or not, nothing is wished of places."""
    if copies < 2:
        return Adherence.STRICT
    if len(places) < copies or None in places:
        return Adherence.FAIL
    if not spreads(policy) or (there.places < 2 and not policy.racks.enforced):
        return Adherence.STRICT
    if policy.constraint == "regionaware":
        return policy.regions.kept_by(policy.racks, places, (copies, copies), there.regions)
    return Adherence.STRICT if policy.racks.kept_by(places, copies) else Adherence.FAIL


def broken(policy: Policy, places: Sequence[str], copies: int) -> str:
    """Say what is enforced and cannot be had of so many copies, one at each of these places at most or anywhere among
    them; "" if nothing is."""
    if copies < 2 or not spreads(policy):
        return ""
    racks, least = set(places), min(copies, policy.racks.least)
    if policy.racks.enforced and len(racks - {policy.racks.default}) < least:
        found = len(racks - {policy.racks.default})
        return (
            f"{counted(least, 'rack')} are enforced for {copies} copies; workers that take data, and of a known rack,"
            f" are on {found}"
        )
    if policy.constraint == "regionaware" and policy.regions.durable:
        regions = set(map(region_of, racks))
        if min(len(regions), copies) < policy.regions.durable:
            wanted = f"{policy.regions.durable} regions are wanted for durability"
            return f"{wanted}, and {copies} copies on workers that take data are in {min(len(regions), copies)}"
    return ""


def shares(policy: Policy, members: Sequence[Member], disks: Mapping[int, Sequence[DirectoryLoad]]) -> list[float]:
    """Return the share of the work of each member; they add up to 1."""
    if policy.order == "weighted":
        return capped([sum(each.free_bytes for each in disks.get(one.worker, ())) for one in members], policy.multiple)
    if policy.order == "loadaware":
        return gradient_shares(policy, [disks.get(one.worker, ()) for one in members])
    return [1 / len(members)] * len(members)


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
