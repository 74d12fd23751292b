"""Symbolic links that somebody put where servers keep data lead nothing outside to be read, written over or deleted,
and FIFOs, sockets and devices there have nothing wait for their other end."""

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.client import Session, local_cluster
from holdfast.client.cluster.server import Server, StartError
from holdfast.common.dfs.door import SystemDfsDoor
from holdfast.common.dfs.folder import LocalFolder, remove_empty
from holdfast.common.dfs.uploads import upload
from holdfast.common.dfs.urls import StoreKind
from holdfast.common.errors import ConfigError
from holdfast.master.backup import RESTORED
from holdfast.master.raft.snapshot import FileSnapshots, SnapshotId
from holdfast.worker.storage.env.system import SystemCheck, SystemChecks
from holdfast.worker.storage.names import is_data_file
from holdfast.worker.storage.offline.offline import open_offline
from holdfast.worker.storage.prepare import prepare
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import open_store
from tests.support.storage_env import Disk, env_of

pytestmark = pytest.mark.timeout(300)
VICTIM = b"not Holdfast's, and a line long"


def state_of(place: Path) -> dict[str, bytes]:
    """Every file below a folder, or the file itself, with what is in it."""
    files = [place] if place.is_file() else [path for path in sorted(place.rglob("*")) if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


@contextmanager
def planted(entry: Path, outside: Path) -> Iterator[None]:
    """Have a link stand for an entry; what it leads to is as the entry was, and stays so."""
    there, aside = outside / "victim", outside / "aside"
    if entry.is_dir():
        shutil.copytree(entry, there)
    else:
        shutil.copy(entry, there)
    entry.rename(aside)
    entry.symlink_to(there)
    before = state_of(there)
    try:
        yield
        assert state_of(there) == before
    finally:
        entry.unlink(missing_ok=True)
        aside.rename(entry)
        shutil.rmtree(there) if there.is_dir() else there.unlink()


def make_fifo(path: Path) -> None:
    """A FIFO, which nobody else opens."""
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    """A socket, where nobody listens. The path is too long for its address."""
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


@contextmanager
def special(entry: Path, outside: Path, make: Callable[[Path], None] = make_fifo) -> Iterator[None]:
    """Have a special file stand for an entry."""
    aside = outside / "aside"
    entry.rename(aside)
    make(entry)
    try:
        yield
    finally:
        entry.unlink(missing_ok=True)
        aside.rename(entry)


def fill(session: Session) -> None:
    """A shuffle of each kind, committed; one that is being pushed."""
    maps = session.register_map_shuffle(2)
    with maps.writer(0, 1) as writer:
        status = writer.close([(0, b"one" * 100), (1, b"two" * 100)])
    maps.commit([status])
    for done in (True, False):
        pushed = session.register_reduce_shuffle(2, maps=1)
        with pushed.writer(0) as pusher:
            pusher.write(0, bytes(300_000))
            pusher.flush()
            if done:
                pushed.commit([pusher.close()])


def refused(server: Server) -> str:
    """What a server says that does not start."""
    with pytest.raises(StartError) as reported:
        server.start()
    return str(reported.value)


def test_a20_a_link_among_a_workers_files_is_refused_at_its_start(tmp_path: Path) -> None:
    """Whichever file or folder of a worker's directory becomes a link, the worker does not use the directory and says
    which it is; one among its data files is left alone, and it starts. Nothing behind any of them changes. Without them
    the worker starts, also where its directory itself is reached by a link."""
    (tmp_path / "outside").mkdir()
    with (
        local_cluster(1, 1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="links") as session,
    ):
        fill(session)
        worker = cluster.workers[0]
        worker.kill()
        (identity,) = (tmp_path / "cluster").rglob("identity")
        root = identity.parent
        kinds = {entry.relative_to(root).parts[0]: entry for entry in sorted(root.rglob("*"))}
        entries = [entry for entry in sorted(root.rglob("*")) if entry.name != "lost+found"]
        assert {"identity", "starts", "lock", "index", "data", "log"} <= set(kinds)
        settings = StoreSettings(cluster_id="x", worker_name="x", directories=(DirectorySettings(path=str(root)),))
        data = [entry for entry in entries if is_data_file(str(root), str(entry))]
        assert len(data) >= 2
        for entry in entries:
            if entry in data:
                continue
            with planted(entry, tmp_path / "outside"):
                with pytest.raises(ConfigError, match="is a symbolic link") as reported:
                    prepare(settings)
                assert str(entry) in str(reported.value)
                if entry.name != "identity":
                    with pytest.raises(ConfigError):
                        open_offline(str(root))
        with planted(root / "starts", tmp_path / "outside"):
            assert f"{root}/starts is a symbolic link, to" in refused(worker)
        for entry in data:
            with planted(entry, tmp_path / "outside"):
                worker.start()
                worker.kill()
        moved = tmp_path / "moved"
        root.rename(moved)
        root.symlink_to(moved)
        worker.start()
        fill(session)


def test_a_start_that_is_refused_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever refuses a start, a link that leads to itself, one beside data files, or a check that cannot begin, the
    error is a sentence, and while it is kept the directories can be opened."""
    paths = [tmp_path / "d0", tmp_path / "d1"]
    directories = tuple(DirectorySettings(path=str(path)) for path in paths)
    settings = StoreSettings(cluster_id="x", worker_name="x", directories=directories)
    kept: list[ConfigError] = []
    open_store(prepare(settings)).close()
    for place in (paths[1] / "index", paths[1] / "data" / "x"):
        if place.exists():
            place.rename(tmp_path / "aside")
        place.symlink_to(place)
        with pytest.raises(ConfigError, match=f"{place} is a symbolic link") as caught:
            prepare(settings)
        kept.append(caught.value)
        place.unlink()
        if (tmp_path / "aside").exists():
            (tmp_path / "aside").rename(place)
        open_store(prepare(settings)).close()
    start, begun = SystemChecks.start, []

    def fails(self: SystemChecks, what: str, root: str) -> SystemCheck:
        begun.append(what)
        if len(begun) == 4:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return start(self, what, root)

    with monkeypatch.context() as now:
        now.setattr(SystemChecks, "start", fails)
        with pytest.raises(ConfigError, match=rf"directories\[1\].*{os.strerror(errno.EAGAIN)}") as caught:
            prepare(settings)
        kept.append(caught.value)
    open_store(prepare(settings)).close()


def test_a_special_file_among_a_workers_files_is_refused_at_its_start(tmp_path: Path) -> None:
    """Whichever file of a worker's directory becomes a FIFO or a socket, data files among them, nothing that opens the
    directory waits for its other end: worker, verify and inspect say which it is, at once."""
    (tmp_path / "outside").mkdir()
    with (
        local_cluster(1, 1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="special") as session,
    ):
        fill(session)
        worker = cluster.workers[0]
        worker.kill()
        (identity,) = (tmp_path / "cluster").rglob("identity")
        root = identity.parent
        settings = StoreSettings(cluster_id="x", worker_name="x", directories=(DirectorySettings(path=str(root)),))
        entries = [entry for entry in sorted(root.rglob("*")) if entry.is_file()]
        data = [entry for entry in entries if is_data_file(str(root), str(entry))]
        assert len(data) >= 2
        for make, called in ((make_fifo, "a FIFO"), (make_socket, "a socket")):
            for entry in entries:
                with special(entry, tmp_path / "outside", make):
                    for refuses in (lambda: prepare(settings), lambda: open_offline(str(root))):
                        with pytest.raises(ConfigError) as caught:
                            refuses()
                        assert f"{entry} is {called}" in str(caught.value)
        for entry in (root / "starts", data[0]):
            with special(entry, tmp_path / "outside"):
                assert f"{entry} is a FIFO" in refused(worker)
        worker.start()


def test_a_special_file_among_a_masters_files_is_refused_at_its_start(tmp_path: Path) -> None:
    """The same of a master."""
    (tmp_path / "outside").mkdir()
    with local_cluster(1, 1, dir=tmp_path / "cluster") as cluster:
        master = cluster.masters[0]
        master.kill()
        (journal,) = {path for path in (tmp_path / "cluster").rglob("data.mdb") if path.parent.name == "journal"}
        root = journal.parent.parent
        (root / RESTORED).write_text("0")
        entries = [entry for entry in sorted(root.rglob("*")) if entry.is_file()]
        assert {journal, root / "lock", root / RESTORED} <= set(entries)
        for entry in entries:
            with special(entry, tmp_path / "outside"):
                assert f"{entry} is a FIFO" in refused(master)
        (root / RESTORED).unlink()
        master.start()


@pytest.mark.timeout(30)
def test_a_special_file_that_comes_while_a_worker_works_stops_nothing(tmp_path: Path) -> None:
    """No step of a worker on a file that became a FIFO waits for its other end."""
    for what in attempts(tmp_path):
        make_fifo(tmp_path / "name")
        with suppress(OSError):
            attempts(tmp_path)[what]()
        for name in ("name", "other"):
            (tmp_path / name).unlink(missing_ok=True)
    make_fifo(tmp_path / "name")
    with suppress(OSError):
        OpenFiles(env_of(), 1).open(str(tmp_path / "name"))


@pytest.mark.timeout(30)
def test_a_special_file_in_the_folder_of_a_dfs_stops_nothing(tmp_path: Path) -> None:
    """A FIFO in a store in a local folder is an error, at once, for whoever reads or lists it."""
    fs = pytest.importorskip("pyarrow.fs")
    (tmp_path / "store").mkdir()
    make_fifo(tmp_path / "store" / "name")
    files = LocalFolder(fs.LocalFileSystem(), str(tmp_path / "store"))
    for call in (files.open_input_file, files.get_file_info, files.open_output_stream):
        with pytest.raises(OSError, match="is a FIFO"):
            call(f"{tmp_path}/store/name")


def test_a20_a_link_among_a_masters_files_is_refused_at_its_start(tmp_path: Path) -> None:
    """The same of a master: journal, snapshots and all else."""
    (tmp_path / "outside").mkdir()
    with local_cluster(1, 1, dir=tmp_path / "cluster") as cluster:
        master = cluster.masters[0]
        master.kill()
        (journal,) = {path for path in (tmp_path / "cluster").rglob("data.mdb") if path.parent.name == "journal"}
        root = journal.parent.parent
        for entry in (journal, journal.parent, root / "lock"):
            with planted(entry, tmp_path / "outside"):
                assert f"{entry} is a symbolic link, to" in refused(master)
        master.start()


def attempts(folder: Path) -> dict[str, Callable[[], object]]:
    """Everything that a worker does with a name in a folder."""
    disk, name = Disk(), folder / "name"
    return {
        "create": lambda: disk.create(name),
        "truncate": lambda: disk.truncate(name, 0),
        "overwrite": lambda: disk.overwrite(name, b"x"),
        "replace": lambda: disk.replace(name, b"x"),
        "rename": lambda: disk.rename(name, folder / "other"),
        "remove": lambda: disk.remove(name),
        "sync": lambda: disk.sync_folder(folder),
        "unnamed": lambda: disk.create_unnamed(folder),
        "make": lambda: disk.make_folder(folder),
    }


@pytest.mark.parametrize("what", list(attempts(Path())))
def test_a20_a_link_that_comes_while_a_worker_works_leads_nowhere(tmp_path: Path, what: str) -> None:
    """A link for a file, or for its folder, has no step of a worker change anything behind it."""
    outside, folder, link = (tmp_path / name for name in ("outside", "folder", "link"))
    outside.mkdir()
    (outside / "name").write_bytes(VICTIM)
    folder.mkdir()
    (folder / "name").symlink_to(outside / "name")
    link.symlink_to(outside)
    for place in (folder, link):
        try:
            attempts(place)[what]()
        except OSError:
            pass
        else:
            assert place is folder, "done in a folder that is a link"
        assert state_of(outside) == {str(outside / "name"): VICTIM}
        assert sorted(os.listdir(outside)) == ["name"]


def test_a20_a_link_where_a_snapshot_is_made_leads_nowhere(tmp_path: Path) -> None:
    """A master writes its snapshots into files that it makes itself."""
    victim, directory = tmp_path / "victim", tmp_path / "snapshots"
    victim.write_bytes(VICTIM)
    directory.mkdir()
    for name in ("snapshot.new", "snapshot.incoming", "snapshot"):
        snapshots = FileSnapshots(directory, "c1")
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(victim)
        snapshots.write(SnapshotId(3, 1), [b"state"])
        assert victim.read_bytes() == VICTIM
        assert not (directory / "snapshot").is_symlink()
        (directory / name).unlink(missing_ok=True)


def test_a20_a_link_in_the_folder_of_a_dfs_leads_nowhere(tmp_path: Path) -> None:
    """A link among the folders and files of a store in a local folder is an error: nothing is read, stored, listed or
    removed through it."""
    fs = pytest.importorskip("pyarrow.fs")
    store, outside, source = (tmp_path / name for name in ("store", "outside", "source"))
    (store / "cluster").mkdir(parents=True)
    (outside / "inner").mkdir(parents=True)
    (outside / "name").write_bytes(VICTIM)
    source.write_bytes(b"ours")
    (store / "cluster" / "link").symlink_to(outside)
    (store / "cluster" / "file").symlink_to(outside / "name")
    files = LocalFolder(fs.LocalFileSystem(), str(store))
    through = f"{store}/cluster/link"
    calls: list[Callable[[], object]] = [
        lambda: files.get_file_info(f"{through}/name"),
        lambda: files.get_file_info([f"{store}/cluster/file"]),
        lambda: files.get_file_info(fs.FileSelector(through)),
        lambda: files.open_input_file(f"{store}/cluster/file"),
        lambda: files.open_output_stream(f"{through}/new"),
        lambda: files.delete_file(f"{through}/name"),
        lambda: files.delete_dir(through),
        lambda: files.delete_dir(f"{through}/inner"),
        lambda: files.move(str(source), f"{through}/new"),
        lambda: remove_empty(f"{through}/inner", str(store)),
        lambda: upload(SystemDfsDoor(), StoreKind.LOCAL, files, source, f"{through}/new", f"{store}/cluster", 1 << 20),
    ]
    for call in calls:
        with pytest.raises(OSError, match="symbolic link"):
            call()
    assert state_of(outside) == {str(outside / "name"): VICTIM}
    assert (outside / "inner").is_dir()
    assert source.exists()
