"""`shuffle` over Spark Connect: the same program as on a classic session, in a process of its own."""

import os
import subprocess
import sys
import textwrap

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster

PROGRAM = textwrap.dedent(
    """
    import sys
    from pyspark.sql import SparkSession, functions as F
    import holdfast
    from holdfast.client import Session
    from holdfast.client.spark import attach, shuffle, shuffle_id

    spark = (SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
             .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
    assert "connect" in type(spark).__module__, type(spark)
    key = F.concat(F.lit("k"), F.col("id") % 7)
    df = spark.range(0, 1000, 1, 3).select("id", key.alias("k"), F.array("id").alias("a"))

    def placed(frame):
        return sorted(frame.withColumn("p", F.spark_partition_id()).collect(), key=lambda row: row.id)

    with Session(sys.argv[1], app="connect") as session:
        out = df.transform(holdfast.shuffle, 5, "k", session=session)
        assert out.schema == df.schema, out.schema
        assert placed(out) == placed(df.repartition(5, "k"))
        with Session(sys.argv[1], app="connect", attach=True) as other:
            assert placed(attach(spark, other, shuffle_id(out))) == placed(out)
        assert shuffle(df.where("id < 0"), 2, session=session).count() == 0
    print("SAME")
    spark.stop()
    """
)


def test_shuffle_over_connect(cluster: LocalCluster, session: Session) -> None:
    """Write, read, placement, attach and an empty input through a Connect session."""
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith("SPARK_") and key != "PYSPARK_PIN_THREAD"
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.endpoints],
        env={**environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout.strip().endswith("SAME"), done.stderr[-4000:]
