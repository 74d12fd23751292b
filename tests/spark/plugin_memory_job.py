"""Jobs that show what the plug-in holds; run by tests/spark/test_plugin_memory.py and test_tiers.py.

How many shuffles `many` makes and how much `big` moves is in HOLDFAST_JOB_SIZE.
"""

import gc
import os
import subprocess
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions, types

from benchmarks import workloads
from tests.spark.plugin_job import Steps, main
from tests.support.spark_env import spark_env
from tests.support.waiting import wait_until

WAIT_SECONDS = 120.0
#: After these everything is there that is made once: threads, connections, idle buffers.
WARM = 30
#: Shuffles that Spark still knows of when its cleaner has done its work; the last ones may be held by who asked.
KNOWN_MAX = 4
#: Rows of each branch of `spilled`, and partitions of its shuffle: all rows of the first wait in buffers.
HALF = 1_050_000
#: Of `coalesced`: together much more than its heap.
LARGE_ROWS = 300
LARGE_BYTES = 3_000_000
PARTITIONS = 2_000


def big(spark: SparkSession) -> Steps:
    """The workload of that name."""
    yield workloads.big(spark, float(os.environ["HOLDFAST_JOB_SIZE"]))


def coalesced(spark: SparkSession) -> Steps:
    """One task reads very many partitions of large rows, one after the other: of SQL, and of pairs."""
    rows = spark.range(0, LARGE_ROWS, 1, 8).selectExpr("id", f"repeat(char(97 + id % 26), {LARGE_BYTES}) AS text")
    one = rows.repartition(LARGE_ROWS, "id").coalesce(1).selectExpr("count(*)", "sum(length(text))")
    yield list(one.collect()[0])
    jvm: Any = spark.sparkContext._jvm
    pairs = jvm.org.apache.spark.shuffle.holdfast.jobs.LargePairs.coalesced(
        spark.sparkContext._jsc, LARGE_ROWS, LARGE_BYTES
    )
    yield [pairs[0], pairs[1]]


def tiny(spark: SparkSession) -> Steps:
    """The workload of that name."""
    yield workloads.tiny(spark, float(os.environ["HOLDFAST_JOB_SIZE"]))


def crowded(spark: SparkSession) -> Steps:
    """Twice as many tasks as run at once read one shuffle and write the next, rows of 1 KiB."""
    tasks = 2 * int(os.environ["HOLDFAST_JOB_SIZE"])
    rows = int(os.environ["HOLDFAST_JOB_BYTES"]) // 1024
    wide = spark.range(0, rows, 1, tasks).withColumn("text", functions.expr("repeat(sha2(string(id), 256), 16)"))
    once = wide.repartition(tasks, "id").withColumn("text", functions.reverse("text"))
    twice = once.repartition(tasks, functions.col("id") % 1_000)
    sums = functions.count("*"), functions.sum("id"), functions.sum(functions.length("text"))
    yield list(twice.agg(*sums).collect()[0])


def many(spark: SparkSession) -> Steps:
    """Small shuffles one after the other, and what is held before and after them."""
    shuffles(spark, WARM)
    yield held(spark)
    shuffles(spark, int(os.environ["HOLDFAST_JOB_SIZE"]))
    yield held(spark)


def spilled(spark: SparkSession) -> Steps:
    """Two branches of two aggregates each in one task with the writer of a wide shuffle. All direct memory goes as the
    second branch begins, whose aggregates then ask the writer for the memory of its buffers."""
    yield counted(spark, 2, HALF, 2 * HALF - 1)


def written(spark: SparkSession) -> Steps:
    """One of these branches. All direct memory goes with its first row, until the attempt ends."""
    yield counted(spark, 1, 0, -1)


def counted(spark: SparkSession, branches: int, first: int, last: int) -> list[int]:
    """Rows, the sum of their ids and of their counts, behind a shuffle to very many partitions."""
    spark.udf.registerJavaFunction(
        "memory_goes", "org.apache.spark.shuffle.holdfast.jobs.AllDirectMemory", types.LongType()
    )

    def branch(start: int) -> DataFrame:
        ids = spark.range(start, start + HALF, 1, 1)
        return ids.selectExpr(f"memory_goes(id, {first}L, {last}L) AS id").groupBy("id").count()

    rows = branch(0)
    for each in range(1, branches):
        rows = rows.union(branch(each * HALF))
    # With nothing between the two, `coalesce` is optimised away, and before Spark 4.1 each branch is a task of its own.
    one = rows.coalesce(1).select("count", "id")
    shuffled = one.repartition(PARTITIONS, "id")
    return list(shuffled.agg(functions.count("*"), functions.sum("id"), functions.sum("count")).collect()[0])


def shuffles(spark: SparkSession, count: int) -> None:
    """Make some, of rows and of pairs."""
    for number in range(count // 2):
        spark.range(0, 1_000, 1, 4).repartition(4, "id").count()
        pairs = spark.sparkContext.parallelize([(each % 7, number) for each in range(100)], 2)
        assert len(pairs.groupByKey(2).collect()) == 7


def held(spark: SparkSession) -> dict[str, int]:
    """What the plug-in holds in this JVM once Spark's cleaner has forgotten the shuffles."""
    jvm: Any = spark.sparkContext._jvm
    manager, tracker = spark_env(spark, "shuffleManager"), spark_env(spark, "mapOutputTracker")

    def forgotten() -> bool:
        gc.collect()
        jvm.System.gc()
        return bool(tracker.shuffleStatuses().size() <= KNOWN_MAX)

    wait_until(forgotten, "Spark's cleaner to come", WAIT_SECONDS)
    runtime = manager.runtime()
    threads = jvm.java.lang.Thread.getAllStackTraces().keySet()
    process = jvm.java.lang.ProcessHandle.current().pid()
    found = {
        # A connection that lies idle has two of its own.
        "buffers": runtime.buffers().taken() - 2 * runtime.connections().idle(),
        "connections borrowed": runtime.connections().borrowed(),
        "connections": runtime.connections().idle(),
        "pushing threads": runtime.pushContext().busyThreads(),
        "threads": jvm.java.lang.Thread.activeCount(),
        "our threads": sum(str(each.getName()).startswith("holdfast") for each in threads),
        "files": len(os.listdir(f"/proc/{process}/fd")),
    }
    reported = subprocess.run(["jmap", "-histo:live", str(process)], check=True, capture_output=True, text=True).stdout
    for line in reported.splitlines():
        words = line.split()
        if len(words) > 3 and words[3].startswith("org.apache.spark.shuffle.holdfast."):
            found[words[3].rpartition(".")[2]] = int(words[1])
    return found


if __name__ == "__main__":
    main(
        {
            "big": big,
            "coalesced": coalesced,
            "crowded": crowded,
            "many": many,
            "spilled": spilled,
            "tiny": tiny,
            "written": written,
        }
    )
