"""Every test with a `world` or a `store` runs against each kind of store that is here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.common.dfs.store import DfsStore
from tests.conftest import Processes
from tests.dfs.worlds import KINDS, World, make_world, skip_reason

CLUSTER = "c1"


@pytest.fixture(scope="session", params=KINDS)
def shared_world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A store that tests share and leave running; each has a cluster of its own in it."""
    if reason := skip_reason(request.param):
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp(request.param)
    processes = Processes(directory)
    yield make_world(request.param, processes, directory)
    processes.kill()


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, processes: Processes, tmp_path: Path) -> World:
    """A store of one test, which may break it."""
    if reason := skip_reason(request.param):
        pytest.skip(reason)
    return make_world(request.param, processes, tmp_path)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> str:
    """A cluster id that no other test of the shared store has."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:100]


@pytest.fixture
def store(shared_world: World, cluster: str) -> Iterator[DfsStore]:
    """The shared store as one cluster uses it."""
    opened = DfsStore(shared_world.section(), cluster)
    opened.claim()
    yield opened
    opened.close()
