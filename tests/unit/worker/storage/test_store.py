"""A store over restarts: what is kept, what is refused, what is deleted and when."""

import contextlib
import os
import subprocess
import sys
from functools import partial

import pytest

from holdfast.common.errors import ConfigError, HoldfastError, NoRoomError, RerouteError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import Incarnation
from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.common.statuses import Status
from holdfast.worker.storage import names
from holdfast.worker.storage.check import check_file
from holdfast.worker.storage.engine.answers import SealedError
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.identity import Starts
from holdfast.worker.storage.store import prepare
from tests.support.map_data import file_key, make_content, shuffle_key
from tests.support.storage_data import append_all, open_store, read, settings, write
from tests.support.storage_env import Disk

SHUFFLE = shuffle_key()
KEY = file_key(SHUFFLE)


def paths(root, suffix):
    """Data files with this suffix."""
    return sorted((root / "data").glob(f"*/*/*{suffix}"))


def status_of(call, *arguments):
    """The status that a call is refused with."""
    with pytest.raises(HoldfastError) as refused:
        call(*arguments)
    return refused.value.status


def test_restart_keeps_what_was_sealed(tmp_path):
    """Sealed files are served again, with the same answer to their seal; each start is a new incarnation."""
    contents = [make_content(file_key(SHUFFLE, number), partitions=300) for number in range(3)]
    store = open_store(tmp_path)
    answers = [write(store, content) for content in contents]
    uid = store.worker_uid
    store.close()
    again = open_store(tmp_path)
    assert (again.worker_uid, again.incarnation, again.files, again.report) == (uid, 2, 3, ())
    for content, answer in zip(contents, answers, strict=True):
        assert again.seal(content.key, content.totals).result(0) == answer
        assert read(again, [content.key], 0, 300) == content.pieces(0, 300)
        with pytest.raises(SealedError) as sealed:
            again.begin(content.key, 300, Ack.WRITTEN)
        assert sealed.value.sealed == answer
    again.close()


def test_a22_folders_in_which_nothing_is_go_at_the_start(tmp_path):
    """A shuffle of which all files were aborted leaves a folder, which its shuffle takes along while the worker lives.
    The next start removes it, and nothing else: nobody else would."""
    store = open_store(tmp_path)
    kept = make_content(file_key(shuffle_key(bytes(16), 1)))
    write(store, kept)
    for number in range(2, 5):
        file = file_key(shuffle_key(bytes(16), number))
        store.begin(file, 8, Ack.WRITTEN)
        store.abort(file)
    assert len(list((tmp_path / "data").glob("*/*"))) == 4
    store.close()
    again = open_store(tmp_path)
    assert [path.name.partition("-")[0] for path in (tmp_path / "data").glob("*/*")] == ["1"]
    assert read(again, [kept.key], 0, 8) == kept.pieces(0, 8)
    again.close()


def test_sealing_twice_gives_one_answer(tmp_path):
    """Two asks at once share the seal; other totals for a sealed file are CORRUPT and change nothing."""
    store = open_store(tmp_path)
    content, other = make_content(KEY), make_content(KEY, partitions=3)
    append_all(store, content)
    first, second = store.seal(KEY, content.totals), store.seal(KEY, content.totals)
    assert first.result(30) == second.result(30) == store.seal(KEY, content.totals).result(0)
    assert status_of(store.seal, KEY, other.totals) is Status.CORRUPT
    assert read(store, [KEY], 0, 8) == content.pieces(0, 8)
    store.close()


def test_many_seals_share_transactions(tmp_path):
    """Seals that wait while a transaction commits go into one transaction together."""

    class Counting(Disk):
        """Counts commits and lets the first one wait for all seals to be asked."""

        def __init__(self):
            self.commits = 0

        def commit(self, transaction):
            self.commits += 1
            super().commit(transaction)

        def sync(self, handle):
            super().sync(handle)

    disk = Counting()
    store = open_store(tmp_path, disk=disk, sync_threads=4)
    before = disk.commits
    contents = [make_content(file_key(SHUFFLE, number), partitions=2, batch_bytes=50) for number in range(200)]
    for content in contents:
        append_all(store, content)
    for future in [store.seal(content.key, content.totals) for content in contents]:
        future.result(30)
    assert disk.commits - before < 200
    assert store.files == 200
    store.close()


def test_begin_again_drops_the_earlier_try(tmp_path):
    """A file that was begun and not sealed begins anew; the earlier writer is told so."""
    store = open_store(tmp_path)
    content = make_content(KEY)
    old = append_all(store, content)
    write(store, content)
    assert status_of(old.append, 0, 0, [], memoryview(b"")) is Status.NOT_SEALED
    assert len(paths(tmp_path, ".map")) == 1
    assert not paths(tmp_path, ".open")
    store.close()


def test_abort_drops_only_what_is_unsealed(tmp_path):
    """An aborted file is unknown; aborting a sealed or unknown one changes nothing."""
    store = open_store(tmp_path)
    sealed, open_one = make_content(KEY), make_content(file_key(SHUFFLE, 1))
    write(store, sealed)
    append_all(store, open_one)
    for key in (sealed.key, open_one.key, file_key(SHUFFLE, 2)):
        store.abort(key)
    assert status_of(store.seal, open_one.key, open_one.totals) is Status.UNKNOWN_FILE
    assert read(store, [KEY], 0, 8) == sealed.pieces(0, 8)
    store.close()


def test_unsealed_files_of_an_earlier_start_wait_for_the_masters(tmp_path):
    """They are NOT_SEALED, stay until the masters have answered, and go when their shuffle is named or begun anew."""
    store = open_store(tmp_path)
    first, second = make_content(KEY), make_content(file_key(SHUFFLE, 1))
    append_all(store, first)
    append_all(store, second)
    store.close()
    store = open_store(tmp_path)
    assert store.shuffles() == [SHUFFLE]
    for key in (first.key, second.key):
        assert status_of(store.seal, key, first.totals) is Status.NOT_SEALED
        assert status_of(read, store, [key], 0, 8) is Status.NOT_SEALED
    write(store, first)
    assert len(paths(tmp_path, ".open")) == 1
    assert store.remove_leftovers([shuffle_key(bytes(16), 9)]).result(30) == 0
    assert store.remove_leftovers([SHUFFLE]).result(30) == 1
    assert not paths(tmp_path, ".open")
    store.close()


def test_forgotten_shuffles_leave_nothing(tmp_path):
    """Forgetting removes records, files, folders and open writers of that shuffle, and of no other."""
    store = open_store(tmp_path)
    other = make_content(file_key(shuffle_key(bytes(16), 1)), partitions=300)
    gone = [make_content(file_key(SHUFFLE, number), partitions=300) for number in range(3)]
    for content in (other, *gone[:2]):
        write(store, content)
    append_all(store, gone[2])
    assert store.forget([SHUFFLE, shuffle_key(bytes(16), 7)]).result(30) == 1
    assert store.shuffles() == [other.key.shuffle]
    assert read(store, [other.key], 0, 300) == other.pieces(0, 300)
    for content in gone:
        assert status_of(read, store, [content.key], 0, 1) is Status.UNKNOWN_FILE
    store.close()
    assert len(paths(tmp_path, "")) == 1
    assert check_file(SystemFiles(), str(tmp_path / names.INDEX_DATA)).pages.records == 2 + 1 + 2 * 5


def test_a_stream_survives_the_end_of_its_shuffle(tmp_path):
    """A piece that a stream holds is readable to the end although its file was deleted; the next one is an error."""
    store = open_store(tmp_path)
    content = make_content(KEY, regions=2)
    write(store, content)
    pieces = store.plan(SHUFFLE, 0, 8, [(0, 0, 0)]).pieces()
    held = next(pieces)
    store.forget([SHUFFLE]).result(30)
    assert len(os.pread(held.handle.fd, held.length, held.offset)) == held.length
    assert status_of(next, pieces) is Status.DATA_LOST
    store.close()


@pytest.mark.parametrize(("changes", "word"), [({"cluster_id": "c2"}, "c1"), ({"worker_name": "w2"}, "w1")])
def test_directories_of_others_are_refused(tmp_path, changes, word):
    """A directory of another cluster or worker is refused with a sentence that names the owner, and is not changed."""
    store = open_store(tmp_path)
    write(store, make_content(KEY))
    store.close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != names.LOCK}
    with pytest.raises(ConfigError, match=f"belongs to worker .*{word}"):
        open_store(tmp_path, **changes)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != names.LOCK}
    assert after == before


def test_directories_of_two_workers_do_not_mix(tmp_path):
    """Two directories that were made apart are two workers' directories."""
    for name in "ab":
        open_store(tmp_path / name).close()
    with pytest.raises(ConfigError, match="different workers"):
        open_store(tmp_path / "a", tmp_path / "b")


def test_a_directory_with_strange_contents_is_refused(tmp_path):
    """A directory that holds something and is not ours is never made into one."""
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(ConfigError, match="not empty"):
        open_store(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [names.LOCK, "thesis.txt"]


def test_two_processes_never_share_a_directory(tmp_path):
    """A second process is refused while the first lives, and told which that is; kill -9 frees the directory."""
    code = (
        "import sys; from tests.support.storage_data import open_store; from pathlib import Path\n"
        "store = open_store(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        with pytest.raises(ConfigError, match=f"in use by process {first.pid}"):
            prepare(settings(tmp_path))
        first.kill()
    open_store(tmp_path).close()


def test_the_index_grows_up_to_its_bound(tmp_path, monkeypatch):
    """A full map grows by itself; at its bound a seal fails by name, and what was sealed before is served."""
    monkeypatch.setattr("holdfast.worker.storage.index.index.MAP_BYTES_FIRST", 1 << 17)
    store = open_store(tmp_path, index_bytes_max=1 << 20)
    sealed = []

    def fill():
        for number in range(60):
            content = make_content(file_key(SHUFFLE, number), partitions=2_000, regions=1, batch_bytes=1)
            write(store, content)
            sealed.append(content)

    with pytest.raises(RerouteError, match="bound of 1048576 bytes"):
        fill()
    assert len(sealed) > 5
    for content in sealed:
        assert read(store, [content.key], 0, 2_000) == content.pieces(0, 2_000)
    store.forget([SHUFFLE]).result(30)
    store.close()


@pytest.mark.parametrize(
    ("size_mib", "free_mib", "begins"),
    [(1_000_000, 64, False), (1_000_000, 65, True), (100, 10, False), (100, 11, True)],
)
def test_room_is_reserved(tmp_path, size_mib, free_mib, begins):
    """No file begins where no more than the reserve is free, which is a tenth of a small disk."""

    class SmallDisk(Disk):
        def file_system(self, path):
            return size_mib << 20, free_mib << 20

    store = open_store(tmp_path, disk=SmallDisk(), reserve_bytes=64 << 20)
    with contextlib.nullcontext() if begins else pytest.raises(NoRoomError):
        store.begin(KEY, 1, Ack.WRITTEN)
    store.close()


def test_files_spread_over_directories(tmp_path):
    """Files go to all directories by turns and are found wherever they are, also after a restart."""
    roots = (tmp_path / "a", tmp_path / "b", tmp_path / "c")
    store = open_store(*roots)
    contents = [make_content(file_key(SHUFFLE, number)) for number in range(6)]
    for content in contents:
        write(store, content)
    assert [len(paths(root, ".map")) for root in roots] == [2, 2, 2]
    store.close()
    store = open_store(*roots)
    keys = [content.key for content in contents]
    wanted = {at: data for number, one in enumerate(contents) for at, data in one.pieces(2, 5, number).items()}
    assert read(store, keys, 2, 5) == wanted
    store.close()


@pytest.mark.parametrize("sick", [0, 1])
def test_a_sick_index_hides_no_files_of_other_directories(tmp_path, monkeypatch, sick):
    """An index cannot be read, before anybody has noticed: files of other directories are read, sealed again and begun,
    those beside that index are read by their footers, and what nobody has is unknown."""
    store = open_store(tmp_path / "a", tmp_path / "b")
    contents = [make_content(file_key(SHUFFLE, number), partitions=300) for number in range(4)]
    answers = [write(store, content) for content in contents]

    def reading(_):
        raise LmdbDamagedError("it had a fatal error")

    broken = store._directories[sick].index
    monkeypatch.setattr(broken, "reading", partial(reading, broken))
    for content, answer in zip(contents, answers, strict=True):
        assert read(store, [content.key], 0, 300) == content.pieces(0, 300)
        assert store.seal(content.key, content.totals).result(0) == answer
    assert status_of(read, store, [file_key(SHUFFLE, 9)], 0, 300) is Status.UNKNOWN_FILE
    assert store.begin(file_key(SHUFFLE, 9), 300, Ack.WRITTEN).partitions == 300
    monkeypatch.undo()
    store.close()


def test_a_file_that_is_being_sealed_is_busy(tmp_path):
    """Opening a file in the middle of its seal is refused for the moment, not dropped."""

    class Waiting(Disk):
        """Stops in the seal's sync until told."""

        def sync(self, handle):
            if armed:
                refusals.append(status_of(store.begin, KEY, 8, Ack.WRITTEN))
                armed.clear()
            super().sync(handle)

    armed: list[bool] = []
    refusals: list[Status] = []
    store = open_store(tmp_path, disk=Waiting())
    content = make_content(KEY)
    append_all(store, content)
    armed.append(True)
    assert store.seal(KEY, content.totals).result(30).totals == content.totals
    assert refusals == [Status.BUSY]
    store.close()


def test_incarnations_only_grow(tmp_path):
    """The counter survives either of its copies, and the masters can lift it."""
    store = open_store(tmp_path)
    for one in store.record_start(Incarnation(40)):
        one.result(30)
    store.begin_incarnation(Incarnation(40))
    assert store.incarnation == 40
    store.close()
    (tmp_path / names.STARTS).write_bytes(b"rubbish")
    store = open_store(tmp_path)
    assert store.incarnation == 41
    store.close()
    (tmp_path / names.INDEX_DATA).write_bytes(b"rubbish")
    store = open_store(tmp_path)
    assert store.incarnation == 42
    store.close()
    assert Starts.decode((tmp_path / names.STARTS).read_bytes()).incarnation == 42
