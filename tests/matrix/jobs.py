"""What the matrix runs: every way in which Spark shuffles, each job giving an answer that can be compared.

A job gets a session and how large it may be: 1 for the short form. What fails does so at its first attempt alone, so
that a job without trouble of other kinds has one answer.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

from tests.spark import plugin_io_job
from tests.spark.plugin_io_job import digest, rows

Job = Callable[[SparkSession, int], Any]
JOBS: dict[str, Job] = {
    name: (lambda spark, _scale, known=known: known(spark))  # type: ignore[misc]
    for name, known in plugin_io_job.JOBS.items()
    if name not in ("skewed", "long_rows", "many_partitions")
}
#: What does not shuffle through Spark: it runs on a cluster of Holdfast alone, and compares itself with Spark.
JAR_FREE: dict[str, Callable[[SparkSession, int, str], Any]] = {}


def job(function: Job) -> Job:
    """Make it one that can be asked for."""
    JOBS[function.__name__] = function
    return function


def first_attempt_fails(share: int) -> Callable[[Any], Any]:
    """For mapPartitions: fail in the middle of the first attempt of every `share`-th partition."""

    def run(records: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        fails = context.attemptNumber() == 0 and context.partitionId() % share == 0
        for number, record in enumerate(records):
            if fails and number == 100:
                raise RuntimeError("this attempt was to fail")
            yield record

    return run


@job
def failing_maps(spark: SparkSession, scale: int) -> Any:
    """Maps whose first attempt fails behind what it has pushed already."""
    pairs = spark.sparkContext.parallelize(range(40_000 * scale), 20).map(lambda each: (each % 300, each))
    return sorted(pairs.mapPartitions(first_attempt_fails(2)).groupByKey(12).mapValues(sum).collect())


@job
def failing_large_maps(spark: SparkSession, scale: int) -> Any:
    """Maps whose first attempt fails with megabytes on their way, each at another row."""

    def broken(records: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        last = random.Random(context.partitionId()).randrange(200, 1_500) if context.attemptNumber() == 0 else None
        for number, record in enumerate(records):
            if number == last:
                raise RuntimeError("this attempt was to fail")
            yield record

    pairs = spark.sparkContext.parallelize(range(32_000 * scale), 20).map(lambda each: (each % 300, os.urandom(4_000)))
    return pairs.mapPartitions(broken).partitionBy(12).mapValues(len).values().sum()


@job
def failing_readers(spark: SparkSession, scale: int) -> Any:
    """Readers whose first attempt fails in the middle of what it reads."""
    frame = rows(spark, 60_000 * scale).repartition(9, "key")
    return sorted(frame.rdd.map(lambda row: row["id"]).mapPartitions(first_attempt_fails(3)).collect())[::97]


@job
def coalesced(spark: SparkSession, scale: int) -> Any:
    """One task reads all of very many partitions, one after another."""
    wide = rows(spark, 30_000 * scale).repartition(300 * scale, "id")
    return digest(wide.coalesce(1))


@job
def united(spark: SparkSession, scale: int) -> Any:
    """One task after another reads of many shuffles."""
    parts = [rows(spark, 500).repartition(20, "id") for _ in range(15 * scale)]
    return digest(reduce(DataFrame.union, parts).coalesce(3))


@job
def left_early(spark: SparkSession, scale: int) -> Any:
    """Readers that take a few rows and go, again and again."""
    frame = rows(spark, 40_000 * scale).repartition(10, "key")
    return [len(frame.limit(each).collect()) for each in (1, 10, 3_000)] + [frame.rdd.isEmpty()]


@job
def sizes(spark: SparkSession, scale: int) -> Any:
    """Rows from one byte to tens of megabytes; with a scale of 10, to 200 MB."""
    lengths = [1, 100, 20_000, 300_000, 5_000_000, 20_000_000 * scale]
    frame = spark.createDataFrame([(each,) for each in lengths], "length bigint").repartition(3, "length")
    made = frame.selectExpr("length", "repeat('x', CAST(length AS INT)) AS text").repartition(2, "text")
    return sorted(list(row) for row in made.selectExpr("length", "length(text)", "crc32(text)").collect())


@job
def nested(spark: SparkSession, scale: int) -> Any:
    """Every type, nested, with nulls at each level."""
    frame = spark.range(0, 5_000 * scale, 1, 4).selectExpr(
        "id",
        "IF(id % 7 = 0, NULL, array(struct(id AS a, map(CAST(id AS STRING), array(id, NULL)) AS b))) AS deep",
        "CAST(id AS DECIMAL(38, 10)) AS number",
        "date_add(DATE'2020-01-01', CAST(id % 500 AS INT)) AS day",
        "timestamp_seconds(id) AS moment",
        "CAST(CAST(id AS STRING) AS BINARY) AS raw",
        "named_struct('x', IF(id % 3 = 0, NULL, CAST(id AS DOUBLE)), 'y', id % 2 = 0) AS pair",
        "make_interval(0, 0, 0, CAST(id % 9 AS INT)) AS span",
    )
    deep = functions.to_json(functions.struct("deep", "pair")).alias("json")
    text = frame.repartition(6, "id").select("id", deep, "number", "day", "moment", "raw")
    return digest(text)


@job
def streamed(spark: SparkSession, scale: int) -> Any:
    """A stream with state, over several batches."""
    with tempfile.TemporaryDirectory() as place:
        source, target, notes = (str(Path(place) / name) for name in ("in", "out", "notes"))
        rows(spark, 20_000 * scale, 4).write.parquet(source)
        counts = (
            spark.readStream.schema(rows(spark, 1).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(source)
            .groupBy("key")
            .agg(functions.count("*").alias("n"), functions.sum("id").alias("s"))
        )

        def keep(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(f"{target}/{number}")

        query = (
            counts.writeStream.outputMode("complete")
            .option("checkpointLocation", notes)
            .foreachBatch(keep)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        last = max(Path(target).iterdir(), key=lambda each: int(each.name))
        return sorted(list(row) for row in spark.read.parquet(str(last)).collect())


def jar_free(function: Callable[[SparkSession, int, str], Any]) -> Callable[[SparkSession, int, str], Any]:
    """Make it one that can be asked for."""
    JAR_FREE[function.__name__] = function
    return function


@jar_free
def shuffled_in_python(spark: SparkSession, scale: int, endpoints: str) -> Any:
    """`holdfast.client.spark.shuffle` gives Spark's own rows."""
    from holdfast.client import Session
    from holdfast.client.spark import shuffle

    frame = rows(spark, 40_000 * scale)
    with Session(endpoints, app="matrix") as session:
        found = digest(shuffle(frame, 7, "key", session=session))
    return [found == digest(frame), found]


@jar_free
def tables(spark: SparkSession, scale: int, endpoints: str) -> Any:
    """An Arrow table that Spark made comes back as it was."""
    import pyarrow

    from holdfast.client import Session
    from holdfast.client.arrow.tables import shuffle_table, write_table

    table = pyarrow.Table.from_pandas(rows(spark, 10_000 * scale).orderBy("id").toPandas())
    with Session(endpoints, app="matrix") as session:
        back = shuffle_table(session, write_table(session, table, 3))
    return [back.sort_by("id").to_pylist() == table.to_pylist(), table.num_rows]
