"""Times ways to shuffle side by side, workload by workload, in rounds, and prints their ratios.

    python -m benchmarks.compare big wide tiny [--pairs 7] [--workers 1] [--copies 1] [--conf KEY=VALUE …]
    python -m benchmarks.compare big wide --sides spark holdfast floor
    python -m benchmarks.compare big wide --sides spark holdfast jar-free
    python -m benchmarks.compare big --sides holdfast secure

The first of `--sides` is what the others are compared with: `spark` is Spark's own shuffle, `holdfast` the plug-in,
`secure` the plug-in with TLS and tokens, `jar-free` the function `shuffle`, which has the workloads of one shuffle.
`floor` keeps rows in the memory of its JVM and does nothing else: with it the others' ratios to it are printed as well,
which say how much of their time is the shuffle's at all.
All sides are alive all the time and warmed up by one round that does not count, or each run has a fresh JVM
(`--fresh`); every other round has the reversed order. Results that differ end it. For each workload a line a round,
then one for each side: the median of its seconds and of its ratios, with least and most (benchmarks/sides.py says what
is counted).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, NamedTuple

from benchmarks.sides import Run, Side, floor, holdfast, spark
from benchmarks.workloads import ROWS, WORKLOADS

Opened = Callable[[], AbstractContextManager[Side]]


class Spread(NamedTuple):
    """What became of several rounds: the median, and what lies around it."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


class Compared(NamedTuple):
    """One side on one workload."""

    workload: str
    side: str
    rounds: int
    seconds: Spread
    #: to the first side, round by round
    ratio: Spread
    cpu_ratio: Spread
    #: to the floor, if that is a side
    floor_ratio: Spread | None

    def line(self) -> dict[str, Any]:
        """As it is printed."""
        shown = {name: value for name, value in self._asdict().items() if value is not None}
        return {
            name: [round(each, 3) for each in value] if isinstance(value, Spread) else value
            for name, value in shown.items()
        }


def compared(workload: str, rounds: list[dict[str, Run]]) -> list[Compared]:
    """All sides, in the order in which each round has them: the first is what they are compared with."""
    first, *_ = rounds[0]

    def ratio(side: str, to: str, what: str = "seconds") -> Spread:
        return Spread.of([getattr(each[side], what) / getattr(each[to], what) for each in rounds])

    return [
        Compared(
            workload,
            side,
            len(rounds),
            Spread.of([each[side].seconds for each in rounds]),
            ratio(side, first),
            ratio(side, first, "cpu_s"),
            ratio(side, "floor") if "floor" in rounds[0] else None,
        )
        for side in rounds[0]
    ]


def one_round(sides: list[Side], workload: str, options: argparse.Namespace, number: int) -> dict[str, Run]:
    """Run a workload on every side, the other way round every other time."""
    found: dict[str, Run] = {}
    for side in sides if number % 2 == 0 else reversed(sides):
        if options.fresh:
            side.renew()
        found[side.name] = side.run(workload, options.scale)
    results = {name: run.result for name, run in found.items()}
    if len(set(results.values())) > 1:
        sys.exit(f"{workload}: the results differ: {results}")
    row: dict[str, Any] = {"workload": workload, "round": number}
    row |= {f"{side.name}_s": round(found[side.name].seconds, 2) for side in sides}
    row |= {"cpu_s": [round(found[side.name].cpu_s, 1) for side in sides]}
    moved = {name: [run.pushed // 1024, run.fetched // 1024] for name, run in found.items() if run.pushed}
    row |= {"pushed_fetched_kib": moved}
    print(json.dumps(row), flush=True)
    return {side.name: found[side.name] for side in sides}


def compare(options: argparse.Namespace) -> list[Compared]:
    """Run the rounds of every workload, and print them."""
    found: list[Compared] = []
    with ExitStack() as stack:
        sides = [stack.enter_context(opened(name, options)()) for name in options.sides]
        for workload in options.workloads:
            warm = 0 if options.fresh else options.warm
            rounds = [one_round(sides, workload, options, number) for number in range(-warm, options.pairs)][warm:]
            found += compared(workload, rounds)
            for each in found[-len(sides) :]:
                print(json.dumps(each.line()), flush=True)
    return found


def opened(name: str, options: argparse.Namespace) -> Opened:
    """How a side is begun, by its name."""
    ours = partial(holdfast, name, workers=options.workers, copies=options.copies, conf=options.conf)
    known: dict[str, Opened] = {
        "spark": spark,
        "floor": floor,
        "holdfast": ours,
        "secure": partial(ours, secure=True),
        "jar-free": partial(holdfast, name, workers=options.workers, jar_free=True),
    }
    if name not in known:
        sys.exit(f"there is no side {name}: {', '.join(known)}")
    return known[name]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["big", "wide", "tiny"], help=", ".join(WORKLOADS))
    parser.add_argument("--sides", nargs="+", default=["spark", "holdfast"], help="the first is compared with")
    parser.add_argument("--pairs", type=int, default=7, help="rounds that count")
    parser.add_argument("--warm", type=int, default=1, help="rounds before, which do not count")
    parser.add_argument("--fresh", action="store_true", help="a fresh JVM for each run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--conf", nargs="*", default=[], help="further settings of the plug-in's sides, KEY=VALUE")
    options = parser.parse_args()
    if "jar-free" in options.sides and not set(options.workloads) <= set(ROWS):
        parser.error(f"jar-free has {', '.join(ROWS)}")
    compare(options)


if __name__ == "__main__":
    main()
