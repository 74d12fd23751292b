"""The highest generation of every shuffle an application ever had, in runs (core/state/highest_generations.py)."""

import random

import pytest

from holdfast.master.core.state.highest_generations import HighestGenerations, Run


def test_ids_that_ascend_are_one_run():
    """A million shuffles, one after another, cost what one costs: a long application never runs out of room."""
    heads = HighestGenerations()
    for number in range(1_000_000):
        heads.raise_to(number, 0)
    assert list(heads) == [Run(0, 1_000_000, 0)]


def test_a_generation_only_grows():
    """A lower generation changes nothing, so none is ever opened twice."""
    heads = HighestGenerations()
    heads.raise_to(7, 2)
    heads.raise_to(7, 1)
    assert heads.get(7) == 2
    assert heads.get(6) is None
    assert heads.get(8) is None


@pytest.mark.parametrize("seed", range(20))
def test_runs_say_what_a_plain_dict_says(seed):
    """Whatever the order, runs answer as a dict would, touch nowhere, and load again as they were saved."""
    dice = random.Random(seed)
    heads = HighestGenerations()
    plain: dict[int, int] = {}
    for _ in range(300):
        number, generation = dice.randrange(40), dice.randrange(3)
        heads.raise_to(number, generation)
        plain[number] = max(plain.get(number, 0), generation)
        assert {n: heads.get(n) for n in range(-1, 42)} == {n: plain.get(n) for n in range(-1, 42)}
        assert heads.check() == []
    loaded = HighestGenerations()
    for run in heads:
        loaded.append(run)
    assert list(loaded) == list(heads)


@pytest.mark.parametrize("run", [Run(5, 5, 0), Run(9, 12, 0), Run(10, 12, 0), Run(10, 9, 1)])
def test_runs_out_of_order_are_refused(run):
    """A snapshot whose runs are empty, overlap or should have been joined is refused, not half used."""
    heads = HighestGenerations()
    heads.append(Run(5, 10, 0))
    with pytest.raises(ValueError, match="out of order"):
        heads.append(run)


def test_a_copy_stands_still():
    """What a snapshot captured does not change with later commands."""
    heads = HighestGenerations()
    heads.raise_to(1, 0)
    copy = heads.copy()
    heads.raise_to(2, 0)
    assert list(copy) == [Run(1, 2, 0)]
