"""Workers that flap, and workers with many errors (placement reference, 2.1, 2.9 and 2.10)."""

import random

from holdfast.master.placement.stabiliser import Changed, Flapping, Quarantine, Stabiliser

S = 10**9


def test_full_sets_answer_who_joined_left_and_is_dead() -> None:
    """Dead is who is in neither set; who only serves is not dead; an empty set is a set like any other (B4)."""
    known = Stabiliser()
    assert known.update({1, 2, 3}, (), 0) == Changed(frozenset({1, 2, 3}), frozenset(), frozenset())
    assert known.update({1, 2}, {3}, 1) == Changed(frozenset(), frozenset({3}), frozenset())
    assert known.read_only == {3}
    assert known.update({1}, set(), 2) == Changed(frozenset(), frozenset({2}), frozenset({2}))
    assert known.read_only == frozenset()


def test_who_left_is_kept_in_reserve_and_reported_when_its_grace_is_over() -> None:
    """During the grace nobody is dead; afterwards it is, once."""
    known = Stabiliser(period_ns=5 * S)
    known.update({1, 2}, (), 0)
    assert known.update({1}, (), 10 * S).dead == frozenset()
    assert known.reserve == {2}
    assert known.expired(14 * S) == frozenset()
    assert known.update({1}, (), 15 * S).dead == {2}
    assert known.reserve == frozenset()
    assert known.expired(99 * S) == frozenset()


def test_who_flaps_faster_than_the_period_never_dies() -> None:
    """It is back before its grace is over, again and again; another look while it is away extends nothing."""
    known = Stabiliser(period_ns=5 * S)
    known.update({1}, (), 0)
    for second in range(1, 60, 4):
        assert known.update((), (), second * S).dead == frozenset()
        assert known.update((), (), (second + 1) * S).dead == frozenset()
        assert known.update({1}, (), (second + 2) * S).dead == frozenset()
    known.update((), (), 100 * S)
    known.update((), (), 104 * S)
    assert known.expired(105 * S) == {1}


def test_many_errors_in_one_interval_hold_a_worker_back_for_a_while() -> None:
    """100 in a minute, not 99, and not 200 over four minutes; for half an hour, and off by default."""
    draw = random.Random(1)
    assert Quarantine().tick(10**15, draw) == frozenset()
    held = Quarantine(errors_max=100)
    held.failed([1] * 100 + [2] * 99)
    assert held.tick(60 * S, draw) == {1}
    for minute in range(2, 6):
        held.failed([3] * 50)
        assert held.tick(minute * 60 * S, draw) == {1}
    assert held.tick(60 * S + 1_799 * S, draw) == {1}
    assert held.tick(60 * S + 1_800 * S, draw) == frozenset()


def test_only_a_share_of_them_if_so_wished() -> None:
    """A ratio of 0.5 holds back about half of those who are over the bound, so that not all are gone at once."""
    held = Quarantine(errors_max=1, ratio=0.5)
    held.failed(range(1_000))
    assert 400 < len(held.tick(60 * S, random.Random(1))) < 600


def test_a_worker_that_starts_again_and_again_is_flapping_until_it_stays() -> None:
    """Three starts within the window are flapping; two are not; a window later without a start it is over."""
    flapping = Flapping(starts_max=3, window_ns=60)
    for now in (0, 10):
        flapping.started(1, now)
    flapping.started(2, 15)
    assert flapping.look(20) == set()
    flapping.started(1, 30)
    assert flapping.look(31) == {1}
    for now in range(40, 4_000, 10):
        flapping.started(1, now)
    assert flapping.look(4_000) == {1}
    assert flapping.look(4_049) == {1}
    assert flapping.look(4_060) == set()
    # Slow restarts are none.
    for now in (5_000, 5_040, 5_080, 5_120):
        flapping.started(3, now)
        assert flapping.look(now) == set()
