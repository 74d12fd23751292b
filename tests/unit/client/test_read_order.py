"""Which copy is read first: every rule and example of the placement reference, 2.7 and 3.2."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.core.read_order import Category, Health, Interleave, View, category, read_order

S = 10**9
HERE, THERE = "here", "there"


def test_categories_in_their_order() -> None:
    """Clean and local, failed and local, clean and remote, failed and remote, read-only, slow, gone."""
    health = Health()
    for worker in (2, 4):
        health.failed(worker, S)
    health.slow(6, S)
    regions = {1: HERE, 2: HERE, 3: THERE, 4: THERE, 6: HERE}
    view = View(writable={1, 2, 3, 4, 6}, read_only={5}, regions=regions, region=HERE, interleave=Interleave.EVERY)
    assert [category(worker, view, health) for worker in range(1, 8)] == list(Category)
    assert read_order([7, 6, 5, 4, 3, 2, 1], view, health, S) == [1, 2, 3, 4, 5, 6, 7]


def test_one_remote_copy_stands_behind_two_local_ones() -> None:
    """Three locals of nine: L L R L R R R R R; with `every` each two locals are followed by one."""
    regions = {worker: HERE if worker <= 3 else THERE for worker in range(1, 10)}
    view = View(writable=range(1, 10), regions=regions, region=HERE)
    copies = [9, 1, 8, 2, 7, 3, 6, 5, 4]
    assert read_order(copies, view, Health(), S) == [1, 2, 9, 3, 8, 7, 6, 5, 4]
    regions = {worker: HERE if worker <= 5 else THERE for worker in range(1, 9)}
    view = View(writable=range(1, 9), regions=regions, region=HERE, interleave=Interleave.EVERY)
    assert read_order(list(range(1, 9)), view, Health(), S) == [1, 2, 6, 3, 4, 7, 5, 8]


def test_without_an_own_region_the_given_order_stays_within_categories() -> None:
    """Stable; and a read-only first copy does not stay first (B3)."""
    view = View(writable={1, 2, 3}, read_only={4}, regions={1: THERE, 2: HERE})
    assert read_order([3, 1, 2], view, Health(), S) == [3, 1, 2]
    assert read_order([4, 3, 1], view, Health(), S) == [3, 1, 4]


def test_the_oldest_failure_is_asked_first_and_forgotten_in_the_end() -> None:
    """B1: between two that failed the one whose failure is longest ago; after a minute neither has failed."""
    health, view = Health(), View(writable={1, 2, 3})
    health.failed(1, 20 * S)
    health.failed(2, 10 * S)
    assert read_order([1, 2, 3], view, health, 30 * S) == [3, 2, 1]
    assert read_order([1, 2, 3], view, health, 70 * S) == [2, 3, 1]
    assert read_order([1, 2, 3], view, health, 80 * S) == [1, 2, 3]


def test_a_copy_that_failed_is_no_slow_one_and_with_a_threshold_none_is_slow() -> None:
    """Failed wins over slow; with a threshold of pending requests slowness is told by these."""
    health = Health()
    health.slow(1, S)
    health.failed(1, S)
    assert category(1, View(writable={1}), health) is Category.FAILED
    health.slow(2, S)
    assert category(2, View(writable={2}), health) is Category.SLOW
    assert category(2, View(writable={2}, pending_threshold=5), health) is Category.CLEAN


def test_a_loaded_first_copy_gives_way() -> None:
    """Past the threshold the least loaded one is asked first; short of it nothing changes."""
    pending = {1: 10, 2: 6, 3: 5}
    assert read_order([1, 2, 3], View(writable={1, 2, 3}, pending=pending), Health(), S) == [1, 2, 3]
    view = View(writable={1, 2, 3}, pending=pending, pending_threshold=5)
    assert read_order([1, 2, 3], view, Health(), S)[0] == 3
    view = View(writable={1, 2, 3}, pending={1: 9, 2: 6, 3: 5}, pending_threshold=5)
    assert read_order([1, 2, 3], view, Health(), S)[0] == 1


def test_of_slow_copies_the_least_loaded_is_asked_first() -> None:
    """B1: whatever order they were given in."""
    health = Health()
    for worker in (1, 2, 3):
        health.slow(worker, S)
    view = View(writable={1, 2, 3}, pending={1: 7, 2: 3, 3: 5})
    assert read_order([1, 2, 3], view, health, S) == [2, 3, 1]


def test_positions_far_into_a_file_are_never_confused() -> None:
    """B2: whatever the time of a failure, every copy comes back exactly once."""
    health = Health()
    for worker in range(3):
        health.failed(worker, 349_525 * S + worker)
    assert read_order([0, 1, 2], View(writable={0, 1, 2}), health, 349_526 * S) == [0, 1, 2]


@given(st.data())
def test_nothing_is_dropped_or_doubled(data: st.DataObject) -> None:
    """Any copies, any view, any history: a permutation."""
    copies = data.draw(st.lists(st.integers(0, 9), unique=True))
    some = st.sets(st.integers(0, 9))
    health = Health()
    for worker in data.draw(some):
        health.failed(worker, data.draw(st.integers(1, 100)))
    for worker in data.draw(some):
        health.slow(worker, 1)
    view = View(
        writable=data.draw(some),
        read_only=data.draw(some),
        regions=data.draw(st.dictionaries(st.integers(0, 9), st.sampled_from([HERE, THERE]))),
        region=data.draw(st.sampled_from(["", HERE])),
        pending=data.draw(st.dictionaries(st.integers(0, 9), st.integers(0, 9))),
        pending_threshold=data.draw(st.integers(0, 3)),
        interleave=data.draw(st.sampled_from(Interleave)),
    )
    assert sorted(read_order(copies, view, health, 100)) == sorted(copies)
