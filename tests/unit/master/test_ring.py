"""Placement of MAP partitions: the ring and its copies."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.master.placement.members import Member
from holdfast.master.placement.policy import Candidates, Policy
from holdfast.master.placement.ring import RING_MAX, map_ring

hosts = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=24)
seeds = st.binary(min_size=8, max_size=8)


def candidates(names):
    return [Member(number, host) for number, host in enumerate(names)]


HOSTS = Policy("random")


def ring_of(members, copies: int, seed: bytes, policy: Policy = HOSTS):
    return map_ring(policy, Candidates(members), copies, Random(seed))


@given(hosts, seeds)
def test_neighbours_never_share_a_host(names: list[str], seed: bytes):
    """With two hosts or more, two copies always stand on different hosts, wherever a map starts in the ring."""
    ring = ring_of(candidates(names), 2, seed)
    if len(set(names)) < 2:
        assert ring.copies == 1
        return
    assert ring.copies == 2
    for place, number in enumerate(ring.workers):
        assert names[number] != names[ring.workers[(place + 1) % len(ring.workers)]]


@given(hosts, seeds)
def test_only_what_must_be_left_out_is(names: list[str], seed: bytes):
    """Everybody is in the ring, but for what the largest host has beyond all others together."""
    largest = max(Counter(names).values())
    rest = len(names) - largest
    wanted = len(names) if not rest else rest + min(largest, rest)
    assert len(set(ring_of(candidates(names), 2, seed).workers)) == wanted
    assert sorted(ring_of(candidates(names), 1, seed).workers) == list(range(len(names)))


@given(hosts, seeds)
def test_order_depends_on_seed_and_candidates_alone(names: list[str], seed: bytes):
    """The order in which candidates are given does not matter."""
    assert ring_of(candidates(names), 2, seed) == ring_of(candidates(names)[::-1], 2, seed)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("rst")), min_size=1, max_size=24), seeds)
def test_neighbours_are_on_different_racks_where_nobody_is_left_out_for_it(names: list[tuple[str, str]], seed: bytes):
    """Racks keep neighbours apart unless that made the ring shorter than hosts do; then hosts do, and that is told."""
    racks = dict(names)
    members = [Member(number, host, f"/a/{racks[host]}") for number, (host, _) in enumerate(names)]
    ring = ring_of(members, 2, seed, Policy())
    if len({one.host for one in members}) < 2:
        assert ring.copies == 1
        return
    assert len(ring.workers) == len(ring_of(members, 2, seed).workers)
    for place, number in enumerate(ring.workers):
        next_one = members[ring.workers[(place + 1) % len(ring.workers)]]
        assert members[number].host != next_one.host
        assert members[number].place != next_one.place or not ring.adheres or len({one.place for one in members}) == 1


@given(st.lists(st.sampled_from("abcdefg"), min_size=3, max_size=24), st.integers(3, 5), seeds)
def test_as_many_neighbours_as_copies_share_no_host(names: list[str], copies: int, seed: bytes):
    """Three copies and more: each file's copies are on different hosts, wherever it starts in the ring; where there are
    fewer hosts there are fewer copies, and that is told."""
    ring = ring_of(candidates(names), copies, seed)
    hosts = len(set(names))
    assert (ring.copies, ring.adheres) == (min(copies, hosts), hosts >= copies)
    length = len(ring.workers)
    assert length >= ring.copies
    for place in range(length):
        some = [names[ring.workers[(place + step) % length]] for step in range(ring.copies)]
        assert len(set(some)) == ring.copies


def test_three_copies_with_one_host_that_is_not_spared():
    """It has a copy of everything, and two of the spared hosts have the others."""
    ring = map_ring(HOSTS, Candidates(candidates("abcde")).sparing({1, 2, 3, 4}), 3, Random(1))
    assert (ring.copies, len(ring.workers), 0 in ring.workers) == (3, 3, True)


def test_shuffles_start_at_different_workers():
    """Over many seeds every worker stands first about equally often: few maps do not all meet on one."""
    first = Counter(ring_of(candidates("abcd"), 1, seed.to_bytes(8, "big")).workers[0] for seed in range(400))
    assert min(first.values()) > 60


def test_no_candidates_and_very_many():
    """Nobody gives an empty ring; the ring is bounded."""
    assert ring_of([], 2, b"seed").workers == ()
    assert len(ring_of([Member(n, str(n)) for n in range(RING_MAX + 10)], 2, b"seed").workers) == RING_MAX
