"""Spark Connect with the plug-in: a server in the same process, one that runs elsewhere, clients that ask too much."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.system import process
from holdfast.common.system.ports import free_ports
from tests.spark.test_plugin import pushed
from tests.support.spark_conf import conf
from tests.support.standalone import LAUNCHER
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(pyspark.__version__.startswith("3."), reason="pip's PySpark 3.5 has no server for Connect"),
]
USUAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
SUMS = str([[each, sum(range(each, 100_000, 100))] for each in range(3)])
JOB = textwrap.dedent(
    """
    import json, sys
    from pyspark.sql import SparkSession, functions as F
    from holdfast.client.spark import conf, enable
    from holdfast.common.errors import ConfigError

    remote, usual = sys.argv[1], json.loads(sys.argv[2])
    builder = SparkSession.builder.remote(remote)
    if remote.startswith("local"):
        builder = enable(builder.config(map=usual), fallback="never")
    else:
        for ask in (lambda: enable(builder), lambda: builder.getOrCreate() and conf("127.0.0.1:1")):
            try:
                ask()
            except ConfigError as error:
                print(error)
    spark = builder.getOrCreate()
    assert "connect" in type(spark).__module__, type(spark)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    numbers = spark.range(0, 100_000, 1, 4).select("id", (F.col("id") % 100).alias("key"))
    grouped = numbers.groupBy("key").agg(F.sum("id").alias("sum"))
    joined = numbers.join(grouped, "key").where("id < 3").orderBy("id").select("id", "sum")
    print(json.dumps([list(row) for row in joined.collect()]))
    spark.stop()
    """
)


def said(remote: str, cluster: LocalCluster) -> list[str]:
    """What the job printed; the workers must have taken bytes of it."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_PIN"))}
    ours = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "HOLDFAST_MASTERS": cluster.endpoints}
    before = pushed(cluster)
    command = [sys.executable, "-c", JOB, remote, json.dumps(USUAL)]
    done = subprocess.run(command, env=clean | ours, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert pushed(cluster) > before
    return done.stdout.splitlines()


@contextmanager
def connect_server(settings: dict[str, str], directory: Path) -> Iterator[str]:
    """Run a server that reads these settings from a file, and give its address; its log goes to `directory`."""
    (port,) = free_ports(1)
    file, log = directory / "holdfast.conf", directory / "connect.log"
    settings = USUAL | settings | {"spark.connect.grpc.binding.port": str(port)}
    file.write_text("\n".join(f"{key} {value}" for key, value in settings.items()))
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [
        str(LAUNCHER),
        "org.apache.spark.deploy.SparkSubmit",
        "--master",
        "local[2]",
        "--properties-file",
        str(file),
    ]
    server = process.spawn(
        [*command, "--class", name, "spark-internal"], log=log, environ={"SPARK_LOCAL_IP": "127.0.0.1"}
    )
    try:
        wait_until(lambda: "Spark Connect server started" in log.read_text(), "the server of Spark Connect", 240.0)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.stop(server)


def test_sessions_of_a_server_in_the_same_process(cluster: LocalCluster) -> None:
    """enable() on a builder with remote("local[2]") is all it takes; the masters come from HOLDFAST_MASTERS."""
    assert said("local[2]", cluster) == [SUMS]


@pytest.mark.feature("Spark Connect server")
def test_a_server_has_the_settings_and_its_clients_need_none(cluster: LocalCluster, tmp_path: Path) -> None:
    """A server that is started with the settings shuffles through the workers for its clients. To these enable() and
    conf() say, before a job runs, that a client cannot choose."""
    with connect_server(conf(cluster.endpoints, fallback="never"), tmp_path) as address:
        *refused, sums = said(address, cluster)
    assert sums == SUMS
    assert len(refused) == 2
    assert all("client of Spark Connect cannot choose how its server shuffles" in each for each in refused)
