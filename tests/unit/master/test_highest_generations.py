"""The highest generation of every shuffle an application ever had, in runs (core/state/highest_generations.py)."""

import random

import pytest

from holdfast.master.core.state.highest_generations import HighestGenerations, Run


def test_ids_that_ascend_are_one_run():
    """A million shuffles, one after another, cost what one costs: a long application never runs out of room."""
    generations = HighestGenerations()
    for number in range(1_000_000):
        generations.raise_to(number, 0)
    assert list(generations) == [Run(0, 1_000_000, 0)]


def test_a_generation_only_grows():
    """A lower generation changes nothing, so none is ever opened twice."""
    generations = HighestGenerations()
    generations.raise_to(7, 2)
    generations.raise_to(7, 1)
    assert generations.get(7) == 2
    assert generations.get(6) is None
    assert generations.get(8) is None


@pytest.mark.parametrize("seed", range(20))
def test_runs_say_what_a_plain_dict_says(seed):
    """Whatever the order, runs answer as a dict would, touch nowhere, and load again as they were saved."""
    dice = random.Random(seed)
    generations = HighestGenerations()
    plain: dict[int, int] = {}
    for _ in range(300):
        number, generation = dice.randrange(40), dice.randrange(3)
        generations.raise_to(number, generation)
        plain[number] = max(plain.get(number, 0), generation)
        assert {n: generations.get(n) for n in range(-1, 42)} == {n: plain.get(n) for n in range(-1, 42)}
        assert generations.check() == []
    loaded = HighestGenerations()
    for run in generations:
        loaded.append(run)
    assert list(loaded) == list(generations)


@pytest.mark.parametrize("run", [Run(5, 5, 0), Run(9, 12, 0), Run(10, 12, 0), Run(10, 9, 1)])
def test_runs_out_of_order_are_refused(run):
    """A snapshot whose runs are empty, overlap or should have been joined is refused, not half used."""
    generations = HighestGenerations()
    generations.append(Run(5, 10, 0))
    with pytest.raises(ValueError, match="out of order"):
        generations.append(run)


def test_a_copy_stands_still():
    """What a snapshot captured does not change with later commands."""
    generations = HighestGenerations()
    generations.raise_to(1, 0)
    copy = generations.copy()
    generations.raise_to(2, 0)
    assert list(copy) == [Run(1, 2, 0)]
