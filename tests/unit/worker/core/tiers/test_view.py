"""Sets of directories, and what is free where."""

import pytest

from holdfast.worker.core.tiers.view import ANYWHERE, DirectorySet
from tests.unit.worker.core.tiers.build import dfs, directory, store


def test_a_location_lies_in_another_if_each_part_is_any_or_equal() -> None:
    """Every combination of any and equal parts is inside; one other part is enough to be outside."""
    place = DirectorySet(tier=1, directory=3, media=frozenset(("SSD",)))
    for tier in (None, 1):
        for number in (None, 3):
            for media in (None, frozenset(("SSD",)), frozenset(("SSD", "HDD"))):
                assert place.lies_in(DirectorySet(tier=tier, directory=number, media=media))
    assert not place.lies_in(DirectorySet(tier=0))
    assert not place.lies_in(DirectorySet(directory=2))
    assert not place.lies_in(DirectorySet(tier=1, media=frozenset(("HDD",))))


def test_what_is_any_lies_only_in_what_is_any() -> None:
    """A part that is any is not inside one that is named."""
    assert ANYWHERE.lies_in(ANYWHERE)
    assert not ANYWHERE.lies_in(DirectorySet(tier=1))
    assert not ANYWHERE.lies_in(DirectorySet(directory=1))
    assert not ANYWHERE.lies_in(DirectorySet(media=frozenset(("SSD",))))
    assert DirectorySet(tier=1).lies_in(ANYWHERE)


def test_the_place_of_a_directory_holds_it_and_no_other() -> None:
    """DirectorySet.of names one directory; it lies in its tier and on its medium."""
    one, other = directory(0, 1, 10), directory(1, 1, 10)
    assert DirectorySet.of(one).holds(one)
    assert not DirectorySet.of(one).holds(other)
    assert DirectorySet.of(one).lies_in(DirectorySet(tier=1))
    assert DirectorySet.of(one).lies_in(DirectorySet(media=frozenset(("SSD", "HDD"))))


@pytest.mark.parametrize(
    ("unused", "free", "swap"), [(100, 80, 100), (30, 10, 30), (20, 0, 20), (10, 0, 10), (0, 0, 0)]
)
def test_a_reserve_that_is_partly_used_is_not_counted_again(unused: int, free: int, swap: int) -> None:
    """A4: with 10 of 20 reserved bytes taken, an ordinary request has 0 and a swap 10, not 20."""
    view = directory(0, 0, 100, unused, reserved=20)
    assert (view.free_bytes, view.room_bytes(False), view.room_bytes(True)) == (free, free, swap)


def test_tiers_go_from_fast_to_slow_whatever_the_order_given() -> None:
    """A number without a directory is no tier, and directories come by number."""
    view = store(dfs(4), directory(2, 2, 10), directory(3, 0, 10), directory(1, 2, 10))
    assert [[one.number for one in tier] for tier in view.tiers] == [[3], [1, 2], [4]]
    assert [tier[0].tier for tier in view.below(0)] == [2, 3]
    assert [one.number for one in view.within(DirectorySet(media=frozenset(("HDD", "DFS"))))] == [1, 2, 4]


def test_a_view_that_contradicts_itself_is_a_bug() -> None:
    """Two directories with one number, or more unused than there is, are refused by check."""
    with pytest.raises(AssertionError):
        store(directory(1, 0, 10), directory(1, 1, 10))
    with pytest.raises(AssertionError):
        store(directory(1, 0, 10, 11))
