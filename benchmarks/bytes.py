"""Counts what shuffles write: bytes that are pushed to workers, and those of Spark's own shuffle of the same queries.

    HOLDFAST_TPCH=tables python -m benchmarks.bytes tpch
    python -m benchmarks.bytes big wide --scale 0.1 --conf spark.holdfast.codec=zstd
    python -m benchmarks.bytes --sql 'SELECT id % 10 AS key, count(*) FROM range(1000000) GROUP BY key'

`tpch` stands for the 22 queries, one by one, over the tables that benchmarks/tpch.py makes; queries of `--sql` have
these as views. Prints a line for each, then one for all together: the bytes of whole batches as workers counted them
over those of Spark's map tasks, and the CPU of the tasks that wrote them, Spark's first. Results that differ end it.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from benchmarks.sides import holdfast, spark
from benchmarks.workloads import WORKLOADS, known_workload, queries


def counted(options: argparse.Namespace) -> None:
    """Print a line for each query and workload, and their sums."""
    asked: dict[str, str | None] = {f"sql {number}": text for number, text in enumerate(options.sql, 1)}
    for workload in options.workloads:
        asked |= queries() if workload == "tpch" else {workload: None}
    total: list[float] = [0, 0, 0.0, 0.0]
    with spark() as own, holdfast(conf=options.conf) as ours:
        for name, text in asked.items():
            theirs, mine = (side.run(name, options.scale, text) for side in (own, ours))
            if theirs.result != mine.result:
                sys.exit(f"{name}: the results differ: {theirs.result} and {mine.result}")
            figures: list[float] = [theirs.written, mine.pushed, theirs.write_cpu_s, mine.write_cpu_s]
            total = [one + more for one, more in zip(total, figures, strict=True)]
            print(json.dumps(line(name, *figures)), flush=True)
    print(json.dumps(line("all", *total)), flush=True)


def line(name: str, own: float, ours: float, own_cpu_s: float, our_cpu_s: float) -> dict[str, Any]:
    """What is printed of one."""
    row: dict[str, Any] = {"what": name, "spark_bytes": own, "pushed_bytes": ours}
    row |= {"ratio": round(ours / own, 3) if own else None}
    return row | {
        "map_cpu_s": [round(own_cpu_s, 1), round(our_cpu_s, 1)],
        "cpu_ratio": round(our_cpu_s / max(own_cpu_s, 0.001), 3),
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", type=known_workload, help=", ".join(WORKLOADS))
    parser.add_argument("--sql", nargs="*", default=[], help="further queries")
    parser.add_argument("--scale", type=float, default=1.0, help="of workloads")
    parser.add_argument("--conf", nargs="*", default=[], help="further settings of the plug-in's side, KEY=VALUE")
    options = parser.parse_args()
    if not options.workloads and not options.sql:
        parser.error("name workloads, or a query with --sql")
    counted(options)


if __name__ == "__main__":
    main()
