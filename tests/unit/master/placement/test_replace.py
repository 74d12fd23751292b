"""New places for partitions that move: who stays, who comes, and in which order wishes are given up."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.ids import NO_WORKER
from holdfast.master.placement.assign import CopyPlace
from holdfast.master.placement.members import Member, NotEnoughError
from holdfast.master.placement.policy import Candidates, Policy
from holdfast.master.placement.racks import Racks
from holdfast.master.placement.regions import Regions
from holdfast.master.placement.replace import Moving, replace_all

NOBODY: frozenset[int] = frozenset()
#: three racks of three
RACKS = [Member(n, f"h{n}", f"/x/r{n // 3}") for n in range(9)]
PLACES = {one.worker: one.place for one in RACKS}


RACK_AWARE = Policy()


def replaced(rows, members=RACKS, policy=RACK_AWARE, copies=2, seed=1, **named):
    places = {one.worker: one.place for one in (*RACKS, *members)}
    candidates = Candidates(members, places=places.values())
    return replace_all(policy, candidates, rows, copies, Random(seed), places=places, **named)


def moving_from(primary: int, replica: int, *victims: int) -> Moving:
    """A client says that these failed."""
    return Moving(primary, replica, frozenset(victims), frozenset(victims))


def test_the_healthy_copy_stays_and_the_victims_rack_is_first() -> None:
    """Worker 4 fails: every partition keeps its other copy in its part, and gets one of rack 1, both in turn."""
    rows = [moving_from(4, 0, 4), moving_from(8, 4, 4)] * 20
    found = replaced(rows)
    assert all(place.replica == 0 and place.primary in (3, 5) for place in found.places[::2])
    assert all(place.primary == 8 and place.replica in (3, 5) for place in found.places[1::2])
    held = Counter(one for place in found.places for one in place if one in (3, 5))
    assert held[3] == held[5] == 20
    assert not found.not_adhering


def test_a_rack_that_cannot_be_reached_is_not_gone_back_to() -> None:
    """Then it is another rack than that of the copy that stays."""
    found = replaced([moving_from(4, 0, 4)] * 30, unreachable={"/x/r1"})
    assert {PLACES[place.primary] for place in found.places} == {"/x/r1", "/x/r2"}
    found = replaced([moving_from(4, 0, 4)] * 30, members=[one for one in RACKS if one.place != "/x/r1"])
    assert {PLACES[place.primary] for place in found.places} == {"/x/r2"}


def test_racks_are_given_up_last_and_reported() -> None:
    """With nobody on another rack the copy goes to the same one, counted; under enforcement it goes nowhere."""
    same = RACKS[:3]
    found = replaced([moving_from(4, 0, 4)] * 3, members=same)
    assert {place.primary for place in found.places} <= {1, 2}
    assert found.not_adhering == 3
    with pytest.raises(NotEnoughError, match="copy of worker 0"):
        replaced([moving_from(4, 0, 4)], members=same, policy=Policy(racks=Racks(enforced=True)))
    assert not replaced([moving_from(4, 0, 4)] * 3, members=same, policy=Policy("random")).not_adhering


def test_regions_come_before_racks() -> None:
    """Over regions the copy goes to the victim's rack, else its region, and stays out of the region of the other."""
    members = [Member(n, f"h{n}", f"/{'ab'[n // 4]}/r{n // 2}") for n in range(8)]
    policy = Policy("regionaware", regions=Regions(durable=2))
    assert {place.primary for place in replaced([moving_from(4, 0, 4)] * 9, members, policy).places} == {5}
    without = [one for one in members if one.worker not in (4, 5)]
    assert {place.primary for place in replaced([moving_from(4, 0, 4)] * 9, without, policy).places} == {6, 7}
    with pytest.raises(NotEnoughError):
        replaced([moving_from(4, 0, 4)], members[:4], policy)
    loose = Policy("regionaware", regions=Regions(durable=2, enforced_in_replace=False))
    assert {place.primary for place in replaced([moving_from(4, 0, 4)] * 9, members[:4], loose).places} == {2, 3}


def test_who_is_to_be_avoided_gets_it_only_where_nobody_else_can() -> None:
    """Two hosts: the failed worker gets its copy back, since one copy would be worse; with three it does not."""
    two = [Member(0, "a"), Member(1, "b")]
    assert replaced([moving_from(0, 1, 0)], two, Policy("random")).places == [CopyPlace(0, 1)]
    three = [*two, Member(2, "c")]
    assert replaced([moving_from(0, 1, 0)], three, Policy("random")).places == [CopyPlace(2, 1)]


def test_a_copy_that_is_alone_learns_it() -> None:
    """Where nobody else is left the copy that stays is the primary, and the only one."""
    assert replaced([moving_from(0, 1, 0)], [Member(1, "b")], Policy("random")).places == [CopyPlace(1, NO_WORKER)]
    assert replaced([moving_from(1, 0, 0)], [Member(1, "b")], Policy("random")).places == [CopyPlace(1, NO_WORKER)]


def test_one_copy_goes_anywhere() -> None:
    """A partition with one copy has no rack to keep: it is spread over all that are not avoided."""
    found = replaced([moving_from(4, NO_WORKER, 4)] * 80, copies=1)
    held = Counter(place.primary for place in found.places)
    assert held.keys() == set(range(9)) - {4}
    assert set(held.values()) == {10}
    assert {place.replica for place in found.places} == {NO_WORKER}


def test_a_second_copy_comes_back() -> None:
    """Wanted are two copies, one was placed: the next epoch has two again where it can."""
    found = replaced([moving_from(4, NO_WORKER, 4)] * 8)
    assert all(NO_WORKER not in place and 4 not in place for place in found.places)


def test_nobody_is_nowhere() -> None:
    """Without candidates there are no places."""
    assert replaced([moving_from(0, 1, 0)], []).places == []


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
    moving = [Moving(one, two, leaves, leaves) for one, two, leaves in rows if one != two]
    found = replace_all(Policy(constraint), Candidates(members), moving, copies, draw, places=PLACES)
    assert len(found.places) == len(moving)
    workers = {one.worker for one in members}
    for row, (primary, replica) in zip(moving, found.places, strict=True):
        assert primary in workers
        if copies == 1:
            assert replica == NO_WORKER
        else:
            assert (replica in workers - {primary}) if len(workers) > 1 else (replica == NO_WORKER)
        for one in (primary, replica):
            if one in row.leaves:
                assert len(workers - row.avoid) < copies
