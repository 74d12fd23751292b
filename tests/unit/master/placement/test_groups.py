"""Groups over racks and regions: each that is chosen is as good as any that could be, and what counts as good."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from random import Random

import pytest

from holdfast.common.errors import ConfigError
from holdfast.master.placement.groups import place
from holdfast.master.placement.members import Member, NotEnoughError, capped
from holdfast.master.placement.policy import (
    Candidates,
    Policy,
    There,
    adherence,
    admitted,
    broken,
    holds,
)
from holdfast.master.placement.replace import Gone, Moving, replace_all
from holdfast.master.placement.topology import check_place, region_of
from holdfast.master.placement.wishes import Adherence, Racks, Regions

STRICT, SOFT, FAIL = Adherence.STRICT, Adherence.SOFT, Adherence.FAIL
CONSTRAINTS = ["random", "rackaware", "regionaware"]
#: How bad a group is: copies that are missing, on avoided and on spared workers, and how far it does not adhere.
Cost = tuple[int, int, int, int]


class Cluster:
    """A small one, drawn by lot, where wishes contradict one another; and what could be had in it at best."""

    def __init__(self, draw: Random) -> None:
        hosts, regions = draw.randint(1, 6), draw.randint(1, 3)
        at = [f"/g{draw.randrange(regions)}/r{draw.randrange(4)}" for _ in range(hosts)]
        numbers = range(hosts * draw.randint(1, 2))
        self.members = [Member(number, f"h{number % hosts}", at[number % hosts]) for number in numbers]
        self.known = {one.worker: one for one in self.members}
        self.spared = {one.worker for one in self.members if draw.random() < 0.2}
        self.candidates = Candidates(self.members, places=at).sparing(self.spared)
        self.copies = draw.randint(1, 4)
        constraint = draw.choice(CONSTRAINTS)
        racks = Racks(draw.randint(1, 3), enforced=constraint != "random" and draw.random() < 0.3, default="/g0/r0")
        durable = 2 if constraint == "regionaware" and draw.random() < 0.3 else 0
        self.policy = Policy(constraint, racks=racks, regions=Regions(durable=durable))
        self.there = There.of(self.policy, at)

    def cost(self, stays: Collection[Member], news: Collection[Member], avoid: Collection[int]) -> Cost | None:
        """Of these together; None if they break what is enforced."""
        places = [one.place for one in (*stays, *news)]
        if not holds(self.policy, places, self.copies, self.there):
            return None
        return (
            self.copies - len(places),
            sum(one.worker in avoid for one in news),
            sum(one.worker in self.spared for one in news),
            adherence(self.policy, places, self.copies, self.there).rank,
        )

    def least(self, stays: Collection[Member], avoid: Collection[int] = ()) -> Cost | None:
        """The least that any group with these members costs: all are tried."""
        hosts = {one.host for one in stays}
        others = [one for one in admitted(self.policy, self.members, self.copies) if one.host not in hosts]
        costs = [
            cost
            for size in range(self.copies - len(stays) + 1)
            for news in combinations(others, size)
            if len({one.host for one in news}) == size and (cost := self.cost(stays, news, avoid)) is not None
        ]
        return min(costs, default=None)


@pytest.mark.parametrize("seed", range(12))
def test_no_new_group_could_be_better(seed: int) -> None:
    """Of all groups there could be none has more copies, else fewer on spared workers, else adheres better; and where
    one is possible at all that breaks nothing that is enforced, no shuffle is refused."""
    for number in range(120):
        draw = Random(f"{seed} {number}")
        cluster = Cluster(draw)
        least = cluster.least(())
        try:
            groups = place(cluster.policy, cluster.candidates, 6, cluster.copies, draw).groups
        except NotEnoughError:
            assert least is None or not admitted(cluster.policy, cluster.members, cluster.copies), (seed, number)
            continue
        for group in groups:
            news = [cluster.known[one] for one in group]
            assert len({one.host for one in news}) == len(news)
            assert cluster.cost((), news, ()) == least, (seed, number)


@pytest.mark.parametrize("seed", range(12))
def test_no_replacement_could_be_better(seed: int) -> None:
    """The same of what replaces members of groups, some of which a client cannot use: avoided workers come after spared
    ones, these after those on racks that the group has. Where nobody may stand beside those that stay the group is
    placed anew."""
    for number in range(120):
        draw = Random(f"{seed} {number}")
        cluster = Cluster(draw)
        if cluster.copies < 2:
            continue
        rows = [row for _ in range(draw.randint(1, 5)) if (row := _moving(cluster, draw)).leaves]
        gone = Gone(places={one.worker: one.place for one in cluster.members})
        try:
            groups = replace_all(cluster.policy, cluster.candidates, rows, cluster.copies, draw, gone=gone).groups
        except NotEnoughError:
            assert not rows or cluster.least(()) is None or not admitted(cluster.policy, cluster.members), (
                seed,
                number,
            )
            continue
        for row, group in zip(rows, groups, strict=True):
            stays = [cluster.known[one] for one in row.workers if one in cluster.known and one not in row.leaves]
            least = cluster.least(stays, row.avoid) if stays else None
            if least is None:
                continue
            news = [cluster.known[one] for one in group if cluster.known[one] not in stays]
            assert {one.worker for one in stays} <= set(group), (seed, number)
            assert cluster.cost(stays, news, row.avoid) == least, (seed, number)


def _moving(cluster: Cluster, draw: Random) -> Moving:
    """A partition on different hosts, of which some workers are gone and some fail for a client."""
    hosts = list({one.host: one for one in cluster.members}.values())
    draw.shuffle(hosts)
    workers = [one.worker for one in hosts[: cluster.copies]]
    workers += range(100, 100 + cluster.copies - len(workers))
    leaves = frozenset(one for one in workers if one >= 100 or draw.random() < 0.5)
    return Moving(tuple(workers), leaves, leaves)


def test_places_are_paths() -> None:
    """A leading slash, one slash at the end dropped, nothing empty; the first part is the region."""
    assert check_place("/a/r1/") == "/a/r1"
    assert region_of("/b/r1") == "b"
    for wrong in ("", "/", "a/r1", "//r1", "/a//r1", "/a/r1//", "/a/\n"):
        with pytest.raises(ConfigError, match="is no place"):
            check_place(wrong)


def replacement(policy: Policy, others: Sequence[str], home: str, *free: str) -> str:
    """Where the one comes from that replaces another one, beside copies at these places."""
    places = [*others, *free]
    members = [Member(number, f"h{number}", place) for number, place in enumerate(places)]
    row = Moving((*range(len(others)), 99), frozenset({99}), frozenset())
    gone = Gone(places=dict(enumerate(places)) | {99: home})
    (group,) = replace_all(policy, Candidates(members), [row], len(others) + 1, Random(1), gone=gone).groups
    return places[group[-1]]


def test_a_replacement_comes_from_where_the_other_one_was() -> None:
    """Its rack, another rack of its region, a region that the group lacks, a rack that it lacks; never a rack beside
    another copy where there is one that the group lacks."""
    racks, regions = Policy(), Policy("regionaware")
    assert replacement(racks, ["/x/A"], "/x/B", "/x/C", "/x/B") == "/x/B"
    assert replacement(racks, ["/x/A"], "/x/B", "/x/A", "/x/C") == "/x/C"
    assert replacement(racks, ["/x/A", "/x/B"], "/x/A", "/x/A", "/x/C") == "/x/C", "two racks would be enough"
    assert replacement(racks, ["/x/A"], "/x/A", "/x/A") == "/x/A"
    assert replacement(regions, ["/a/1"], "/b/1", "/c/1", "/b/2") == "/b/2"
    assert replacement(regions, ["/a/1"], "/b/1", "/c/1", "/a/2") == "/c/1"
    assert replacement(regions, ["/a/1", "/b/1"], "/d/1", "/a/2", "/c/1") == "/c/1"
    assert replacement(Policy("regionaware", racks=Racks(3)), ["/a/1", "/b/1"], "/a/2", "/a/1", "/b/2") == "/b/2"


def test_what_is_enforced_needs_enough_of_everything() -> None:
    """Durability holds whatever `min_racks` is; racks of hosts that cannot be resolved do not count."""
    policy = Policy("regionaware", racks=Racks(1), regions=Regions(durable=2))
    assert "2 regions are wanted for durability" in broken(policy, ["/a/1", "/a/2"], 2)
    members = [Member(number, f"h{number}", f"/{'aaab'[number]}/{number}") for number in range(4)]
    for group in place(policy, Candidates(members), 20, 2, Random(1)).groups:
        assert 3 in group
    unknown = Policy(racks=Racks(2, enforced=True, default="/a/1"))
    assert "are on 1" in broken(unknown, ["/a/1", "/a/2"], 2)
    with pytest.raises(ConfigError, match="2 regions for durability need as many to write to, not 1"):
        Regions(write_to=("a",), durable=2)


@pytest.mark.parametrize(
    ("policy", "places", "wanted"),
    [
        (Policy(), ["/a/1", "/a/2"], STRICT),
        (Policy(), ["/a/1", "/a/1"], FAIL),
        (Policy(), ["/a/1", None], FAIL),
        (Policy(), ["/a/1"], FAIL),
        (Policy(racks=Racks(2, enforced=True, default="/a/1")), ["/a/1", "/a/2"], FAIL),
        (Policy("regionaware"), ["/a/1", "/a/2"], FAIL),
        (Policy("regionaware"), ["/a/1", "/b/1"], STRICT),
        (Policy("regionaware", racks=Racks(3)), ["/a/1", "/b/1", "/b/1"], SOFT),
        (Policy("regionaware", racks=Racks(3, enforced=True)), ["/a/1", "/b/1", "/b/1"], FAIL),
        (Policy("random"), ["/a/1", "/a/1"], STRICT),
        (Policy("regionaware", regions=Regions(refused=frozenset("b"))), ["/a/1", "/a/2"], STRICT),
    ],
)
def test_adherence(policy: Policy, places: list[str | None], wanted: Adherence) -> None:
    """Strict, soft where only racks are missing and not enforced, failed; a region that takes nothing is not missed."""
    there = There.of(policy, ["/a/1", "/a/2", "/b/1"])
    assert adherence(policy, places, max(len(places), 2), there) is wanted


def test_shares_are_capped_by_the_median() -> None:
    """50, 100, 100, 200, 500 with a multiple of 4: the last acts as 400."""
    assert capped([50, 100, 100, 200, 500], 4) == pytest.approx([one / 850 for one in (50, 100, 100, 200, 400)])
    assert capped([50, 100, 100, 200, 500], 0) == pytest.approx([one / 950 for one in (50, 100, 100, 200, 500)])
    assert capped([0, 10, 20, 30], 0) == pytest.approx([one / 70 for one in (10, 10, 20, 30)])
    assert capped([0, 0], 3) == [0.5, 0.5]
    assert capped([1, 1, 3, 100], 2) == pytest.approx([one / 9 for one in (1, 1, 3, 4)]), "the median of four is 2"
