"""The standard workloads of a shuffle, on any Spark session; each returns what has to be equal whatever the shuffle is.

Called by benchmarks/sides.py and tests. Each takes the session and a scale (1 is the size that figures are quoted for;
tests use less). Those of ROWS are one shuffle of rows by their column `id`, which can also be run by its halves or
through something else than Spark's own repartition.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

Workload = Callable[[SparkSession, float], str]


class Rows(NamedTuple):
    """What is shuffled: the rows, by session and scale, and to how many partitions."""

    make: Callable[[SparkSession, float], DataFrame]
    partitions: int


def _long_rows(spark: SparkSession, scale: float) -> DataFrame:
    payload = F.concat(*[F.sha2((F.col("id") + salt).cast("string"), 256) for salt in (1, 2)])
    return spark.range(0, int(8_000_000 * scale), 1, 8).select("id", payload.alias("payload"))


def _short_rows(spark: SparkSession, scale: float) -> DataFrame:
    df = spark.range(0, int(4_000_000 * scale), 1, 200)
    return df.select("id", F.sha2(F.col("id").cast("string"), 256).alias("payload"))


ROWS = {
    "big": Rows(_long_rows, 64),
    "big16": Rows(lambda spark, scale: _long_rows(spark, 2 * scale), 64),
    "wide": Rows(_short_rows, 500),
}


def repartitioned(spark: SparkSession, workload: str, scale: float) -> DataFrame:
    """The rows of one of ROWS, shuffled by Spark."""
    rows = ROWS[workload]
    return rows.make(spark, scale).repartition(rows.partitions, "id")


#: Workloads of many like jobs, one after the other, and how many.
_JOBS = {"tiny": 100, "small": 30}


def jobs(workload: str, scale: float) -> int:
    """How many like jobs a workload has; 0 where it is no such one."""
    return max(1, int(_JOBS[workload] * scale)) if workload in _JOBS else 0


def checksum(df: DataFrame) -> str:
    """Count and checksum: reads every byte of every payload."""
    return str(df.agg(F.count("*"), F.sum(F.crc32("payload"))).collect()[0])


def big(spark: SparkSession, scale: float = 1.0) -> str:
    """8 M incompressible rows of 128 bytes, 8 maps to 64 partitions."""
    return checksum(repartitioned(spark, "big", scale))


def big16(spark: SparkSession, scale: float = 1.0) -> str:
    """The same with 16 M rows."""
    return checksum(repartitioned(spark, "big16", scale))


def wide(spark: SparkSession, scale: float = 1.0) -> str:
    """4 M rows of 64 bytes, 200 maps to 500 partitions: about 2.6 KB for each pair."""
    return checksum(repartitioned(spark, "wide", scale))


def tiny(spark: SparkSession, scale: float = 1.0) -> str:
    """100 jobs of two small shuffles each: the fixed cost."""
    total = 0
    for _ in range(jobs("tiny", scale)):
        df = spark.range(0, 1_000, 1, 4).withColumn("k", F.col("id") % 7)
        total += df.repartition(8, "k").groupBy("k").count().count()
    return str(total)


def small(spark: SparkSession, scale: float = 1.0) -> str:
    """30 jobs of two small shuffles: 4 maps to 4 partitions, and what counts them."""
    counts = [spark.range(0, 1_000, 1, 4).repartition(4, "id").count() for _ in range(jobs("small", scale))]
    return str(counts[-1])


def tpch(spark: SparkSession, scale: float = 1.0) -> str:
    """The 22 queries of TPC-H over the tables in HOLDFAST_TPCH (benchmarks/tpch.py makes them)."""
    return str([query(spark, text) for text in list(queries().values())[: max(1, int(22 * scale))]])


def queries() -> dict[str, str]:
    """The text of each query of TPC-H, by its name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_tpch("queries").glob("*.sql"))}


def _tpch(part: str) -> Path:
    return Path(os.environ.get("HOLDFAST_TPCH", "/nowhere")) / part


def query(spark: SparkSession, text: str) -> str:
    """How many rows a query gives; the tables in HOLDFAST_TPCH, if that is set, are views."""
    for table in _tpch("tables").glob("*.parquet"):
        spark.read.parquet(str(table)).createOrReplaceTempView(table.stem)
    return str(len(spark.sql(text).collect()))


WORKLOADS: dict[str, Workload] = {each.__name__: each for each in (big, big16, wide, tiny, small, tpch)}


def known_workload(name: str) -> str:
    """The name of a workload, from a command line."""
    if name not in WORKLOADS:
        raise argparse.ArgumentTypeError(f"there is no workload {name}: {', '.join(WORKLOADS)}")
    if name == "tpch" and not _tpch("queries").is_dir():
        raise argparse.ArgumentTypeError(
            "set HOLDFAST_TPCH to a directory made by `python -m benchmarks.tpch 1 DIRECTORY`"
        )
    return name
