"""A cluster of real processes that the tests of this folder share where they leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster import LocalCluster, local_cluster
from tests.cluster.masters import CALM


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
