"""Jobs that shuffle in every way the plug-in has to serve; prints as JSON their answers and what the event log says.

    plugin_io_job.py '{"master": …, "conf": {…}, "events": DIRECTORY, "jobs": [NAME, …]}'

Run by tests/spark/test_plugin_io.py in processes of their own, once with Spark's own shuffle and several times with
Holdfast. It needs pyspark alone. Names with a colon are jobs of the JVM's RDDs: `name:serialiser`, see RddJobs.java.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

JOBS: dict[str, Callable[[SparkSession], Any]] = {}


def job(function: Callable[[SparkSession], Any]) -> Callable[[SparkSession], Any]:
    """Make it one that can be asked for."""
    JOBS[function.__name__] = function
    return function


def rows(spark: SparkSession, count: int, maps: int = 5) -> DataFrame:
    """Rows with a text that compresses badly, a key with many equals, and nulls."""
    return spark.range(0, count, 1, maps).selectExpr(
        "id", "id % 97 AS key", "sha2(CAST(id AS STRING), 256) AS text", "IF(id % 5 = 0, NULL, id * 3) AS maybe"
    )


def digest(frame: DataFrame) -> list[Any]:
    """The same for equal multisets of rows."""
    (row,) = frame.agg(functions.count("*"), functions.sum(functions.hash(*frame.columns).cast("long"))).collect()
    return list(row)


@job
def repartition(spark: SparkSession) -> Any:
    """Each partition has the rows it should have."""
    frame = rows(spark, 200_000).repartition(16, "key").withColumn("at", functions.spark_partition_id())
    return [
        list(row)
        for row in frame.groupBy("at")
        .agg(functions.count("*"), functions.sum(functions.crc32("text")))
        .orderBy("at")
        .collect()
    ]


@job
def round_robin(spark: SparkSession) -> Any:
    """Partitions by turns."""
    return digest(rows(spark, 50_000).repartition(7))


@job
def group_by(spark: SparkSession) -> Any:
    """Partial aggregates meet."""
    frame = (
        rows(spark, 100_000)
        .groupBy("key")
        .agg(functions.sum("maybe"), functions.max("text"), functions.countDistinct("id"))
    )
    return [list(row) for row in frame.orderBy("key").collect()]


@job
def joins(spark: SparkSession) -> Any:
    """Both sides of sort-merge joins of every kind."""
    left = rows(spark, 20_000).where("key < 80")
    right = (
        rows(spark, 3_000, 3).where("key > 20").select("key", functions.col("id").alias("other")).where("other < 500")
    )
    return [digest(left.hint("merge").join(right, "key", how)) for how in ("inner", "full", "left_semi", "left_anti")]


@job
def order_by(spark: SparkSession) -> Any:
    """A range partitioning keeps the order."""
    frame = rows(spark, 50_000).orderBy(functions.desc("text"))
    return [row.id for row in frame.limit(2_000).collect()] + [row.id for row in frame.collect()[-500:]]


@job
def window(spark: SparkSession) -> Any:
    """Whoever looks ahead in its input still has its row."""
    text = "sum(maybe) OVER (PARTITION BY key ORDER BY id ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING) AS near"
    return digest(
        rows(spark, 50_000).selectExpr("id", "key", text, "lead(text) OVER (PARTITION BY key ORDER BY id) AS ahead")
    )


@job
def long_rows(spark: SparkSession) -> Any:
    """Rows of 20 MiB among short ones."""
    frame = spark.range(0, 5, 1, 3).selectExpr(
        "id", "repeat(sha2(CAST(id AS STRING), 256), IF(id < 3, 327680, 1)) AS text"
    )
    frame = frame.repartition(2, "id").selectExpr("id", "length(text) AS long", "crc32(text) AS crc")
    return [list(row) for row in frame.orderBy("id").collect()]


@job
def many_partitions(spark: SparkSession) -> Any:
    """20,000 partitions, put together again to few tasks."""
    spark.conf.set("spark.sql.shuffle.partitions", "20000")
    answer = digest(rows(spark, 60_000, 4).groupBy(functions.expr("id * 7 % 50021 AS id")).agg(functions.max("text")))
    spark.conf.set("spark.sql.shuffle.partitions", "6")
    return answer


@job
def skewed(spark: SparkSession) -> Any:
    """A join that becomes a broadcast with local readers, and one whose skewed partition is split by maps."""
    # Less than the big side, which would be sent to all instead where its stage happens to end first.
    spark.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", "8k")
    big = spark.range(0, 200_000, 1, 4).selectExpr("id", "id % 1000 AS key")
    small = spark.range(0, 1000, 1, 2).selectExpr("id AS key", "id * 2 AS twice").where("key % 100 = 1")
    local = big.join(small, "key").groupBy().count()
    answers: list[Any] = [local.collect()[0][0]]
    plan = local._jdf.queryExecution().executedPlan().toString()
    settings = {
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "64k",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "64k",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    uneven = spark.range(0, 200_000, 1, 6).selectExpr(
        "IF(id % 10 < 8, 1, id % 1000) AS key", "sha2(CAST(id AS STRING), 256) AS text"
    )
    joined = (
        uneven.join(small.hint("merge"), "key")
        .groupBy()
        .agg(functions.count("*"), functions.sum(functions.crc32("text")), functions.sum("twice"))
    )
    answers += list(joined.collect()[0])
    plan += joined._jdf.queryExecution().executedPlan().toString()
    for key in settings:
        spark.conf.unset(key)
    return [*answers, "AQEShuffleRead local" in plan, "skew=true" in plan]


@job
def limits(spark: SparkSession) -> Any:
    """Readers that are left before their end."""
    frame = rows(spark, 100_000).repartition(6, "key")
    return [frame.limit(10).count(), len(frame.take(3)), frame.where("id < 0").count()]


@job
def reused(spark: SparkSession) -> Any:
    """One exchange read by two."""
    frame = rows(spark, 20_000).groupBy("key").agg(functions.sum("id").alias("sum"))
    return digest(frame.join(frame.withColumnRenamed("sum", "again"), "key"))


@job
def python_rdds(spark: SparkSession) -> Any:
    """What PySpark's own RDDs shuffle: pickled batches."""
    pairs: Any = spark.sparkContext.parallelize([(number % 50, number) for number in range(20_000)], 4)
    other = pairs.filter(lambda pair: pair[0] < 25).mapValues(lambda value: value * 2)
    return [
        sorted(pairs.reduceByKey(lambda one, two: one + two).collect()),
        pairs.sortByKey().keys().collect()[::100],
        sorted((key, sum(a), sum(b)) for key, (a, b) in pairs.cogroup(other, 3).collect()),
        sorted(
            pairs.combineByKey(lambda one: [one], lambda ones, one: [*ones, one], lambda a, b: a + b)
            .mapValues(len)
            .collect()
        ),
        pairs.repartitionAndSortWithinPartitions(3).glom().map(lambda part: [key for key, _ in part][::200]).collect(),
        [len(part) for part in pairs.partitionBy(60).glom().collect()],
    ]


def events(directory: Path) -> list[dict[str, Any]]:
    """What Spark's event log has."""
    (log,) = directory.iterdir()
    return [json.loads(line) for line in log.read_text().splitlines()]


def named(logged: list[dict[str, Any]]) -> list[str]:
    """Names of RDDs, as Spark's UI shows them in stages."""
    stages = [event["Stage Info"] for event in logged if event["Event"] == "SparkListenerStageSubmitted"]
    return sorted({rdd["Name"] for stage in stages for rdd in stage["RDD Info"]})


def reported(logged: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Sums of the shuffle metrics of all tasks, by job."""
    jobs: dict[int, str] = {}
    sums: dict[str, Counter[str]] = {}
    for event in logged:
        if event["Event"] == "SparkListenerJobStart":
            name = event.get("Properties", {}).get("spark.jobGroup.id", "")
            jobs |= dict.fromkeys(event["Stage IDs"], name)
        elif event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
            read, written = (event["Task Metrics"][f"Shuffle {way} Metrics"] for way in ("Read", "Write"))
            sums.setdefault(jobs.get(event["Stage ID"], ""), Counter()).update(
                {
                    "records_written": written["Shuffle Records Written"],
                    "bytes_written": written["Shuffle Bytes Written"],
                    "records_read": read["Total Records Read"],
                    "bytes_read": read["Remote Bytes Read"] + read["Local Bytes Read"],
                    "blocks_read": read["Remote Blocks Fetched"] + read["Local Blocks Fetched"],
                    "requests_ms": read["Remote Requests Duration"],
                }
            )
    return sums


def main() -> None:
    """Run what the command line asks for."""
    asked = json.loads(sys.argv[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "6",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{asked['events']}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        **asked["conf"],
    }
    builder = SparkSession.builder.master(asked["master"]).appName("plug-in")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    answers = {}
    for name in asked["jobs"]:
        spark.sparkContext.setJobGroup(name, name)
        if ":" in name:
            assert spark._jvm is not None
            program = spark._jvm.org.apache.spark.shuffle.holdfast.jobs.RddJobs
            answers[name] = program.run(spark.sparkContext._jsc, *name.split(":"))
        else:
            answers[name] = JOBS[name](spark)
    spark.stop()
    logged = events(Path(asked["events"]))
    print(json.dumps({"answers": answers, "metrics": reported(logged), "named": named(logged)}))


if __name__ == "__main__":
    main()
