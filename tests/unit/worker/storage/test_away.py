"""The worker and its DFS: what hangs there holds nothing up, what is deleted is let go of, another DFS is refused."""

import dataclasses
import errno
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.config.config import DfsSection
from holdfast.common.config.settings import Duration
from holdfast.common.dfs import names
from holdfast.common.dfs.store import DfsStore
from holdfast.common.dfs.uploads import upload
from holdfast.common.errors import ConfigError, RetryError
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import Epoch, PartitionId, ShuffleId
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.worker.storage.dfs import away_search
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.dfs.away_search import AwaySearch
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.read.sealed_locations import SealedLocation
from holdfast.worker.storage.tiers.moving import FileMove
from tests.support.changing import files_below
from tests.support.logged import logged
from tests.support.reduce_data import Writer
from tests.support.storage_env import carry_out, env_of
from tests.support.waiting import wait_until
from tests.unit.worker.storage.reduce_world import SHUFFLE, World, fill

PARTITIONS = 6


class DfsWorld(World):
    """A worker with a disk and a folder that is its DFS; a pack file and a partition file are sealed."""

    def __init__(self, root: Path, tiers: Sequence[str] = ("SSD",)) -> None:
        super().__init__(root, tiers=tiers)
        self.use("dfs")
        self.core.has_room = [number == 0 for number in range(len(tiers))]
        fill(self, Writer(SHUFFLE), PARTITIONS)
        answers = self.seal([(partition, 0) for partition in range(PARTITIONS)])
        assert {answer.status for answer in answers} == {Status.OK}

    def use(self, folder: str) -> None:
        """Start anew with another `[dfs] url`."""
        self.url = self.root / folder
        self.url.mkdir(exist_ok=True)
        section = DfsSection(url=str(self.url), retry_window=Duration(0))
        self.settings = dataclasses.replace(
            self.settings, open_away=lambda uid, env: Away(env, lambda: DfsStore(section, "c"), "c", uid)
        )
        self.restart()

    @property
    def away(self) -> Away:
        """The part of the DFS."""
        assert self.store.away is not None
        return self.store.away

    def moves(self) -> list[FileMove]:
        """A move to the DFS for every sealed file of the first directory."""
        directory = self.store._directories[0]
        with directory.index.reading() as reader:
            files = sorted(reader.data_files(SHUFFLE), key=str)
        return [self.store.mover.move(key, size, directory, None, directory) for key, size in files]

    def move_all(self) -> None:
        """Carry them out, in this thread."""
        for move in self.moves():
            carry_out(self.store.mover, move)

    def file_of(self, place: SealedLocation) -> Path:
        """There, if it was moved."""
        return self.url / place.path if place.away else Path(place.path)

    def everything(self) -> list[list[bytes]]:
        """What is read of each partition."""
        return [[bytes(batch.payload) for batch in self.read(partition)] for partition in range(PARTITIONS)]

    def on_dfs(self) -> list[Path]:
        """Sealed files that are there."""
        return [path for path in files_below(self.url) if not path.name.startswith(names.MARKER)]


class Hanging:
    """Something that hangs."""

    def __init__(self) -> None:
        self._entered, self._release = threading.Event(), threading.Event()

    def wait(self) -> None:
        """Called in what hangs."""
        self._entered.set()
        self._release.wait()

    def entered(self) -> None:
        """Wait until it hangs."""
        wait_until(self._entered.is_set, "a call that hangs")

    def go_on(self) -> None:
        """It hangs no more."""
        self._release.set()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    """Uploads hang."""
    hanging = Hanging()

    def hang(*args: Any) -> None:
        hanging.wait()
        upload(*args)

    monkeypatch.setattr("holdfast.common.dfs.store.upload", hang)
    yield hanging
    hanging.go_on()


def in_time(act: Any, what: str) -> None:
    """Run something that must not wait for what hangs."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), f"{what} waits for what hangs"


def test_a_worker_ends_while_an_upload_hangs(tmp_path: Path, hanging: Hanging) -> None:
    """Closing ends the move; the file is where it was, and is read after a start."""
    world = DfsWorld(tmp_path)
    move = world.moves()[0]
    world.store.mover.start(move)
    hanging.entered()
    in_time(world.store.close, "closing")
    assert move.done.done()
    assert world.away.hanging  # so that its process does not wait for the client either
    hanging.go_on()
    wait_until(lambda: not world.away.hanging, "the end of the upload")
    world.start()
    assert [bool(world.read(partition)) for partition in range(PARTITIONS)] == [True] * PARTITIONS
    world.store.close()


def test_a_worker_ends_while_its_dfs_hangs_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known yet whether it is the right one: that is not waited for either."""
    hanging = Hanging()
    monkeypatch.setattr(DfsStore, "_write_marker", lambda *_: hanging.wait())
    world = DfsWorld(tmp_path)
    world.store.mover.start(world.moves()[0])
    hanging.entered()
    in_time(world.store.close, "closing")
    hanging.go_on()


def test_a_shuffle_is_deleted_while_an_upload_of_it_hangs(tmp_path: Path, hanging: Hanging) -> None:
    """Nobody waits for the DFS; when the file has come there after all it is removed, and no index has it."""
    world = DfsWorld(tmp_path)
    move = world.moves()[0]
    world.store.mover.start(move)
    hanging.entered()
    in_time(lambda: world.store.forget([SHUFFLE]).result(30), "deleting")
    assert not move.done.done()
    hanging.go_on()
    wait_until(move.done.done, "the end of the move")
    assert world.on_dfs() == []
    (directory,) = world.store._directories
    with directory.index.reading() as reader:
        assert (list(reader.away_files()), world.store.shuffles()) == ([], [])
    world.store.close()


def test_an_error_that_nobody_thought_of_costs_one_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with where it came from; the move failed, others go on, and deleting waits for none of it."""
    world, errors = DfsWorld(tmp_path), [ValueError("planted")]

    def read_once(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return read_footer(*args)

    monkeypatch.setattr("holdfast.worker.storage.tiers.moving.read_footer", read_once)
    first, second = world.moves()
    with caplog.at_level(logging.ERROR):
        assert world.store.mover.start(first)
        assert world.store.mover.start(second)
        wait_until(second.done.done, "the end of the second move")
    assert ("ValueError: planted" in first.problem, second.problem) == (True, "")
    assert "read_once" in caplog.text
    assert len(world.on_dfs()) == 1
    in_time(lambda: world.store.forget([SHUFFLE]).result(30), "deleting")
    world.store.close()


def test_a_search_goes_on_after_an_error_that_nobody_thought_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what went wrong meanwhile, and is tried again."""
    monkeypatch.setattr(away_search, "PAUSE_SECONDS", 0.01)
    world, files, errors = DfsWorld(tmp_path), Away.files, [ValueError("planted")]

    def once(away: Away) -> Any:
        if errors:
            raise errors.pop()
        return files(away)

    monkeypatch.setattr(Away, "files", once)
    search = AwaySearch(env_of().threads, world.away, world.store._directories, lambda act: act())
    search.start(20.0)
    assert (search.over, search.problem) == (True, "ValueError: planted")
    search.close()
    world.store.close()


def test_what_only_the_dfs_has_is_not_called_lost_while_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No directory has a trace of the shuffle any more, and the DFS cannot be reached: seals wait, and get the answers
    of before when it is back. Of a shuffle that was registered since then nothing can be there."""
    monkeypatch.setattr(away_search, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("holdfast.worker.storage.store.START_SECONDS", 0.05)
    world = DfsWorld(tmp_path)
    epochs = [(partition, 0) for partition in range(PARTITIONS)]
    before = world.seal(epochs)
    world.move_all()
    wait_until(lambda: not files_below(world.root / "0" / "data"), "the files to leave")
    world.store.close()
    for folder in ("index", "data", "log"):
        shutil.rmtree(world.root / "0" / folder)
    world.url.rename(tmp_path / "elsewhere")
    world.start()
    with pytest.raises(RetryError, match="looked for on the DFS"):
        world.store.reduce.seal(SHUFFLE, True, epochs)
    new = SHUFFLE._replace(shuffle=ShuffleId(SHUFFLE.shuffle + 1))
    ((_, answer),) = world.store.reduce.seal(new, True, [(0, 0)], new=True)
    assert answer == SealedEpoch(PartitionId(0), Epoch(0), Status.UNKNOWN_FILE)
    (tmp_path / "elsewhere").rename(world.url)
    wait_until(lambda: not world.store.reduce.not_known_yet(), "the search to end")
    assert world.seal(epochs) == before
    world.store.close()


@pytest.mark.parametrize("removed_here", [False, True])
def test_files_of_a_deleted_shuffle_are_not_kept_open(tmp_path: Path, removed_here: bool) -> None:
    """Whoever removes them, this worker or the leading master: their space on the DFS is free."""
    world = DfsWorld(tmp_path)
    world.move_all()
    for path in world.on_dfs():
        world.away.store.read(str(path.relative_to(world.url)), 0, 10)
    assert len(_open_below(world.url)) == 2
    if not removed_here:
        for path in world.on_dfs():
            path.unlink()
    world.store.forget([SHUFFLE]).result(30)
    wait_until(lambda: (world.on_dfs(), _open_below(world.url)) == ([], []), "the removal there")
    world.store.close()


def test_files_that_the_dfs_does_not_let_go_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who removes them, and when, is logged; this worker does with the next look for dropped shuffles."""
    world = DfsWorld(tmp_path)
    world.move_all()
    world.url.rename(tmp_path / "away")
    with caplog.at_level(logging.WARNING):
        world.store.forget([SHUFFLE]).result(30)
        wait_until(lambda: logged(caplog, LogEvent.DFS_FILES_LEFT) and not world.away._removing, "the log")
    (left,) = logged(caplog, LogEvent.DFS_FILES_LEFT)
    assert "[dfs] clean_every and clean_grace" in LogEvent.DFS_FILES_LEFT.to_do
    assert "not mounted" in str(left["reason"])
    (tmp_path / "away").rename(world.url)
    assert len(world.on_dfs()) == 2
    world.store.forget([]).result(30)
    wait_until(lambda: world.on_dfs() == [], "the removal there")
    world.store.close()


def _open_below(folder: Path) -> list[str]:
    """Files in a folder that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return [path for path in found if path.startswith(f"{folder}/")]


def test_another_dfs_is_refused_while_files_are_on_the_first(tmp_path: Path) -> None:
    """Even if it is marked as this cluster's: that it has not got them means nothing, and nothing new goes there."""
    world = DfsWorld(tmp_path)
    (moved, left) = world.moves()
    carry_out(world.store.mover, moved)
    (tmp_path / "other" / "c").mkdir(parents=True)
    for path in (tmp_path / "dfs" / "c").glob(f"{names.MARKER}*"):
        (tmp_path / "other" / "c" / path.name).write_bytes(path.read_bytes())
    world.use("other")
    (left,) = world.moves()
    with pytest.raises(ConfigError, match="set it as it was") as refused:
        carry_out(world.store.mover, left)
    assert f"file://{tmp_path}/dfs" in str(refused.value)
    assert world.on_dfs() == []
    assert world.away.notes.urls == {f"file://{tmp_path}/dfs"}
    world.use("dfs")
    world.move_all()
    assert len(world.on_dfs()) == 2
    world.store.close()


def test_another_dfs_is_taken_when_nothing_is_on_the_first(tmp_path: Path) -> None:
    """Then the setting may change, and the worker remembers the new one."""
    world = DfsWorld(tmp_path)
    assert world.away.store.shown == f"file://{tmp_path}/dfs"
    world.use("other")
    world.move_all()
    assert (len(world.on_dfs()), world.away.notes.urls) == (2, {f"file://{tmp_path}/other"})
    world.store.close()


def record_fails(world: World, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """The next index transaction ends in EIO, `after` it was carried out or before."""
    commit, errors = world.disk.commit, [OSError(errno.EIO, "planted")]

    def failing(transaction: Any) -> None:
        if after or not errors:
            commit(transaction)
        if errors:
            raise errors.pop()

    monkeypatch.setattr(world.disk, "commit", failing)


@pytest.mark.parametrize("after", [True, False])
def test_a_record_that_says_that_it_failed_costs_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Whether it is on the disk or not: killed then, the next start reads every partition, from one place."""
    world = DfsWorld(tmp_path)
    content = world.everything()
    for move in world.moves():
        record_fails(world, monkeypatch, after=after)
        with pytest.raises(OSError, match="planted"):
            carry_out(world.store.mover, move)
    assert world.everything() == content
    world.restart()
    (directory,) = world.store._directories
    assert (len(directory.away_files(SHUFFLE)), len(world.moves())) == ((2, 0) if after else (0, 2))
    assert len(world.files("*.pack") + world.files("*.part")) == len(world.moves())
    assert world.everything() == content
    world.store.close()


def test_a_file_whose_record_failed_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try takes the copy that is there, and stores it again only if it has gone."""
    world = DfsWorld(tmp_path)
    content = world.everything()
    first, second = world.moves()
    for move in (first, second):
        record_fails(world, monkeypatch, after=False)
        with pytest.raises(OSError, match="planted"):
            carry_out(world.store.mover, move)
    before = world.on_dfs()
    next(path for path in before if path.name.endswith(second.token.hex())).unlink()
    world.move_all()
    assert len(world.on_dfs()) == 2
    assert len(set(world.on_dfs()) & set(before)) == 1
    assert world.everything() == content
    world.store.forget([SHUFFLE]).result(30)
    wait_until(lambda: world.on_dfs() == [], "the removal there")
    world.store.close()


def test_a_move_to_a_disk_takes_back_a_record_that_said_that_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the file is where it went last, and the next start does not look for it on the DFS."""
    world = DfsWorld(tmp_path, ["SSD", "HDD"])
    content = world.everything()
    here, there = world.store._directories
    for move in world.moves():
        record_fails(world, monkeypatch, after=True)
        with pytest.raises(OSError, match="planted"):
            carry_out(world.store.mover, move)
        carry_out(world.store.mover, world.store.mover.move(move.key, move.size_bytes, here, there, there))
    world.restart()
    assert [bool(one.away_files(SHUFFLE)) for one in world.store._directories] == [False, False]
    assert world.everything() == content
    world.store.close()


def test_a_search_records_elsewhere_what_an_index_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes are lost, and the one in which the first file is recorded again fails: its directory says so, and the
    next try takes another one."""
    monkeypatch.setattr(away_search, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("holdfast.worker.storage.store.START_SECONDS", 0.05)
    world = DfsWorld(tmp_path, ["SSD", "HDD"])
    epochs = [(partition, 0) for partition in range(PARTITIONS)]
    before = world.seal(epochs)
    world.move_all()
    world.store.close()
    for one in ("0", "1"):
        for folder in ("index", "data", "log"):
            shutil.rmtree(world.root / one / folder)
    world.url.rename(tmp_path / "elsewhere")
    world.start()
    record_fails(world, monkeypatch, after=False)
    (tmp_path / "elsewhere").rename(world.url)
    wait_until(lambda: not world.store.reduce.not_known_yet(), "the search to end")
    assert sorted(one.problem for one in world.store._directories) == ["", "writing failed: [Errno 5] planted"]
    assert world.seal(epochs) == before
    world.store.close()


def test_an_index_that_keeps_a_file_that_has_moved_speaks_against_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is where it went, nothing is lost, and the directory that it cannot leave says what is wrong with it."""
    world = DfsWorld(tmp_path, ["SSD", "HDD"])
    content = world.everything()
    here, there = world.store._directories
    commit, left = world.disk.commit, [1]

    def second_fails(transaction: Any) -> None:
        if not left:
            raise OSError(errno.EIO, "planted")
        left.pop()
        commit(transaction)

    (move, *_) = world.moves()
    monkeypatch.setattr(world.disk, "commit", second_fails)
    carry_out(world.store.mover, world.store.mover.move(move.key, move.size_bytes, here, there, there))
    assert (here.problem, there.problem) == ("writing failed: [Errno 5] planted", "")
    monkeypatch.setattr(world.disk, "commit", commit)
    assert world.everything() == content
    world.store.close()
