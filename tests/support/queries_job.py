"""A job for a cluster manager: queries with shuffles, again and again; each pass writes a file with what they gave.

    spark-submit … tests/support/queries_job.py OUT [MASTERS]

Ends once OUT/go is there. `pass-N.json` has the answers of pass N and the container of the driver
that ran it. With MASTERS the last query goes through the function `shuffle`, which needs Holdfast in the Python of the
executors. It imports nothing of the tests: in cluster mode it runs in a container.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession, functions

FACTS = "id", "id % 5000 AS key", "sha2(CAST(id AS STRING), 256) AS text"


def answers(spark: SparkSession, masters: list[str]) -> Iterator[list[Any]]:
    """What each query gives."""
    facts = spark.range(0, 200_000, 1, 8).selectExpr(*FACTS)
    names = spark.range(0, 5_000, 1, 4).selectExpr("id AS key", "id % 97 AS kind", "md5(CAST(id AS STRING)) AS name")
    grouped = facts.groupBy("key").agg(functions.sum("id").alias("total"), functions.max("text").alias("text"))
    yield [*grouped.selectExpr("count(*)", "sum(total)", "sum(crc32(text))").collect()[0]]
    joined = (
        facts.hint("shuffle_hash").join(names, "key").groupBy("kind").agg(functions.expr("sum(crc32(text || name))"))
    )
    yield sorted([*row] for row in joined.collect())
    pairs = spark.sparkContext.parallelize(range(20_000), 8).map(lambda one: (one % 10, one))
    yield sorted(pairs.reduceByKey(lambda one, other: one + other, 4).collect())
    if masters:
        from holdfast.client import Session
        from holdfast.client.spark import shuffle

        with Session(masters[0], app="yarn, jar-free") as session:
            sent = shuffle(facts, 4, "key", session=session)
            yield [*sent.selectExpr("count(*)", "sum(id)", "sum(crc32(text))").collect()[0]]


def main() -> None:
    """Run the passes."""
    out, *masters = sys.argv[1:]
    spark = SparkSession.builder.appName("holdfast on a cluster manager").getOrCreate()
    container, number = os.environ.get("CONTAINER_ID", "none"), 0
    while not (Path(out) / "go").exists():
        found = {"answers": [*answers(spark, masters)], "container": container}
        unfinished = Path(out) / f".{container}"
        unfinished.write_text(json.dumps(found))
        unfinished.rename(Path(out) / f"pass-{number}.json")
        number += 1
    spark.stop()


if __name__ == "__main__":
    main()
