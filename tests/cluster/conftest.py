"""A cluster of real processes that the tests of this folder share where they leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster import LocalCluster, local_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three masters and two workers of one test, with logs below its tmp_path."""
    with local_cluster(masters=3, workers=2, dir=tmp_path / "cluster") as started:
        yield started
