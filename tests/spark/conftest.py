"""One cluster and one classic Spark session for all Spark tests: both take seconds to start."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from tests.support.standalone import Standalone, standalone_spark

#: Python workers of Spark run this interpreter, and everything stays on this machine.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is a Spark test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters, two workers."""
    with local_cluster(masters=3, workers=2, dir=tmp_path_factory.mktemp("spark") / "cluster") as started:
        yield started


@pytest.fixture(scope="session")
def session(cluster: LocalCluster) -> Iterator[Session]:
    """A session that lives as long as the tests."""
    with Session(cluster.endpoints, app="spark tests") as opened:
        yield opened


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A standalone cluster of two hosts, with a core each."""
    with standalone_spark(tmp_path_factory.mktemp("standalone"), cores=1) as started:
        yield started


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A classic session with two cores and four tries a task."""
    started = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()
