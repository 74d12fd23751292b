"""A Spark that does what it is asked line by line: the job side of test_spark_rows.py and test_spark_gaps.py.

    python -m tests.acceptance.spark_job

Reads one JSON list per line, `[command, argument, …]`, and answers each with one JSON line. One process serves many
tests, since a Spark takes seconds to start; `begin` changes its settings by starting another context in it. Tasks that
have to wait for the test leave a file in a directory, and go on when there is one called `go`.
"""

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import BarrierTaskContext, TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

from tests.support.spark_env import spark_env

USUAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "6",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.cleaner.periodicGC.interval": "1h",
}
#: A join whose left side AQE splits by ranges of maps.
SKEWED = {
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "64k",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64k",
}
#: Rows in a batch that Spark gives to Python.
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
WAIT_SECONDS = 300.0
COMMANDS: dict[str, Callable[..., Any]] = {}
#: What a later command goes on with.
kept: dict[str, Any] = {}


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make it one that can be asked for."""
    COMMANDS[function.__name__] = function
    return function


def session() -> SparkSession:
    """The Spark of now."""
    active: Any = SparkSession.getActiveSession()
    assert active is not None
    found: SparkSession = active
    return found


@command
def begin(master: str, conf: dict[str, str]) -> Any:
    """Start Spark, or another one with other settings."""
    kept.clear()
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()
    builder = SparkSession.builder.master(master).appName("acceptance")
    for key, value in {**USUAL, **conf}.items():
        builder = builder.config(key, value)
    builder.getOrCreate().sparkContext.setLogLevel("WARN")
    return session().sparkContext.applicationId


@command
def stop() -> Any:
    """End the application."""
    session().stop()


def wait_for(path: Path) -> None:
    """Wait in a task until the test has made this file."""
    deadline = time.monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while not path.exists():
        assert time.monotonic() < deadline, f"waited for {path} in vain"
        pause.wait(0.02)


# Plans of RDDs: each gives what is read first, for its shuffles to be written, and what is asked for in the end.


def pairs(maps: int = 4, count: int = 2_000) -> Any:
    """Numbers by their last digit."""
    return session().sparkContext.parallelize(range(count), maps).map(lambda one: (one % 10, one))


def basic() -> Any:
    """One shuffle, read once."""
    grouped = pairs().groupByKey(4).mapValues(sum)
    return grouped, grouped


def several() -> Any:
    """Three shuffles, of which one reads the others."""
    left = pairs().groupByKey(4).mapValues(sum)
    right = pairs(3, 500).reduceByKey(max, 3)
    return left.union(right), left.join(right, 5)


def reused() -> Any:
    """One shuffle that two branches read."""
    grouped = pairs().groupByKey(4)
    return grouped, grouped.mapValues(sum).union(grouped.mapValues(len))


def chained() -> Any:
    """A stage that reads one shuffle and writes another."""
    grouped = pairs().groupByKey(4)
    spread = grouped.flatMap(lambda one: [(value % 7, one[0]) for value in one[1]])
    return grouped, spread.reduceByKey(lambda one, other: one + other, 3)


def empty() -> Any:
    """Maps without a record, partitions without a record, and an input without any."""
    few = pairs(8, 3).groupByKey(5).mapValues(sum)
    nothing = (
        session().sparkContext.parallelize(list[int](), 3).map(lambda one: (one, one)).groupByKey(2).mapValues(sum)
    )
    return few, few.union(nothing)


SHAPES = {each.__name__: each for each in (basic, several, reused, chained, empty)}


@command
def prepare(shape: str) -> Any:
    """Have the first shuffles of a plan written, committed and read a little: the first partition."""
    first, final = SHAPES[shape]()
    kept[shape] = final
    return session().sparkContext.runJob(first, lambda records: [sum(1 for _ in records)], [0])[0]


@command
def finish(shape: str) -> Any:
    """What a prepared plan gives in the end."""
    return sorted(kept[shape].collect())


@command
def forget() -> Any:
    """Let go of everything that is kept, and have Spark's cleaner hear of it."""
    kept.clear()
    gc.collect()
    jvm: Any = session().sparkContext._jvm
    jvm.System.gc()
    return None


# Stages that are run again.


@command
def barrier(directory: str, failures: int) -> Any:
    """A barrier stage that reads a shuffle, writes one, and fails so often when all its tasks have written everything.
    Every record says in which attempt of the stage it was made."""

    def tagged(records: Iterable[Any]) -> Iterator[Any]:
        context = BarrierTaskContext.get()
        attempt = len(list(Path(directory).glob("failed-*")))
        for key, values in records:
            for value in values:
                yield key, (attempt, value)
        context.barrier()
        if context.partitionId() == 0 and attempt < failures:
            Path(directory, f"failed-{attempt}").touch()
            raise RuntimeError("this attempt of the stage is to fail")
        if attempt < failures:
            # Nobody succeeds in an attempt that fails: Spark counts a success that comes late for the attempt after
            # too, then starts only the other task of that one, which waits for ever. With its own shuffle as well.
            context.barrier()

    staged = pairs(4, 4_000).groupByKey(2).barrier().mapPartitions(tagged)
    found = staged.groupByKey(3).flatMap(lambda one: [(one[0], *tag) for tag in one[1]]).collect()
    return [sorted({attempt for _, attempt, _ in found}), len(found), sum(value for _, _, value in found)]


@command
def marked(marker: str, directory: str) -> Any:
    """Write a shuffle whose last partition holds the marker; then a plan is kept, whose second stage reads it and
    writes another. There the first attempt of the first task has read all and pushed half when it leaves a file, and
    ends only when there is `go`."""

    def slow(partition: int, records: Iterable[Any]) -> Iterator[Any]:
        found = list(records)
        half = len(found) // 2
        yield from found[:half]
        context: Any = TaskContext.get()
        if partition == 0 and not Path(directory, "late").exists():
            Path(directory, "late").touch()
            wait_for(Path(directory, "go"))
        yield from found[half:]
        Path(directory, f"ended-{partition}-{context.taskAttemptId()}").touch()

    numbers = session().sparkContext.parallelize(range(400), 4)
    first = numbers.map(lambda one: (one % 4, marker.encode() * 20 if one == 399 else one.to_bytes(2, "big") * 2_000))
    first = first.partitionBy(4, lambda key: key)
    second = first.mapPartitionsWithIndex(slow).map(lambda one: (len(one[1]), one[1][:2])).partitionBy(3)
    kept["marked"] = second.map(lambda one: [one[0], one[1].hex()])
    return session().sparkContext.runJob(first, lambda records: [sum(1 for _ in records)], [0])[0]


@command
def collect_marked() -> Any:
    """What the plan of `marked` gives."""
    return sorted(kept["marked"].collect())


@command
def collide(directory: str) -> Any:
    """A map whose first attempt fails when it has pushed other records than its second one will."""

    def unsteady(partition: int, records: Iterable[Any]) -> Iterator[Any]:
        context: Any = TaskContext.get()
        for one in records:
            yield one % 5, (partition, context.attemptNumber(), os.urandom(2_000))
        if partition == 0 and context.attemptNumber() == 0:
            Path(directory, "failed").touch()
            raise RuntimeError("this attempt is to fail")

    spread = session().sparkContext.parallelize(range(20_000), 4).mapPartitionsWithIndex(unsteady).partitionBy(5)
    return sorted(list(one) for one in spread.map(lambda one: one[1][:2]).countByValue().items())


# Maps and readers that wait half-way.


def halves(batches: Iterable[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """The rows of a task in two halves, in batches small enough that most of the first half is sent on at once."""
    table = pa.Table.from_batches(list(batches))
    middle, few = table.num_rows // 2, max(1, table.num_rows // 32)
    return table.slice(0, middle).to_batches(few), table.slice(middle).to_batches(few)


def texts(rows: int, maps: int, hashes: int) -> DataFrame:
    """Rows with `hashes` times 64 characters that compress to half."""
    text = ", ".join(f"sha2(CAST(id * {hashes} + {number} AS STRING), 256)" for number in range(hashes))
    return session().range(0, rows, 1, maps).selectExpr("id", f"concat({text}) AS text")


def totals(frame: DataFrame) -> list[Any]:
    """The same for equal multisets of rows."""
    return list(
        frame.agg(functions.count("*"), functions.sum("id"), functions.sum(functions.crc32("text"))).collect()[0]
    )


@command
def counted(rows: int, maps: int, hashes: int, partitions: int) -> Any:
    """Rows by way of a shuffle."""
    return totals(texts(rows, maps, hashes).repartition(partitions, "id"))


@command
def gated_maps(directory: str, rows: int, hashes: int, partitions: int) -> Any:
    """The same in four maps, each of which waits when it has given half of its rows."""

    def half(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first_half, second_half = halves(batches)
        yield from first_half
        context: Any = TaskContext.get()
        Path(directory, f"map-{context.partitionId()}-{context.taskAttemptId()}").touch()
        wait_for(Path(directory, "go"))
        yield from second_half

    frame = texts(rows, 4, hashes)
    return totals(frame.mapInArrow(half, frame.schema).repartition(partitions, "id"))


@command
def gated_readers(directory: str, rows: int, hashes: int) -> Any:
    """Two readers, each of which waits when it has the first of its rows, in batches so small that Spark does not read
    all of them ahead."""

    def first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rest = iter(batches)
        yield next(rest)
        context: Any = TaskContext.get()
        Path(directory, f"reader-{context.partitionId()}-{context.taskAttemptId()}").touch()
        wait_for(Path(directory, "go"))
        yield from rest

    session().conf.set(ARROW_ROWS, "1000")
    frame = texts(rows, 4, hashes)
    answer = totals(frame.repartition(2, "id").mapInArrow(first, frame.schema))
    session().conf.unset(ARROW_ROWS)
    return answer


@command
def skew_join(directory: str, straggle: bool) -> Any:
    """A sort-merge join of which AQE splits a partition by ranges of maps. With a directory the maps of its large side
    wait as those of `gated_maps` do; to straggle is to wait, in the first attempt of the first map, for the end of the
    second one. The last answer is whether the plan was split."""
    for key, value in SKEWED.items():
        session().conf.set(key, value)

    def half(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first_half, second_half = halves(batches)
        yield from first_half
        context: Any = TaskContext.get()
        first = context.partitionId() == 0 and context.attemptNumber() == 0
        Path(directory, f"map-{context.partitionId()}-{context.taskAttemptId()}").touch()
        wait_for(Path(directory, "ended-0-1" if straggle and first else "go"))
        yield from second_half
        Path(directory, f"ended-{context.partitionId()}-{context.attemptNumber()}").touch()

    large = uneven()
    if directory:
        large = large.mapInArrow(half, large.schema)
    joined = large.join(narrow().hint("merge"), "key").groupBy()
    found = joined.agg(functions.count("*"), functions.sum(functions.crc32("text")), functions.sum("twice"))
    answer = list(found.collect()[0])
    plan: Any = found._jdf.queryExecution().executedPlan().toString()
    for key in SKEWED:
        session().conf.unset(key)
    return [*answer, "skew=true" in plan]


def uneven() -> DataFrame:
    """Rows of which most have one key."""
    return (
        session()
        .range(0, 60_000, 1, 6)
        .selectExpr("IF(id % 10 < 8, 1, id % 1000) AS key", "sha2(CAST(id AS STRING), 256) AS text")
    )


def narrow() -> DataFrame:
    """What they are joined with."""
    return session().range(0, 1000, 1, 2).selectExpr("id AS key", "id * 2 AS twice").where("key % 100 = 1")


@command
def reused_exchange() -> Any:
    """One exchange that is read by ranges of maps in one join and whole in another. The last answers are whether the
    plan was so."""
    for key, value in SKEWED.items():
        session().conf.set(key, value)
    left = uneven()
    parts = left.join(narrow().hint("merge"), "key").select("key", "text", "twice")
    whole = left.join(narrow().hint("merge"), "key", "full").select("key", "text", "twice")
    found = (
        parts.union(whole)
        .groupBy()
        .agg(functions.count("*"), functions.sum(functions.crc32("text")), functions.sum("twice"), functions.sum("key"))
    )
    answer = list(found.collect()[0])
    plan: Any = found._jdf.queryExecution().executedPlan().toString()
    for key in SKEWED:
        session().conf.unset(key)
    return [*answer, "skew=true" in plan, "ReusedExchange" in plan]


@command
def everything() -> Any:
    """combineByKey, groupByKey, repartition, sortByKey; SQL that groups, sorts, joins and broadcasts."""
    numbers = pairs(4, 5_000)
    frame = session().range(0, 20_000, 1, 4).selectExpr("id", "id % 97 AS key", "sha2(CAST(id AS STRING), 256) AS text")
    grouped = frame.groupBy("key").agg(functions.sum("id").alias("sum"), functions.max("text").alias("last"))
    joined = frame.join(functions.broadcast(grouped), "key").where("id < 200").orderBy(functions.desc("text"))
    return [
        sorted(numbers.combineByKey(lambda one: 1, lambda so_far, _: so_far + 1, lambda a, b: a + b).collect()),
        sorted((key, sorted(values)[:5]) for key, values in numbers.groupByKey(3).collect()),
        sorted(len(part) for part in numbers.repartition(7).glom().collect()) and numbers.repartition(7).count(),
        numbers.sortByKey(False).keys().collect()[::50],
        [list(row) for row in grouped.orderBy("key").collect()],
        [list(row) for row in joined.select("id", "key", "sum").collect()],
        totals(frame.repartition(5).distinct()),
    ]


@command
def remove(shuffle: int) -> Any:
    """Drop a shuffle as Spark does after a query where it is told to clean then: statuses stay, and so may plans."""
    spark_env(session(), "blockManager").master().removeShuffle(shuffle, True)


@command
def keep_rows(rows: int) -> Any:
    """Write a shuffle of rows (id, three times id) into four partitions and keep it; returns its number of rows."""
    frame = session().range(0, rows, 1, 3).selectExpr("id", "id * 3 AS three").repartition(4, "id")
    kept["rows"] = frame.rdd
    return kept["rows"].count()


def main() -> None:
    """Serve until standard input ends."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"answer": COMMANDS[name](*arguments)}
        except Exception as error:  # noqa: BLE001 - the test decides what it means
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
