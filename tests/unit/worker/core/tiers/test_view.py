"""Sets of directories, and what is free where."""

import pytest

from holdfast.worker.core.tiers.view import DirectorySet
from tests.unit.worker.core.tiers.build import dfs, directory, store


@pytest.mark.parametrize(
    ("unused", "free", "swap"), [(100, 80, 100), (30, 10, 30), (20, 0, 20), (10, 0, 10), (0, 0, 0)]
)
def test_a_reserve_that_is_partly_used_is_not_counted_again(unused: int, free: int, swap: int) -> None:
    """A4: with 10 of 20 reserved bytes taken, an ordinary request has 0 and a swap 10, not 20."""
    view = directory(0, 0, 100, unused, reserved=20)
    assert (view.free_bytes, view.unused_bytes) == (free, swap)


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
