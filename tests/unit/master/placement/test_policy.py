"""Policies: an order and a constraint together, and what is given up first where not all can be had."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.master.placement.groups import place
from holdfast.master.placement.members import Member, NotEnoughError
from holdfast.master.placement.policy import (
    Candidates,
    DirectoryLoad,
    Policy,
    gradient_shares,
    shares,
    too_few_acknowledge,
)
from holdfast.master.placement.ring import map_ring
from holdfast.master.placement.wishes import Racks, Regions

#: regions of racks of hosts of workers: how many workers each host has
clusters = st.lists(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3), min_size=1, max_size=3
)
constraints = st.sampled_from(["random", "rackaware", "regionaware"])


def members_of(cluster: list[list[list[int]]]) -> list[Member]:
    """The workers of such a cluster."""
    found: list[Member] = []
    for region, racks in enumerate(cluster):
        for rack, hosts in enumerate(racks):
            for host, workers in enumerate(hosts):
                for _ in range(workers):
                    found.append(Member(len(found) + 1, f"h{region}{rack}{host}", f"/g{region}/r{rack}"))
    return found


@given(clusters, constraints, st.integers(1, 40), st.randoms(use_true_random=False))
def test_copies_are_as_far_apart_as_can_be(
    cluster: list[list[list[int]]], constraint: str, count: int, draw: Random
) -> None:
    """Two copies never share a host, share a rack only where there is one, and a region only where there is one; a
    partition is told of as not adhering exactly if it could not be apart as wished."""
    members = members_of(cluster)
    known = {one.worker: one for one in members}
    found = place(Policy(constraint), Candidates(members), count, 2, draw)
    hosts, racks = {one.host for one in members}, {one.place for one in members}
    regions = {place.split("/")[1] for place in racks}
    assert len(found.groups) == count
    if len(hosts) < 2:
        assert found.copies == 1
        assert {len(group) for group in found.groups} == {1}
        return
    for one, two in ([known[each] for each in group] for group in found.groups):
        assert one.host != two.host
        if constraint != "random" and len(racks) > 1:
            assert one.place != two.place
        if constraint == "regionaware" and len(regions) > 1:
            assert one.place.split("/")[1] != two.place.split("/")[1]
    assert found.adhering.not_strict == 0  # one rack is as wished where there is no other


@given(
    clusters, constraints, st.integers(1, 20), st.integers(2, 5), st.integers(1, 4), st.randoms(use_true_random=False)
)
def test_groups_of_any_size_are_as_far_apart_as_can_be(
    cluster: list[list[list[int]]], constraint: str, count: int, copies: int, least: int, draw: Random
) -> None:
    """As many copies as there are hosts, never two on one; over as many racks, or regions, as can be; and what is told
    of them is what is true: strict with enough racks and regions, soft with the regions alone."""
    members = members_of(cluster)
    known = {one.worker: one for one in members}
    hosts, racks = {one.host for one in members}, {one.place for one in members}
    regions = {one.region_of() for one in members}
    found = place(Policy(constraint, racks=Racks(least)), Candidates(members), count, copies, draw)
    assert found.copies == min(copies, len(hosts))
    told: Counter[str] = Counter()
    for group in ([known[each] for each in group] for group in found.groups):
        assert len({one.host for one in group}) == len(group) == found.copies
        has_racks, has_regions = {one.place for one in group}, {one.region_of() for one in group}
        if constraint == "rackaware" and least > 1:
            assert len(has_racks) == min(len(racks), found.copies)
        if constraint == "regionaware" and least > 1:
            assert len(has_regions) == min(len(regions), found.copies)
        wish = min(copies, least) if len(racks) > 1 else 1
        well = constraint == "random" or len(has_racks) >= wish
        spread = constraint != "regionaware" or len(has_regions) >= min(wish, len(regions))
        told["failed" if found.copies < copies or not spread else "strict" if well else "soft"] += 1
    if constraint == "rackaware":
        told["failed"] += told.pop("soft", 0)
    assert found.adhering._asdict() == {"strict": 0, "soft": 0, "failed": 0, **told}


def test_as_many_racks_as_are_wished() -> None:
    """Three racks of three copies are had where they can be, over two regions, too, of which one has one rack; with
    enforcement two racks are not enough."""
    members = [Member(n, f"h{n}", place) for n, place in enumerate(["/a/1"] * 4 + ["/b/1", "/b/2", "/b/2"])]
    policy = Policy("regionaware", racks=Racks(3))
    found = place(policy, Candidates(members), 40, 3, Random(1))
    assert found.adhering == (40, 0, 0)
    assert all(len({members[one].place for one in group}) == 3 for group in found.groups)
    enforced = Policy(racks=Racks(3, enforced=True))
    with pytest.raises(NotEnoughError, match="3 racks are enforced for 3 copies"):
        place(enforced, Candidates(members[:5]), 1, 3, Random(1))
    assert place(enforced, Candidates(members), 9, 3, Random(1)).adhering.strict == 9


def test_durability_over_three_regions() -> None:
    """Three copies in three regions, or no place at all."""
    members = [Member(n, f"h{n}", f"/{'abc'[n % 3]}/r{n}") for n in range(9)]
    policy = Policy("regionaware", regions=Regions(durable=3))
    found = place(policy, Candidates(members), 30, 3, Random(1))
    assert all(sorted(one % 3 for one in group) == [0, 1, 2] for group in found.groups)
    with pytest.raises(NotEnoughError, match="3 regions are wanted for durability, and 2 copies"):
        place(policy, Candidates(members), 1, 2, Random(1))
    with pytest.raises(NotEnoughError, match="3 regions are wanted"):
        place(policy, Candidates([one for one in members if one.worker % 3]), 1, 3, Random(1))


@pytest.mark.parametrize(
    ("copies", "ack_copies", "refused"), [(3, 2, True), (3, 1, True), (3, 3, False), (3, 0, False), (1, 1, False)]
)
def test_with_durability_over_regions_all_copies_acknowledge(copies: int, ack_copies: int, refused: bool) -> None:
    """Two of three copies may be in one region: with that region what only they had would be gone. Without durability
    over regions fewer may acknowledge."""
    durable = Policy("regionaware", regions=Regions(durable=2))
    assert ("durable_regions" in too_few_acknowledge(durable, copies, ack_copies)) == refused
    assert not too_few_acknowledge(Policy("regionaware"), copies, ack_copies)


def test_the_local_region_has_the_first_copy_of_everything() -> None:
    """Of three regions the local one has a copy of each partition, the first; the others share the second ones."""
    members = [Member(n, f"h{n}", f"/{'abc'[n % 3]}/r{n}") for n in range(9)]
    for copies in (1, 2, 3):
        found = place(Policy("regionaware", regions=Regions(local="b")), Candidates(members), 30, copies, Random(1))
        assert all(group[0] % 3 == 1 for group in found.groups)
        assert all(sum(one % 3 == 1 for one in group) == 1 for group in found.groups)


def test_spared_workers_have_as_few_copies_as_can_be() -> None:
    """Three copies, two hosts that are not spared: both are in every group, and no group has two of the spared ones."""
    members = [Member(n, f"h{n}", f"/x/r{n}") for n in range(6)]
    found = place(Policy(), Candidates(members).sparing({2, 3, 4, 5}), 40, 3, Random(1))
    assert all(set(group[:2]) == {0, 1} and group[2] > 1 for group in found.groups)
    assert {group[0] for group in found.groups} == {0, 1}
    assert {group[2] for group in found.groups} == {2, 3, 4, 5}


def test_enforced_racks_are_not_given_up() -> None:
    """With racks enforced, one rack is not enough, unresolved workers do not count, and one copy needs none."""
    policy = Policy(racks=Racks(enforced=True))
    here = [Member(1, "a", "/x/r1"), Member(2, "b", "/x/r1"), Member(3, "c")]
    with pytest.raises(NotEnoughError, match="2 racks are enforced for 2 copies"):
        place(policy, Candidates(here), 4, 2, Random(1))
    found = place(policy, Candidates([*here, Member(4, "d", "/x/r2")]), 4, 2, Random(1))
    assert all(4 in group and 3 not in group for group in found.groups)
    assert not found.adhering.not_strict
    assert {group[0] for group in place(policy, Candidates(here), 3, 1, Random(1)).groups} == {1, 2, 3}


def test_spared_workers_come_in_before_racks_are_given_up() -> None:
    """Who flaps or is in quarantine gets nothing while the others are enough, and something before a rack is shared."""
    first = [Member(1, "a", "/x/r1"), Member(2, "b", "/x/r2")]
    found = place(Policy(), Candidates(first, [Member(3, "c", "/x/r3")]), 10, 2, Random(1))
    assert {one for group in found.groups for one in group} == {1, 2}
    # Hosts are enough for two copies; with racks enforced the spared one is needed.
    one_rack = [Member(1, "a", "/x/r1"), Member(2, "b", "/x/r1")]
    found = place(Policy(racks=Racks(enforced=True)), Candidates(one_rack, [Member(3, "c", "/x/r3")]), 10, 2, Random(1))
    assert all(3 in group for group in found.groups)
    alone = place(Policy(), Candidates([Member(1, "a")], [Member(2, "b")]), 3, 2, Random(1))
    assert alone.copies == 2


def test_workers_that_readers_cannot_use_are_spared() -> None:
    """They get nothing while others are enough, and their share where nobody else could have the second copy."""
    members = [Member(1, "a"), Member(2, "b"), Member(3, "c")]
    found = place(Policy(), Candidates(members).sparing({1, 9}), 10, 2, Random(1))
    assert {one for group in found.groups for one in group} == {2, 3}
    assert {group[0] for group in place(Policy(), Candidates(members).sparing({1, 2}), 10, 1, Random(1)).groups} == {3}
    found = place(Policy(), Candidates(members[:2]).sparing({1}), 10, 2, Random(1))
    assert (found.copies, {one for group in found.groups for one in group}) == (2, {1, 2})
    assert len(place(Policy(), Candidates(members[:1]).sparing({1}), 4, 1, Random(1)).groups) == 4


def test_a09_no_pair_is_of_workers_alone_that_readers_cannot_use() -> None:
    """One host is left beside those that readers cannot use: it has the first copy of every partition, and they share
    the second ones; in the ring of a shuffle of MAP partitions it is a neighbour of each of them."""
    candidates = Candidates([Member(n, f"h{n}", f"/x/r{n % 2}") for n in range(1, 6)]).sparing({2, 3, 4, 5})
    for constraint, beside in (("random", {2, 3, 4, 5}), ("rackaware", {2, 4})):
        policy = Policy(constraint)
        found = place(policy, candidates, 40, 2, Random(1))
        assert {group[0] for group in found.groups} == {1}
        assert {group[1] for group in found.groups} == beside
        assert (found.copies, found.adhering.not_strict) == (2, 0)
        ring = map_ring(policy, candidates, 2, Random(1))
        assert (ring.copies, len(ring.workers), 1 in ring.workers) == (2, 2, True)


def test_regions_that_take_nothing_are_left_out() -> None:
    """A refused region gets nothing, nor one that is not among those to write to; durability over regions is kept."""
    members = [Member(n, f"h{n}", f"/{region}/r") for n, region in enumerate("aabbcc", 1)]
    refused = Policy("regionaware", regions=Regions(refused=frozenset("b")))
    assert {one for group in place(refused, Candidates(members), 20, 2, Random(1)).groups for one in group} == {
        1,
        2,
        5,
        6,
    }
    listed = Policy("regionaware", regions=Regions(write_to=("a", "b"), durable=2))
    assert {one for group in place(listed, Candidates(members), 20, 2, Random(1)).groups for one in group} == {
        1,
        2,
        3,
        4,
    }
    with pytest.raises(NotEnoughError, match="2 regions are wanted"):
        place(listed, Candidates(members[:2]), 1, 2, Random(1))
    with pytest.raises(NotEnoughError, match="regions that take nothing new"):
        place(refused, Candidates(members[2:4]), 1, 1, Random(1))


def test_primaries_are_in_the_local_region_if_wished() -> None:
    """With a local region its workers are the primaries, wherever it is one of the two."""
    members = [Member(n, f"h{n}", f"/{region}/r") for n, region in enumerate("aabb", 1)]
    found = place(Policy("regionaware", regions=Regions(local="b")), Candidates(members), 20, 2, Random(1))
    assert {group[0] for group in found.groups} == {3, 4}


def test_weights_are_free_bytes_with_a_cap() -> None:
    """50, 100, 100, 200 and 500 free bytes with a multiple of 4 are 50:100:100:200:400 (the example of the reference);
    one that was not heard yet counts as the smallest."""
    members = [Member(n, f"h{n}") for n in range(6)]
    disks = {n: [DirectoryLoad(free, 0, 0)] for n, free in enumerate((50, 100, 100, 200, 500))}
    policy = Policy(order="weighted", multiple=4)
    assert shares(policy, members[:5], disks) == pytest.approx([part / 850 for part in (50, 100, 100, 200, 400)])
    assert shares(policy, members, disks)[5] == pytest.approx(shares(policy, members, disks)[0])


def test_faster_disks_take_more_by_a_gradient() -> None:
    """Ten disks in five groups of two: each group takes 1.1 times what the next one takes; equal disks are alike."""
    policy = Policy(order="loadaware")
    found = gradient_shares(policy, [[DirectoryLoad(1, 0, 100 * n)] for n in range(10)])
    assert [found[n] / found[n + 2] for n in range(8)] == pytest.approx([1.1] * 8)
    assert found[0] == pytest.approx(found[1])
    assert gradient_shares(policy, [[DirectoryLoad(1, n, 7)] for n in range(10)]) == pytest.approx([0.1] * 10)
    # A worker with two disks has two parts; one that was not heard has one.
    assert gradient_shares(policy, [[DirectoryLoad(1, 0, 7)] * 2, [DirectoryLoad(1, 0, 7)]]) == pytest.approx(
        [2 / 3, 1 / 3]
    )
    assert sum(gradient_shares(policy, [[], [DirectoryLoad(1, 0, 5)]])) == pytest.approx(1)


def test_load_decides_how_much_each_gets() -> None:
    """Of a thousand partitions each worker has its share to the unit, and racks of pairs still differ."""
    members = [Member(n, f"h{n}", f"/x/r{n % 3}") for n in range(9)]
    disks = {n: [DirectoryLoad(1, 0, 100 * (n // 3))] for n in range(9)}
    policy = Policy(order="loadaware", groups=3, gradient=0.5)
    found = place(policy, Candidates(members, disks=disks), 1_000, 2, Random(3))
    held = Counter(one for group in found.groups for one in group)
    assert [held[n] / held[n + 3] for n in range(6)] == pytest.approx([1.5] * 6, rel=0.02)
    assert all(a % 3 != b % 3 for a, b in found.groups)
