"""Whether the DFS can be used, as a worker judges it: what counts, what is told, and how often."""

import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.config.config import DfsSection
from holdfast.common.config.settings import Duration
from holdfast.common.dfs import names
from holdfast.common.dfs.store import DfsStore
from holdfast.common.dfs.uploads import upload
from holdfast.common.errors import DfsError
from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.dfs.away_health import FAILING, QUIET_SECONDS, UNCHECKED, WELL, DfsHealth
from holdfast.worker.storage.dfs.away_note import DfsNotes
from tests.support.logged import logged
from tests.support.storage_env import Disk, env_of
from tests.support.waiting import wait_until

CLUSTER, UID = "c", bytes(16)
SHUFFLE = ShuffleKey(Instance(bytes(16)), ShuffleId(7), Generation(0))


class Clock:
    """Time as the test tells it."""

    seconds = 1_000.0

    def now(self) -> float:
        """Seconds."""
        return self.seconds

    def now_ns(self) -> int:
        """Nanoseconds."""
        return int(self.seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> DfsHealth:
    return DfsHealth(env_of()._replace(clock=clock), "s3://b/p")


def away(folder: Path) -> Away:
    """Files on a folder, by a worker that has nothing there yet."""
    section = DfsSection(url=str(folder), retry_window=Duration(0))
    return Away(env_of(), lambda: DfsStore(section, CLUSTER), CLUSTER, UID, url=f"file://{folder}")


def test_people_are_told_once_a_minute_and_when_it_is_over(
    health: DfsHealth, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A DFS that cannot be used is a warning at once, and again each minute, however many files meet it."""
    caplog.set_level(logging.INFO)
    health.looked("", clock.seconds)
    for second in range(150):
        health.put_failed(f"no answer {second}")
        health.looked("no answer", clock.seconds)
        clock.seconds += 1
    assert len(logged(caplog, LogEvent.DFS_FAILING)) == 3
    status = health.status(5, 2)
    assert (status.state, status.problem, status.problem_ms) == (FAILING, "no answer", 150_000)
    assert not health.answers
    health.looked("", clock.seconds)
    assert [each["seconds"] for each in logged(caplog, LogEvent.DFS_RECOVERED)] == [150]
    assert health.status(5, 2)[:6] == ("s3://b/p", WELL, "", 0, 5, 2)
    health.put_failed("again")
    assert len(logged(caplog, LogEvent.DFS_FAILING)) == 4, "a new one is logged at once"


def test_what_a_file_met_stays_until_one_is_stored_or_nobody_tries(health: DfsHealth, clock: Clock) -> None:
    """A store that answers and takes nothing (no right, no room) is not called well because it answers."""
    assert health.state == UNCHECKED
    health.put_failed("no right to write")
    health.looked("", clock.seconds)
    assert (health.problem, health.answers) == ("no right to write", True)
    health.stored(2_000_000)
    assert (health.problem, health.status(0, 0).put_us) == ("", 2_000)
    health.put_failed("no right to write")
    clock.seconds += QUIET_SECONDS
    health.looked("", clock.seconds)
    assert health.state == WELL


def test_a_look_leaves_the_marker_of_a_new_store_only(tmp_path: Path) -> None:
    """A folder that is not there is a problem and stays away; one without marker gets it, from who knows of no files
    there, once: a marker that goes later is a problem, and so is a store without the files that are known."""
    folder = tmp_path / "dfs"
    first = away(folder)
    assert "mounted" in first.look()
    folder.mkdir()
    assert first.look() == ""
    marker = folder / names.marker(CLUSTER)
    assert marker.exists()
    marker.unlink()
    assert "is not the store of this cluster" in first.look()
    knowing = away(folder)
    knowing.has_files = True
    assert "is not the store of this cluster" in knowing.look()
    assert not marker.exists()
    for one in (first, knowing):
        one.close()


def noted(folder: Path, directory: Path) -> Away:
    """The same worker, whose notes are in a directory."""
    one = away(folder)
    directory.mkdir(exist_ok=True)
    one.notes = DfsNotes(Disk(), [directory])
    return one


def ids(folder: Path) -> list[str]:
    """Of the store in a folder."""
    return sorted(path.name.rpartition(".")[2] for path in (folder / CLUSTER).glob(f"{names.MARKER}.*"))


def test_a_file_that_went_to_another_store_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store was this cluster's when the worker looked, and is another one when a file comes: it stays here."""
    folder, real, other = tmp_path / "dfs", tmp_path / "real", tmp_path / "other"
    folder.mkdir()
    (other / CLUSTER).mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"what was pushed")
    one = away(folder)
    assert one.look() == ""

    def put_another(*values: Any) -> None:
        folder.rename(real)
        other.rename(folder)
        upload(*values)

    monkeypatch.setattr("holdfast.common.dfs.store.upload", put_another)
    with pytest.raises(DfsError, match="is not the store of this cluster"):
        one.store.put(names.file_name(CLUSTER, SHUFFLE, UID, "p-1-0.part"), tmp_path / "file")
    one.close()


def test_a_worker_that_saw_the_marker_takes_no_other_store(tmp_path: Path) -> None:
    """One that never stored a file: in an empty mount point it makes no marker, one that somebody else made there is
    that of another store, and the first is known again when it is back. So does one that has files."""
    folder, real, one = tmp_path / "dfs", tmp_path / "real", away(tmp_path / "dfs")
    folder.mkdir()
    assert one.look() == ""
    for name in ("seen", "used"):
        worker = noted(folder, tmp_path / name)
        assert worker.look() == ""
        if name == "used":
            worker.notes.use(f"file://{folder}", worker.store.ident or "")
        worker.close()
    folder.rename(real)
    folder.mkdir()
    for name in ("seen", "used"):
        worker = noted(folder, tmp_path / name)
        assert "is not the store of this cluster" in worker.look()
        with pytest.raises(DfsError, match="is not the store of this cluster"):
            _ = worker.store
        assert list(folder.iterdir()) == []
        worker.close()
    stranger = away(folder)
    assert stranger.look() == ""
    for name in ("seen", "used"):
        worker = noted(folder, tmp_path / name)
        assert f"{names.MARKER}.{ids(real)[0]}" in worker.look()
        with pytest.raises(DfsError, match="is not the store of this cluster"):
            _ = worker.store
        worker.close()
    assert "is not the store of this cluster" in one.look(), "nor does one that is running"
    shutil.rmtree(folder)
    real.rename(folder)
    worker = noted(folder, tmp_path / "seen")
    assert (worker.look(), one.look(), worker.store.ident) == ("", "", ids(folder)[0])
    for each in (one, stranger, worker):
        each.close()


def test_workers_that_make_the_store_at_once_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has looked before the other wrote: each finds the id that it noted for ever, whoever was last."""
    folder = tmp_path / "dfs"
    folder.mkdir()
    first, second = (noted(folder, tmp_path / name) for name in ("first", "second"))
    write = DfsStore._write_marker

    def overtaken(store: DfsStore) -> None:
        monkeypatch.setattr(DfsStore, "_write_marker", write)
        assert second.look() == ""
        write(store)

    monkeypatch.setattr(DfsStore, "_write_marker", overtaken)
    assert first.look() == ""
    assert len(ids(folder)) == 2
    assert [path.name for path in (folder / CLUSTER).iterdir() if path.name.endswith(names.TEMPORARY_SUFFIX)] == []
    for one, name in ((first, "first"), (second, "second")):
        assert (one.look(), noted(folder, tmp_path / name).look()) == ("", "")
        one.close()


def test_a_store_whose_marker_has_no_id_is_taken_as_such(tmp_path: Path) -> None:
    """Made before stores had one: it is used, noted as one without id, and no store with one is taken for it."""
    folder, marker = tmp_path / "dfs", tmp_path / "dfs" / names.marker(CLUSTER)
    marker.parent.mkdir(parents=True)
    marker.write_text(f"The DFS tier of the Holdfast cluster {CLUSTER}. Do not remove.\n")
    one = noted(folder, tmp_path / "one")
    assert (one.look(), one.store.ident, ids(folder)) == ("", "", [])
    assert one.notes.ident(f"file://{folder}") == ""
    again = noted(folder, tmp_path / "one")
    assert (again.look(), again.store.ident) == ("", "")
    folder.rename(tmp_path / "real")
    folder.mkdir()
    assert away(folder).look() == ""
    assert "without an id" in again.look()
    one.close()
    again.close()


def test_a_store_that_was_only_seen_was_not_used(tmp_path: Path) -> None:
    """Nothing of such a worker has to be found there again when an index is lost; once a file goes there it has."""
    (tmp_path / "dfs").mkdir()
    one = noted(tmp_path / "dfs", tmp_path / "one")
    assert one.look() == ""
    assert (one.notes.used, one.notes.urls) == (False, {f"file://{tmp_path}/dfs"})
    one.notes.lost_index(tmp_path / "one")
    assert one.notes.to_search == []
    one.notes.use(f"file://{tmp_path}/dfs", one.store.ident or "")
    one.notes.lost_index(tmp_path / "one")
    notes = DfsNotes(Disk(), [tmp_path / "one"])
    assert (notes.used, notes.to_search, notes.ident(f"file://{tmp_path}/dfs")) == (
        True,
        [tmp_path / "one"],
        ids(tmp_path / "dfs")[0],
    )
    one.close()


def test_a_watch_begins_at_once_and_goes_on(tmp_path: Path) -> None:
    """A wrong folder is noticed without any file, and so is that it is right again; the thread ends with its owner."""
    folder = tmp_path / "dfs"
    one = away(folder)
    one.watch(0.05)
    wait_until(lambda: one.health.state == FAILING, "the missing folder to be seen")
    folder.mkdir()
    wait_until(lambda: one.health.state == WELL, "the folder to be seen")
    folder.rename(tmp_path / "gone")
    wait_until(lambda: one.health.state == FAILING, "the folder to be missed")
    one.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-dfs-watch"]


def test_a_client_that_cannot_be_opened_is_a_problem_too(tmp_path: Path) -> None:
    """Whatever a look meets is shown, and ends neither the thread nor the worker."""

    def broken() -> DfsStore:
        raise RuntimeError("no client for this")

    one = Away(env_of(), broken, CLUSTER, UID, url="s3://b")
    one.watch(0.05)
    wait_until(lambda: "no client for this" in one.health.problem, "the problem")
    one.close()


def test_the_empty_folder_of_a_dropped_shuffle_goes(tmp_path: Path) -> None:
    """Whoever removes the last file of a shuffle removes its folder; files of other workers in it stay."""
    file = tmp_path / "file"
    file.write_bytes(b"x")
    one = away(tmp_path)
    folder = tmp_path / names.shuffle_folder(CLUSTER, SHUFFLE)
    for others in (1, 0):
        stored = [
            one.store.put(names.file_name(CLUSTER, SHUFFLE, uid, "p-0-0.part"), file).name
            for uid in (UID, bytes([1]) * 16)[: 1 + others]
        ]
        one.drop(SHUFFLE, sure=True)
        one.remove_dropped()
        one._lane.submit(int).result(30)
        assert [path for path in map(tmp_path.joinpath, stored) if path.exists()] == [
            tmp_path / name for name in stored[1:]
        ]
        assert folder.exists() == bool(others)
        if others:
            one.store.remove_folder(names.worker_folder(CLUSTER, SHUFFLE, bytes([1]) * 16))
    one.close()
