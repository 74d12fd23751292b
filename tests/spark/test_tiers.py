"""The workload `big` over memory, a disk and a DFS that together barely hold it: right, and within every budget.

Acceptance of the tiers: every tier is used and no directory ever holds more than its capacity, also while the store is
gone for a while, and while the worker is killed with files on their way between tiers.
"""

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import ask, worker_status
from holdfast.common.errors import RetryError
from holdfast.common.limits import MIB
from holdfast.common.proto import holdfast_pb2 as pb
from tests.conftest import Processes
from tests.dfs.worlds import World, make_world, skip_reason
from tests.spark.test_plugin import Job, job
from tests.support.spark_conf import conf
from tests.support.tiers import Tiers, watched, within
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3000)]
MEMORY_FOLDER = Path("/dev/shm")
MEMORY_MIB, DISK_MIB = 256, 512
SCALE = os.environ.get("HOLDFAST_BIG_SCALE", "1")
KILLS = int(os.environ.get("HOLDFAST_KILLS_OF_MOVES", "100"))
AWAY_SECONDS = 10.0
#: What the worker takes between two kills while maps write.
BATCHES = 300
MODULE = "plugin_memory_job"


@pytest.fixture(params=["local", "s3"])
def world(request: pytest.FixtureRequest, processes: Processes, tmp_path: Path) -> World:
    """A store: a folder, or an S3 server."""
    if reason := skip_reason(request.param):
        pytest.skip(reason)
    return make_world(request.param, processes, tmp_path)


@pytest.fixture
def tiers(world: World, tmp_path: Path) -> Iterator[Tiers]:
    """256 MiB of memory, 512 MiB of disk, both on memory file systems, and the store."""
    held = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=MEMORY_FOLDER))
    extra = {"dfs": world.table(), "lease": {"deletion_grace": "1s"}}
    yield Tiers(held / "memory", held / "disk", MEMORY_MIB, DISK_MIB, extra=extra)
    shutil.rmtree(held)


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What Spark's own shuffle gives."""
    monkeypatch.setenv("HOLDFAST_JOB_SIZE", SCALE)
    with job("big", {}, tmp_path, module=MODULE) as own:
        return str(own.step())


@contextmanager
def running(tiers: Tiers, directory: Path) -> Iterator[tuple[LocalCluster, Job]]:
    """A cluster of one worker with these tiers, and `big` on it, its budgets watched to the end."""
    with (
        local_cluster(masters=1, workers=1, dir=directory / "cluster", settings=tiers.settings) as cluster,
        watched([tiers.memory, tiers.disk]) as watch,
        job("big", conf(cluster.endpoints, fallback="never"), directory, module=MODULE) as started,
    ):
        yield cluster, started
    within(watch, tiers)
    assert watch.most[tiers.memory] > MEMORY_MIB * MIB // 4, "memory was used"
    assert watch.most[tiers.disk] > DISK_MIB * MIB // 4, "the disk was used"


def counters(cluster: LocalCluster) -> dict[str, int]:
    """What the worker counted since its start; nothing while it is not there."""
    try:
        return dict(worker_status(cluster.workers[0].http, 5.0)["counters"])
    except RetryError:
        return {}


def test_big_uses_every_tier_and_no_more_than_it_may(tiers: Tiers, expected: str, tmp_path: Path) -> None:
    """The result is that of Spark's own shuffle; files went to the store and came back from it."""
    with running(tiers, tmp_path) as (cluster, started):
        assert started.step() == expected
        counted = counters(cluster)
        assert counted["push_bytes"] > float(SCALE) * 768 * MIB
        assert counted["files_moved"] > 0
        assert counted["dfs_put_bytes"] > 0
        assert counted["dfs_read_bytes"] > 0


def test_tiny_in_memory_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room in memory not one of 200 small shuffles changes a file of the disk beside it, its index included."""
    monkeypatch.setenv("HOLDFAST_JOB_SIZE", "1")
    with job("tiny", {}, tmp_path, module=MODULE) as own:
        expected = own.step()
    held = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=MEMORY_FOLDER))
    tiers = Tiers(held / "memory", tmp_path / "disk", MEMORY_MIB, DISK_MIB)
    try:
        with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=tiers.settings) as cluster:
            before = files_of_shuffles(tiers.disk)
            with job("tiny", conf(cluster.endpoints, fallback="never"), tmp_path, module=MODULE) as started:
                assert started.step() == expected
            assert counters(cluster)["epochs_opened"] > 200
            assert files_of_shuffles(tiers.disk) == before
    finally:
        shutil.rmtree(held)


def files_of_shuffles(directory: Path) -> dict[str, tuple[int, int]]:
    """Data, log and index of a directory: every file with its length and when it was changed; but for the table of
    readers of LMDB, which is no data: it is shared memory, and changes when somebody looks something up."""
    parts = [directory / part for part in ("data", "log", "index")]
    files = [path for part in parts for path in part.rglob("*") if path.is_file() and path.name != "lock.mdb"]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_the_store_is_away_for_a_while(tiers: Tiers, world: World, expected: str, tmp_path: Path) -> None:
    """While files go there the store is gone for ten seconds: what cannot move waits, pushes wait, all is right."""
    go_away, come_back = (
        (world.stop, world.start) if world.table()["url"].startswith("file") else (world.hang, world.wake)
    )
    with running(tiers, tmp_path) as (cluster, started):
        wait_until(lambda: counters(cluster).get("dfs_put_bytes", 0) > 0, "the first file in the store", 300)
        go_away()
        gone_at = time.monotonic()
        wait_until(lambda: time.monotonic() - gone_at > AWAY_SECONDS, "the end of the disturbance", 2 * AWAY_SECONDS)
        come_back()
        assert started.step() == expected


def test_killed_while_files_move(tiers: Tiers, expected: str, tmp_path: Path) -> None:
    """kill -9 again and again while files move between any two tiers: the result is right, budgets hold, and nothing
    that was moved is lost or doubled. Between two kills a file gets through, and while maps write so do some batches,
    or nothing would ever end: a push is given up after 32 places in a row that died before they took one."""
    kills = jobs = 0
    while kills < KILLS:
        directory = tmp_path / f"job-{jobs}"
        directory.mkdir()
        with running(tiers, directory) as (cluster, started):
            over = threading.Event()
            killer = Killer(cluster, over, random.Random(jobs), KILLS - kills)
            killer.start()
            try:
                assert started.step() == expected
            finally:
                over.set()
                killer.join()
            kills += killer.kills
        jobs += 1
        shutil.rmtree(tiers.memory)
        shutil.rmtree(tiers.disk)
        print(f"job {jobs}: {killer.kills} kills, {kills} in all")
    assert kills >= KILLS


class Killer(threading.Thread):
    """Kills the worker while something moves, and starts it again."""

    def __init__(self, cluster: LocalCluster, over: threading.Event, rng: random.Random, most: int) -> None:
        super().__init__()
        self._worker = cluster.workers[0]
        self._count: Callable[[], dict[str, int]] = lambda: counters(cluster)
        self._over = over
        self._rng = rng
        self._most = most
        self.kills = 0
        self._master = cluster.masters[0].address

    def run(self) -> None:
        while self.kills < self._most and not self._over.is_set():
            if not self._moving():
                self._over.wait(0.02)
                continue
            self._over.wait(self._rng.uniform(0.0, 0.1))
            self._worker.kill()
            self._worker.start()
            self.kills += 1

    def _moving(self) -> bool:
        """A file has moved since the start, and others are on their way."""
        try:
            status = worker_status(self._worker.http, 5.0)
        except RetryError:
            return False
        counted = status["counters"]
        moving = bool(status["moves_running"]) and counted["files_moved"] > 0
        return moving and (counted["push_batches"] >= BATCHES or not self._maps_write())

    def _maps_write(self) -> bool:
        """Whether any shuffle is open."""
        listed = ask(self._master, "Admin/ListShuffles", pb.ListShufflesRequest(), pb.ListShufflesReply, 60.0)
        return any(each.state == "open" for each in listed.shuffles)
