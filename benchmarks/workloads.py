"""The standard workloads of a shuffle, on any Spark session; each returns what has to be equal whatever the shuffle is.

Called by benchmarks/spark_plugin.py and tests. Each takes the session and a scale (1 is the size that figures are
quoted for; tests use less).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

Workload = Callable[[SparkSession, float], str]


def _checksum(df: DataFrame) -> str:
    """Count and checksum: reads every byte of every payload."""
    return str(df.agg(F.count("*"), F.sum(F.crc32("payload"))).collect()[0])


def big(spark: SparkSession, scale: float = 1.0) -> str:
    """8 M incompressible rows of 128 bytes, 8 maps to 64 partitions."""
    payload = F.concat(*[F.sha2((F.col("id") + salt).cast("string"), 256) for salt in (1, 2)])
    df = spark.range(0, int(8_000_000 * scale), 1, 8).select("id", payload.alias("payload"))
    return _checksum(df.repartition(64, "id"))


def big16(spark: SparkSession, scale: float = 1.0) -> str:
    """The same with 16 M rows."""
    return big(spark, 2 * scale)


def wide(spark: SparkSession, scale: float = 1.0) -> str:
    """4 M rows of 64 bytes, 200 maps to 500 partitions: about 2.6 KB for each pair."""
    df = spark.range(0, int(4_000_000 * scale), 1, 200)
    return _checksum(df.select("id", F.sha2(F.col("id").cast("string"), 256).alias("payload")).repartition(500, "id"))


def tiny(spark: SparkSession, scale: float = 1.0) -> str:
    """100 jobs of two small shuffles each: the fixed cost."""
    total = 0
    for _ in range(max(1, int(100 * scale))):
        df = spark.range(0, 1_000, 1, 4).withColumn("k", F.col("id") % 7)
        total += df.repartition(8, "k").groupBy("k").count().count()
    return str(total)


def small(spark: SparkSession, scale: float = 1.0) -> str:
    """30 jobs of one small shuffle, 4 maps to 4 partitions."""
    jobs = max(1, int(30 * scale))
    return str([spark.range(0, 1_000, 1, 4).repartition(4, "id").count() for _ in range(jobs)][-1])


def tpch(spark: SparkSession, scale: float = 1.0) -> str:
    """The 22 queries of TPC-H over the tables in HOLDFAST_TPCH (benchmarks/tpch.py makes them)."""
    return str([query(spark, text) for text in list(queries().values())[: max(1, int(22 * scale))]])


def queries() -> dict[str, str]:
    """The text of each query of TPC-H, by its name."""
    folder = Path(os.environ["HOLDFAST_TPCH"]) / "queries"
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.sql"))}


def query(spark: SparkSession, text: str) -> str:
    """How many rows a query gives; the tables in HOLDFAST_TPCH, if that is set, are views."""
    for table in (Path(os.environ.get("HOLDFAST_TPCH", "/nowhere")) / "tables").glob("*.parquet"):
        spark.read.parquet(str(table)).createOrReplaceTempView(table.stem)
    return str(len(spark.sql(text).collect()))


WORKLOADS: dict[str, Workload] = {each.__name__: each for each in (big, big16, wide, tiny, small, tpch)}
