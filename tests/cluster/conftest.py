"""A cluster of real processes that the tests of this folder share where they leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from tests.cluster.masters import CALM
from tests.cluster.shapes import Shape


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One cluster for the tests of a file that leave all servers running; the file's SHARED says its shape."""
    shape: Shape = getattr(request.module, "SHARED", Shape())
    directory = tmp_path_factory.mktemp("shared") / "cluster"
    with local_cluster(shape.masters, shape.workers, dir=directory, settings=shape.settings) as started:
        yield started


@pytest.fixture
def session(shared: LocalCluster) -> Iterator[Session]:
    """A session of the shared cluster."""
    with Session(shared.endpoints, app="tests") as opened:
        yield opened


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters and two workers of one test, with logs below its tmp_path."""
    with local_cluster(masters=3, workers=2, dir=tmp_path / "cluster") as started:
        yield started


@pytest.fixture
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Three masters of one test, with the settings that its parameter names."""
    with local_cluster(masters=3, workers=0, dir=tmp_path / "c", settings=getattr(request, "param", CALM)) as started:
        yield started
