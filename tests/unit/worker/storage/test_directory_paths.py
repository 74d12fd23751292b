"""Which directories a worker is given: copies, the same one twice, one in another, unusable ones are told by name."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.common.errors import ConfigError
from holdfast.worker.storage import names
from holdfast.worker.storage import store as stores
from holdfast.worker.storage.env.directory_paths import doubts, doubts_of, file_system
from holdfast.worker.storage.offline.inspect import inspect_directory
from holdfast.worker.storage.settings import DirectorySettings
from holdfast.worker.storage.store import prepare
from tests.support.reduce_data import Writer
from tests.support.storage_data import open_store, settings
from tests.unit.worker.storage.reduce_world import SHUFFLE, World, fill

MIB = 1 << 20


def contents(root: Path) -> dict[str, bytes]:
    """Every file of a directory but the lock."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name not in (names.LOCK, "lock.mdb")]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def refusal(*paths: Path | str) -> str:
    """What a start over these directories is refused with."""
    with pytest.raises(ConfigError) as caught:
        stores.open_store(prepare(settings(*map(Path, paths))))
    return str(caught.value)


def unmade(*paths: str) -> str:
    """The same, with paths as they are written; it is told before anything is made or locked."""
    with pytest.raises(ConfigError) as caught:
        prepare(settings(directories=tuple(DirectorySettings(path=path) for path in paths)))
    return str(caught.value)


@pytest.mark.parametrize("lost", ["", names.IDENTITY])
@pytest.mark.parametrize("copy_first", [False, True])
def test_a_copy_of_a_directory_is_refused_and_costs_nothing(tmp_path: Path, lost: str, copy_first: bool) -> None:
    """A directory and its copy are refused by name in either order, also where only the index says which it is; every
    file of both is still there, and each of them alone serves all of it."""
    world = World(tmp_path)
    fill(world, Writer(SHUFFLE))
    world.seal([(partition, 0) for partition in range(6)])
    world.store.close()
    disk, copy = tmp_path / "0", tmp_path / "copy"
    shutil.copytree(disk, copy)
    if lost:
        (copy / lost).unlink()
    before = contents(disk), contents(copy)
    assert len(list(disk.rglob("*.pack"))) == 1
    first, second = (copy, disk) if copy_first else (disk, copy)
    with pytest.raises(ConfigError, match=f"{second} is a copy of {first}, .* take the other one out"):
        stores.open_store(prepare(settings(cluster_id="c", worker_name="w", directories=both(first, second))))
    assert (contents(disk), contents(copy)) == before
    world.start()
    assert all(len(world.read(partition)) >= 5 for partition in range(6))
    world.store.close()
    open_store(copy, cluster_id="c", worker_name="w").close()
    assert not inspect_directory(str(copy)).problems


def both(first: Path, second: Path) -> tuple[DirectorySettings, ...]:
    """Two directories of a worker."""
    return DirectorySettings(path=str(first)), DirectorySettings(path=str(second))


@pytest.mark.parametrize("other", ["{root}/z", "{root}/z/", "{root}//z", "{root}/a/../z", "{root}/link"])
def test_the_same_directory_by_another_spelling(tmp_path: Path, other: str) -> None:
    """A directory that is named twice, also through a link, is told with both spellings, and not made."""
    (tmp_path / "link").symlink_to(tmp_path / "z")
    first, second = f"{tmp_path}/z", other.format(root=tmp_path)
    told = unmade(first, second)
    assert told.startswith(f"worker.directories names {first} twice (as worker.directories[0].path {first} and ")
    assert f"worker.directories[1].path {second}): take one of them out" in told
    assert os.listdir(tmp_path) == ["link"]


@pytest.mark.parametrize(
    ("dfs", "told"),
    [
        ("{root}/ssd", "is"),
        ("{root}/ssd/", "is"),
        ("{root}/link", "is"),
        ("{root}/ssd/data", "holds"),
        ("{root}/ssd/dfs", "holds"),
        ("{root}/link/store", "holds"),
        ("{root}", "lies in"),
    ],
)
def test_the_dfs_in_a_directory_or_around_it(tmp_path: Path, dfs: str, told: str) -> None:
    """A local `[dfs] url` at, in or around a storage directory is refused by name, before anything is made."""
    (tmp_path / "link").symlink_to(tmp_path / "ssd")
    directories = (DirectorySettings(path=f"{tmp_path}/hdd"), DirectorySettings(path=f"{tmp_path}/ssd"))
    folder = dfs.format(root=tmp_path)
    with pytest.raises(ConfigError) as caught:
        prepare(settings(directories=directories, dfs_folder=folder))
    number, path = (0, "hdd") if told == "lies in" else (1, "ssd")
    start = f"worker.directories[{number}].path {tmp_path}/{path} {told} the folder of [dfs] url, {folder}: "
    assert str(caught.value).startswith(start)
    assert os.listdir(tmp_path) == ["link"]


def test_a_dfs_beside_the_directories_is_taken(tmp_path: Path) -> None:
    """Also where its name begins like that of one of them."""
    stores.open_store(prepare(settings(tmp_path / "ssd", dfs_folder=f"{tmp_path}/ssd-dfs"))).close()


def test_a_folder_where_the_note_on_the_dfs_goes(tmp_path: Path) -> None:
    """A storage directory with a folder `dfs` is refused by name, with what to do; `inspect` tells it as well."""
    open_store(tmp_path / "ssd").close()
    (tmp_path / "ssd" / "dfs").mkdir()
    assert any("is a folder" in problem for problem in inspect_directory(str(tmp_path / "ssd")).problems)
    assert f"{tmp_path}/ssd/dfs is a folder, and Holdfast keeps a file of that name" in refusal(tmp_path / "ssd")


def test_errors_on_directories_name_the_file_and_line(tmp_path: Path) -> None:
    """Of the worker's configuration, as all other errors of it do; or the variable."""
    path = tmp_path / "w.toml"
    path.write_text(
        f'[worker]\nname = "w"\nmasters = ["h:1"]\ndirectories = [\n  {{ path = "{tmp_path}/a" }},\n'
        f'  {{ path = "{tmp_path}/a/b" }},\n]\n'
    )

    def told(**variables: str) -> str:
        command = [sys.executable, "-P", "-m", "holdfast.worker", "--config", str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **variables})
        assert done.returncode == 2
        return done.stderr

    assert told().startswith(f"holdfast worker: {path} line 4: worker.directories[1].path {tmp_path}/a/b is inside")
    variable = "HOLDFAST_WORKER_DIRECTORIES"
    twice = told(**{variable: f'[{{ path = "{tmp_path}/b" }}, {{ path = "{tmp_path}/b" }}]'})
    assert twice.startswith(f"holdfast worker: environment variable {variable}: worker.directories names")
    both = told(HOLDFAST_WORKER_DATA_PORT="abc", HOLDFAST_WORKER_HTTP_PORT="70000").splitlines()
    assert len(both) == 2, "one sentence for each mistake"
    assert all(line.startswith("holdfast worker: environment variable HOLDFAST_WORKER_") for line in both)


@pytest.mark.parametrize("inner_first", [False, True])
def test_a_directory_within_another(tmp_path: Path, inner_first: bool) -> None:
    """It is refused in either order before anything is made; a name that only begins alike is no part of it."""
    paths = [f"{tmp_path}/y", f"{tmp_path}/y/sub"]
    inner, outer = (0, 1) if inner_first else (1, 0)
    told = unmade(*(reversed(paths) if inner_first else paths))
    assert told.startswith(
        f"worker.directories[{inner}].path {paths[1]} is inside worker.directories[{outer}].path {paths[0]}: "
    )
    assert os.listdir(tmp_path) == []
    open_store(tmp_path / "y", tmp_path / "y2").close()


def test_directories_that_cannot_be_used(tmp_path: Path) -> None:
    """What cannot be made or is no directory is told with its setting, what it is, and what to do."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(tmp_path / "gone")
    setting = re.escape("worker.directories[1].path ")
    good = tmp_path / "good"
    for path, why in (
        (Path("/proc/holdfast"), "cannot be used: No such file or directory: name a directory on a disk"),
        (file, "is a file: name a directory"),
        (file / "below", f"cannot be made: {file} is a file: name a directory"),
        (link, "is a link to a missing file: name a directory"),
        (Path("/dev/null"), "is no directory: name a directory"),
    ):
        assert re.match(f"{setting}{path} {why}", refusal(good, path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_of_another_user(tmp_path: Path) -> None:
    """Without the right to write, the user who lacks it is named."""
    (tmp_path / "d").mkdir(mode=0o555)
    assert f"Permission denied: give it to the user of this worker (uid {os.geteuid()})" in refusal(tmp_path / "d")


MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
/dev/sdb /mnt/two\\040words xfs rw 0 0
/dev/ram0 /mnt/ram ext4 rw 0 0
/dev/sdc /over ext4 rw 0 0
tmpfs /over tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data", ("/dev/vda", "ext4")),
        ("/dev/shm/holdfast", ("tmpfs", "tmpfs")),
        ("/dev/shm", ("tmpfs", "tmpfs")),
        ("/dev/shmem", ("/dev/vda", "ext4")),
        ("/mnt/two words/d", ("/dev/sdb", "xfs")),
        ("/over/d", ("tmpfs", "tmpfs")),
    ],
)
def test_file_systems_are_found(path: str, expected: tuple[str, str]) -> None:
    """The longest mount point counts, of several at one place the last, and no name that only begins alike."""
    assert file_system(MOUNTS, path) == expected


@pytest.mark.parametrize(
    ("tier", "capacity", "path", "told"),
    [
        ("MEMORY", 64, "/data", "D /data is of tier MEMORY and is on ext4, which is not in memory"),
        ("SSD", 0, "/data", ""),
        ("MEMORY", 100, "/dev/shm/x", ""),
        ("MEMORY", 100, "/mnt/ram", ""),
        ("MEMORY", 101, "/dev/shm/x", "has a capacity of 101.0 MiB, more than the 100.0 MiB of its file system: 100.0"),
        ("HDD", 101, "/data", "100.0 MiB is used instead"),
    ],
)
def test_what_is_not_as_the_configuration_says(tier: str, capacity: int, path: str, told: str) -> None:
    """MEMORY that is no memory, and a capacity that is not there, are worth a sentence; all else is worth none."""
    directory = DirectorySettings(path=path, tier=tier, capacity_bytes=capacity * MIB)
    found = doubts_of("D", directory, file_system(MOUNTS, path), 100 * MIB)
    assert len(found) == bool(told)
    assert told in "".join(found)


def test_doubts_ask_the_file_system() -> None:
    """A capacity beyond the real file system is doubted, with its setting; a directory that is not there is not."""
    told = doubts([DirectorySettings(path="/proc/none"), DirectorySettings(path="/", capacity_bytes=1 << 62)])
    assert len(told) == 1
    assert told[0].startswith("worker.directories[1] / has a capacity of 4194304.0 TiB, more than the ")
