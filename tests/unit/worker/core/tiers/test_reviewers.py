"""The chance to be accepted, exactly; what happens to limits that make no sense, or are large for a disk."""

import pytest

from holdfast.worker.core.tiers.allocators import accept_all, chance, probabilistic
from tests.unit.worker.core.tiers.build import dfs, directory

MB, GB = 1 << 20, 1 << 30
HARD, SOFT = 64 * MB, 256 * MB


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (16 * GB, 1.0),
        (SOFT + 1, 1.0),
        (SOFT, 1.0),
        (SOFT - 1, 0.99999999503),
        (160 * MB, 0.5),
        (128 * MB, 1 / 3),
        (112 * MB, 0.25),
        (96 * MB, 1 / 6),
        (HARD, 0.0),
        (HARD - 1, 0.0),
        (0, 0.0),
    ],
)
def test_chances_of_the_reference(free: int, expected: float) -> None:
    """Hard 64 MB, soft 256 MB, a disk of 16 GB: the checkpoints of reference/placement.md, 1.3."""
    assert chance(directory(0, 1, 16 * GB, free), HARD, SOFT) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(("draw", "accepted"), [(0.0, True), (0.4999999, True), (0.5, False), (0.9999999, False)])
def test_one_draw_below_the_chance_accepts(draw: float, accepted: bool) -> None:
    """u < p accepts; each review draws once."""
    draws = iter([draw])
    reviewer = probabilistic(lambda: next(draws), HARD, SOFT)
    assert reviewer(directory(0, 1, 16 * GB, 160 * MB)) is accepted
    assert next(draws, None) is None


def test_limits_that_are_equal_are_a_step() -> None:
    """The step is at the limit, and nothing is divided by zero."""
    reviewer = probabilistic(lambda: 0.999, HARD, HARD)
    assert reviewer(directory(0, 1, 16 * GB, HARD + 1))
    assert not reviewer(directory(0, 1, 16 * GB, HARD))


def test_a_full_directory_is_refused_without_a_hard_limit() -> None:
    """A hard limit of 0 still refuses what has nothing free, whatever is drawn."""
    reviewer = probabilistic(lambda: 0.0, 0, 0)
    assert not reviewer(directory(0, 1, 100, 0))
    assert reviewer(directory(0, 1, 100, 1))


@pytest.mark.parametrize(
    ("capacity", "hard", "soft"),
    [(500 * GB, 5 * GB, 20 * GB), (50 * GB, 5 * GB, 20 * GB), (10 * GB, GB, 4 * GB), (0, 0, 0)],
)
def test_limits_shrink_on_small_disks(capacity: int, hard: int, soft: int) -> None:
    """At most a tenth and four tenths of the capacity: from 50 GiB down the defaults shrink, their ratio stays 4."""
    for unused, expected in ((hard, 0.0), ((hard + soft) // 2, 0.5 if capacity else 0.0), (soft + 1, 1.0)):
        assert chance(directory(0, 1, capacity, unused), 5 * GB, 20 * GB) == expected


def test_a_laptop_takes_files() -> None:
    """An empty disk of 10 GiB is accepted for certain with the defaults, one with 2.5 GiB free every second time."""
    reviewer = probabilistic(lambda: 0.999, 5 * GB, 20 * GB)
    assert reviewer(directory(0, 1, 10 * GB))
    assert chance(directory(0, 1, 10 * GB, 5 * GB // 2), 5 * GB, 20 * GB) == 0.5
    assert chance(dfs(9), 5 * GB, 20 * GB) == 1.0


def test_the_hard_limit_is_not_added_to_the_reserve() -> None:
    """Both are the last bytes of the disk: what is unused is reviewed, whatever of it is reserved."""
    assert chance(directory(0, 1, 16 * GB, 160 * MB, reserved=HARD), HARD, SOFT) == 0.5


def test_accepting_accepts_what_is_full() -> None:
    """The behaviour without review."""
    assert accept_all(directory(0, 1, 100, 0))


def test_the_line_is_monotone() -> None:
    """More room never lowers the chance."""
    chances = [chance(directory(0, 1, 100, free), 10, 30) for free in range(41)]
    assert chances == sorted(chances)
    assert (chances[10], chances[20], chances[30]) == (0.0, 0.5, 1.0)
