"""What takes minutes: speculation on separate executors, and ten thousand reduce tasks."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster
from holdfast.client.spark import shuffle
from tests.support.standalone import Standalone

SPECULATION = textwrap.dedent(
    """
    import sys, time
    from collections import Counter
    from pathlib import Path
    from pyspark import TaskContext
    from pyspark.sql import SparkSession
    from holdfast.client import Session
    from holdfast.client.spark import shuffle

    endpoints, directory, master = sys.argv[1:]
    spark = (SparkSession.builder.master(master).config("spark.ui.enabled", "false")
             .config("spark.cores.max", "2").config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
             .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
             .config("spark.speculation", "true").config("spark.speculation.interval", "100ms")
             .config("spark.speculation.multiplier", "1.1").config("spark.speculation.quantile", "0.5").getOrCreate())

    def straggle(batches):
        # The first attempt of map 0 has written nothing and waits until its twin has begun, then both finish.
        task = TaskContext.get()
        Path(directory, f"{task.partitionId()}-{task.attemptNumber()}").touch()
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            deadline = time.monotonic() + 120
            while not Path(directory, "0-1").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        yield from batches

    df = spark.range(0, 100_000, 1, 6)
    with Session(endpoints, app="speculation") as session:
        out = shuffle(df.mapInArrow(straggle, df.schema), 4, "id", session=session)
        found = Counter(row.id for row in out.collect())
    assert Path(directory, "0-1").exists(), "Spark did not speculate"
    assert found == Counter(range(100_000)), "rows are missing or doubled"
    print("SAME")
    """
)


@pytest.mark.long
def test_speculation_counts_each_row_once(cluster: LocalCluster, standalone: Standalone, tmp_path: Path) -> None:
    """Two attempts of a map run at once on two executors; whichever wins, every row is there once."""
    marks = tmp_path / "marks"
    marks.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SPECULATION, cluster.endpoints, str(marks), standalone.address],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.strip().endswith("SAME"), done.stderr[-4000:]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_thousand_reduce_tasks(spark: SparkSession, session: Session) -> None:
    """Every one of ten thousand partitions is read by a task of its own."""
    out = shuffle(spark.range(0, 30_000, 1, 3), 10_000, "id", session=session)
    counted = out.withColumn("partition", F.spark_partition_id())
    count, total, partitions = counted.agg(F.count("*"), F.sum("id"), F.count_distinct("partition")).collect()[0]
    assert (count, total) == (30_000, 30_000 * 29_999 // 2)
    assert partitions > 9_000
