"""The 22 queries of TPC-H through the plug-in while servers or executors are killed: the Spark drill's long form.

    python -m tests.spark.kills leader|worker|executors --tpch DIRECTORY [--scale 1] [--copies 1] [--count 50]
                                [--every SECONDS] [--seed N] [--dir DIRECTORY] [--queries q01,q05]

DIRECTORY is what benchmarks/tpch.py makes, made if it is not there. Answers are compared with those of the first,
undisturbed pass. Prints the drill's report; exit status 1 if a promise was broken.
"""

import argparse
import random
import sys
from functools import partial
from pathlib import Path

from benchmarks import tpch
from holdfast.tools.cli.output import show
from holdfast.tools.drills.running import run_drill
from holdfast.tools.drills.spark import drill as spark
from holdfast.tools.drills.spark.queries import Query, Workload

#: By default a task scans 128 MB, which takes two cores up to seven seconds: whether anything stood still for two could
#: not be seen. With these, the longest time without a task that ended tells of stalls.
_SHORT_TASKS = {"spark.sql.files.maxPartitionBytes": "8m", "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m"}


def workload(directory: Path, only: list[str]) -> Workload:
    """The tables in `directory` as views, and its queries, or some of them."""
    views = [
        f"CREATE TEMPORARY VIEW {table.stem} USING parquet OPTIONS (path '{table}')"
        for table in sorted((directory / "tables").glob("*.parquet"))
    ]
    queries = {
        path.stem: Query(path.read_text(encoding="utf-8"))
        for path in sorted((directory / "queries").glob("*.sql"))
        if not only or path.stem in only
    }
    return Workload(tuple(views), queries, _SHORT_TASKS)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("killed", choices=[each.value for each in spark.Killed if each is not spark.Killed.REUSE])
    parser.add_argument("--tpch", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--queries", type=lambda text: text.split(","), default=[])
    parser.add_argument("--copies", type=int, choices=(1, 2), default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--every", type=float)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--dir", type=Path, help="where state and logs are kept")
    given = parser.parse_args()
    killed = spark.Killed(given.killed)
    queries = workload(tpch.make(given.scale, given.tpch.absolute()), given.queries)
    drill = partial(spark.drill, killed=killed, copies=given.copies, every=given.every, workload=queries)
    name = f"spark --kill {killed} --copies {given.copies}, TPC-H"
    report = run_drill(name, drill, given.count, given.seed, given.dir, spark.ground(killed, given.copies))
    show(report.document(), False, report.draw)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
