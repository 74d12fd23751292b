"""One cluster for all promises that other services' tests make; every test leaves it with all servers running."""

import signal
from collections.abc import Iterator

import pytest

from holdfast.client import Session
from holdfast.client.cluster import LocalCluster, local_cluster


@pytest.fixture(scope="package")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and three workers."""
    with local_cluster(masters=3, workers=3, dir=tmp_path_factory.mktemp("acceptance") / "cluster") as started:
        yield started


@pytest.fixture
def cluster(trio: LocalCluster) -> Iterator[LocalCluster]:
    """The same, with whatever a test killed or stopped running again behind it."""
    yield trio
    for server in trio.servers:
        if server.running:
            server.kill(signal.SIGCONT)
        else:
            server.start()
    trio.wait_ready()


@pytest.fixture
def session(cluster: LocalCluster) -> Iterator[Session]:
    """A session of the shared cluster."""
    with Session(cluster.endpoints, app="acceptance") as opened:
        yield opened
