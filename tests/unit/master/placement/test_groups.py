"""Groups over racks and regions: every rule and worked example of the placement reference, sections 2.2 to 2.6."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common.errors import ConfigError
from holdfast.master.placement.members import (
    Member,
    NotEnoughError,
    Order,
    RandomOrder,
    RoundRobinOrder,
    WeightedOrder,
    capped,
)
from holdfast.master.placement.racks import RackAware, Racks
from holdfast.master.placement.regions import RegionAware, Regions
from holdfast.master.placement.topology import DEFAULT_PLACE, Topology, check_place, region_of
from holdfast.master.placement.windows import Adherence, Windows, acknowledged_enough, adheres

STRICT, SOFT, FAIL = Adherence.STRICT, Adherence.SOFT, Adherence.FAIL
ENFORCED = Racks(2, enforced=True)


def members(*places: str) -> list[Member]:
    """Workers 1, 2, … at these places, each on a host of its own."""
    return [Member(number, f"h{number}", place) for number, place in enumerate(places, 1)]


def racks(*names: str) -> list[Member]:
    """Workers on racks of one region."""
    return members(*(f"/region/{name}" for name in names))


def by_lot(seed: int = 1) -> Order:
    return RandomOrder(random.Random(seed))


def places_of(found: Sequence[int], known: Sequence[Member]) -> list[str]:
    return [known[worker - 1].place for worker in found]


# 2.2 topology


def test_places_are_paths_of_one_depth() -> None:
    """A leading slash, one slash at the end dropped, nothing empty; another depth is refused while others are there."""
    assert check_place("/a/r1/") == "/a/r1"
    for wrong in ("", "/", "a/r1", "//r1", "/a//r1", "/a/r1//", "/a/\n"):
        with pytest.raises(ConfigError, match="is no place"):
            check_place(wrong)
    topology = Topology()
    topology.put(1, "/a/r1")
    with pytest.raises(ConfigError, match="another depth"):
        topology.put(2, "/r1")
    assert len(topology) == 1
    topology.put(1, "/r1")
    assert topology.place_of(1) == "/r1", "alone it may move to another depth"
    topology.remove(1)
    topology.put(2, "/a/b/c")


def test_a_rack_is_its_whole_path() -> None:
    """/a/r1 and /b/r1 are two racks; a worker that is put again is where it is now."""
    topology = Topology()
    for worker, place in enumerate(["/a/r1", "/a/r2", "/b/r1", "/b/r1"], 1):
        topology.put(worker, place)
    assert list(topology.racks) == ["/a/r1", "/a/r2", "/b/r1"]
    assert topology.leaves("/a") == [1, 2]
    assert topology.leaves("/b/r1") == [3, 4]
    assert topology.leaves("~/a/r1,/b") == [2]
    assert topology.leaves("/nowhere") == []
    assert topology.leaves() == [1, 2, 3, 4]
    topology.put(2, "/b/r2")
    assert topology.leaves("/a") == [1]
    assert "/a/r2" not in topology.racks
    assert region_of("/b/r2") == "b"


# 2.3 new groups


def test_each_rack_is_used_before_any_is_used_twice() -> None:
    """Unused racks come before mere alternation."""
    known = racks("1", "1", "2", "2", "3", "3")
    for seed in range(50):
        group = RackAware(known, by_lot(seed), Racks()).new_group(3, 2, 2)
        assert len(set(places_of(group.members, known))) == 3
        assert group.adherence is STRICT


def test_one_rack_is_enough_if_nothing_is_enforced_and_is_reported() -> None:
    """With one rack there is a group, and it does not adhere; where one rack suffices it does (B9)."""
    known = racks("1", "1", "1")
    assert RackAware(known, by_lot(), Racks()).new_group(3, 2, 2).adherence is FAIL
    assert RackAware(known, by_lot(), Racks(1)).new_group(3, 2, 2).adherence is STRICT
    with pytest.raises(NotEnoughError):
        RackAware(known, by_lot(), ENFORCED).new_group(3, 2, 2)


def test_the_requesters_rack_comes_first_unless_it_is_the_default_one() -> None:
    """The first member is near who asks."""
    known = [*racks("1", "2", "2", "3", "3", "3"), Member(7, "h7", DEFAULT_PLACE)]
    for seed in range(20):
        assert RackAware(known, by_lot(seed), Racks(), "/region/1").new_group(2, 2, 2).members[0] == 1
    firsts = {
        RackAware(known, by_lot(seed), Racks(), DEFAULT_PLACE).new_group(2, 2, 2).members[0] for seed in range(60)
    }
    assert len(firsts) > 3


def test_enforcement_takes_nobody_from_the_default_rack() -> None:
    """Those who could not be resolved are no candidates, and a window with one of them never adheres."""
    known = [*racks("1", "2"), *(Member(number, f"h{number}", DEFAULT_PLACE) for number in (3, 4, 5))]
    for seed in range(20):
        assert set(RackAware(known, by_lot(seed), ENFORCED).new_group(2, 2, 2).members) == {1, 2}
    with pytest.raises(NotEnoughError):
        RackAware(known, by_lot(), ENFORCED).new_group(3, 2, 2)
    assert RackAware(known, by_lot(), ENFORCED).adherence((1, 3), 2) is FAIL
    assert RackAware(known, by_lot(), Racks()).adherence((1, 3), 2) is STRICT


@pytest.mark.parametrize("seed", range(30))
def test_what_greed_misses_is_found(seed: int) -> None:
    """B6: racks A, A, B, C, four members, windows of two: A, B, A, C works, and is found in every run."""
    known = racks("A", "A", "B", "C")
    group = RackAware(known, by_lot(seed), ENFORCED).new_group(4, 2, 2)
    assert group.adherence is STRICT
    assert sorted(group.members) == [1, 2, 3, 4]


def test_sizes_that_can_never_be_are_refused() -> None:
    """size >= write quorum >= ack quorum >= 1."""
    for sizes in ((1, 2, 1), (2, 1, 2), (0, 0, 0)):
        with pytest.raises(ValueError, match="needs size"):
            RackAware(racks("1", "2"), by_lot(), Racks()).new_group(*sizes)


def test_too_few_workers_are_one_kind_of_error() -> None:
    """Excluded ones do not count, and two of one host are one."""
    known = racks("1", "2", "3")
    with pytest.raises(NotEnoughError):
        RackAware(known, by_lot(), Racks()).new_group(3, 2, 2, exclude={2})
    with pytest.raises(NotEnoughError):
        RackAware([Member(1, "h", "/r/1"), Member(2, "h", "/r/2")], by_lot(), Racks()).new_group(2, 2, 2)


@pytest.mark.parametrize(
    ("domains", "quorum", "least", "well"),
    [
        ("ab", 2, 2, True),
        ("aa", 2, 2, False),
        ("abab", 2, 2, True),
        ("abba", 2, 2, False),
        ("aba", 2, 2, False),  # the last and the first are neighbours
        ("aabb", 3, 2, True),
        ("aab", 3, 3, False),
        ("abc", 3, 3, True),
        ("", 2, 2, False),
        ("a", 1, 2, True),
    ],
)
def test_windows(domains: str, quorum: int, least: int, well: bool) -> None:
    """Every `quorum` neighbours, the ring closed, have `least` domains; an empty group does not adhere."""
    assert adheres(list(domains), quorum, least) == well


def test_a_member_that_nobody_knows_does_not_adhere() -> None:
    """Whatever the others are."""
    assert not adheres(["a", None], 2, 1)


def test_enough_domains_have_acknowledged() -> None:
    """As many distinct ones as the smaller of the quorum and the wish."""
    assert acknowledged_enough(["a", "b"], 2, 2)
    assert not acknowledged_enough(["a", "a"], 2, 2)
    assert acknowledged_enough(["a"], 1, 2)


@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.lists(st.sampled_from("abc"), min_size=6, max_size=6)
)
def test_a_group_whose_every_member_passed_adheres(size: int, quorum: int, least: int, domains: list[str]) -> None:
    """The test of a candidate is neither too strict at the end nor too lax: all passed means all windows are well."""
    quorum = min(size, quorum)
    windows = Windows(size, quorum, least)
    for position in range(size):
        if not windows.passes(position, domains[position]):
            return
        windows.put(position, domains[position])
    assert adheres(list(domains[:size]), quorum, min(least, quorum))


# 2.4 one member for another


def test_a_replacement_comes_from_the_victims_rack() -> None:
    """Any of it; the peer stays."""
    known = racks("1", "1", "2", "2", "3")
    for seed in range(20):
        worker, group = RackAware(known, by_lot(seed), Racks()).replace(1, (1, 3), 2, place="/region/1")
        assert (worker, group) == (2, ((2, 3), STRICT))


def test_if_that_rack_is_gone_another_that_is_not_the_peers() -> None:
    """A rack unlike that of the peer; only then anyone, and the group does not adhere."""
    known = racks("2", "2", "3", "3")
    policy = RackAware(known, by_lot(), Racks())
    for _ in range(20):
        worker, group = policy.replace(9, (9, 1), 2, place="/region/1")
        assert worker in (3, 4)
        assert group.adherence is STRICT
    worker, group = policy.replace(9, (9, 1), 2, exclude={3, 4})
    assert (worker, group.adherence) == (2, FAIL)
    with pytest.raises(NotEnoughError):
        RackAware(known, by_lot(), ENFORCED).replace(9, (9, 1), 2, exclude={3, 4})


def test_a_rack_far_away_in_the_ring_may_be_used_again() -> None:
    """B7: only the windows that the place is part of count; and the caller's exclusions are not touched."""
    known = racks("1", "2", "3", "4", "3")
    exclude: set[int] = set()
    worker, group = RackAware(known, by_lot(), Racks()).replace(1, (1, 2, 3, 4), 2, exclude)
    assert (worker, group.adherence, exclude) == (5, STRICT, set())


# 2.5 regions


def test_regions_take_turns_and_shares() -> None:
    """Four copies over two regions: two each; the next request begins with the other region."""
    known = members("/a/1", "/a/2", "/a/3", "/b/1", "/b/2", "/b/3")
    policy = RegionAware(known, by_lot(), Racks(), Regions())
    first, second = policy.new_group(3, 3, 2), policy.new_group(3, 3, 2)
    counts = [Counter(region_of(place) for place in places_of(found.members, known)) for found in (first, second)]
    assert sorted(counts[0].values()) == sorted(counts[1].values()) == [1, 2]
    four = policy.new_group(4, 4, 3)
    assert Counter(region_of(place) for place in places_of(four.members, known)) == {"a": 2, "b": 2}
    assert {first.adherence, second.adherence, four.adherence} == {STRICT}


def test_the_local_region_comes_first_if_wished() -> None:
    """And not if it is refused."""
    known = members("/a/1", "/b/1", "/c/1", "/c/2")
    for seed in range(10):
        group = RegionAware(known, by_lot(seed), Racks(), Regions(local="c")).new_group(2, 2, 2)
        assert region_of(places_of(group.members, known)[0]) == "c"
    refused = RegionAware(known, by_lot(), Racks(), Regions(local="c", refused=frozenset("c"))).new_group(2, 2, 2)
    assert "c" not in {region_of(place) for place in places_of(refused.members, known)}


def test_one_region_alone_is_rack_aware() -> None:
    """With a single region available racks are what is spread over."""
    known = members("/a/1", "/a/1", "/a/2", "/b/1")
    group = RegionAware(known, by_lot(), Racks(), Regions(refused=frozenset("b"))).new_group(2, 2, 2)
    assert set(places_of(group.members, known)) == {"/a/1", "/a/2"}
    with pytest.raises(NotEnoughError):
        RegionAware(known, by_lot(), Racks(), Regions(refused=frozenset("ab"))).new_group(2, 2, 2)


@pytest.mark.parametrize(
    ("sizes", "durable"), [((2, 2, 1), 2), ((3, 3, 1), 2), ((4, 4, 2), 2), ((3, 3, 2), 3), ((6, 6, 4), 3)]
)
def test_sizes_that_cannot_be_durable_are_refused(sizes: tuple[int, int, int], durable: int) -> None:
    """A < d, or A <= W - W // d."""
    with pytest.raises(ConfigError, match="for durability"):
        Regions(durable=durable).check(*sizes)


def test_fewer_regions_than_durability_wants_are_refused_at_start() -> None:
    """The settings contradict each other."""
    with pytest.raises(ConfigError, match="2 regions for durability need as many to write to, not 1"):
        Regions(write_to=("a",), durable=2)


@pytest.mark.parametrize("seed", range(20))
def test_no_region_alone_holds_an_ack_quorum(seed: int) -> None:
    """Durability over two regions: a pair is of both; of five copies none has the three that make an acknowledgement
    if three regions take some."""
    known = members("/a/1", "/a/2", "/a/3", "/b/1", "/b/2", "/c/1", "/c/2")
    policy = RegionAware(known, by_lot(seed), Racks(), Regions(durable=2))
    pair = policy.new_group(2, 2, 2)
    assert len({region_of(place) for place in places_of(pair.members, known)}) == 2
    five = policy.new_group(5, 5, 4)
    assert max(Counter(region_of(place) for place in places_of(five.members, known)).values()) < 4
    assert five.adherence is STRICT


def test_a_replacement_stays_in_its_region_unless_that_is_refused() -> None:
    """The victim's rack, then any of its region; another region if it is refused; never against durability."""
    known = members("/a/1", "/a/2", "/a/2", "/b/1", "/c/1")
    policy = RegionAware(known, by_lot(), Racks(), Regions())
    assert policy.replace(1, (1, 4), 2, 2, place="/a/1")[0] in (2, 3)
    refused = RegionAware(known, by_lot(), Racks(), Regions(refused=frozenset("a")))
    assert refused.replace(1, (1, 4), 2, 2, place="/a/1")[0] == 5
    durable = RegionAware(known[:4], by_lot(), Racks(), Regions(durable=2, refused=frozenset("a")))
    with pytest.raises(NotEnoughError):
        durable.replace(1, (1, 4), 2, 2, place="/a/1")


def test_adherence_over_regions_is_reported() -> None:
    """B9: FAIL if all copies are of one region though there are two, SOFT if only racks are too few."""
    known = members("/a/1", "/a/2", "/b/1", "/b/1")
    policy = RegionAware(known, by_lot(), Racks(), Regions())
    assert policy.adherence((1, 2), 2, 2) is FAIL
    assert policy.adherence((1, 3), 2, 2) is STRICT
    assert RegionAware(known, by_lot(), Racks(3), Regions()).adherence((1, 3, 4), 3, 2) is SOFT
    assert policy.adherence((1, 9), 2, 2) is FAIL


# 2.6 weights


def test_shares_are_capped_by_the_median() -> None:
    """50, 100, 100, 200, 500 with a multiple of 4: the last acts as 400."""
    assert capped([50, 100, 100, 200, 500], 4) == pytest.approx([one / 850 for one in (50, 100, 100, 200, 400)])
    assert capped([50, 100, 100, 200, 500], 0) == pytest.approx([one / 950 for one in (50, 100, 100, 200, 500)])
    assert capped([0, 10, 20, 30], 0) == pytest.approx([one / 70 for one in (10, 10, 20, 30)])
    assert capped([0, 0], 3) == [0.5, 0.5]
    assert capped([1, 1, 3, 100], 2) == pytest.approx([one / 9 for one in (1, 1, 3, 4)]), "the median of four is 2"


def test_weights_are_odds() -> None:
    """Of 20,000 first choices each worker has its share within 2 % of all."""
    known = racks("1", "2", "3", "4", "5")
    order = WeightedOrder(dict(enumerate([50.0, 100, 100, 200, 500], 1)), 4, random.Random(7))
    firsts = Counter(order.arrange(known)[0].worker for _ in range(20_000))
    for worker, weight in enumerate([50, 100, 100, 200, 400], 1):
        assert firsts[worker] / 20_000 == pytest.approx(weight / 850, abs=0.02)


def test_turns_are_even() -> None:
    """Round robin: after any number of groups no worker was chosen twice more than another."""
    known = racks("1", "1", "2", "2", "3", "3")
    order = RoundRobinOrder()
    policy, counts = RackAware(known, order, Racks()), Counter({one.worker: 0 for one in known})
    for _ in range(50):
        counts.update(policy.new_group(2, 2, 2).members)
    assert max(counts.values()) - min(counts.values()) <= 1


@settings(max_examples=200)
@given(st.data())
def test_whatever_is_chosen_keeps_the_rules(data: st.DataObject) -> None:
    """Any cluster, any sizes: distinct workers on distinct hosts, none excluded; enforced means strict; and where a
    strict group of up to 8 exists, enforcement finds one."""
    places = data.draw(st.lists(st.sampled_from(["/r/a", "/r/b", "/r/c", "/s/a"]), min_size=1, max_size=9))
    known = members(*places)
    size = data.draw(st.integers(1, 5))
    quorum = data.draw(st.integers(1, size))
    enforced = data.draw(st.booleans())
    exclude = data.draw(st.sets(st.integers(1, 9), max_size=2))
    policy = RackAware(known, by_lot(data.draw(st.integers(0, 99))), Racks(2, enforced=enforced))
    left = [one for one in known if one.worker not in exclude]
    try:
        group = policy.new_group(size, quorum, quorum, exclude)
    except NotEnoughError:
        assert len(left) < size or (enforced and not possible([one.place for one in left], size, quorum))
        return
    assert len(set(group.members)) == size
    assert not exclude & set(group.members)
    if enforced:
        assert group.adherence is STRICT


def possible(places: Sequence[str], size: int, quorum: int) -> bool:
    """Whether some order of some of these racks adheres."""
    left = Counter(places)

    def search(begun: list[str]) -> bool:
        if len(begun) == size:
            return adheres(list(begun), quorum, min(2, quorum))
        for place in left:
            if left[place]:
                left[place] -= 1
                found = search([*begun, place])
                left[place] += 1
                if found:
                    return True
        return False

    return search([])
