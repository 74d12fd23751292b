"""Placement of REDUCE partitions: even, hosts apart, avoiding what is to be avoided."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.ids import NO_WORKER
from holdfast.master.placement.ring import Candidate
from holdfast.master.placement.spread import spread

clusters = st.lists(st.integers(1, 5), min_size=1, max_size=6).map(
    lambda sizes: [
        Candidate(100 * host + number, f"host{host}") for host, size in enumerate(sizes) for number in range(size)
    ]
)
seeds = st.binary(min_size=8, max_size=8)
copies = st.integers(1, 2)


def host_of(candidates: list[Candidate]) -> dict[int, str]:
    return {candidate.worker: candidate.host for candidate in candidates}


@given(clusters, st.integers(1, 60), copies, seeds)
def test_primaries_are_even_and_copies_apart(candidates: list[Candidate], partitions: int, wanted: int, seed: bytes):
    """Counts of primaries differ by at most one; two copies never share a host; one copy only where one host is."""
    places = spread([()] * partitions, candidates, wanted, seed)
    hosts = host_of(candidates)
    counts = Counter(place.primary for place in places)
    assert len(places) == partitions
    assert max(counts.values()) - min([counts[worker] for worker in hosts]) <= 1
    for primary, replica in places:
        if wanted == 1 or len(set(hosts.values())) == 1:
            assert replica == NO_WORKER
        else:
            assert hosts[primary] != hosts[replica]


@given(st.integers(2, 8), st.integers(1, 4), st.integers(1, 10), seeds)
def test_replicas_are_even_on_like_hosts(hosts: int, each: int, rounds: int, seed: bytes):
    """Where all hosts have as many workers, replicas are as even as primaries."""
    candidates = [Candidate(10 * host + number, f"h{host}") for host in range(hosts) for number in range(each)]
    places = spread([()] * (rounds * len(candidates)), candidates, 2, seed)
    assert set(Counter(place.replica for place in places).values()) == {rounds}


@given(clusters, st.lists(st.sets(st.sampled_from([0, 1, 100, 101, 200])), min_size=1, max_size=30), copies, seeds)
def test_workers_are_avoided_where_there_is_a_choice(candidates, avoids, wanted: int, seed: bytes):
    """A primary is one to be avoided only if all are; a replica only if all on other hosts are."""
    hosts = host_of(candidates)
    for avoid, (primary, replica) in zip(avoids, spread(avoids, candidates, wanted, seed), strict=True):
        assert primary not in avoid or avoid >= hosts.keys()
        others = {worker for worker, host in hosts.items() if host != hosts[primary]}
        assert replica not in avoid or avoid >= others


def test_what_one_worker_has_is_copied_to_several():
    """The replicas of one worker's partitions take turns over the others, so that its loss is shared."""
    candidates = [Candidate(number, f"h{number}") for number in range(6)]
    places = spread([()] * 30, candidates, 2, b"seed")
    for number in range(6):
        assert {place.replica for place in places if place.primary == number} == set(range(6)) - {number}


def test_seeds_start_elsewhere():
    """Small shuffles do not all go to the same worker."""
    candidates = [Candidate(number, f"h{number}") for number in range(5)]
    starts = {spread([()], candidates, 1, bytes([seed]))[0].primary for seed in range(100)}
    assert starts == set(range(5))


def test_nobody_is_nowhere():
    """Without candidates there are no places."""
    assert spread([()], [], 1, b"seed") == []
