"""The placement policy: an order of workers, and a constraint on which may hold copies together.

    order         roundrobin   equal shares
                  loadaware    disks in groups by their flush and fetch times, each group's share above the next one's
                  weighted     shares by free bytes, capped at a multiple of the median
    constraint    random       copies on different hosts
                  rackaware    on different racks where there are two
                  regionaware  in different regions where there are two, else on different racks

Rules: pure. Unmet wishes are dropped in steps: first workers that are to be spared come in, as second copies
where others are left, then the wish for racks or regions is dropped, unless it is enforced; two copies never share a
host. Called by fleet/fleet.py.
Source: the slots allocation of Apache Celeborn for orders, the policies of Apache BookKeeper for constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from holdfast.master.placement.members import Member, NotEnoughError, capped
from holdfast.master.placement.racks import Racks
from holdfast.master.placement.regions import Regions
from holdfast.master.placement.topology import region_of

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


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who may be given data, and what is known of their disks; the `spared` ones only where the rest is not enough."""

    members: Sequence[Member]
    spared: Sequence[Member] = ()
    disks: Mapping[int, Sequence[DirectoryLoad]] = field(default_factory=dict)
    #: places of all workers that ever were, lost and full ones too: whether there are racks to keep apart at all
    places: Collection[str] = ()

    @property
    def alike(self) -> bool:
        """Whether everybody is at one place, known or not: then nothing can be wished of places."""
        return len(set(self.places or (one.place for one in (*self.members, *self.spared)))) < 2

    def __len__(self) -> int:
        return len(self.members) + len(self.spared)

    def sparing(self, workers: Collection[int]) -> Candidates:
        """The same, with these workers among the spared ones."""
        spared = [one for one in self.members if one.worker in workers]
        if not spared:
            return self
        members = [one for one in self.members if one.worker not in workers]
        return Candidates(members, [*self.spared, *spared], self.disks, self.places)


class Field(NamedTuple):
    """Who is dealt to in one assignment, and what keeps copies apart."""

    members: Sequence[Member]
    #: of each member; copies of one partition are in different ones
    domains: Sequence[str]
    #: places in different domains are as wished
    adheres: bool
    #: so many of the members, the first ones, have the first copy of each partition; 0: that is not wished of anybody
    wanted: int = 0


def choose_field(policy: Policy, candidates: Candidates, copies: int) -> Field:
    """Return the workers for an assignment with so many copies (1 or 2); none if no worker takes data.

    With two copies and one host the members of that host are returned: one copy is all that can be had. Raises
    NotEnoughError where that breaks what is enforced.
    """
    first = admitted(policy, candidates.members, copies)
    for members in (first, [*first, *admitted(policy, candidates.spared, copies)]):
        found = _field(policy, members, copies, alike=candidates.alike)
        if found is not None:
            return _beside(found, len(first)) if members is not first else found
    problem = _broken(policy, members) if copies > 1 else ""
    if len(candidates) and not members:
        problem = problem or "all workers that take data are in regions that take nothing new"
    if problem:
        raise NotEnoughError(problem)
    if copies > 1:
        return Field(members, [one.host for one in members], adheres=False)
    return Field(members, (), adheres=True)


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


def _field(policy: Policy, members: list[Member], copies: int, *, alike: bool) -> Field | None:
    """Return the widest domains that are at least two, None if there are none, or not those that are enforced."""
    if copies < 2:
        return Field(members, (), adheres=True) if members else None
    for level, domain_of in enumerate(_levels(policy)):
        domains = [domain_of(one) for one in members]
        if len(set(domains)) > 1 and not _broken(policy, members):
            return Field(members, domains, adheres=alike or _adheres(policy, level, members))
    return None


#: The domain of spared workers; no host and no place is called so.
_SPARED = "\0spared"


def _beside(field: Field, wanted: int) -> Field:
    """The field where no pair is of spared workers alone: those that are not, the first ones, are all in one domain,
    and the spared ones of other domains only hold the other copies."""
    home = set(field.domains[:wanted])
    if len(home) != 1:
        return field
    spared = [
        one for one, domain in zip(field.members[wanted:], field.domains[wanted:], strict=True) if domain not in home
    ]
    return Field(
        [*field.members[:wanted], *spared], [*field.domains[:wanted], *[_SPARED] * len(spared)], field.adheres, wanted
    )


def spreads(policy: Policy) -> bool:
    """Whether more than different hosts is wished."""
    return policy.constraint != "random" and policy.racks.least > 1


def _levels(policy: Policy) -> Sequence[Callable[[Member], str]]:
    """What keeps two copies apart, the widest first."""
    host = Member.host_of
    if not spreads(policy):
        return (host,)
    if policy.constraint == "rackaware":
        return (Member.place_of, host)
    return (lambda one: region_of(one.place), Member.place_of, host)


def _adheres(policy: Policy, level: int, members: Sequence[Member]) -> bool:
    """Whether copies that this level keeps apart are as wished: one region is enough where there is one."""
    if policy.constraint == "regionaware":
        return level < 2 or len({region_of(one.place) for one in members}) > 1
    return level == 0


@dataclass(frozen=True, slots=True)
class Spread:
    """How many places and regions there are at all."""

    places: int
    regions: int

    @classmethod
    def of(cls, members: Iterable[Member]) -> Spread:
        """Count them."""
        places = {one.place for one in members}
        return cls(len(places), len(set(map(region_of, places))))


def keeps(policy: Policy, one: Member | None, two: Member | None, there: Spread) -> bool:
    """Whether two copies are placed as configured, as far as possible; None is no worker, or an unknown one."""
    if one is None or two is None:
        return False
    if policy.racks.enforced and spreads(policy) and policy.racks.default in (one.place, two.place):
        return False
    apart_at = next((level for level, of in enumerate(_levels(policy)) if of(one) != of(two)), None)
    if apart_at is None:
        return False
    if policy.constraint == "regionaware" and apart_at == 1 and spreads(policy):
        return there.regions < 2
    return apart_at == 0 or there.places < 2


def _broken(policy: Policy, members: Sequence[Member]) -> str:
    """Say what is enforced and cannot be had among these; "" if nothing is."""
    if not spreads(policy):
        return ""
    racks = {one.place for one in members}
    if policy.racks.enforced and len(racks) < 2:
        return (
            f"two racks are enforced for two copies; workers that take data, and of a known rack, are on {len(racks)}"
        )
    if policy.constraint == "regionaware" and policy.regions.durable:
        regions = {region_of(one.place) for one in members}
        if len(regions) < policy.regions.durable:
            wanted = f"{policy.regions.durable} regions are wanted for durability"
            return f"{wanted}, and workers that take data are in {len(regions)}"
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
