"""What people see of the DFS tier: what lies there, and why it cannot be used. Real servers and the real commands."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import GiveUpError, NoRoomError, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, Sections, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.client.write.status import PushStatus
from holdfast.common.config import config as configuration
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from tests.cluster.reduce_peers import metric
from tests.support.logged import lines_of
from tests.support.reduce_client import contents, push, read, records_of
from tests.support.tiers import Tiers
from tests.support.waiting import wait_until

PARTITIONS = 8
CHECKS = {"lease": {"heartbeat": "200ms"}, "disk_check": {"interval": "200ms", "average_window": "1h"}}


def holdfast(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """A command, as a person calls it."""
    command = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", *words, "--masters", cluster.endpoints]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def by_masters(cluster: LocalCluster) -> dict[str, Any]:
    """The DFS of the first worker, as `holdfast workers --json` has it."""
    found: dict[str, Any] = json.loads(holdfast(cluster, "workers", "--json").stdout)["workers"][0]["dfs"]
    return found


def by_worker(cluster: LocalCluster) -> dict[str, Any]:
    """The same by the worker's own status."""
    found: dict[str, Any] = worker_status(cluster.workers[0].http, 5.0)["dfs"]
    return found


def warnings(cluster: LocalCluster) -> int:
    """Lines of the worker's log that say that the DFS cannot be used."""
    return len(lines_of(cluster.workers[0].log, LogEvent.DFS_FAILING))


@contextmanager
def cluster_with(tmp_path: Path, folder: Path, capacity_mib: int = 64) -> Iterator[LocalCluster]:
    """One master that cleans often, and a worker with one small disk above the DFS."""
    tiers = Tiers(tmp_path / "none", tmp_path / "disk", 0, capacity_mib, str(folder))
    tiers.extra = {**CHECKS, "dfs": {"clean_every": "100ms", "retry_window": "1s"}}
    with local_cluster(masters=1, workers=1, dir=tmp_path / "c", settings=tiers.settings) as cluster:
        yield cluster


def push_maps(shuffle: ReduceShuffle, maps: int) -> list[PushStatus]:
    """Some 3.5 MB a map."""
    return [push(shuffle, one, one, records_of(one, 40, PARTITIONS, size_max=350_000)) for one in range(maps)]


def test_what_lies_on_the_dfs_is_shown(tmp_path: Path) -> None:
    """A fresh cluster with a good store has neither warnings nor failures; what went there is in `workers`, for people
    and as JSON, and in the worker's status, with the mean times; no row ends in blanks, and the means are explained."""
    (tmp_path / "dfs").mkdir()
    with cluster_with(tmp_path, tmp_path / "dfs") as cluster:
        wait_until(lambda: by_worker(cluster)["state"] == "well", "a look at the store, with nothing to store")
        wait_until(lambda: metric(cluster, "holdfast_master_dfs_rounds"), "a round of cleaning")
        assert metric(cluster, "holdfast_master_dfs_failures") == 0
        assert not lines_of(cluster.masters[0].log, LogEvent.DFS_CLEANING_FAILED)
        assert warnings(cluster) == 0
        with Session(cluster.endpoints, app="shown", user="ann") as session:
            shuffle = session.register_reduce_shuffle(PARTITIONS)
            shuffle.commit(push_maps(shuffle, 40))
            assert sum(1 for _ in shuffle.reader(range(PARTITIONS))) == 40 * 40
            wait_until(lambda: by_masters(cluster)["read_us"], "a heartbeat")
            wait_until(lambda: not worker_status(cluster.workers[0].http, 5.0)["moves_running"], "an end of the moves")
            wait_until(lambda: by_masters(cluster)["bytes"] == by_worker(cluster)["bytes"], "a heartbeat")
            stored = [path for path in (tmp_path / "dfs").rglob("*.p*") if path.is_file()]
            found = by_masters(cluster)
            assert (found["url"], found["problem"], found["files"]) == (f"file://{tmp_path}/dfs", "", len(stored))
            assert found["bytes"] == sum(path.stat().st_size for path in stored) > 20 * MIB
            assert found["put_us"] > 0
            done = holdfast(cluster, "workers")
            assert done.returncode == 0
            [row] = [line for line in done.stdout.splitlines() if " DFS " in line]
            assert row.split()[:4] == ["w1", found["url"], "DFS", "well"]
            assert "mean write" in done.stdout
            assert "mean read" in done.stdout
            assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
            listed = holdfast(cluster, "shuffles").stdout
            assert "application holds" in listed
            assert " ann " in listed
            assert holdfast(cluster, "status").stdout.endswith("all is well\n")


def test_a_dfs_that_is_away_is_reported_wherever_one_looks(tmp_path: Path) -> None:
    """While the store is away `status`, `workers`, the log, and the error of a map without room say so, and the log
    not for each file; when it is back all is well without a file more."""
    folder, gone = tmp_path / "dfs", tmp_path / "gone"
    folder.mkdir()
    with (
        cluster_with(tmp_path, folder) as cluster,
        Session(cluster.endpoints, app="away", no_room_grace=3) as session,
    ):
        wait_until(lambda: by_worker(cluster)["state"] == "well", "a look at the store")
        shuffle = session.register_reduce_shuffle(PARTITIONS)
        folder.rename(gone)
        with pytest.raises(NoRoomError, match=rf"worker w1 cannot use the DFS file://{folder} since \d+ s: .*mounted"):
            push_maps(shuffle, 60)
        status = holdfast(cluster, "status")
        assert status.returncode == 1
        assert "all is well" not in status.stdout
        assert f"w1 cannot use the DFS file://{folder} since" in " ".join(status.stdout.split())
        assert json.loads(holdfast(cluster, "status", "--json").stdout)["healthy"] is False
        workers = holdfast(cluster, "workers")
        assert workers.returncode == 1
        assert "failing" in workers.stdout
        assert [problem for problem in worker_status(cluster.workers[0].http, 5.0)["problems"] if "the DFS" in problem]
        assert warnings(cluster) == 1
        assert not lines_of(cluster.workers[0].log, LogEvent.FILE_MOVE_FAILED)
        gone.rename(folder)
        wait_until(lambda: holdfast(cluster, "status").returncode == 0, "all to be well")
        assert lines_of(cluster.workers[0].log, LogEvent.DFS_RECOVERED)


def test_a_wrong_url_is_noticed_before_anything_is_stored(tmp_path: Path) -> None:
    """A folder that is not there: the worker starts and serves, warns, and masters and people hear of it."""
    with cluster_with(tmp_path, tmp_path / "missing") as cluster:
        wait_until(lambda: by_masters(cluster)["problem"], "the problem")
        assert "mounted" in by_masters(cluster)["problem"]
        assert warnings(cluster) == 1
        assert holdfast(cluster, "status").returncode == 1
        with Session(cluster.endpoints, app="goes on") as session:
            shuffle = session.register_reduce_shuffle(PARTITIONS)
            shuffle.commit(push_maps(shuffle, 1))
        assert not (tmp_path / "missing").exists()


def test_a_master_without_the_dfs_of_the_workers_is_reported(tmp_path: Path) -> None:
    """Started again without `[dfs]` it warns in its log, and `status` names it; with it all is well again."""
    (tmp_path / "dfs").mkdir()
    with cluster_with(tmp_path, tmp_path / "dfs") as cluster:
        (master,) = cluster.masters
        before = master.config.read_text()
        wait_until(lambda: by_worker(cluster)["state"] == "well", "a look at the store")
        wait_until(lambda: holdfast(cluster, "status").returncode == 0, "all to be well")
        master.stop()
        without = dataclasses.replace(configuration.parse(before), dfs=configuration.DfsSection())
        master.config.write_text(configuration.render(without))
        master.start()
        wait_until(lambda: lines_of(master.log, LogEvent.DFS_NOT_CONFIGURED), "a heartbeat")
        done = holdfast(cluster, "status")
        assert done.returncode == 1
        problem = " ".join(done.stdout.split())
        assert f"workers have the [dfs] url file://{tmp_path}/dfs, of the masters m1 has none" in problem
        master.stop()
        master.config.write_text(before)
        master.start()
        wait_until(lambda: holdfast(cluster, "status").returncode == 0, "all to be well")


def test_a_worker_that_stored_nothing_makes_no_marker_in_an_empty_mount_point(tmp_path: Path) -> None:
    """It has seen the store: started while that is not mounted it says so, like the worker with files, whose readers
    are told of no loss; when the store is back all is read."""
    dfs, real = tmp_path / "dfs", tmp_path / "real"
    dfs.mkdir()
    settings: Sections = {
        **CHECKS,
        "worker": {
            "directories": [{"path": str(tmp_path / "disk-{name}"), "tier": "SSD", "capacity": "40MiB"}],
            "return_grace": "1s",
        },
        "dfs": {"url": str(dfs), "retry_window": "1s"},
    }
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "c", settings=settings) as cluster,
        Session(cluster.endpoints, app="mount") as session,
    ):
        user, other = cluster.workers

        def states() -> set[str]:
            return {worker_status(one.http, 5.0)["dfs"]["state"] for one in (user, other)}

        wait_until(lambda: states() == {"well"}, "both to see the store")
        other.kill()
        shuffle = session.register_reduce_shuffle(PARTITIONS)
        data = {one: records_of(one, 40, PARTITIONS, size_max=350_000) for one in range(14)}
        shuffle.commit([push(shuffle, one, one, records) for one, records in data.items()])
        wait_until(lambda: worker_status(user.http, 5.0)["dfs"]["files"], "files on the DFS")
        dfs.rename(real)
        dfs.mkdir()
        other.start()
        cluster.wait_ready()
        wait_until(lambda: states() == {"failing"}, "both to miss the store")
        assert list(dfs.rglob("*")) == []
        with pytest.raises(GiveUpError, match="is not lost"):
            read(shuffle, range(PARTITIONS), return_grace=1.0)
        dfs.rmdir()
        real.rename(dfs)
        wait_until(lambda: states() == {"well"}, "both to see the store again")
        assert read(shuffle, range(PARTITIONS)) == contents(data)
