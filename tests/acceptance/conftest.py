"""One cluster for all promises that other services' tests make; every test leaves it with all servers running."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, Sections, local_cluster
from tests.acceptance.spark_world import Spark, World

#: Tests kill the same worker again and again, and want it to have something.
STEADY: Sections = {"placement": {"flap_starts": 1_000_000}}
#: Lost workers are known soon, partitions split often, and what is dropped goes at once.
QUICK: Sections = {
    "lease": {"worker": "3s", "heartbeat": "500ms", "deletion_grace": "100ms"},
    "worker": {"soft_split": "1MiB", "hard_split": "2MiB"},
    **STEADY,
}


@pytest.fixture(scope="package")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and three workers."""
    directory = tmp_path_factory.mktemp("acceptance") / "cluster"
    with local_cluster(masters=3, workers=3, dir=directory, settings=STEADY) as started:
        yield started


@pytest.fixture
def cluster(trio: LocalCluster) -> Iterator[LocalCluster]:
    """The same, with whatever a test killed or stopped running again behind it."""
    yield trio
    mend(trio)


def mend(cluster: LocalCluster) -> None:
    """Have all servers running."""
    for server in cluster.servers:
        if server.running:
            server.kill(signal.SIGCONT)
        else:
            server.start()
    cluster.wait_ready()


@pytest.fixture
def session(cluster: LocalCluster) -> Iterator[Session]:
    """A session of the shared cluster."""
    with Session(cluster.endpoints, app="acceptance") as opened:
        yield opened


@pytest.fixture(scope="package")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and three workers for Spark."""
    with local_cluster(3, 3, tmp_path_factory.mktemp("spark") / "cluster", QUICK) as started:
        yield started


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """A process that starts Sparks, one at a time."""
    started = Spark(tmp_path_factory.mktemp("spark-job") / "spark.log")
    yield started
    started.end()


@pytest.fixture
def world(quick: LocalCluster, spark: Spark, tmp_path: Path) -> Iterator[World]:
    """Both, with whatever a test killed or stopped running again behind it."""
    yield World(quick, spark, tmp_path)
    spark.mend()
    mend(quick)
