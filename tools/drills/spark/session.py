"""A Spark session in a process of its own that does what it is asked, for the Spark drill.

    python -m holdfast.tools.drills.spark.session

Each line of standard input is a JSON object, each is answered by one line: first {"master", "conf", "prepare"}, then
{"label", "sql", "ordered"} for a query, {"label", "reuse": rows} for shuffles that are made and read, and {"label"}
alone to read them again. An error of Spark is {"error"}. Labels are written with all tasks into the event log, as the
local property LABEL. Ends with its input. Answers are digests, so nothing large is sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.common.system.process import die_with_parent

#: The local property that names what a stage was run for.
LABEL = "holdfast.drill.label"
MAPS, PARTITIONS, KEYS = 4, 4, 1000
_ERROR_CHARACTERS_MAX = 2000

Readers = list[Callable[[], str]]


def _digest(rows: Iterable[object], ordered: bool) -> str:
    """The same for equal rows, in this order or in any."""
    texts = map(repr, rows)
    every = "\n".join(texts if ordered else sorted(texts))
    return f"{every.count(chr(10)) + bool(every)} rows, {hashlib.sha256(every.encode()).hexdigest()[:16]}"


def _sums(parts: Iterator[Any]) -> Iterator[tuple[int, int]]:
    """Count and sum of the values of one partition's pairs."""
    count = total = 0
    for pair in parts:
        count += 1
        total += pair[1] ^ (pair[0] * 7)
    yield count, total


class _Work:
    """The session, and the shuffles that it keeps for another read."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._readers: Readers = []

    def do(self, asked: dict[str, Any]) -> str:
        """Do one thing; return its digest."""
        self._spark.sparkContext.setLocalProperty(LABEL, asked["label"])
        if "sql" in asked:
            return _digest(self._spark.sql(asked["sql"]).collect(), asked["ordered"])
        if "reuse" in asked:
            self._readers = [*self._shuffles(asked["reuse"])]
        return "; ".join(read() for read in self._readers)

    def _shuffles(self, rows: int) -> Iterator[Callable[[], str]]:
        """A shuffled RDD and a shuffled DataFrame of so many rows, as what reads each of them."""
        numbers = self._spark.sparkContext.parallelize(range(rows), MAPS)
        pairs = numbers.map(lambda number: (number % KEYS, number)).partitionBy(PARTITIONS)
        yield lambda: _digest(pairs.mapPartitions(_sums).collect(), ordered=True)
        columns = f"id % {KEYS} AS key", "id", "sha2(CAST(id AS STRING), 256) AS text"
        frame = self._spark.range(0, rows, 1, MAPS).selectExpr(*columns).repartition(PARTITIONS, "key")
        # A DataFrame is planned anew, with a shuffle of its own, for each read; the RDD of its plan is not.
        plan = frame._jdf.queryExecution().toRdd()
        again = self._spark._jsparkSession.internalCreateDataFrame(plan, frame._jdf.schema(), False)
        yield lambda: _digest(type(frame)(again, self._spark).collect(), ordered=False)


def main() -> None:
    """Be the session."""
    die_with_parent(os.getppid())
    answers = os.dup(1)
    os.dup2(2, 1)  # what Spark prints is no answer

    def answer(what: dict[str, Any]) -> None:
        os.write(answers, (json.dumps(what) + "\n").encode())

    from pyspark.sql import SparkSession

    lines = iter(sys.stdin)
    first = json.loads(next(lines))
    builder = SparkSession.builder.master(first["master"]).appName("holdfast drill")
    for key, value in first["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for statement in first["prepare"]:
        spark.sql(statement)
    work = _Work(spark)
    answer({"application": spark.sparkContext.applicationId})
    for line in lines:
        began = time.time()
        try:
            found = {"digest": work.do(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the drill has to judge
            found = {"error": f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]}
        answer({**found, "began": began, "ended": time.time()})
    spark.stop()


if __name__ == "__main__":
    main()
