"""New places for partitions that move: who stays, who comes, and in which order wishes are given up."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.master.placement.groups import place
from holdfast.master.placement.members import Member, NotEnoughError
from holdfast.master.placement.policy import Candidates, Policy
from holdfast.master.placement.replace import Gone, Moving, repair, replace_all
from holdfast.master.placement.wishes import Adherence, Racks, Regions

NOBODY: frozenset[int] = frozenset()
#: three racks of three
RACKS = [Member(n, f"h{n}", f"/x/r{n // 3}") for n in range(9)]
PLACES = {one.worker: one.place for one in RACKS}


RACK_AWARE = Policy()


def replaced(rows, members=RACKS, policy=RACK_AWARE, copies=2, seed=1, **named):
    places = {one.worker: one.place for one in (*RACKS, *members)}
    candidates = Candidates(members, places=places.values())
    return replace_all(policy, candidates, rows, copies, Random(seed), gone=Gone(places=places, **named))


def moving_from(primary: int, replica: int | None, *victims: int) -> Moving:
    """A client says that these failed."""
    workers = (primary,) if replica is None else (primary, replica)
    return Moving(workers, frozenset(victims), frozenset(victims))


def test_the_healthy_copy_stays_and_the_victims_rack_is_first() -> None:
    """Worker 4 fails: every partition keeps its other copy in its part, and gets one of rack 1, both in turn."""
    rows = [moving_from(4, 0, 4), moving_from(8, 4, 4)] * 20
    found = replaced(rows)
    assert all(place[1] == 0 and place[0] in (3, 5) for place in found.groups[::2])
    assert all(place[0] == 8 and place[1] in (3, 5) for place in found.groups[1::2])
    held = Counter(one for place in found.groups for one in place if one in (3, 5))
    assert held[3] == held[5] == 20
    assert not found.adhering.not_strict


def test_a_rack_that_cannot_be_reached_is_not_gone_back_to() -> None:
    """Then it is another rack than that of the copy that stays."""
    found = replaced([moving_from(4, 0, 4)] * 30, unreachable={"/x/r1"})
    assert {PLACES[place[0]] for place in found.groups} == {"/x/r1", "/x/r2"}
    found = replaced([moving_from(4, 0, 4)] * 30, members=[one for one in RACKS if one.place != "/x/r1"])
    assert {PLACES[place[0]] for place in found.groups} == {"/x/r2"}


def test_racks_are_given_up_last_and_reported() -> None:
    """With nobody on another rack the copy goes to the same one, counted; under enforcement it goes nowhere."""
    same = RACKS[:3]
    found = replaced([moving_from(4, 0, 4)] * 3, members=same)
    assert {place[0] for place in found.groups} <= {1, 2}
    assert found.adhering.not_strict == 3
    with pytest.raises(NotEnoughError, match="of what worker 0 has"):
        replaced([moving_from(4, 0, 4)], members=same, policy=Policy(racks=Racks(enforced=True)))
    assert not replaced([moving_from(4, 0, 4)] * 3, members=same, policy=Policy("random")).adhering.not_strict


def test_regions_come_before_racks() -> None:
    """Over regions the copy goes to the victim's rack, else its region, and stays out of the region of the other."""
    members = [Member(n, f"h{n}", f"/{'ab'[n // 4]}/r{n // 2}") for n in range(8)]
    policy = Policy("regionaware", regions=Regions(durable=2))
    assert {place[0] for place in replaced([moving_from(4, 0, 4)] * 9, members, policy).groups} == {5}
    without = [one for one in members if one.worker not in (4, 5)]
    assert {place[0] for place in replaced([moving_from(4, 0, 4)] * 9, without, policy).groups} == {6, 7}
    with pytest.raises(NotEnoughError):
        replaced([moving_from(4, 0, 4)], members[:4], policy)
    loose = Policy("regionaware", regions=Regions(durable=2, enforced_in_replace=False))
    assert {place[0] for place in replaced([moving_from(4, 0, 4)] * 9, members[:4], loose).groups} == {2, 3}


def test_who_is_to_be_avoided_gets_it_only_where_nobody_else_can() -> None:
    """Two hosts: the failed worker gets its copy back, since one copy would be worse; with three it does not."""
    two = [Member(0, "a"), Member(1, "b")]
    assert replaced([moving_from(0, 1, 0)], two, Policy("random")).groups == [(0, 1)]
    three = [*two, Member(2, "c")]
    assert replaced([moving_from(0, 1, 0)], three, Policy("random")).groups == [(2, 1)]


def test_who_is_to_be_avoided_comes_after_everybody_on_the_rack_of_the_copy_that_stays() -> None:
    """Two hosts of rack A and one of rack B that a client cannot use: the copy goes to the same rack, since one on B
    would be refused again; where racks are enforced it goes to B, since there is nobody else."""
    members = [Member(1, "a1", "/x/A"), Member(2, "a2", "/x/A"), Member(3, "b1", "/x/B")]
    found = replaced([moving_from(1, 3, 3)] * 4, members)
    assert (found.groups, found.adhering.failed) == ([(1, 2)] * 4, 4)
    assert replaced([moving_from(1, 3, 3)], members, Policy(racks=Racks(enforced=True))).groups == [(1, 3)]
    holds = Policy(racks=Racks(enforced=True), avoid_holds=True)
    with pytest.raises(NotEnoughError, match="of what worker 1 has"):
        replaced([moving_from(1, 3, 3)], members, holds)


def test_of_those_to_be_avoided_the_spared_ones_come_last() -> None:
    """A client cannot use two workers, one of which flaps, and there is nobody else: it gets the one that does not."""
    members = [Member(1, "a"), Member(2, "b")]
    candidates = Candidates(members, [Member(3, "c")])
    row = Moving((1, 9), frozenset({9}), frozenset({2, 3}))
    for seed in range(9):
        assert replace_all(Policy("random"), candidates, [row], 2, Random(seed), gone=Gone(places={})).groups == [
            (1, 2)
        ]


def test_groups_that_no_longer_adhere_are_repaired_with_as_few_new_members_as_can_be() -> None:
    """Two copies on one rack: one of them goes elsewhere; what is missing is added; what is as wished stays, as does
    what nobody can help."""
    candidates = Candidates(RACKS)
    groups = [(0, 1), (0, 3), (0,), (0, 9)]
    places = {**PLACES, 9: "/x/r0"}
    found = repair(RACK_AWARE, candidates, groups, 2, Random(1), gone=Gone(places=places))
    assert found.keys() == {0, 2, 3}
    for number, (group, how) in found.items():
        assert how is Adherence.STRICT
        assert len(set(group) & set(groups[number])) == 1
        assert len({PLACES[one] for one in group}) == 2
    alone = Candidates(RACKS[:3], places=PLACES.values())
    assert repair(RACK_AWARE, alone, groups[:1], 2, Random(1), gone=Gone(places=PLACES)) == {}
    three = repair(Policy(racks=Racks(3)), candidates, [(0, 1, 2), (0, 3, 4)], 3, Random(1), gone=Gone(places=PLACES))
    assert {how for _, how in three.values()} == {Adherence.STRICT}
    assert len({0, 3, 4} & set(three[1][0])) == 2


def test_exclusions_may_hold() -> None:
    """With avoid_holds a worker that is to be avoided gets nothing: there is one copy, or no room."""
    two = [Member(0, "a"), Member(1, "b")]
    holds = Policy("random", avoid_holds=True)
    assert replaced([moving_from(0, 1, 0)], two, holds).groups == [(1,)]
    with pytest.raises(NotEnoughError, match="avoid_holds"):
        replaced([moving_from(0, 1, 0, 1)], two, holds)
    with pytest.raises(NotEnoughError, match="avoid_holds"):
        replaced([moving_from(0, None, 0)], two[:1], holds, copies=1)


@pytest.mark.parametrize("policy", [RACK_AWARE, Policy("regionaware"), Policy("random")], ids=str)
def test_new_and_moved_partitions_give_up_the_same_things_in_the_same_order(policy: Policy) -> None:
    """Workers that are to be spared come in after racks are given up, whether a partition is new or a copy of it is
    replaced; and before there is one copy."""
    members = [Member(1, "a1", "/x/A"), Member(2, "a2", "/x/A")]
    spared = Candidates(members, [Member(3, "b1", "/x/B")])
    assert {frozenset(group) for group in place(policy, spared, 9, 2, Random(1)).groups} == {frozenset({1, 2})}
    moved = replace_all(policy, spared, [moving_from(1, 9, 9)], 2, Random(1), gone=Gone(places={9: "/x/B"}))
    assert moved.groups == [(1, 2)]
    alone = Candidates(members[:1], [Member(3, "b1", "/x/B")])
    assert {frozenset(group) for group in place(policy, alone, 9, 2, Random(1)).groups} == {frozenset({1, 3})}
    assert replace_all(policy, alone, [moving_from(1, 9, 9)], 2, Random(1), gone=Gone(places={})).groups == [(1, 3)]


def test_of_three_copies_two_may_be_replaced() -> None:
    """Those that stay keep their parts, both new ones come from the racks of the victims, and what is missing is added;
    of a rack that cannot be reached another one comes."""
    row = Moving((0, 3, 6), frozenset({3, 6}), frozenset({3, 6}))
    for group in replaced([row] * 12, copies=3).groups:
        assert group[0] == 0
        assert (group[1] in (4, 5), group[2] in (7, 8)) == (True, True)
    short = Moving((0, 3), frozenset({3}), frozenset())
    for group in replaced([short] * 12, copies=3, unreachable={"/x/r1"}).groups:
        assert [PLACES[one] for one in group[:1]] == ["/x/r0"]
        assert len({PLACES[one] for one in group}) == 3


def test_what_moves_is_spread_by_shares_whoever_it_stays_with() -> None:
    """A hundred partitions of a lost worker, each with its other copy elsewhere: nobody takes two more than another."""
    members = [Member(n, f"h{n}", f"/x/r{n % 10}") for n in range(200)]
    rows = [Moving((500, n), frozenset({500}), frozenset()) for n in range(100)]
    held = Counter(group[0] for group in replaced(rows, members).groups)
    assert max(held.values()) == 1
    rack = Counter(members[one].place for one in held)
    assert max(rack.values()) - min(rack.values()) <= 4


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_every_row_gets_a_place_that_holds(seed: int) -> None:
    """Clusters of few racks and hosts, where wishes contradict one another, and 1 to 4 copies: as many copies as there
    are hosts, on different ones; nobody to avoid unless there are not enough hosts without; whoever can stay does."""
    draw = Random(seed)
    for _ in range(250):
        hosts = draw.randint(1, 6)
        members = [
            Member(n, f"h{n % hosts}", f"/g{n % hosts % 2}/r{n % hosts % draw.choice([3, 3])}")
            for n in range(hosts * draw.randint(1, 2))
        ]
        spared = {one.worker for one in members if draw.random() < 0.2}
        candidates = Candidates(members).sparing(spared)
        copies = draw.randint(1, 4)
        policy = Policy(draw.choice(["random", "rackaware", "regionaware"]), racks=Racks(draw.randint(1, 3)))
        known = {one.worker: one for one in members}
        rows = []
        for _ in range(draw.randint(1, 6)):
            before = draw.sample(range(12), draw.randint(1, copies))
            leaves = frozenset(one for one in range(12) if draw.random() < 0.3)
            if len({known[one].host for one in before if one in known}) == len([one for one in before if one in known]):
                rows.append(Moving(tuple(before), leaves, leaves))
        found = replace_all(policy, candidates, rows, copies, draw, gone=Gone(places={}))
        for row, group in zip(rows, found.groups, strict=True):
            assert len({known[one].host for one in group}) == len(group) == min(copies, hosts)
            stay = [one for one in row.workers if one in known and one not in row.leaves]
            without = {one.host for one in members if one.worker not in row.avoid}
            if copies > 1:
                assert set(stay) <= set(group)
                without -= {known[one].host for one in stay}
            news = [one for one in group if one not in stay or copies == 1]
            avoided = [one for one in news if one in row.avoid]
            assert len(avoided) <= max(len(news) - len(without), 0)


def test_a_copy_that_is_alone_learns_it() -> None:
    """Where nobody else is left the copy that stays is the primary, and the only one."""
    assert replaced([moving_from(0, 1, 0)], [Member(1, "b")], Policy("random")).groups == [(1,)]
    assert replaced([moving_from(1, 0, 0)], [Member(1, "b")], Policy("random")).groups == [(1,)]


def test_one_copy_goes_anywhere() -> None:
    """A partition with one copy has no rack to keep: it is spread over all that are not avoided."""
    found = replaced([moving_from(4, None, 4)] * 80, copies=1)
    held = Counter(place[0] for place in found.groups)
    assert held.keys() == set(range(9)) - {4}
    assert set(held.values()) == {10}
    assert {len(place) for place in found.groups} == {1}


def test_who_is_avoided_by_one_row_alone_is_avoided_as_by_all() -> None:
    """What all rows avoid is one set; each may avoid others besides."""
    everybody = frozenset({0, 1, 2, 3})
    for copies in (1, 2):
        rows = [Moving((one, 8)[:copies], frozenset({one}), everybody, frozenset({one})) for one in (4, 5, 6) * 8]
        found = replaced(rows, copies=copies)
        for row, group in zip(rows, found.groups, strict=True):
            assert not row.avoided & {*group}
            assert len(group) == copies


def test_a_second_copy_comes_back() -> None:
    """Wanted are two copies, one was placed: the next epoch has two again where it can."""
    found = replaced([moving_from(4, None, 4)] * 8)
    assert all(len(place) == 2 and 4 not in place for place in found.groups)


def test_nobody_is_nowhere() -> None:
    """Without candidates there are no places."""
    assert replaced([moving_from(0, 1, 0)], []).groups == []


@given(
    st.lists(st.sampled_from(RACKS), unique=True, min_size=1),
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 8), st.frozensets(st.integers(0, 8), max_size=4)), max_size=12
    ),
    st.integers(1, 2),
    st.sampled_from(["random", "rackaware", "regionaware"]),
    st.randoms(use_true_random=False),
)
def test_every_row_gets_a_place_that_holds(members, rows, copies, constraint, draw) -> None:
    """Whoever is there and avoided: each partition has a place, its copies are on two hosts or it has one where there
    is one host, and a worker that leaves keeps nothing unless nobody else could have it."""
    moving = [Moving((one, two), leaves, leaves) for one, two, leaves in rows if one != two]
    found = replace_all(Policy(constraint), Candidates(members), moving, copies, draw, gone=Gone(places=PLACES))
    assert len(found.groups) == len(moving)
    workers = {one.worker for one in members}
    for row, group in zip(moving, found.groups, strict=True):
        assert set(group) <= workers
        assert len(group) == len(set(group)) == min(copies, len(workers))
        for one in group:
            if one in row.leaves:
                assert len(workers - row.avoid) < copies
