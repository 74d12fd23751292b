"""`holdfast inspect` and `verify` of a directory with files on the DFS: those are told, and checked if asked."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.common.config import config
from holdfast.common.errors import ConfigError, DfsError
from holdfast.tools.cli.commands.offline import verify
from holdfast.worker.storage.offline.inspect import inspect_directory
from holdfast.worker.storage.offline.verify import verify_directory
from tests.support.storage_env import carry_out
from tests.unit.worker.storage.test_away import PARTITIONS, DfsWorld


@pytest.fixture
def moved(tmp_path: Path) -> DfsWorld:
    """All files of a worker that has ended are on the DFS: a pack file and a partition file."""
    world = DfsWorld(tmp_path)
    world.move_all()
    world.store.close()
    return world


def settings(world: DfsWorld, url: str = "", cluster: str = "c") -> config.Config:
    """What is in the worker's file."""
    tables = {"cluster": {"id": cluster}, "dfs": {"url": url or str(world.url), "retry_window": "0"}}
    return config.from_tables(tables)


def root(world: DfsWorld) -> str:
    """Its only directory."""
    return str(world.root / "0")


def run_verify(world: DfsWorld, *more: str) -> Result:
    """The command."""
    return CliRunner().invoke(verify, [root(world), *more], standalone_mode=False)


def test_verify_tells_what_it_did_not_look_at(moved: DfsWorld) -> None:
    """Without the worker's configuration files on the DFS are counted, and the verdict is one of the directory only."""
    report = verify_directory(root(moved))
    assert (report.dfs_files, report.dfs_unchecked, report.dfs_epochs) == (2, 2, PARTITIONS)
    assert (report.dfs_bytes, report.batches) == (sum(path.stat().st_size for path in moved.on_dfs()), 0)
    done = run_verify(moved)
    assert done.return_value == 0
    last = done.output.splitlines()[-1]
    assert last.startswith("good as far as was looked: every byte in the directory")
    assert f"2 files on the DFS ({PARTITIONS} epochs" in last
    assert "not looked at: give --config FILE" in last


def test_verify_reads_every_byte_on_the_dfs(moved: DfsWorld, tmp_path: Path) -> None:
    """With the worker's configuration all batches there are counted, bytes done add up, and the verdict is whole."""
    told: list[tuple[int, int]] = []
    report = verify_directory(root(moved), lambda done, total: told.append((done, total)), settings(moved))
    assert (report.damaged, report.dfs_files, report.dfs_unchecked) == (False, 2, 0)
    assert report.batches > 0
    assert report.size_bytes > 0
    assert told[-1] == (report.dfs_bytes, report.dfs_bytes)
    file = tmp_path / "worker.toml"
    file.write_text(config.render(settings(moved)))
    done = run_verify(moved, "--config", str(file))
    assert done.return_value == 0
    assert done.output.splitlines()[-1] == "good: every byte that something refers to is as it was written"


def test_verify_finds_files_that_are_gone_from_the_dfs(moved: DfsWorld) -> None:
    """Each is DAMAGE under its name there."""
    for path in moved.on_dfs():
        path.rename(path.with_suffix(".away"))
    report = verify_directory(root(moved), config=settings(moved))
    assert [one.severity for one in report.findings if "missing from the DFS" in one.message] == ["DAMAGE"] * 2
    assert all(one.path.startswith(f"file://{moved.url}/c/") for one in report.findings if one.severity == "DAMAGE")


def test_verify_finds_every_flipped_byte_on_the_dfs(moved: DfsWorld) -> None:
    """In data, in the footer, at the very end (but for the head of 64 bytes, which nothing reads once it is sealed); a
    file that was cut is damage as well."""
    (path, other) = moved.on_dfs()
    whole = path.read_bytes()
    for at in (*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        findings = verify_directory(root(moved), config=settings(moved)).findings
        damage = {one.path for one in findings if one.severity == "DAMAGE"}
        assert damage == {f"file://{path}"} or at < 64, f"byte {at} of {len(whole)}"
    path.write_bytes(whole)
    other.write_bytes(other.read_bytes()[:-100])
    assert verify_directory(root(moved), config=settings(moved)).damaged


def test_verify_refuses_the_configuration_of_another(moved: DfsWorld) -> None:
    """Another cluster, no DFS, or another DFS: each is told; one that is away says nothing of the files."""
    with pytest.raises(ConfigError, match="is of the cluster c, --config is of other"):
        verify_directory(root(moved), config=settings(moved, cluster="other"))
    with pytest.raises(ConfigError, match=r"2 files are on file://.*has no \[dfs\] url"):
        verify_directory(root(moved), config=config.from_tables({"cluster": {"id": "c"}}))
    with pytest.raises(ConfigError, match="has files on file://"):
        verify_directory(root(moved), config=settings(moved, url="/elsewhere"))
    moved.url.rename(moved.root / "unmounted")
    with pytest.raises(DfsError):
        verify_directory(root(moved), config=settings(moved))


def test_inspect_tells_what_is_on_the_dfs(moved: DfsWorld) -> None:
    """Epochs and files there carry their names in the store and the lengths of the index, and are marked."""
    report = inspect_directory(root(moved))
    (shuffle,) = report.shuffles
    names = {str(path.relative_to(moved.url)): path.stat().st_size for path in moved.on_dfs()}
    assert {one.path: one.file_bytes for one in shuffle.data_files} == names
    assert {one.path for one in shuffle.epochs} == set(names)
    assert all(one.dfs for one in shuffle.epochs)
    assert all(one.dfs for one in shuffle.data_files)
    assert (report.dfs_files, report.dfs_bytes) == (2, sum(names.values()))
    assert report.dfs_url == f"file://{moved.url}"
    assert report.problems == []


def test_inspect_does_not_mark_what_is_here(tmp_path: Path) -> None:
    """As long as a file has not moved its path is one below the directory."""
    world = DfsWorld(tmp_path)
    carry_out(world.store.mover, world.moves()[0])
    world.store.close()
    (shuffle,) = inspect_directory(root(world)).shuffles
    (here,) = [one for one in shuffle.data_files if not one.dfs]
    assert (tmp_path / "0" / here.path).stat().st_size == here.file_bytes
    assert {one.path for one in shuffle.epochs if not one.dfs} == {here.path}
