"""Groups whose members are on different racks.

Rules: pure. Candidates come in the order that the `Order` says; a rack that the group does not have yet is preferred,
and tried first for the first member if the requester is there. Unmet wishes are dropped in steps: unused racks,
then anything that the windows allow, then anything, unless racks are enforced. Where greed fails under enforcement
other orders are tried, and for small groups everything (B6).

Source: the rack-aware policy of Apache BookKeeper, without its defects B6, B7 and B9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.master.placement.members import Member, NotEnoughError, Order
from holdfast.master.placement.topology import DEFAULT_PLACE
from holdfast.master.placement.windows import Adherence, Windows, adheres

#: Orders that are tried before everything is.
TRIES = 8
#: Groups for which everything is tried.
EXACT_SIZE_MAX = 8

#: Whether a member may take a position; beside the windows of racks.
Allows = Callable[[int, Member], bool]


class Group(NamedTuple):
    """Workers in the order of their positions, and how far they keep to what was wished."""

    members: tuple[int, ...]
    adherence: Adherence


@dataclass(frozen=True, slots=True)
class Racks:
    """What is wished: so many racks in each write quorum, and whether a group that breaks that is refused."""

    least: int = 2
    enforced: bool = False
    #: the rack of all hosts that cannot be resolved
    default: str = DEFAULT_PLACE


def check_sizes(size: int, write_quorum: int, ack_quorum: int) -> None:
    """Raise ValueError unless size >= write quorum >= ack quorum >= 1."""
    if not size >= write_quorum >= ack_quorum >= 1:
        raise ValueError(f"a group of {size} needs size >= write quorum {write_quorum} >= ack quorum {ack_quorum} >= 1")


class RackAware:
    """Chooses groups among known workers."""

    def __init__(self, members: Iterable[Member], order: Order, racks: Racks, near: str = "") -> None:
        """`near` is the rack of the requester, "" without one."""
        self._members = {one.worker: one for one in members}
        self._order = order
        self.racks = racks
        self._near = "" if near == racks.default else near

    # a new group

    def new_group(self, size: int, write_quorum: int, ack_quorum: int, exclude: Collection[int] = ()) -> Group:
        """Choose `size` workers. Raises NotEnoughError, ValueError."""
        check_sizes(size, write_quorum, ack_quorum)
        chosen = self.extend([], size, write_quorum, exclude)
        return Group(tuple(one.worker for one in chosen), self.adherence([one.worker for one in chosen], write_quorum))

    def extend(
        self, begun: Sequence[Member], size: int, quorum: int, exclude: Collection[int], allows: Allows | None = None
    ) -> list[Member]:
        """Choose the members of a group that begins with those of `begun`. Raises NotEnoughError."""
        least = min(quorum, self.racks.least)
        usable = [one for one in self._members.values() if one.worker not in exclude]
        if self.racks.enforced:
            usable = [one for one in usable if one.place != self.racks.default]
            if len({one.place for one in (*begun, *usable)}) < least:
                raise NotEnoughError(f"{least} racks are enforced, and there are fewer")
        attempt: list[Member] | None = None
        for _ in range(TRIES if self.racks.enforced else 1):
            attempt = _Choice(self, begun, size, quorum, usable, allows).greedy()
            if attempt is not None:
                return attempt
        if self.racks.enforced and size <= EXACT_SIZE_MAX:
            attempt = _Choice(self, begun, size, quorum, usable, allows).exact()
        if attempt is None:
            raise NotEnoughError(f"no group of {size} can be made of {len(usable)} workers")
        return attempt

    # one member for another

    def replace(
        self, victim: int, members: Sequence[int], write_quorum: int, exclude: Collection[int] = (), *, place: str = ""
    ) -> tuple[int, Group]:
        """Choose the replacement of `victim` among `members`; `place` is where it was, "" if that is not to be used
        (its rack cannot be reached). Returns the worker, and the group with it. Raises NotEnoughError."""
        at = members.index(victim)
        left = [self._members.get(one) for one in members if one != victim]
        hosts = {one.host for one in left if one is not None}
        usable = [
            one
            for one in self._members.values()
            if one.worker not in exclude
            and one.worker not in members
            and one.host not in hosts
            and not (self.racks.enforced and one.place == self.racks.default)
        ]
        steps: list[list[Member]] = []
        if place:
            steps.append([one for one in usable if one.place == place])
        steps.append(
            [one for one in usable if self._adheres([*members[:at], one.worker, *members[at + 1 :]], write_quorum)]
        )
        if not self.racks.enforced:
            steps.append(usable)
        for step in steps:
            for found in self._order.arrange(step):
                new = [*members[:at], found.worker, *members[at + 1 :]]
                self._order.took(found.worker)
                return found.worker, Group(tuple(new), self.adherence(new, write_quorum))
        raise NotEnoughError(f"no worker can replace worker {victim}")

    # verdicts

    def adherence(self, members: Sequence[int], write_quorum: int) -> Adherence:
        """Whether every write quorum of a group has enough racks; with enforcement, none of them the default one."""
        return Adherence.STRICT if self._adheres(members, write_quorum) else Adherence.FAIL

    def _adheres(self, members: Sequence[int], quorum: int) -> bool:
        places = [found.place if (found := self._members.get(one)) is not None else None for one in members]
        if self.racks.enforced and self.racks.default in places:
            return False
        return adheres(places, quorum, self.racks.least)

    @property
    def order(self) -> Order:
        """Who comes first."""
        return self._order

    @property
    def near(self) -> str:
        """The rack of the requester."""
        return self._near


class _Choice:
    """One try at one group."""

    def __init__(
        self,
        policy: RackAware,
        begun: Sequence[Member],
        size: int,
        quorum: int,
        usable: Sequence[Member],
        allows: Allows | None,
    ) -> None:
        self._policy, self._size, self._usable = policy, size, usable
        self._allows = allows
        self._windows = Windows(size, quorum, policy.racks.least)
        self._chosen: list[Member] = []
        self._hosts: set[str] = set()
        for one in begun:
            self._put(one)

    def _put(self, member: Member) -> None:
        self._windows.put(len(self._chosen), member.place)
        self._chosen.append(member)
        self._hosts.add(member.host)

    def _take_back(self) -> None:
        member = self._chosen.pop()
        self._windows.put(len(self._chosen), None)
        self._hosts.discard(member.host)

    def _fits(self, member: Member, *, tested: bool) -> bool:
        at = len(self._chosen)
        if member.host in self._hosts or (self._allows is not None and not self._allows(at, member)):
            return False
        return not tested or self._windows.passes(at, member.place)

    def greedy(self) -> list[Member] | None:
        """Position by position, the racks used so far last."""
        used: set[str] = {self._chosen[-1].place} if self._chosen else set()
        while len(self._chosen) < self._size:
            found = self._first(used)
            if found is None:
                return None
            member, fresh = found
            used = {*used, member.place} if fresh else {member.place}
            self._put(member)
            self._policy.order.took(member.worker)
        return self._chosen

    def _first(self, used: Collection[str]) -> tuple[Member, bool] | None:
        """The next member, and whether its rack was not among the used ones."""
        arranged = self._policy.order.arrange(self._usable)
        near = self._policy.near if not self._chosen else ""
        if near:
            for member in arranged:
                if member.place == near and self._fits(member, tested=True):
                    return member, True
        for member in arranged:
            if member.place not in used and self._fits(member, tested=True):
                return member, True
        for member in arranged:
            if self._fits(member, tested=True):
                return member, False
        if not self._policy.racks.enforced or not self._chosen:
            for member in arranged:
                if self._fits(member, tested=False):
                    return member, False
        return None

    def exact(self) -> list[Member] | None:
        """Depth first over racks. Of all racks the `size` with the most hosts are enough: any other one in a solution
        can be exchanged for one of them that is not in it."""
        hosts = Counter(place for place, _ in {(one.place, one.host) for one in self._usable})
        racks = [place for place, _ in hosts.most_common(self._size)]
        arranged = self._policy.order.arrange(self._usable)
        members = {place: [one for one in arranged if one.place == place] for place in racks}
        return self._chosen if self._search(members) else None

    def _search(self, members: dict[str, list[Member]]) -> bool:
        if len(self._chosen) == self._size:
            return True
        for ones in members.values():
            found = next((one for one in ones if self._fits(one, tested=True)), None)
            if found is not None:
                self._put(found)
                if self._search(members):
                    return True
                self._take_back()
        return False
