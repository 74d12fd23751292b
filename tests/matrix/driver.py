"""Runs jobs of the matrix in one Spark: `python -m tests.matrix.driver JSON`.

JSON: {"master": …, "conf": {…}, "jobs": [NAME, …], "scale": 1, "seed": N, "share": 0.2, "endpoints": "…"}. Prints one
line of JSON: the answers by job, how many tasks were killed, the longest time without progress, and the heap that was
still in use after the jobs.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from tests.matrix.jobs import JAR_FREE, JOBS
from tests.matrix.trouble import Trouble

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "6",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # Every partition is read by a task of its own unless a job says otherwise.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}


def main() -> None:
    """Run what the command line asks for."""
    asked = json.loads(sys.argv[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(asked["master"]).appName("matrix")
    for key, value in {**SETTINGS, **asked["conf"]}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    trouble = Trouble(spark, asked["seed"], asked["share"])
    answers: dict[str, Any] = {}
    for name in asked["jobs"]:
        known = JOBS.get(name)
        answers[name] = (
            known(spark, asked["scale"]) if known else JAR_FREE[name](spark, asked["scale"], asked["endpoints"])
        )
    trouble.end()
    reported = {"answers": answers, "kills": trouble.kills, "waited": trouble.waited, "heap_bytes": _heap(spark)}
    spark.stop()
    print(json.dumps(reported, default=str))


def _heap(spark: SparkSession) -> int:
    """Bytes of the heap in use after a collection."""
    assert spark._jvm is not None
    spark._jvm.java.lang.System.gc()
    return int(spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


if __name__ == "__main__":
    main()
