"""Real file systems that fill, turn read-only or are unmounted below a worker while maps push: the right rows.

They are mounted in a mount namespace of this process, which `tox -e diskfull` makes; nobody else ever sees them. The
fault port does the same without root in tests/cluster/test_disk_faults.py.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import worker_status
from holdfast.common.limits import MIB
from tests.cluster.test_masters_journal import check_reported, hashes, listed
from tests.support.disk_faults import MAPS, PARTITIONS, Pushers, judge, wanted
from tests.support.tiers import watched

SECONDS_MAX = 60.0


def _skip_reason() -> str:
    if os.geteuid() != 0:
        return "mounting needs root: run `tox -e diskfull` as root"
    if not os.environ.get("HOLDFAST_OWN_MOUNTS"):
        return "mounts belong into a mount namespace of their own: run `tox -e diskfull`"
    return ""


pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(_skip_reason()), reason=_skip_reason())]


def run(*command: str) -> str:
    """Run a command; its output, or an error with it."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()


@contextmanager
def tmpfs(path: Path, mib: int) -> Iterator[None]:
    """A small file system in memory at `path`."""
    path.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(path))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


@contextmanager
def ext4(path: Path, image: Path, mib: int) -> Iterator[str]:
    """A small ext4 at `path` that turns read-only at its first error; yields its name in /sys/fs/ext4."""
    path.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(mib << 20)
    run("mkfs.ext4", "-q", str(image))
    device = run("losetup", "-f", "--show", str(image))
    try:
        run("mount", "-o", "errors=remount-ro", device, str(path))
        yield Path(device).name
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)
        subprocess.run(["losetup", "-d", device], check=False, capture_output=True)


@contextmanager
def three(root: Path) -> Iterator[LocalCluster]:
    """Three workers; the directory of the first is mounted by the test."""
    settings = {"worker": {"return_grace": "5s"}}
    with local_cluster(masters=1, workers=3, dir=root, settings=settings) as cluster:
        yield cluster


def reported(cluster: LocalCluster) -> dict[str, Any]:
    """What the first worker says of its directory."""
    (directory,) = worker_status(cluster.workers[0].http, 5.0)["directories"]
    return dict(directory)


def reported_bytes(path: Path) -> int:
    """Free bytes of a file system."""
    return os.statvfs(path).f_bavail


def push_and_judge(
    cluster: LocalCluster, mib: int, copies: int, meanwhile: Any = None, after_mib: int = 0, moves: bool = True
) -> set[int]:
    """A whole shuffle; return the partitions that are refused as lost, the others being count-exact."""
    with Session(cluster.endpoints, app="file systems") as session:
        shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=copies)
        pushers = Pushers(shuffle, mib)
        shuffle.commit(pushers.run(meanwhile=meanwhile, after_bytes=after_mib << 20))
        moved = any(epoch.epoch > 0 for epoch in shuffle.manifest().epochs.epochs)
        assert moved or not moves
        return judge(shuffle, wanted(pushers.seed, mib))


@pytest.mark.parametrize("copies", [1, 2])
def test_a_disk_that_fills(tmp_path: Path, copies: int) -> None:
    """A tmpfs below one of three workers fills mid-push: hard splits, revives elsewhere, every record once."""
    root = tmp_path / "cluster"
    with tmpfs(root / "w1", 96), three(root) as cluster, watched([root / "w1"]) as watch:
        assert push_and_judge(cluster, mib=400 // copies, copies=copies) == set()
        assert cluster.workers[0].running
    # What is in the log needs as much room again when it is sealed, so half is the least that a full disk has held.
    assert watch.most[root / "w1"] > 96 * MIB * 0.9 / 2


def test_a_disk_that_somebody_else_fills(tmp_path: Path) -> None:
    """Somebody else takes all room of the disk at once, mid-push: what was acknowledged is sealed as soon as there is
    room again, and every record is read once."""
    root = tmp_path / "cluster"
    with tmpfs(root / "w1", 256), three(root) as cluster:
        other = root / "w1" / "lost+found"

        def fill() -> None:
            with other.open("wb", buffering=0) as file:
                while reported_bytes(root / "w1"):
                    file.write(bytes(1 << 20))

        def make_room() -> None:
            assert wait_until(lambda: reported(cluster)["free_bytes"] == 0, SECONDS_MAX)
            other.unlink()

        with ExitStack() as stack:
            stack.callback(lambda: other.unlink(missing_ok=True))

            def both() -> None:
                fill()
                make_room()

            assert push_and_judge(cluster, mib=150, copies=1, meanwhile=both, after_mib=20) == set()


@pytest.mark.parametrize("copies", [1, 2])
def test_a_disk_that_turns_read_only(tmp_path: Path, copies: int) -> None:
    """An ext4 that the kernel makes read-only after an error: with two copies every record is read, with one what it
    had is lost by name; the worker lives and says what is wrong."""
    root = tmp_path / "cluster"
    with ext4(root / "w1", tmp_path / "image", 256) as name, three(root) as cluster:
        trigger = Path(f"/sys/fs/ext4/{name}/trigger_fs_error")

        def turn() -> None:
            trigger.write_text("1")

        refused = push_and_judge(cluster, mib=60, copies=copies, meanwhile=turn, after_mib=15)
        assert bool(refused) == (copies == 1)
        assert cluster.workers[0].running
        assert wait_until(lambda: not reported(cluster)["healthy"], SECONDS_MAX)
        assert "ead-only" in reported(cluster)["problem"]


def test_a_disk_that_is_unmounted(tmp_path: Path) -> None:
    """A disk that is unmounted below its worker is no place any more: what was there is lost by name, the worker lives
    and says so, and what follows goes elsewhere instead of onto the disk below."""
    root = tmp_path / "cluster"
    with tmpfs(root / "w1", 256), three(root) as cluster:

        def unmount() -> None:
            run("umount", "-l", str(root / "w1"))

        assert push_and_judge(cluster, mib=60, copies=1, meanwhile=unmount, after_mib=15, moves=False)
        assert wait_until(lambda: not reported(cluster)["healthy"], SECONDS_MAX)
        assert "unmounted" in reported(cluster)["problem"]
        assert push_and_judge(cluster, mib=10, copies=1, moves=False) == set()
        assert {path.name for path in (root / "w1").iterdir()} <= {"standing", "standing.new"}


def test_a_directory_deleted_on_a_disk_of_its_own(tmp_path: Path) -> None:
    """Everything on the disk is deleted mid-push, two copies: no reader notices, and the worker says so."""
    root = tmp_path / "cluster"
    with tmpfs(root / "w1", 256), three(root) as cluster:

        def delete() -> None:
            run("find", str(root / "w1"), "-mindepth", "1", "-delete")

        assert push_and_judge(cluster, mib=60, copies=2, meanwhile=delete, after_mib=15, moves=False) == set()
        assert wait_until(lambda: not reported(cluster)["healthy"], SECONDS_MAX)
        assert "deleted" in reported(cluster)["problem"]
        assert push_and_judge(cluster, mib=10, copies=1, moves=False) == set()


def test_a_master_on_a_file_system_that_is_full(tmp_path: Path) -> None:
    """A tmpfs below one of three masters is filled by somebody else: that master ends with status 74 and one line that
    says what is full, the others go on, and each of its starts ends so until there is room. Then it catches up, and
    every shuffle that was acknowledged is known."""
    root = tmp_path / "cluster"
    with tmpfs(root / "m1", 16), local_cluster(3, 1, dir=root) as cluster:
        master = cluster.masters[0]
        begun = len(master.log.read_text())
        other = root / "m1" / "other"
        with suppress(OSError), other.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        with Session(cluster.endpoints, app="full") as session:
            kept = [session.register_reduce_shuffle(500).key.shuffle for _ in range(400)]
            wait_until(lambda: not master.running, SECONDS_MAX)
            check_reported(master, begun)
            begun = len(master.log.read_text())
            master.start(wait=False)
            wait_until(lambda: not master.running, SECONDS_MAX)
            check_reported(master, begun)
            other.unlink()
            master.start()
            wait_until(lambda: len(hashes(cluster)) == 1, SECONDS_MAX)
            assert set(kept) <= listed(cluster)
