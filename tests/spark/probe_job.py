"""One job over the probe's shuffle manager; prints as JSON what Spark made of synthetic locations.

    probe_job.py CLASSES DIRECTORY MASTER SCENARIO [KEY=VALUE…]

Run by tests/spark/test_synthetic_location.py in a process of its own. It needs pyspark alone, so that it can be run
under every Spark that is installed somewhere.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

MANAGER = "org.apache.spark.shuffle.holdfast.probe.ProbeShuffleManager"


def start(classes: str, directory: Path, master: str, scenario: str, more: list[str]) -> SparkContext:
    """Start Spark with the probe as its shuffle and an event log that can be read as text."""
    for name in ("notes", "events"):
        (directory / name).mkdir()
    settings = {
        "spark.shuffle.manager": MANAGER,
        "spark.probe.dir": directory / "notes",
        "spark.probe.scenario": scenario,
        "spark.driver.extraClassPath": classes,
        "spark.executor.extraClassPath": classes,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory / 'events'}",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.locality.wait": "60s",
        "spark.excludeOnFailure.enabled": "true",
        "spark.excludeOnFailure.application.fetchFailure.enabled": "true",
        "spark.excludeOnFailure.killExcludedExecutors": "true",
        **dict(word.split("=", 1) for word in more),
    }
    conf = SparkConf().setMaster(master).setAppName("probe")
    for key, value in settings.items():
        conf.set(key, str(value))
    context = SparkContext(conf=conf)
    context.setLogLevel("INFO")
    return context


def two_shuffles(context: SparkContext) -> list[Any]:
    """Shuffle 1 with 4 maps feeds shuffle 0 with 4 maps, which feeds 3 reducers: Spark numbers them from the end."""
    first = context.parallelize(range(400), 4).map(lambda one: (one % 7, one)).groupByKey(4)
    again = first.flatMap(lambda pair: [(value % 3, value) for value in pair[1]]).groupByKey(3)
    return sorted((key, sum(values)) for key, values in again.collect())


def adaptive(context: SparkContext) -> list[Any]:
    """A join that becomes a broadcast as it runs, so that local readers read its other side, in ranges of maps."""
    spark = SparkSession(context)
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    spark.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", "1m")
    big = spark.range(0, 200_000, 1, 4).selectExpr("id", "id % 1000 AS key")
    small = spark.range(0, 1000, 1, 2).selectExpr("id AS key", "id * 2 AS twice").where("key % 100 = 1")
    return [big.join(small, "key").groupBy().count().collect()[0][0]]


def reported(directory: Path) -> dict[str, Any]:
    """What the event log says: tasks of each stage attempt, the longest wait for a launch, executors shut out."""
    stages: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    submitted: dict[tuple[int, int], int] = {}
    waits = [0]
    excluded = []
    (log,) = (path for path in (directory / "events").iterdir() if not path.name.startswith("."))
    text = log.read_text()
    plans = {word: word in text for word in ("AQEShuffleRead local", "BroadcastHashJoin")}
    for line in text.splitlines():
        event = json.loads(line)
        kind = event["Event"]
        if kind == "SparkListenerStageSubmitted":
            info = event["Stage Info"]
            # an attempt that finds nothing to do has no time
            submitted[info["Stage ID"], info["Stage Attempt ID"]] = info.get("Submission Time", 0)
        elif kind == "SparkListenerTaskStart":
            where = event["Stage ID"], event["Stage Attempt ID"]
            stages[f"{where[0]}.{where[1]}"] += 1
            if event["Task Info"]["Index"] == 0 and where != (0, 0):  # before the first the executors start
                waits.append(event["Task Info"]["Launch Time"] - submitted[where])
        elif kind == "SparkListenerTaskEnd":
            reasons[event["Task End Reason"]["Reason"]] += 1
        elif "Excluded" in kind or "Blacklisted" in kind:
            excluded.append(f"{kind} {event.get('executorId') or event.get('hostId')}")
    return {
        "plans": plans,
        "tasks": stages,
        "longest_wait_ms": max(waits),
        "excluded": sorted(excluded),
        "reasons": reasons,
    }


def main() -> None:
    """Run the job that the command line asks for."""
    classes, place, master, scenario, *more = sys.argv[1:]
    directory = Path(place)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    context = start(classes, directory, master, scenario, more)
    result = adaptive(context) if scenario == "adaptive" else two_shuffles(context)
    version = context.version
    context.stop()
    reads = {path.name: path.read_text() for path in sorted((directory / "notes").glob("read-*"))}
    print(json.dumps({"version": version, "result": result, "reads": reads, **reported(directory)}))


if __name__ == "__main__":
    main()
