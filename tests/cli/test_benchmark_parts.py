"""The judging parts of the benchmarks: what is counted and compared, from what was measured."""

from benchmarks.compare import Spread, compared
from benchmarks.sides import Run


def run(seconds: float, cpu_s: float = 1.0) -> Run:
    """One run that took so long."""
    return Run(seconds, cpu_s, result="7", written=0, write_cpu_s=0.0, pushed=0, fetched=0)


def test_sides_are_compared_round_by_round():
    """The ratio of a side is the median of its ratios to the first side within each round, beside least and most: a
    round in which the machine was slow for all counts as much as any other."""
    rounds = [
        {"spark": run(1.0, 2.0), "holdfast": run(0.9, 3.0)},
        {"spark": run(10.0, 2.0), "holdfast": run(8.0, 1.0)},
        {"spark": run(1.0, 2.0), "holdfast": run(1.5, 2.0)},
    ]
    first, other = compared("big", rounds)
    assert (first.workload, first.side, first.ratio) == ("big", "spark", Spread(1.0, 1.0, 1.0))
    assert (other.side, other.rounds, other.seconds) == ("holdfast", 3, Spread(1.5, 0.9, 8.0))
    assert other.ratio == Spread(0.9, 0.8, 1.5)
    assert other.cpu_ratio == Spread(1.0, 0.5, 1.5)
    assert other.line()["ratio"] == [0.9, 0.8, 1.5]
