"""Groups over regions: spread, kept durable when a region is lost, or near the requester.

Rules: pure. Each region has a rack-aware policy of its own, which extends the group by the region's share under a
constraint over all regions. Without a wish for durability every write quorum shall have as many regions as it has been
given racks to have; with one (`durable` regions), no `durable` - 1 of them may hold an ack quorum, so that losing all
others leaves nothing acknowledged unread. Regions may be refused at run time.

Source: the region-aware policy of Apache BookKeeper; its adherence, a stub there, is reported here (B9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from holdfast.common.errors import ConfigError
from holdfast.master.placement.members import Member, NotEnoughError, Order
from holdfast.master.placement.racks import Allows, Group, RackAware, Racks, check_sizes
from holdfast.master.placement.topology import region_of
from holdfast.master.placement.windows import Adherence, Windows, adheres


@dataclass(frozen=True, slots=True)
class Regions:
    """What is wished of regions."""

    #: those that are written to; () for whatever there is
    write_to: tuple[str, ...] = ()
    #: acknowledged data outlives the loss of all but so many of them; 0: no wish
    durable: int = 0
    #: take no new members
    refused: frozenset[str] = frozenset()
    #: the region of the requester comes first; "" for none
    local: str = ""
    #: a member is replaced under the constraint too
    enforced_in_replace: bool = True

    def __post_init__(self) -> None:
        if self.write_to and len(self.write_to) < self.durable:
            raise ConfigError(
                f"{self.durable} regions for durability need as many to write to, not {len(self.write_to)}"
                f" ({', '.join(self.write_to)})"
            )

    @property
    def durable_in_replace(self) -> bool:
        """Whether a member is not replaced at all where that would break the wish for durability."""
        return self.durable > 1 and self.enforced_in_replace

    def check(self, size: int, write_quorum: int, ack_quorum: int) -> None:
        """Raise ConfigError where groups of these sizes can never be durable."""
        check_sizes(size, write_quorum, ack_quorum)
        if not self.durable:
            return
        least = write_quorum - write_quorum // self.durable + 1
        if ack_quorum < max(self.durable, least):
            raise ConfigError(
                f"{self.durable} regions for durability with {write_quorum} copies need"
                f" {max(self.durable, least)} of them acknowledged, not {ack_quorum}"
            )


class _Durable:
    """No `durable` - 1 regions hold an ack quorum of any write quorum."""

    def __init__(self, size: int, quorum: int, acks: int, durable: int) -> None:
        self._size, self._quorum, self._acks, self._few = size, quorum, acks, durable - 1

    def allows(self, regions: Sequence[str | None], position: int, region: str) -> bool:
        starts = range(position - self._quorum + 1, position + 1) if self._quorum < self._size else (0,)
        for start in starts:
            inside = [(start + step) % self._size for step in range(self._quorum)]
            found = Counter(regions[one] for one in inside if one != position and regions[one] is not None)
            found[region] += 1
            for some in combinations(found.values(), min(self._few, len(found))):
                if sum(some) >= self._acks:
                    return False
        return True


class RegionAware:
    """Chooses groups among known workers."""

    def __init__(self, members: Iterable[Member], order: Order, racks: Racks, regions: Regions) -> None:
        self._members = {one.worker: one for one in members}
        self._order, self._racks, self._wish = order, racks, regions
        self._turn = 0

    def _region(self, member: Member) -> str:
        return region_of(member.place)

    def _available(self) -> list[str]:
        known = dict.fromkeys(map(self._region, self._members.values()))
        wanted = self._wish.write_to or tuple(known)
        return [one for one in wanted if one in known and one not in self._wish.refused]

    # a new group

    def new_group(self, size: int, write_quorum: int, ack_quorum: int, exclude: Collection[int] = ()) -> Group:
        """Choose `size` workers. Raises NotEnoughError; ConfigError or ValueError for sizes that can never be."""
        self._wish.check(size, write_quorum, ack_quorum)
        available = self._available()
        if not available:
            raise NotEnoughError("no region takes new members")
        chosen = self._rounds(self._turned(available), size, write_quorum, ack_quorum, exclude)
        if self._wish.durable and len({self._region(one) for one in chosen}) < self._wish.durable:
            raise NotEnoughError(f"{self._wish.durable} regions are wanted for durability")
        workers = [one.worker for one in chosen]
        return Group(tuple(workers), self.adherence(workers, write_quorum, ack_quorum))

    def _turned(self, available: list[str]) -> list[str]:
        """The local region first if it is wished, the others from where the last request stopped."""
        local = [one for one in available if one == self._wish.local]
        others = [one for one in available if one != self._wish.local]
        start = self._turn % len(others) if others else 0
        return [*local, *others[start:], *others[:start]]

    def _rounds(self, regions: list[str], size: int, quorum: int, acks: int, exclude: Collection[int]) -> list[Member]:
        chosen: list[Member] = []
        while len(chosen) < size:
            before = len(chosen)
            for number, region in enumerate(regions):
                offered = -(-(size - len(chosen)) // (len(regions) - number))
                chosen = self._extend(region, chosen, offered, (size, quorum, acks), exclude)
                if len(chosen) == size:
                    break
            self._turn += 1
            if len(chosen) == before:
                raise NotEnoughError(f"no group of {size} can be made over regions {', '.join(regions)}")
        return chosen

    def _extend(
        self, region: str, chosen: list[Member], offered: int, sizes: tuple[int, int, int], exclude: Collection[int]
    ) -> list[Member]:
        """The group with as many of the offered places taken by a region as can be."""
        size, quorum, _ = sizes
        inside = [one for one in self._members.values() if self._region(one) == region]
        policy = RackAware([*inside], self._order, self._racks)
        taken = [one.worker for one in chosen]
        hosts = {one.host for one in chosen}
        out = {*exclude, *taken, *(one.worker for one in inside if one.host in hosts)}
        for share in range(min(offered, size - len(chosen)), 0, -1):
            allows = self._allows(chosen, sizes, len(chosen))
            part = max(1, min(quorum, round(quorum * share / size)))
            try:
                return [*chosen, *policy.extend([], share, min(part, share), out, allows)]
            except NotEnoughError:
                continue
        return chosen

    def _allows(self, chosen: Sequence[Member], sizes: tuple[int, int, int], begins: int) -> Allows:
        """What the regions say of a member at a position of the part that begins at `begins`."""
        size, quorum, acks = sizes
        regions: list[str | None] = [self._region(one) for one in chosen] + [None] * (size - len(chosen))
        durable = _Durable(size, quorum, acks, self._wish.durable) if self._wish.durable else None
        windows = Windows(size, quorum, min(self._racks.least, len(self._available())))
        for position, region in enumerate(regions):
            windows.put(position, region)

        def allows(at: int, member: Member) -> bool:
            position, region = begins + at, self._region(member)
            # All that a part puts beside each other is of one region.
            for earlier in range(begins, position):
                regions[earlier] = region
                windows.put(earlier, region)
            for later in range(position, size):
                regions[later] = None
                windows.put(later, None)
            if durable is not None:
                return durable.allows(regions, position, region)
            return windows.passes(position, region)

        return allows

    # one member for another

    def replace(
        self,
        victim: int,
        members: Sequence[int],
        write_quorum: int,
        ack_quorum: int,
        exclude: Collection[int] = (),
        *,
        place: str = "",
    ) -> tuple[int, Group]:
        """Choose the replacement of `victim`: of its region first, unless that is refused. Returns the worker, and
        the group with it. Raises NotEnoughError."""
        at = members.index(victim)
        home = region_of(place) if place else ""
        regions = [one for one in self._available() if one != home]
        if home and home not in self._wish.refused:
            regions.insert(0, home)
        left: list[str | None] = [
            self._region(found) if (found := self._members.get(one)) is not None and one != victim else None
            for one in members
        ]
        durable = None
        if self._wish.durable and self._wish.enforced_in_replace:
            durable = _Durable(len(members), write_quorum, ack_quorum, self._wish.durable)
        for region in regions:
            if durable is not None and not durable.allows(left, at, region):
                continue
            inside = [one for one in self._members.values() if self._region(one) == region]
            others = [self._members[one] for one in members if one in self._members and one != victim]
            policy = RackAware([*inside, *others], self._order, self._racks)
            try:
                worker, group = policy.replace(
                    victim, members, write_quorum, exclude, place=place if region == home else ""
                )
            except NotEnoughError:
                continue
            return worker, Group(group.members, self.adherence(group.members, write_quorum, ack_quorum))
        raise NotEnoughError(f"no worker can replace worker {victim}")

    # verdicts

    def adherence(self, members: Sequence[int], write_quorum: int, ack_quorum: int) -> Adherence:
        """STRICT if racks and regions are as wished, SOFT if the regions are, FAIL otherwise."""
        found = [self._members.get(one) for one in members]
        regions = [None if one is None else self._region(one) for one in found]
        racks = [None if one is None else one.place for one in found]
        if self._wish.durable:
            durable = _Durable(len(members), write_quorum, ack_quorum, self._wish.durable)
            well = None not in regions and all(
                durable.allows(regions, position, str(region)) for position, region in enumerate(regions)
            )
        else:
            well = adheres(regions, write_quorum, min(self._racks.least, len(self._available())))
        if not well:
            return Adherence.FAIL
        return Adherence.STRICT if adheres(racks, write_quorum, self._racks.least) else Adherence.SOFT
