"""Disks that fill, turn read-only, break or vanish while maps push: every record once, or an error that names it.

Three real workers; the first of them gets a disk that fails after some bytes, through the fault port, or loses its
directory. tests/diskfull does the same with real file systems.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import PushStatus, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import worker_status
from holdfast.common.limits import MIB
from tests.support.disk_faults import MAPS, PARTITIONS, Pushers, judge, read, refused_of, wanted

SECONDS_MAX = 60.0


@contextmanager
def three(root: Path, *, reserve: str = "1MiB", first: dict[str, Any] | None = None) -> Iterator[LocalCluster]:
    """Three workers; the first one with faults of its own."""
    settings = {"worker": {"disk_reserve": reserve, "return_grace": "5s"}}
    with local_cluster(masters=1, workers=3, dir=root, settings=settings) as cluster:
        if first:
            worker = cluster.workers[0]
            worker.kill()
            lines = [f"{key} = {json.dumps(value)}" for key, value in first.items()]
            with (root / "w1.toml").open("a", encoding="utf-8") as file:
                file.write("\n[faults]\nenabled = true\n" + "\n".join(lines) + "\n")
            worker.start()
            cluster.wait_ready()
        yield cluster


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("error", "copies"),
    [
        ("ENOSPC", 1),
        ("EROFS", 2),
        ("EIO", 1),
        pytest.param("ENOSPC", 2, marks=LONG),
        pytest.param("EROFS", 1, marks=LONG),
        pytest.param("EIO", 2, marks=LONG),
    ],
)
def test_a_disk_that_fails_mid_push(tmp_path: Path, error: str, copies: int) -> None:
    """The first worker's disk fails after some MiB: pushes move on, and with two copies, or if it is only full, all is
    read; else what it had is lost by name. Its status says what is wrong."""
    after, mib = (72, 150 * (3 - copies)) if error == "ENOSPC" else (8, 40)
    faults = {"disk_error_rate": 1.0, "disk_error": error, "disk_error_after": f"{after}MiB"}
    with (
        three(tmp_path / "cluster", first=faults) as cluster,
        Session(cluster.endpoints, app="faults") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=copies)
        pushers = Pushers(shuffle, mib)
        statuses = pushers.run()
        assert any(epoch.epoch > 0 for epoch in _commit(shuffle, statuses)), "nothing was moved"
        refused = judge(shuffle, wanted(pushers.seed, mib))
        if error == "ENOSPC" or copies == 2:
            assert not refused
        reported = worker_status(cluster.workers[0].http, 5.0)
        assert error in reported["faults"][0]
        (directory,) = reported["directories"]
        if error == "ENOSPC":
            # A full disk is not a broken one. How full it is by now hangs on when its log was emptied.
            assert directory["healthy"]
            assert directory["used_bytes"] > after * MIB // 4
        else:
            assert not directory["healthy"]
            assert "writing failed" in directory["problem"]


def _commit(shuffle: ReduceShuffle, statuses: list[PushStatus]) -> Any:
    shuffle.commit(statuses)
    return shuffle.manifest().epochs.epochs


@pytest.mark.parametrize(
    ("what", "copies"),
    [
        ("deleted", 1),
        ("emptied", 2),
        pytest.param("deleted", 2, marks=LONG),
        pytest.param("emptied", 1, marks=LONG),
    ],
)
def test_a_directory_that_goes_mid_push(tmp_path: Path, what: str, copies: int) -> None:
    """The first worker's directory is deleted, or all in it, while maps push: with two copies all is read; with one
    what was there is LOST in the manifest and refused by name, and everything else is read."""
    root = tmp_path / "cluster"
    with three(root) as cluster, Session(cluster.endpoints, app="faults") as session:
        shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=copies)
        pushers = Pushers(shuffle, mib=48)
        statuses = pushers.run(meanwhile=lambda: _remove(root / "w1", what), after_bytes=12 * MIB)
        _commit(shuffle, statuses)
        refused = judge(shuffle, wanted(pushers.seed, 48))
        assert bool(refused) == (copies == 1)
        worker = cluster.workers[0]

        def reported() -> bool:
            (directory,) = worker_status(worker.http, 5.0)["directories"]
            return not directory["healthy"] and bool(directory["problem"])

        assert wait_until(reported, SECONDS_MAX)
        # Nothing new goes there.
        again = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=copies)
        more = Pushers(again, mib=8)
        _commit(again, more.run())
        assert judge(again, wanted(more.seed, 8)) == set()


def _remove(root: Path, what: str) -> None:
    """Delete the way an administrator's mistake does: while files are being made below."""

    def gone() -> bool:
        shutil.rmtree(root, ignore_errors=True)
        return not root.exists()

    assert wait_until(gone, SECONDS_MAX)
    if what == "emptied":
        root.mkdir()


def test_sealed_data_in_a_deleted_directory(tmp_path: Path) -> None:
    """Readers of a committed shuffle whose directory was deleted get the other copy, or an error that names what is
    lost; the worker goes on."""
    root = tmp_path / "cluster"
    with three(root) as cluster, Session(cluster.endpoints, app="faults") as session:
        made = []
        for copies in (1, 2):
            shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=copies)
            pushers = Pushers(shuffle, mib=8)
            _commit(shuffle, pushers.run())
            made.append((shuffle, pushers))
        _remove(root / "w1", "deleted")
        (single, pushers), (double, others) = made
        refused = refused_of(single, wanted(pushers.seed, 8))
        assert 0 < len(refused) < PARTITIONS
        assert read(double, range(PARTITIONS)) == wanted(others.seed, 8)
        assert cluster.workers[0].running


def test_the_other_directory_goes_on(tmp_path: Path) -> None:
    """A worker with two directories, one of which is deleted mid-push: it takes all that follows into the other."""
    root = tmp_path / "cluster"
    with local_cluster(masters=1, workers=1, dir=root, settings={"worker": {"disk_reserve": "1MiB"}}) as cluster:
        worker = cluster.workers[0]
        worker.kill()
        second = tmp_path / "second"
        second.mkdir()
        config = root / "w1.toml"
        lines = config.read_text("utf-8").splitlines()
        both = f'directories = [{{ path = "{root / "w1"}" }}, {{ path = "{second}" }}]'
        config.write_text("\n".join([both if line.startswith("directories") else line for line in lines]) + "\n")
        worker.start()
        cluster.wait_ready()
        with Session(cluster.endpoints, app="two") as session:
            shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS)
            pushers = Pushers(shuffle, mib=32)
            statuses = pushers.run(meanwhile=lambda: _remove(root / "w1", "deleted"), after_bytes=8 * MIB)
            _commit(shuffle, statuses)
            refused = judge(shuffle, wanted(pushers.seed, 32))
            assert 0 < len(refused) < PARTITIONS, "half of the partitions lie in each directory"
            first, other = worker_status(worker.http, 5.0)["directories"]
            assert (first["healthy"], other["healthy"]) == (False, True)
            assert other["used_bytes"] > first["used_bytes"]
            again = session.register_reduce_shuffle(PARTITIONS, MAPS)
            more = Pushers(again, mib=4)
            _commit(again, more.run())
            assert judge(again, wanted(more.seed, 4)) == set()
