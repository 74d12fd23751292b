"""Places for a whole shuffle: shares to the unit, copies apart, and what a worker has spread over many others."""

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.ids import NO_WORKER
from holdfast.master.placement.assign import apportion, assign_pairs, assign_single, cut_to_half, interleave
from holdfast.master.placement.members import capped


def draw(seed: int = 7) -> random.Random:
    """By this seed."""
    return random.Random(seed)


@given(st.integers(0, 1_000), st.lists(st.integers(0, 100), min_size=1, max_size=9).filter(any))
def test_whole_numbers_as_near_to_the_shares_as_can_be(total: int, weights: list[int]) -> None:
    """They add up, and none is a whole one off."""
    shares = [weight / sum(weights) for weight in weights]
    found = apportion(total, shares)
    assert sum(found) == total
    assert all(abs(one - total * share) < 1 + 1e-9 for one, share in zip(found, shares, strict=True))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_turns_are_even(counts: list[int]) -> None:
    """Each number as often as it should, and in any half of the list about half of its turns."""
    found = interleave(counts)
    assert Counter(found) == {number: count for number, count in enumerate(counts) if count}
    half = Counter(found[: len(found) // 2])
    assert all(abs(half[number] - count / 2) <= 1.5 for number, count in enumerate(counts))


def test_no_domain_has_more_than_half() -> None:
    """The largest is cut to what the others have together, and these keep their proportions."""
    assert cut_to_half({"a": 3, "b": 2, "c": 1}) == {"a": 0.5, "b": 1 / 3, "c": 1 / 6}
    assert cut_to_half({"a": 8, "b": 3, "c": 1}) == {"a": 0.5, "b": 0.375, "c": 0.125}


@given(st.data())
def test_pairs_are_always_apart(data: st.DataObject) -> None:
    """Any domains, any weights, any number of partitions: two workers in two domains each, and each domain at most its
    part."""
    domains = data.draw(
        st.lists(st.sampled_from("abcd"), min_size=2, max_size=12).filter(lambda found: len(set(found)) > 1)
    )
    weights = data.draw(st.lists(st.integers(1, 50), min_size=len(domains), max_size=len(domains)))
    count = data.draw(st.integers(0, 200))
    workers = list(range(1, len(domains) + 1))
    places = assign_pairs(count, workers, domains, [weight / sum(weights) for weight in weights], draw())
    assert len(places) == count
    assert all(domains[one - 1] != domains[two - 1] for one, two in places)


@pytest.mark.parametrize("racks", [2, 3, 50])
def test_equal_workers_are_equally_full(racks: int) -> None:
    """10^5 partitions with replicas over 1,500 workers: the fullest has at most 1.05 times the mean, as primary and in
    all, whatever the seed."""
    workers = list(range(1, 1_501))
    for seed in range(3):
        domains = [f"/r/{worker % racks}" for worker in workers]
        places = assign_pairs(100_000, workers, domains, [1 / 1_500] * 1_500, draw(seed))
        both = Counter(worker for place in places for worker in place)
        assert max(both.values()) <= 1.05 * 200_000 / 1_500
        assert min(both.values()) >= 0.95 * 200_000 / 1_500


def test_weighted_workers_have_their_shares() -> None:
    """Shares within 2 % of the capped weights."""
    weights = [draw(number).choice([0, 50, 100, 200, 5_000]) for number in range(200)]
    shares = capped(weights, 3)
    workers = list(range(1, 201))
    places = assign_pairs(100_000, workers, [f"/r/{worker % 10}" for worker in workers], shares, draw())
    both = Counter(worker for place in places for worker in place)
    for worker, share in zip(workers, shares, strict=True):
        assert both[worker] / 200_000 == pytest.approx(share, rel=0.02)
    single = Counter(place.primary for place in assign_single(100_000, workers, shares, draw()))
    for worker, share in zip(workers, shares, strict=True):
        assert single[worker] / 100_000 == pytest.approx(share, rel=0.02)


def test_what_a_worker_has_is_spread_over_many_when_it_is_lost() -> None:
    """Each worker's peers are many, and none has more than a few of them; and primaries are half of what it has."""
    workers = list(range(1, 61))
    places = assign_pairs(6_000, workers, [f"/r/{worker % 3}" for worker in workers], [1 / 60] * 60, draw())
    peers: dict[int, Counter[int]] = defaultdict(Counter)
    primaries = Counter(place.primary for place in places)
    for one, two in places:
        peers[one][two] += 1
        peers[two][one] += 1
    for worker in workers:
        assert len(peers[worker]) >= 16
        assert primaries[worker] == pytest.approx(100, abs=35)


def test_one_copy_has_no_replica() -> None:
    """And neighbours in number are on different workers."""
    places = assign_single(100, [7, 8, 9], [1 / 3] * 3, draw())
    assert {place.replica for place in places} == {NO_WORKER}
    assert all(one.primary != two.primary for one, two in pairwise(places))
