"""Jobs over the plug-in that stop half-way for whoever started them to do something; run by tests/spark/test_plugin.py.

    python -m tests.spark.plugin_job JSON        {"master": …, "conf": {…}, "job": NAME}

Prints a JSON line for every step and waits for a line on standard input before the next one.
"""

import gc
import itertools
import json
import os
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession, functions

from tests.support.spark_env import spark_env

Steps = Iterator[Any]


def sums(spark: SparkSession) -> Steps:
    """A group-by, a join and an RDD, once."""
    numbers = spark.range(0, 100_000, 1, 4).selectExpr("id", "id % 100 AS key")
    grouped = numbers.groupBy("key").agg(functions.sum("id").alias("sum"))
    joined = numbers.join(grouped, "key").where("id < 3").orderBy("id").select("id", "sum")
    pairs = spark.sparkContext.parallelize(range(1000), 4).map(lambda one: (one % 10, one))
    yield {
        "grouped": grouped.agg(functions.sum("sum"), functions.count("*")).collect()[0],
        "joined": [list(row) for row in joined.collect()],
        "pairs": sorted(pairs.reduceByKey(lambda one, other: one + other, 3).collect()),
    }


def reuse(spark: SparkSession) -> Steps:
    """One shuffle that is read twice."""
    pairs = spark.sparkContext.parallelize(range(2000), 4).map(lambda one: (one % 10, one)).groupByKey(4)
    totals = pairs.mapValues(sum)
    yield sorted(totals.collect())
    yield sorted(totals.collect())


def anew(spark: SparkSession) -> Steps:
    """A new shuffle in each step."""
    for rows in (100, 200):
        yield spark.range(0, rows, 1, 2).repartition(3).count()


def twice(spark: SparkSession) -> Steps:
    """Two shuffles, one after the other."""
    for _ in range(2):
        yield spark.range(0, 100, 1, 2).repartition(2).count()


def carried(spark: SparkSession) -> Steps:
    """A shuffle, what Spark's closure serializer makes of it, and what Spark's page says of the settings."""
    pairs = spark.sparkContext.parallelize(range(2000), 4).map(lambda one: (one % 10, one)).groupByKey(4)
    totals = sorted(pairs.mapValues(sum).collect())
    jvm: Any = spark._jvm
    at = pairs._jrdd.rdd()
    while not at.dependencies().head().getClass().getName().endswith(".ShuffleDependency"):
        at = at.dependencies().head().rdd()
    dependency = at.dependencies().head()
    serializer = spark_env(spark, "closureSerializer").newInstance()
    made = serializer.serialize(dependency, jvm.scala.reflect.ClassTag.Any())
    # From Spark 4.3 on the page asks for the settings by itself.
    ui, application = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    environment = ""
    for page in ("environment/", f"api/v1/applications/{application}/environment"):
        with urllib.request.urlopen(f"{ui}/{page}", timeout=60) as answer:
            environment += answer.read().decode()
    yield {"totals": totals, "carried": bytes(made.array()).decode("latin-1"), "environment": environment}


def measured(spark: SparkSession) -> Steps:
    """A shuffle of an RDD, then what Spark's metric system shows, as JSON and for Prometheus."""
    pairs = spark.sparkContext.parallelize(range(2000), 4).map(lambda one: (one % 10, one)).groupByKey(4)
    yield sorted(pairs.mapValues(sum).collect())
    shown = []
    for page in ("json", "prometheus"):
        with urllib.request.urlopen(f"{spark.sparkContext.uiWebUrl}/metrics/{page}/", timeout=60) as answer:
            shown.append(answer.read().decode())
    yield shown


def counted(spark: SparkSession) -> Steps:
    """What Spark counts of the stages of some jobs and of SQL's exchanges; then the same with Spark's own shuffle."""
    yield counts(spark)
    settings: dict[str, Any] = dict(spark.sparkContext.getConf().getAll())
    spark.stop()
    for key in ("spark.app.id", "spark.driver.port", "spark.shuffle.sort.io.plugin.class"):
        settings.pop(key, None)
    own = SparkSession.builder.config(map=settings | {"spark.shuffle.manager": "sort"}).getOrCreate()
    yield counts(own)
    own.stop()


def counts(spark: SparkSession) -> dict[str, Any]:
    """Jobs over rows and over records of the JVM, which read all of a shuffle or its beginning, combined and not."""
    context = spark.sparkContext
    numbers = spark.range(0, 20_000, 1, 4)
    numbers.repartition(5, "id").selectExpr("id % 100 AS key", "id").groupBy("key").sum("id").collect()
    numbers.repartition(3).limit(5).collect()
    jvm: Any = spark._jvm
    values = jvm.java.util.ArrayList()
    for each in range(500):
        values.add(each)
    context._jsc.parallelize(values, 3).repartition(4).collect()
    context._jsc.parallelize(values, 3).repartition(2).take(3)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return {"stages": _rest(spark, "stages"), "queries": _rest(spark, "sql?length=100")}


def _rest(spark: SparkSession, path: str) -> Any:
    """What Spark's UI answers to programs."""
    url = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}/{path}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def noisy(spark: SparkSession) -> Steps:
    """A shuffle of 14 MB of text and 2 MB of noise, which has a partition of its own; then Spark's settings."""
    noise = "unhex(concat(" + ", ".join(f"sha2(concat(id, '-{each}'), 512)" for each in range(16)) + "))"
    text = "encode(repeat(concat('the number ', id, ' of many, '), 40), 'UTF-8')"
    rows = spark.range(0, 16_000, 1, 2).selectExpr(
        "id % 8 AS key", f"rpad(IF(id % 8 = 0, {noise}, {text}), 1000, unhex('20')) AS data"
    )
    yield rows.repartition(64, "key").selectExpr("sum(length(data))").collect()[0][0]
    yield dict(spark.sparkContext.getConf().getAll())


def strict(spark: SparkSession) -> Steps:
    """One shuffle that is read again and again, and new ones beside it; what fails says why."""
    pairs = spark.sparkContext.parallelize(range(2000), 4).map(lambda one: (one % 10, one)).groupByKey(4)
    totals = pairs.mapValues(sum)

    def again() -> Any:
        return sorted(totals.collect())

    def another() -> Any:
        return spark.range(0, 100, 1, 2).repartition(2).count()

    def reported(what: Callable[[], Any]) -> Any:
        try:
            return what()
        except Exception as error:  # noqa: BLE001 - Py4J and Spark have many kinds, and its text is the answer
            return str(error)

    yield again()
    while True:
        yield [reported(again), reported(another)]


def outliving(spark: SparkSession) -> Steps:
    """A shuffle whose map tasks begin to write only once a file is there, and whose readers wait for the next one."""
    directory = Path(str(spark.conf.get("spark.test.directory")))
    yield "begun"

    def held(name: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
        def after(given: Iterable[Any]) -> Iterable[Any]:
            records = iter(given)
            first = [next(records)]
            (directory / f"{name}-waits").touch()
            while not (directory / f"{name}-go").exists():
                threading.Event().wait(0.1)  # nothing of ours can be imported where Spark runs this
            return itertools.chain(first, records)

        return after

    pairs = spark.sparkContext.parallelize(range(2000), 2).map(lambda one: (one % 10, one))
    totals = pairs.mapPartitions(held("maps")).groupByKey(2).mapPartitions(held("readers")).mapValues(sum)
    yield sorted(totals.collect())


def cleaned(spark: SparkSession) -> Steps:
    """A shuffle that is let go while the application goes on."""
    pairs = spark.sparkContext.parallelize(range(100), 2).map(lambda one: (one % 10, one)).groupByKey(2)
    yield pairs.count()
    del pairs
    jvm: Any = spark.sparkContext._jvm
    while True:  # Python lets go first, then the JVM, then Spark's cleaner hears of it: each in its own time
        gc.collect()
        jvm.System.gc()
        yield "collected"


JOBS: dict[str, Callable[[SparkSession], Steps]] = {
    each.__name__: each
    for each in (sums, reuse, anew, twice, carried, measured, counted, noisy, strict, cleaned, outliving)
}


def main(jobs: dict[str, Callable[[SparkSession], Steps]]) -> None:
    """Run the one of these jobs that the command line asks for."""
    asked = json.loads(sys.argv[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(asked["master"])
    usual = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    if asked["job"] in ("anew", "carried", "measured", "counted"):
        usual |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    for key, value in {**usual, **asked["conf"]}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for step in jobs[asked["job"]](spark):
        print(json.dumps(step), flush=True)
        sys.stdin.readline()
    spark.stop()
    print(json.dumps("stopped"), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(JOBS)
