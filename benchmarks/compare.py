"""Times ways to shuffle side by side, workload by workload, in rounds, and prints their ratios.

    python -m benchmarks.compare big wide tiny [--pairs 7] [--workers 1] [--copies 1] [--conf KEY=VALUE …]
    python -m benchmarks.compare big wide --sides spark holdfast floor
    python -m benchmarks.compare big wide --sides spark holdfast jar-free
    python -m benchmarks.compare big --sides holdfast secure
    python -m benchmarks.compare big tpch --sides plain-rows holdfast
    python -m benchmarks.compare big wide --sides spark holdfast celeborn --service celeborn=DIRECTORY
    python -m benchmarks.compare big wide tiny --table FILE.md --picture FILE.svg

The first of `--sides` is what the others are compared with: `spark` is Spark's own shuffle, `holdfast` the plug-in,
`secure` the plug-in with TLS and tokens, `plain-rows` the plug-in without row planes, `jar-free` the function
`shuffle`, which has the workloads of one shuffle. `floor` keeps rows in the memory of its JVM and does nothing else:
with it the others' ratios to it are printed as well, which say how much of their time is the shuffle's at all. Any
other shuffle service is a side by the name that `--service` gives it; its directory holds `spark.conf`, settings of
Spark as KEY=VALUE, and the program `start`, which runs its servers until it is ended by SIGTERM, and prints `ready`
once they take shuffles. {directory} in the settings is the directory, and {data}, which `start` gets as its argument,
an empty one for what is shuffled. Whether it falls back to Spark's own shuffle is for its settings to say: switch that
off.
For Apache Celeborn `spark.conf` has, besides the settings that forbid a fallback:

    spark.jars={directory}/client.jar
    spark.shuffle.manager=org.apache.spark.shuffle.celeborn.SparkShuffleManager
    spark.shuffle.sort.io.plugin.class=org.apache.spark.shuffle.celeborn.CelebornShuffleDataIO
    spark.celeborn.master.endpoints=127.0.0.1:9097
    spark.shuffle.service.enabled=false
    spark.sql.adaptive.localShuffleReader.enabled=false

All sides are alive all the time and warmed up by one round that does not count, or each run has a fresh JVM
(`--fresh`); every other round has the reversed order. Results that differ end it. For each workload a line a round,
then one for each side: the median of its seconds and of its ratios, with least and most (benchmarks/sides.py says what
is counted); where a workload is many like jobs, also the milliseconds that each took longer than on the first side.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import Compared, Spread, origin, picture, table
from benchmarks.sides import Run, Side, floor, holdfast, named_service, service, spark
from benchmarks.workloads import ROWS, WORKLOADS, jobs, known_workload

Opened = Callable[[], AbstractContextManager[Side]]


def line(each: Compared) -> dict[str, Any]:
    """One side on one workload, as it is printed."""
    shown = {name: value for name, value in each._asdict().items() if value is not None}
    return {
        name: [round(one, 3) for one in value] if isinstance(value, Spread) else value for name, value in shown.items()
    }


def compared(workload: str, rounds: list[dict[str, Run]], scale: float = 1.0) -> list[Compared]:
    """All sides, in the order in which each round has them: the first is what they are compared with."""
    first, *_ = rounds[0]

    def spread(values: list[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values))

    def ratio(side: str, to: str, what: str = "seconds") -> Spread:
        return spread([getattr(each[side], what) / getattr(each[to], what) for each in rounds])

    def over_ms(side: str) -> Spread:
        return spread([1e3 * (each[side].seconds - each[first].seconds) / count for each in rounds])

    count = jobs(workload, scale)
    wrote = {side for side in rounds[0] if all(each[side].write_cpu_s for each in rounds)}
    return [
        Compared(
            workload,
            side,
            len(rounds),
            spread([each[side].seconds for each in rounds]),
            ratio(side, first),
            ratio(side, first, "cpu_s"),
            ratio(side, first, "write_cpu_s") if {side, first} <= wrote else None,
            ratio(side, "floor") if "floor" in rounds[0] else None,
            over_ms(side) if count else None,
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
    row |= {what: [round(getattr(found[side.name], what), 2) for side in sides] for what in ("cpu_s", "write_cpu_s")}
    moved = {name: [run.pushed // 1024, run.fetched // 1024] for name, run in found.items() if run.pushed}
    row |= {"pushed_fetched_kib": moved}
    print(json.dumps(row), flush=True)
    return {side.name: found[side.name] for side in sides}


def compare(options: argparse.Namespace) -> list[Compared]:
    """Run the rounds of every workload, and print them."""
    found: list[Compared] = []
    with ExitStack() as stack:
        sides = [stack.enter_context(ways(options)[name]()) for name in options.sides]
        for workload in options.workloads:
            warm = 0 if options.fresh else options.warm
            rounds = [one_round(sides, workload, options, number) for number in range(-warm, options.pairs)][warm:]
            found += compared(workload, rounds, options.scale)
            for each in found[-len(sides) :]:
                print(json.dumps(line(each)), flush=True)
    return found


def ways(options: argparse.Namespace) -> dict[str, Opened]:
    """How each side is begun, by its name."""
    ours = partial(holdfast, workers=options.workers, copies=options.copies, conf=options.conf)
    known: dict[str, Opened] = {
        "spark": spark,
        "floor": floor,
        "holdfast": ours,
        "secure": partial(ours, "secure", secure=True),
        "plain-rows": partial(ours, "plain-rows", conf=[*options.conf, "spark.holdfast.codec.rowPlanes=false"]),
        "jar-free": partial(holdfast, "jar-free", workers=options.workers, jar_free=True),
    }
    return known | {each: partial(service, each, Path(where)) for each, where in options.service}


def parsed(words: list[str]) -> argparse.Namespace:
    """Read the command line; what is wrong with it ends the program before anything starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "workloads", nargs="*", type=known_workload, default=["big", "wide", "tiny"], help=", ".join(WORKLOADS)
    )
    parser.add_argument("--sides", nargs="+", default=["spark", "holdfast"], help="the first is compared with")
    parser.add_argument("--pairs", type=int, default=7, help="rounds that count")
    parser.add_argument("--warm", type=int, default=1, help="rounds before, which do not count")
    parser.add_argument("--fresh", action="store_true", help="a fresh JVM for each run")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--conf", nargs="*", default=[], help="further settings of the plug-in's sides, KEY=VALUE")
    parser.add_argument("--service", type=named_service, action="append", default=[], metavar="NAME=DIRECTORY")
    parser.add_argument("--table", type=Path, help="a file for a table in Markdown")
    parser.add_argument("--picture", type=Path, help="a file for a picture in SVG")
    options = parser.parse_args(words)
    if unknown := [name for name in options.sides if name not in ways(options)]:
        parser.error(f"there is no side {unknown[0]}: {', '.join(ways(options))}")
    if "jar-free" in options.sides and not set(options.workloads) <= set(ROWS):
        parser.error(f"jar-free has {', '.join(ROWS)}")
    if len(options.sides) < 2 or len(set(options.sides)) < len(options.sides):
        parser.error("name two sides at least, and each once: the first is what the others are compared with")
    if options.pairs < 1:
        parser.error("--pairs is 1 at least")
    return options


def main() -> None:
    """Compare, and write the report."""
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # servers of other services end, too
    source = origin("benchmarks.compare", sys.argv[1:])
    found = compare(options)
    for file, made in ((options.table, table), (options.picture, picture)):
        if file is not None:
            file.write_text(made(found, source), "utf-8")


if __name__ == "__main__":
    main()
