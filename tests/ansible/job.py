"""A PySpark job that shuffles in rounds until it is told to stop: `python job.py DIRECTORY [SPARK-MASTER]`, on a
host with the plug-in.

Every round is a repartition and an aggregation with a known answer. Progress is one line of JSON a round in
DIRECTORY/rounds; a file DIRECTORY/stop ends it. The settings of the plug-in come from spark-defaults.conf, as Ansible
wrote it.
"""

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

ROWS, KEYS, PARTITIONS = 200_000, 1_000, 16
#: Between two rounds, so that servers that start and playbooks get some of the machine, too.
PAUSE_SECONDS = 1.0


def main() -> None:
    """Go round until told to stop; any wrong answer or failed job ends it with an error."""
    directory = Path(sys.argv[1])
    master = sys.argv[2] if len(sys.argv) > 2 else "local[2, 4]"
    spark = SparkSession.builder.master(master).appName("rounds").getOrCreate()
    manager = spark.conf.get("spark.shuffle.manager")
    assert manager is not None
    assert manager.endswith("HoldfastShuffleManager"), manager
    number = 0
    with (directory / "rounds").open("w", encoding="utf-8", buffering=1) as rounds:
        while not (directory / "stop").exists():
            started = time.monotonic()
            rows = spark.range(0, ROWS, 1, 8).selectExpr("id", f"id % {KEYS} AS key", "repeat('x', 100) AS text")
            found = rows.repartition(PARTITIONS, "key").groupBy("key").count().collect()
            assert len(found) == KEYS, len(found)
            assert all(row["count"] == ROWS // KEYS for row in found)
            number += 1
            seconds = round(time.monotonic() - started, 2)
            rounds.write(json.dumps({"round": number, "seconds": seconds}) + "\n")
            threading.Event().wait(PAUSE_SECONDS)
    spark.stop()


if __name__ == "__main__":
    main()
