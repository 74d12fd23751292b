"""The chance to be accepted, exactly; what happens to limits that make no sense, or are large for a disk."""

import pytest

from holdfast.worker.core.tiers.reviewers import AcceptAll, ProbabilisticBuffer, chance, make_reviewer, shrunk
from holdfast.worker.core.tiers.view import UNLIMITED
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
    reviewer = ProbabilisticBuffer(lambda: 0.0, HARD, SOFT)
    assert reviewer.chance(directory(0, 1, 16 * GB, free)) == pytest.approx(expected, abs=1e-11)
    assert reviewer.warning == ""


@pytest.mark.parametrize(("draw", "accepted"), [(0.0, True), (0.4999999, True), (0.5, False), (0.9999999, False)])
def test_one_draw_below_the_chance_accepts(draw: float, accepted: bool) -> None:
    """u < p accepts; each review draws once."""
    draws = iter([draw])
    reviewer = ProbabilisticBuffer(lambda: next(draws), HARD, SOFT)
    assert reviewer.accepts(directory(0, 1, 16 * GB, 160 * MB)) is accepted
    assert next(draws, None) is None


@pytest.mark.parametrize("soft", [HARD, HARD - 1, 0])
def test_a_soft_limit_not_above_the_hard_one_is_a_step_and_a_warning(soft: int) -> None:
    """The step is at the hard limit, nothing is divided by zero, and the warning names both figures."""
    reviewer = ProbabilisticBuffer(lambda: 0.999, HARD, soft)
    assert str(soft) in reviewer.warning
    assert str(HARD) in reviewer.warning
    assert reviewer.accepts(directory(0, 1, 16 * GB, HARD + 1))
    assert not reviewer.accepts(directory(0, 1, 16 * GB, HARD))


def test_a_full_directory_is_refused_without_a_hard_limit() -> None:
    """A hard limit of 0 still refuses what has nothing free, whatever is drawn."""
    reviewer = ProbabilisticBuffer(lambda: 0.0, 0, 0)
    assert not reviewer.accepts(directory(0, 1, 100, 0))
    assert reviewer.accepts(directory(0, 1, 100, 1))


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [(UNLIMITED, (5 * GB, 20 * GB)), (50 * GB, (5 * GB, 20 * GB)), (10 * GB, (GB, 4 * GB)), (0, (0, 0))],
)
def test_limits_shrink_on_small_disks(capacity: int, expected: tuple[int, int]) -> None:
    """At most a tenth and four tenths of the capacity: from 50 GiB down the defaults shrink, their ratio stays 4."""
    assert shrunk(capacity, 5 * GB, 20 * GB) == expected


def test_a_laptop_takes_files() -> None:
    """An empty disk of 10 GiB is accepted for certain with the defaults, one with 2.5 GiB free every second time."""
    reviewer = make_reviewer("probabilistic", lambda: 0.999, 5 * GB, 20 * GB)
    assert isinstance(reviewer, ProbabilisticBuffer)
    assert reviewer.accepts(directory(0, 1, 10 * GB))
    assert reviewer.chance(directory(0, 1, 10 * GB, 5 * GB // 2)) == 0.5
    assert reviewer.chance(dfs(9)) == 1.0


def test_the_hard_limit_is_not_added_to_the_reserve() -> None:
    """Both are the last bytes of the disk: what is unused is reviewed, whatever of it is reserved."""
    reviewer = ProbabilisticBuffer(lambda: 0.0, HARD, SOFT)
    assert reviewer.chance(directory(0, 1, 16 * GB, 160 * MB, reserved=HARD)) == 0.5


def test_accepting_accepts_what_is_full() -> None:
    """The behaviour without review."""
    reviewer = make_reviewer("accepting", lambda: 0.999, 1, 2)
    assert isinstance(reviewer, AcceptAll)
    assert reviewer.accepts(directory(0, 1, 100, 0))


def test_bad_names_and_limits_are_refused() -> None:
    """The error names what is known."""
    with pytest.raises(ValueError, match="known are probabilistic, accepting"):
        make_reviewer("strict", lambda: 0.0, 1, 2)
    with pytest.raises(ValueError, match="-1 bytes is negative"):
        ProbabilisticBuffer(lambda: 0.0, -1, 2)


def test_the_line_is_monotone() -> None:
    """More room never lowers the chance."""
    chances = [chance(free, 10, 30) for free in range(41)]
    assert chances == sorted(chances)
    assert (chances[10], chances[20], chances[30]) == (0.0, 0.5, 1.0)
