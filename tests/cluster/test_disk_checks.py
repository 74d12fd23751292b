"""The checks of disks in real workers: a directory that was away, a disk that fails for a time, one that hangs.

What masters and the command line say of it is looked at from outside; what is read afterwards is counted.
"""

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.common.limits import MIB
from tests.support.disk_faults import MAPS, PARTITIONS, Pushers, judge, read, wanted
from tests.support.waiting import wait_until

SECONDS_MAX = 60.0
#: Quick checks, so that what takes half a minute by default is over in a second.
CHECKS: dict[str, object] = {"interval": "200ms", "error_window": "1s", "good_probes": 2}
SETTINGS: dict[str, dict[str, object]] = {
    "worker": {"disk_reserve": "1MiB", "return_grace": "5s"},
    "disk_check": CHECKS,
}


def reported(cluster: LocalCluster, worker: int = 0) -> dict[str, Any]:
    """The first directory of a worker by its own status."""
    found: dict[str, Any] = worker_status(cluster.workers[worker].http, 5.0)["directories"][0]
    return found


def wait_for_state(cluster: LocalCluster, *states: str) -> None:
    """Wait until the first worker's directory is in one of these states."""
    wait_until(lambda: reported(cluster)["state"] in states, f"{states}", SECONDS_MAX)


def listed(cluster: LocalCluster, *words: str, what: str = "workers") -> subprocess.CompletedProcess[str]:
    """`holdfast workers`, as a person calls it, or another command."""
    command = [sys.executable, "-P", "-m", "holdfast.tools.cli.main", what, "--masters", cluster.endpoints]
    return subprocess.run([*command, *words], check=False, capture_output=True, text=True, timeout=SECONDS_MAX)


def disk_by_masters(cluster: LocalCluster, name: str = "w1") -> dict[str, Any]:
    """The first directory of a worker, as `holdfast workers --json` has it."""
    workers = json.loads(listed(cluster, "--json").stdout)["workers"]
    found: dict[str, Any] = next(one for one in workers if one["name"] == name)["directories"][0]
    return found


def push_and_read(session: Session, mib: int) -> None:
    """A shuffle from its registration to its last record: every one once."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS)
    pushers = Pushers(shuffle, mib)
    shuffle.commit(pushers.run())
    assert read(shuffle, range(PARTITIONS)) == wanted(pushers.seed, mib)


def test_row_33_a_directory_that_was_away_takes_epochs_again(tmp_path: Path) -> None:
    """Moved away, the only directory of a worker is suspect, by the masters' word too, and pushes go elsewhere; moved
    back it is well within its checks, what was sealed there is read again, and new epochs go there."""
    root = tmp_path / "cluster"
    with (
        local_cluster(masters=1, workers=2, dir=root, settings=SETTINGS) as cluster,
        Session(cluster.endpoints, app="away") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS)
        pushers = Pushers(shuffle, 8)
        shuffle.commit(pushers.run())
        shutil.move(root / "w1", tmp_path / "away")
        wait_for_state(cluster, "suspect")
        wait_until(lambda: disk_by_masters(cluster)["state"] == "suspect", "the masters to hear of it", SECONDS_MAX)
        done = listed(cluster)
        assert done.returncode == 1
        assert "deleted, emptied or unmounted" in " ".join(done.stdout.split())
        status = listed(cluster, what="status")
        assert (status.returncode, "all is well" in status.stdout) == (1, False)
        assert f"w1 {root / 'w1'}: was deleted, emptied or unmounted" in status.stdout
        opened = _opened(cluster)
        push_and_read(session, 4)
        assert _opened(cluster) == opened, "nothing new goes there"
        shutil.move(tmp_path / "away", root / "w1")
        wait_for_state(cluster, "well")
        wait_until(lambda: disk_by_masters(cluster)["state"] == "well", "the masters to hear of it", SECONDS_MAX)
        assert listed(cluster).returncode == 0
        assert read(shuffle, range(PARTITIONS)) == wanted(pushers.seed, 8)
        wait_until(lambda: _gets_epochs(cluster, session, opened), "epochs to go there again", SECONDS_MAX)


def _gets_epochs(cluster: LocalCluster, session: Session, before: int) -> bool:
    """Whether the first worker has begun more epochs than before, with one more shuffle."""
    push_and_read(session, 4)
    return _opened(cluster) > before


def _opened(cluster: LocalCluster) -> int:
    """Epochs that the first worker has begun."""
    found: int = worker_status(cluster.workers[0].http, 5.0)["counters"]["epochs_opened"]
    return found


def _start_with(cluster: LocalCluster, faults: str) -> None:
    """Start the first worker anew, with faults of its own."""
    worker = cluster.workers[0]
    worker.kill()
    with (cluster.directory / "w1.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[faults]\nenabled = true\n{faults}\n")
    worker.start()
    cluster.wait_ready()


def test_row_33_a_disk_that_fails_for_a_time_comes_back(tmp_path: Path) -> None:
    """Writes fail under load for a time: what was there is read or lost by name, and the worker takes epochs again
    without having been restarted."""
    root = tmp_path / "cluster"
    with local_cluster(masters=1, workers=2, dir=root, settings=SETTINGS) as cluster:
        _start_with(cluster, 'disk_error_rate = 1.0\ndisk_error_after = "4MiB"\ndisk_error_count = 40')
        worker = cluster.workers[0]
        incarnation = worker_status(worker.http, 5.0)["incarnation"]
        with Session(cluster.endpoints, app="fails") as session:
            shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS)
            pushers = Pushers(shuffle, 24)
            shuffle.commit(pushers.run())
            assert any(epoch.epoch > 0 for epoch in shuffle.manifest().epochs.epochs), "nothing was moved"
            judge(shuffle, wanted(pushers.seed, 24))
            wait_for_state(cluster, "well")
            wait_until(lambda: disk_by_masters(cluster)["healthy"], "the masters to hear of it", SECONDS_MAX)
            opened = _opened(cluster)

            def taken() -> bool:
                push_and_read(session, 4)  # which may all go to the other worker, whose disk was faster of late
                return _opened(cluster) > opened

            wait_until(taken, "the worker to take epochs", SECONDS_MAX)
            assert worker_status(worker.http, 5.0)["incarnation"] == incarnation


def test_row_33_a_disk_that_hangs_is_reported_and_holds_up_no_end(tmp_path: Path) -> None:
    """A sync that does not return within the time of a check: hanging, unhealthy, the masters are told; heartbeats go
    on, and the process ends when it is told to."""
    settings = {
        "worker": {"disk_reserve": "1MiB"},
        "disk_check": {"interval": "100ms", "timeout": "300ms"},
    }
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=settings) as cluster:
        _start_with(cluster, 'disk_delay = "1h"')
        wait_for_state(cluster, "hanging")
        wait_until(lambda: disk_by_masters(cluster)["state"] == "hanging", "the masters to hear of it", SECONDS_MAX)
        assert "hangs" in reported(cluster)["problem"]
        worker = cluster.workers[0]
        assert worker.stop() == 0


def test_times_and_states_are_shown(tmp_path: Path) -> None:
    """After a push and a read, status, metrics, the masters and the table for people have the mean times of both."""
    settings = SETTINGS | {"disk_check": CHECKS | {"average_window": "1h"}}
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="times") as session,
    ):
        push_and_read(session, 16)
        found = reported(cluster)
        assert min(found["flush_us"], found["fetch_us"]) > 0
        assert (found["state"], found["errors"], found["device"] > 0) == ("well", 0, True)
        text = urllib.request.urlopen(f"http://{cluster.workers[0].http}/metrics", timeout=60).read().decode()
        documented = (Path(__file__).parents[2] / "docs" / "operate" / "metrics.md").read_text()
        for name in ("healthy", "errors", "flush_us", "fetch_us", "capacity_bytes"):
            assert f'holdfast_worker_directory_{name}{{path="{found["path"]}"}}' in text
            assert f"`holdfast_worker_directory_{name}`" in documented
        wait_until(lambda: disk_by_masters(cluster)["fetch_us"], "the masters to hear of it", SECONDS_MAX)
        disk = disk_by_masters(cluster)
        assert disk["used_bytes"] > 16 * MIB
        assert min(disk["flush_us"], disk["device"]) > 0
        output = listed(cluster).stdout
        assert all(word in output for word in ("capacity", "SSD", "well", "write", "read"))
