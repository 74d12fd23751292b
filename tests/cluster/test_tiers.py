"""Workers with several tiers, as real processes: everything pushed is read back, and no budget is ever exceeded."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.client.reduce_shuffle import ReduceShuffle
from holdfast.common.limits import MIB
from tests.support.changing import files_below
from tests.support.reduce_client import Records, contents, push, read, records_of
from tests.support.tiers import Tiers, watched, within
from tests.support.waiting import wait_until

PARTITIONS = 16
MEMORY_FOLDER = Path("/dev/shm")


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Tiers]:
    """Memory of 24 MiB, a disk of 40 MiB, and a folder that stands for the DFS."""
    memory = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=MEMORY_FOLDER))
    (tmp_path / "dfs").mkdir()
    yield Tiers(memory / "m", tmp_path / "disk", 24, 40, str(tmp_path / "dfs"))
    shutil.rmtree(memory)


def counters(cluster: LocalCluster) -> dict[str, int]:
    """What the worker counted."""
    return dict(worker_status(cluster.workers[0].http, 5.0)["counters"])


def push_maps(shuffle: ReduceShuffle, maps: int, records: int = 40) -> tuple[dict[int, Records], list]:
    """Push some 3.5 MB a map; return what was pushed and the statuses."""
    data = {map_id: records_of(map_id, records, PARTITIONS, size_max=350_000) for map_id in range(maps)}
    return data, [push(shuffle, map_id, map_id, part) for map_id, part in data.items()]


def test_more_than_memory_and_disk_hold_goes_to_the_dfs(tiers: Tiers, tmp_path: Path) -> None:
    """Three times what memory and disk together may hold is pushed, committed and read, before and after a restart;
    every tier was used, no budget exceeded, and the end of the application frees everything."""
    tiers.extra = {"lease": {"deletion_grace": "100ms"}}
    with local_cluster(masters=1, workers=1, dir=tmp_path / "c", settings=tiers.settings) as cluster:
        with Session(cluster.endpoints, app="big") as session, watched([tiers.memory, tiers.disk]) as watch:
            shuffle = session.register_reduce_shuffle(PARTITIONS)
            data, statuses = push_maps(shuffle, 60)
            shuffle.commit(statuses)
            expected = contents(data)
            assert sum(len(payload) for records in expected.values() for _, payload in records) > 3 * 64 * MIB
            assert read(shuffle, range(PARTITIONS)) == expected
            counted = counters(cluster)
            assert counted["files_moved"] > 0
            assert [path for path in (tmp_path / "dfs").rglob("*.p*") if path.is_file()]
            cluster.workers[0].kill()
            cluster.workers[0].start()
            cluster.wait_ready()
            assert read(shuffle, range(PARTITIONS)) == expected
        within(watch, tiers)
        assert all(most > 8 * MIB for most in watch.most.values()), "every tier was used"
        cluster.workers[0].stop()
        cluster.workers[0].start()
        wait_until(
            lambda: not [path for path in files_below(tmp_path / "dfs") if ".p" in path.name], "space on the DFS"
        )


def test_a_disk_with_less_left_than_a_frame_takes_makes_room(tmp_path: Path) -> None:
    """One disk below its mark and frames larger than what it has left: they wait for files to go to the DFS, and not
    for ever."""
    (tmp_path / "dfs").mkdir()
    tiers = Tiers(tmp_path / "none", tmp_path / "disk", 0, 48, str(tmp_path / "dfs"))
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "c", settings=tiers.settings) as cluster,
        Session(cluster.endpoints, app="wide", no_room_grace=60) as session,
    ):
        for _ in range(3):
            shuffle = session.register_reduce_shuffle(8)
            block = bytes(256 * 1024)
            with shuffle.writer(map_id=0) as writer:
                for number in range(400):
                    writer.write(number % 8, block)
                shuffle.commit([writer.close()])
            assert sum(len(record.payload) for record in shuffle.reader(range(8))) == 400 * len(block)


def test_room_that_idle_writers_hold_is_given_to_others(tmp_path: Path) -> None:
    """One writer fills the disk and pauses; another goes on with other partitions: what is open of the first is sealed
    unasked and moves, since nobody comes to ask for it."""
    (tmp_path / "dfs").mkdir()
    tiers = Tiers(tmp_path / "none", tmp_path / "disk", 0, 48, str(tmp_path / "dfs"))
    block = bytes(256 * 1024)
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "c", settings=tiers.settings) as cluster,
        Session(cluster.endpoints, app="idle", no_room_grace=30) as session,
    ):
        shuffle = session.register_reduce_shuffle(8)
        with shuffle.writer(map_id=0) as idle, shuffle.writer(map_id=1) as busy:
            for number in range(161):
                idle.write(1 + number % 7, block)
            wait_until(lambda: counters(cluster)["push_bytes"] > 36 * MIB, "the first writer's bytes")
            for _ in range(200):
                busy.write(0, block)
            statuses = [busy.close(), idle.close()]
        shuffle.commit(statuses)
        assert sum(len(record.payload) for record in shuffle.reader(range(8))) == 361 * len(block)
