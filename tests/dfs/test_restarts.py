"""A cluster with its files on a real S3 server and a real HDFS: they outlive kill -9 of worker and masters, then go.

The same over a folder is in tests/cluster/test_tiers.py and, for the cleaning, in test_cleaning.py.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.common.dfs import names
from holdfast.common.dfs.store import DfsStore
from holdfast.common.limits import MIB
from tests.conftest import Processes
from tests.dfs.reader import Digests, digests, of_maps
from tests.dfs.test_cleaning import metric
from tests.dfs.test_faults import served
from tests.dfs.worlds import World
from tests.support.reduce_client import contents, fill, push, read, records_of
from tests.support.tiers import Tiers
from tests.support.waiting import wait_until

PARTITIONS, MAPS = 8, 28
SOME = range(7, 19)
MEMORY_FOLDER = Path("/dev/shm")


@pytest.fixture
def tiers(world: World, tmp_path: Path) -> Iterator[Tiers]:
    """Memory of 24 MiB and a disk of 40 MiB above the store, which the leader cleans often."""
    memory = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=MEMORY_FOLDER))
    cleaning = {**world.table(), "clean_every": "200ms", "clean_grace": "500ms"}
    extra = {"dfs": cleaning, "lease": {"deletion_grace": "100ms"}}
    yield Tiers(memory / "m", tmp_path / "disk", 24, 40, extra=extra)
    shutil.rmtree(memory)


def counted(cluster: LocalCluster, name: str) -> int:
    """What the worker counted since its start."""
    return int(worker_status(cluster.workers[0].http, 5.0)["counters"][name])


def restart_worker(cluster: LocalCluster) -> None:
    """kill -9, and back."""
    cluster.workers[0].kill()
    cluster.workers[0].start()
    cluster.wait_ready()


def restart_masters(cluster: LocalCluster) -> None:
    """kill -9 of all before any is back."""
    for master in cluster.masters:
        master.kill()
    for master in cluster.masters:
        master.start(wait=False)
    for master in cluster.masters:
        master.wait_ready()
    cluster.wait_ready()


@served
def test_files_in_the_store_outlive_restarts_and_go_with_their_application(
    world: World, tiers: Tiers, processes: Processes, tmp_path: Path
) -> None:
    """What was pushed while files went to the store and the worker was killed is read exactly, whole and by a range of
    maps, also after kill -9 of the worker and of all masters. When the application ends while no worker lives, the
    leader leaves nothing of it in the store, and the worker that comes back serves the next application."""

    def stored() -> list[str]:
        marker = names.marker(session.cluster_id)
        return [name for name, _ in store.list(session.cluster_id) if not name.startswith(marker)]

    def read_elsewhere(name: str) -> tuple[Digests, Digests]:
        """As a process reads it that knows nothing of it yet: all, and what came from SOME maps."""
        asked = [cluster.endpoints, session.instance.hex(), str(shuffle.key.shuffle), str(SOME.start), str(SOME.stop)]
        command = [sys.executable, "-m", "tests.dfs.reader", *asked]
        child = processes.start(name, command, {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        assert child.wait(120) == 0
        whole, some = json.loads(processes.log(name).read_text().splitlines()[-1])
        return whole, some

    with (
        local_cluster(masters=3, workers=1, dir=tmp_path / "c", settings=tiers.settings) as cluster,
        Session(cluster.endpoints, app="first") as session,
        closing(DfsStore(world.section(), session.cluster_id)) as store,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS)
        data = {map_id: records_of(map_id, 40, PARTITIONS, size_max=350_000) for map_id in range(MAPS)}
        statuses = []
        for map_id, records in data.items():
            statuses.append(push(shuffle, map_id, map_id, records))
            if map_id == 2 * MAPS // 3:
                wait_until(lambda: counted(cluster, "dfs_put_bytes"), "a file in the store", 60)
                restart_worker(cluster)
        shuffle.commit(statuses)
        pushed = contents(data)
        assert sum(len(payload) for records in pushed.values() for _, payload in records) > 80 * MIB
        expected = digests(pushed), digests(of_maps(pushed, SOME))

        assert read_elsewhere("reader-before") == expected
        assert [name for name in stored() if names.parse(name)]
        restart_worker(cluster)
        assert read_elsewhere("reader-after-worker") == expected
        assert counted(cluster, "dfs_read_bytes") > 0
        restart_masters(cluster)
        assert read_elsewhere("reader-after-masters") == expected

        cluster.workers[0].kill()
        assert stored(), "there is something to clean"
        session.close()
        wait_until(lambda: not store.folders(names.cluster_folder(session.cluster_id)), "the leader to clean", 60)
        assert stored() == []
        wait_until(
            lambda: any(metric(master, "holdfast_master_dfs_removed") for master in cluster.masters),
            "the masters to have counted it",
        )

        cluster.workers[0].start()
        cluster.wait_ready()
        with Session(cluster.endpoints, app="second") as second:
            small, held = fill(second)
            assert read(small) == held
