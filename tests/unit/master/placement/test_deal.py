"""Groups dealt for a whole shuffle: shares to the unit, members apart, and what a worker has over many others."""

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.master.placement.deal import Levels, Part, deal, fill, interleave
from holdfast.master.placement.members import Member, capped

HOSTS = Levels((Member.host_of,))
RACKS = Levels((Member.place_of, Member.host_of))
REGIONS = Levels((Member.region_of, Member.place_of, Member.host_of))


def draw(seed: int = 7) -> random.Random:
    """By this seed."""
    return random.Random(seed)


def cluster(workers: int, racks: int, per_host: int = 1, regions: int = 1) -> list[Member]:
    """Workers of hosts of racks of regions, all in turn."""
    hosts = [number // per_host for number in range(workers)]
    return [Member(number, f"h{host}", f"/g{host % regions}/r{host % racks}") for number, host in enumerate(hosts, 1)]


def dealt(members: list[Member], count: int, copies: int, levels: Levels = RACKS, weights=None, seed: int = 7):
    """Groups by equal shares, or these."""
    parts = weights or [1 / len(members)] * len(members)
    return deal([Part(members, parts, copies)], count, levels, draw(seed))


@given(st.data())
def test_whole_numbers_by_weight_within_their_bounds(data: st.DataObject) -> None:
    """They add up, none is beyond its bounds, and those that met none are as their weights are."""
    size = data.draw(st.integers(1, 8))
    weights = data.draw(st.lists(st.floats(0.01, 100), min_size=size, max_size=size))
    lowest = data.draw(st.lists(st.integers(0, 1_000), min_size=size, max_size=size))
    highest = [low + data.draw(st.integers(0, 1_000)) for low in lowest]
    total = data.draw(st.integers(sum(lowest), sum(highest)))
    found = fill(total, weights, lowest, highest)
    assert sum(found) == total
    assert all(low <= one <= high for low, one, high in zip(lowest, found, highest, strict=True))
    free = [at for at, one in enumerate(found) if lowest[at] + size < one < highest[at] - size]
    for one, two in pairwise(free):
        assert found[one] / weights[one] == pytest.approx(
            found[two] / weights[two], abs=2 * size / min(weights[one], weights[two])
        )


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_turns_are_even(counts: list[int]) -> None:
    """Each number as often as it should, and in any half of the list about half of its turns."""
    found = interleave(counts)
    assert Counter(found) == {number: count for number, count in enumerate(counts) if count}
    half = Counter(found[: len(found) // 2])
    assert all(abs(half[number] - count / 2) <= 1.5 for number, count in enumerate(counts))


@given(st.data())
def test_members_are_apart_and_evenly_spread_at_every_level(data: st.DataObject) -> None:
    """Any cluster, any weights, any number of groups and copies: no group has a host twice; of each group every rack,
    and every region, has as much as any other but one, as far as it has hosts."""
    hosts = data.draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=12))
    members = [
        Member(len(hosts) * number + at, f"h{at}", f"/{region}/{rack}")
        for at, (region, rack) in enumerate(hosts)
        for number in range(data.draw(st.integers(1, 2)))
    ]
    copies = data.draw(st.integers(1, len(hosts)))
    weights = data.draw(st.lists(st.integers(1, 50), min_size=len(members), max_size=len(members)))
    count = data.draw(st.integers(0, 60))
    levels = data.draw(st.sampled_from([HOSTS, RACKS, REGIONS]))
    known = {one.worker: one for one in members}
    groups = dealt(members, count, copies, levels, [weight / sum(weights) for weight in weights])
    assert len(groups) == count
    for group in groups:
        found = [known[one] for one in group]
        assert len({one.host for one in found}) == copies == len(group)
        for domain_of in levels.of[:1]:
            room = Counter(domain_of(one) for one in {one.host: one for one in members}.values())
            has = Counter(domain_of(one) for one in found)
            for one in room:
                assert has[one] == room[one] or has[one] >= max(has[other] for other in room) - 1


@pytest.mark.parametrize("copies", [1, 2, 3, 5])
@pytest.mark.parametrize("racks", [1, 3, 50])
def test_equal_workers_are_equally_full(racks: int, copies: int) -> None:
    """Any number of copies over 1,500 workers: none has a copy more than another, whatever the seed."""
    members = cluster(1_500, racks)
    for seed in range(2):
        both = Counter(worker for group in dealt(members, 20_000, copies, seed=seed) for worker in group)
        assert max(both.values()) - min(both.values()) <= 1


def test_weighted_workers_have_their_shares() -> None:
    """To the unit, with one copy and with three."""
    weights = [draw(number).choice([0, 50, 100, 200, 5_000]) for number in range(200)]
    shares = capped(weights, 3)
    for copies in (1, 3):
        held = Counter(one for group in dealt(cluster(200, 10), 10_000, copies, weights=shares) for one in group)
        for worker, share in enumerate(shares, 1):
            assert abs(held[worker] - copies * 10_000 * share) <= 1


@pytest.mark.parametrize(("count", "copies"), [(7, 1), (24, 1), (9, 3), (50, 2)])
def test_few_partitions_are_spread_over_hosts_before_workers(count: int, copies: int) -> None:
    """Thirty hosts of eight workers: each host has as many copies as any other but one, and none of its workers a
    second one before all have one."""
    members = cluster(240, 5, per_host=8)
    host = {one.worker: one.host for one in members}
    for seed in range(20):
        held = Counter(one for group in dealt(members, count, copies, seed=seed) for one in group)
        hosts = Counter(host[one] for one in held.elements())
        assert max(hosts.values()) <= -(-count * copies // 30)
        assert max(held.values()) == 1


def test_over_many_small_shuffles_nobody_is_forgotten() -> None:
    """Shuffles of one partition: small racks have their part of them, too."""
    members = [*cluster(9, 1), Member(10, "far", "/g0/far")]
    held = Counter(one for seed in range(2_000) for group in dealt(members, 1, 1, seed=seed) for one in group)
    assert all(120 < held[one.worker] < 280 for one in members)


@pytest.mark.parametrize("levels", [HOSTS, RACKS])
def test_what_a_worker_has_is_spread_over_many_when_it_is_lost(levels: Levels) -> None:
    """Each worker's peers are many, and primaries are half of what it has; with racks or with hosts alone."""
    members = cluster(60, 3)
    peers: dict[int, Counter[int]] = defaultdict(Counter)
    groups = dealt(members, 6_000, 2, levels)
    primaries = Counter(group[0] for group in groups)
    for one, two in groups:
        peers[one][two] += 1
        peers[two][one] += 1
    for member in members:
        assert len(peers[member.worker]) >= 16
        assert primaries[member.worker] == pytest.approx(100, abs=35)


def test_neighbours_in_number_are_on_different_workers() -> None:
    """With one copy, so that a task that writes to few partitions meets many workers."""
    assert all(one != two for one, two in pairwise(dealt(cluster(3, 1), 100, 1)))


def test_regions_may_have_equal_parts() -> None:
    """Fifteen copies over three regions are five in each (the example of DistributedLog); with fewer copies than
    regions every region has the same in all, however many workers it has, and else what its workers are."""
    members = [Member(n, f"h{n}", f"/{'abc'[min(n // 20, 2)]}/r{n % 5}") for n in range(50)]
    region = {one.worker: one.region_of() for one in members}
    for group in dealt(members, 40, 15, REGIONS):
        assert Counter(map(region.__getitem__, group)) == {"a": 5, "b": 5, "c": 5}
    for equal, parts in ((True, {"a": 200, "b": 200, "c": 200}), (False, {"a": 240, "b": 240, "c": 120})):
        groups = dealt(members, 300, 2, REGIONS._replace(equal=equal))
        assert Counter(region[one] for group in groups for one in group) == parts
