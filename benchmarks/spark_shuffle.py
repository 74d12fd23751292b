"""Times `shuffle` against Spark's own repartition on workload `big`, in interleaved pairs, and prints their ratios.

    python -m benchmarks.spark_shuffle [--rows 8000000] [--pairs 3] [--workers 1] [--compression lz4]

Both sides read everything back and compute the same checksum; a pair with different ones ends the run. The order within
pairs alternates, so that neither side always meets a warmer machine. CPU is that of all processes of the side: Spark's
JVM, its Python workers, and Holdfast's servers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

from holdfast.client import Session
from holdfast.client.cluster.local import local_cluster
from holdfast.client.spark import shuffle, shuffle_id

PARTITIONS = 64
MAPS = 8


def spark_session() -> SparkSession:
    """The settings of the baseline: two cores, 4 GiB."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(0, 1000, 1, 4).repartition(4).count()
    return spark


def big(spark: SparkSession, rows: int) -> DataFrame:
    """Incompressible rows of 128 bytes in 8 maps."""
    payload = F.concat(*[F.sha2((F.col("id") + k).cast("string"), 256) for k in (1, 2)])
    return spark.range(0, rows, 1, MAPS).select("id", payload.alias("payload"))


def checksum(df: DataFrame) -> str:
    """Count and checksum: reads every byte of every row."""
    return str(df.agg(F.count("*"), F.sum(F.crc32("payload"))).collect()[0])


def through_holdfast(df: DataFrame, session: Session, compression: str) -> str:
    """The same through `shuffle`; what was written is dropped again, outside of what Spark does for its own files."""
    out = shuffle(df, PARTITIONS, "id", session=session, compression=compression)
    result = checksum(out)
    session.open_shuffle(shuffle_id(out)).unregister()
    return result


def cpu_seconds() -> float:
    """CPU used so far by this process and all below it, ended ones included."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def timed(run: Callable[[], str]) -> tuple[float, float, str]:
    """Return wall seconds, CPU seconds and the result."""
    started, cpu = time.perf_counter(), cpu_seconds()
    result = run()
    return time.perf_counter() - started, cpu_seconds() - cpu, result


def geometric_mean(values: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    """Run the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--compression", default="lz4", choices=("none", "lz4", "zstd"))
    options = parser.parse_args()
    spark = spark_session()
    df = big(spark, options.rows)
    with (
        local_cluster(masters=3, workers=options.workers) as cluster,
        Session(cluster.endpoints, app="bench") as session,
    ):
        sides: dict[str, Callable[[], str]] = {
            "repartition": lambda: checksum(df.repartition(PARTITIONS, "id")),
            "shuffle": lambda: through_holdfast(df, session, options.compression),
        }
        walls, cpus = [], []
        for pair in range(options.pairs):
            names = list(sides) if pair % 2 == 0 else list(sides)[::-1]
            found = {name: timed(sides[name]) for name in names}
            if found["shuffle"][2] != found["repartition"][2]:
                sys.exit(f"the results differ: {found}")
            walls.append(found["shuffle"][0] / found["repartition"][0])
            cpus.append(found["shuffle"][1] / found["repartition"][1])
            seconds = {name: {"wall": round(wall, 2), "cpu": round(cpu, 2)} for name, (wall, cpu, _) in found.items()}
            print(json.dumps({"pair": pair, **seconds, "ratio": round(walls[-1], 2)}), flush=True)
        print(
            json.dumps(
                {
                    "workload": f"big:{options.rows}:{PARTITIONS}",
                    "compression": options.compression,
                    "pairs": options.pairs,
                    "ratio": round(geometric_mean(walls), 3),
                    "cpu_ratio": round(geometric_mean(cpus), 3),
                }
            )
        )
    spark.stop()


if __name__ == "__main__":
    main()
