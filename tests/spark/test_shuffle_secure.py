"""`shuffle` on a secured cluster: tasks in Python have the token, and nothing that Spark keeps or shows has it."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.client.cluster.local import local_cluster
from tests.spark.test_plugin_secure import tokens_below

pytestmark = pytest.mark.timeout(600)
PROGRAM = textwrap.dedent(
    """
    import sys
    from pyspark.serializers import CloudPickleSerializer
    from pyspark.sql import SparkSession
    from holdfast.client import Session
    from holdfast.client.spark import attach, shuffle, shuffle_id

    how, endpoints, directory = sys.argv[1:]
    usual = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
             "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{directory}/events",
             "spark.local.dir": f"{directory}/local"}
    builder = SparkSession.builder
    builder = builder.remote("local[2]") if how == "connect" else builder.master("local[2]")
    for key, value in usual.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    df = spark.range(0, 1000, 1, 3)
    with Session(endpoints, app=how) as session:
        out = shuffle(df, 5, "id", session=session)
        assert sorted(row.id for row in out.collect()) == list(range(1000))
        with Session(endpoints, app=how, attach=True) as other:
            assert attach(spark, other, shuffle_id(out)).count() == 1000
        pushed = session.register_reduce_shuffle(partitions=4, maps=2)
        if how == "classic":
            def push(map_id, numbers):
                with pushed.writer(map_id) as writer:
                    for number in numbers:
                        writer.write(number % 4, str(number).encode())
                    return [writer.close()]
            assert b"hft1." not in CloudPickleSerializer().dumps(push)
            pushed.commit(spark.sparkContext.parallelize(range(100), 2).mapPartitionsWithIndex(push).collect())
            assert sorted(int(bytes(one.payload)) for one in pushed.reader(range(4))) == list(range(100))
    print("SAME")
    spark.stop()
    """
)


@pytest.mark.parametrize("how", ["classic", pytest.param("connect", marks=pytest.mark.long)])
def test_a26_python_tasks_have_a_token_that_nothing_shows(tmp_path: Path, how: str) -> None:
    """Rows go through a secured cluster, from DataFrames and from an RDD, and nothing that Spark writes meanwhile has a
    token in it: no event log, no file of executors, no log."""
    (tmp_path / "events").mkdir()
    with local_cluster(1, 1, dir=tmp_path / "cluster", secure=True) as cluster:
        assert cluster.credentials is not None
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_PIN"))}
        security = cluster.directory / "security"
        reported = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOLDFAST_CA": str(security / "ca.pem"),
            "HOLDFAST_TOKEN_FILE": str(security / "admin.token"),
        }
        with (tmp_path / "log").open("w") as log:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, how, cluster.endpoints, str(tmp_path)],
                env={**environ, **reported},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=280,
                check=False,
            )
        assert done.stdout.strip().endswith("SAME"), (tmp_path / "log").read_text()[-4000:]
        assert any(os.scandir(tmp_path / "events"))
        assert tokens_below(tmp_path, besides=security / "admin.token") == []
