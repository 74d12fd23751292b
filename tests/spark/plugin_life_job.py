"""Jobs in which Spark does what it does in its life: tries again, speculates, loses executors, streams.

Run by tests/spark/test_plugin_life.py. Tasks leave files in the directory HOLDFAST_JOB_DIR: each attempt that began,
under the number of its map and its own; and some wait there for a file that tells them to go on.
"""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas
from pyspark import RDD, BarrierTaskContext, TaskContext
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.functions import pandas_udf

from tests.spark.plugin_job import Steps, main
from tests.support.spark_env import spark_env
from tests.support.waiting import wait_until

WAIT_SECONDS = 240.0
#: Long enough to be pushed before its map ends.
TEXT = "text" * 500
MAPS = 4
KEYS = 10
ROWS = 2_000


def directory() -> str:
    """Where tasks and tests meet."""
    return os.environ["HOLDFAST_JOB_DIR"]


def await_file(path: Path) -> None:
    """Return once it is there; an error if that takes very long. In tasks, which do not have the tests' helpers."""
    pause = threading.Event()
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} does not come")
        pause.wait(0.05)


def pairs(spark: SparkSession, during: Callable[[int, int, Path], None], maps: int = MAPS) -> "RDD[Any]":
    """Pairs of key and a number; `during` is called in each half-way, with map, attempt, directory."""
    place = directory()

    def map_task(numbers: Iterable[int]) -> Iterator[tuple[int, tuple[int, str]]]:
        task = TaskContext.get()
        assert task is not None
        map_index, attempt = task.partitionId(), task.attemptNumber()
        Path(place, f"{map_index}-{attempt}").touch()
        for count, number in enumerate(numbers):
            if count == ROWS // maps // 2:
                during(map_index, attempt, Path(place))
            yield number % KEYS, (number, TEXT)

    # Not batched: what was given so far is written so far.
    return spark.sparkContext.parallelize(range(ROWS), maps).mapPartitions(map_task)


def totals(numbers: "RDD[Any]") -> list[Any]:
    """Of every key: how many, and their sum."""
    grouped = numbers.groupByKey(3).mapValues(lambda values: sorted(value[0] for value in values))
    return sorted((key, len(values), sum(values)) for key, values in grouped.collect())


def retried(spark: SparkSession) -> Steps:
    """Two maps fail half-way, one of them twice."""

    def fail(map_index: int, attempt: int, place: Path) -> None:
        if (map_index, attempt) in ((1, 0), (2, 0), (2, 1)):
            raise RuntimeError("as it was meant to")

    yield totals(pairs(spark, fail))


def speculation(spark: SparkSession) -> Steps:
    """A map stands still half-way until its twin has begun; then both write to their ends."""

    def stand_still(map_index: int, attempt: int, place: Path) -> None:
        if (map_index, attempt) == (0, 0):
            await_file(place / "0-1")

    yield totals(pairs(spark, stand_still))


def barrier(spark: SparkSession) -> Steps:
    """One task of a barrier stage fails after all have written half; all run again."""
    place = directory()

    def together(numbers: Iterable[int]) -> Iterator[tuple[int, tuple[int, str]]]:
        task = BarrierTaskContext.get()
        for count, number in enumerate(numbers):
            if count == ROWS // 4:
                task.barrier()
                first = Path(place, "failed")
                if task.partitionId() == 1 and not first.exists():
                    first.touch()
                    raise RuntimeError("as it was meant to")
                # Nobody ends before that: Spark takes the output of a task that just did, and the next attempt of the
                # stage, with fewer tasks, waits for it for ever.
                task.barrier()
            yield number % KEYS, (number, TEXT)

    # The stage reads a shuffle itself.
    numbers = spark.sparkContext.parallelize([(number % 2, number) for number in range(ROWS)], MAPS)
    yield totals(numbers.partitionBy(2).values().barrier().mapPartitions(together))


def indeterminate(spark: SparkSession) -> Steps:
    """Rows dealt out in turn, in whatever order they arrive; read again after some were lost."""
    spread = spark.sparkContext.parallelize([(number % KEYS, number) for number in range(ROWS)], MAPS)
    dealt = spread.groupByKey(3).flatMap(lambda pair: [(number % KEYS, (number, TEXT)) for number in pair[1]])
    dealt = dealt.repartition(5)
    yield dealt.count()
    yield totals(dealt)


def twice(spark: SparkSession, maps: int = MAPS) -> Steps:
    """One shuffle that is read twice; nobody holds the maps up."""
    written = pairs(spark, lambda *_: None, maps)
    grouped = written.groupByKey(3).mapValues(lambda values: sum(value[0] for value in values))
    yield sorted(grouped.collect())
    yield sorted(grouped.collect())


def executors(spark: SparkSession) -> set[str]:
    """Ids of the executors that Spark has now."""
    found: Any = spark.sparkContext._jsc.sc().getExecutorIds()
    return {found.apply(each) for each in range(found.size())}


def await_executors(spark: SparkSession, good: Callable[[set[str]], bool]) -> None:
    """Return once the executors are as they should be."""
    wait_until(lambda: good(executors(spark)), "the executors to be as they should", WAIT_SECONDS)


def idle(spark: SparkSession) -> Steps:
    """The same; all executors leave in between."""
    steps = twice(spark)
    yield next(steps)
    await_executors(spark, lambda now: not now)
    yield next(steps)


def tracked(spark: SparkSession) -> Steps:
    """The same with one map; in between two executors are busy at once, and the one that holds no output leaves."""
    place = directory()

    def meet(numbers: Iterable[int]) -> None:
        (mine,) = numbers
        Path(place, f"here-{mine}").touch()
        await_file(Path(place, f"here-{1 - mine}"))

    steps = twice(spark, maps=1)
    yield next(steps)
    spark.sparkContext.parallelize(range(2), 2).foreachPartition(meet)
    await_executors(spark, lambda now: len(now) == 1)
    yield next(steps)


def decommissioned(spark: SparkSession) -> Steps:
    """The same; the executors of the first read are decommissioned and leave."""
    steps = twice(spark)
    yield next(steps)
    before = executors(spark)
    jvm: Any = spark.sparkContext._jvm
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("as it was meant to", jvm.scala.Option.empty())
    for each in before:
        spark.sparkContext._jsc.sc().schedulerBackend().decommissionExecutor(each, info, False, False)
    await_executors(spark, lambda now: not now & before)
    yield next(steps)


def killed(spark: SparkSession) -> Steps:
    """Maps 2 and 3 wait half-way for the file `go`."""

    def wait(map_index: int, attempt: int, place: Path) -> None:
        if map_index >= 2:
            (place / f"waits-{map_index}").touch()
            await_file(place / "go")

    yield totals(pairs(spark, wait))


def fell_back(spark: SparkSession) -> Steps:
    """Shuffles until one falls back; then none of them is needed any more; then the same as `killed`."""
    jvm: Any = spark.sparkContext._jvm
    manager, tracker = spark_env(spark, "shuffleManager"), spark_env(spark, "mapOutputTracker")
    kept: list[RDD[Any]] = []

    def another() -> None:
        kept.append(pairs(spark, lambda *_: None).groupByKey(3))
        assert kept[-1].count() == KEYS

    def reliable() -> bool:
        return bool(manager.reliable())

    def one_fell_back() -> bool:
        another()
        return bool(manager.fallbacks() > 0)

    def nothing_needed() -> bool:
        kept.clear()
        gc.collect()
        jvm.System.gc()
        return bool(tracker.shuffleStatuses().size() == 0)

    def room_again() -> bool:
        before = manager.fallbacks()
        another()
        wait_until(nothing_needed, "Spark's cleaner to come", WAIT_SECONDS)
        return bool(manager.fallbacks() == before)

    wait_until(one_fell_back, "the quota to be used up", WAIT_SECONDS)
    yield reliable()
    wait_until(nothing_needed, "Spark's cleaner to come", WAIT_SECONDS)
    yield reliable()
    wait_until(room_again, "the masters to hear that there is room", WAIT_SECONDS)
    for path in Path(directory()).glob("[0-9]-[0-9]"):
        path.unlink()
    yield from killed(spark)


def streaming(spark: SparkSession) -> Steps:
    """A query over files, one a micro-batch, that is stopped, goes on from its checkpoint, and is stopped again."""
    place = Path(directory())
    (place / "input").mkdir(exist_ok=True)
    for _ in range(2):
        first = len(list((place / "input").iterdir()))
        for number in range(first, first + 3):
            rows = "".join(f"{number * 1000 + each}\n" for each in range(1000))
            (place / f"new-{number}").write_text(rows)
            (place / f"new-{number}").rename(place / "input" / f"{number}.csv")
        seen: dict[int, list[int]] = {}
        batches: list[int] = []

        def take(frame: DataFrame, batch: int, seen: dict[int, list[int]] = seen, batches: list[int] = batches) -> None:
            batches.append(batch)
            seen.update({row.key: [row["count"], row.sum] for row in frame.collect()})

        numbers = spark.readStream.schema("id long").option("maxFilesPerTrigger", "1").csv(str(place / "input"))
        counted = numbers.groupBy((functions.col("id") % KEYS).alias("key")).agg(
            functions.count("*").alias("count"), functions.sum("id").alias("sum")
        )
        query = (
            counted.writeStream.outputMode("update")
            .foreachBatch(take)
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        yield [batches, sorted(seen.items())]


def over_pandas(spark: SparkSession) -> Steps:
    """Functions over pandas, whose groups come by a shuffle."""
    numbers: Any = spark.range(0, 20_000, 1, 5).selectExpr("id", "id % 97 AS key", "CAST(id % 13 AS DOUBLE) AS value")
    other = numbers.where("id % 3 = 0").selectExpr("key", "value * 2 AS twice")

    def centred(group: Any) -> Any:
        return group.assign(value=group.value - group.value.mean())

    def first(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            yield frame[frame.id < 500]

    def paired(left: Any, right: Any) -> Any:
        return left.head(1).assign(value=float(len(left)), id=len(right))[["id", "key", "value"]]

    def middle(values: pandas.Series) -> float:
        return float(values.median())

    middle_of: Any = pandas_udf  # its types know only functions that are decorated
    schema = "id long, key long, value double"
    yield {
        "grouped": rows(numbers.groupBy("key").applyInPandas(centred, schema)),
        "cogrouped": rows(numbers.groupBy("key").cogroup(other.groupBy("key")).applyInPandas(paired, schema)),
        "aggregated": rows(numbers.groupBy("key").agg(middle_of(middle, "double")("value"))),
        "mapped": rows(numbers.repartition(7, "key").mapInPandas(first, schema)),
    }


def rows(frame: DataFrame) -> list[Any]:
    """All rows, in an order of their own, numbers without the noise of sums in another order."""
    return sorted([round(cell, 6) for cell in row] for row in frame.collect())


JOBS: dict[str, Callable[[SparkSession], Steps]] = {
    each.__name__: each
    for each in (
        retried,
        speculation,
        barrier,
        indeterminate,
        twice,
        idle,
        tracked,
        decommissioned,
        killed,
        fell_back,
        streaming,
        over_pandas,
    )
}

if __name__ == "__main__":
    main(JOBS)
