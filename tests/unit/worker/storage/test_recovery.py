"""What a start finds and does: one story for each case of the file table, and damaged indexes."""

import errno
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lmdb
import pytest

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.common.statuses import Status
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.check import check_file, check_index
from holdfast.worker.storage.env.interfaces import FileSystem, Handle, IndexChange, Name
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.index.index import Index
from holdfast.worker.storage.index.records import encode_key
from holdfast.worker.storage.names import FORMAT
from tests.support.forks import DiedError, forked
from tests.support.map_data import file_key, make_content, shuffle_key
from tests.support.storage_data import append_all, open_store, read, write
from tests.support.storage_env import CheckHere, Disk, env_of

SHUFFLE = shuffle_key()
CONTENTS = [make_content(file_key(SHUFFLE, number), partitions=(3, 300)[number % 2]) for number in range(4)]
KEY = CONTENTS[0].key


@pytest.fixture(autouse=True)
def checks_here(monkeypatch):
    """The processes that check are tested in test_store.py."""
    monkeypatch.setattr("holdfast.worker.storage.env.system.SystemChecks.start", staticmethod(CheckHere))


@pytest.fixture
def root(tmp_path):
    """A directory with four sealed files, closed."""
    store = open_store(tmp_path)
    for content in CONTENTS:
        write(store, content)
    store.close()
    return tmp_path


def reopened(root, disk=None):
    """The store after a restart, with its notes as one text."""
    store = open_store(root, disk=disk)
    return store, "\n".join(store.report)


def assert_all_readable(store, but=()):
    """Every file gives its rows, except those named."""
    for content in CONTENTS:
        if content.key not in but:
            assert read(store, [content.key], 0, 300) == content.pieces(0, 300)


def status_of_read(store, key=KEY):
    """What reading a file is refused with."""
    with pytest.raises(HoldfastError) as refused:
        read(store, [key], 0, 300)
    assert str(key) in str(refused.value)
    return refused.value.status


def test_longer_than_recorded_is_cut(root):
    """Case B: bytes behind the footer are cut off."""
    path = root / layout.sealed_path(KEY)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"tail")
    store, notes = reopened(root)
    assert "case B, CUT_TAIL" in notes
    assert path.stat().st_size == size
    assert_all_readable(store)
    store.close()


def test_shorter_than_recorded_is_served_where_it_is_whole(root):
    """Case D: regions that are whole are served, the others refused by name; the seal's answer stays."""
    content = CONTENTS[0]
    path = root / layout.sealed_path(KEY)
    first_region = sum(len(frame.body) for frame in content.frames if frame.region == 0)
    os.truncate(path, first_region + 10)
    store, notes = reopened(root)
    assert "case D, KEEP_DAMAGED" in notes
    pieces = store.plan(SHUFFLE, 0, 300, [(KEY.map, KEY.attempt, KEY.epoch)]).pieces()
    assert next(pieces).region == 0
    with pytest.raises(HoldfastError, match="region 1") as refused:
        next(pieces)
    assert refused.value.status is Status.CORRUPT
    assert store.seal(KEY, content.totals).result(0).totals == content.totals
    assert_all_readable(store, but=[KEY])
    store.close()


def test_recorded_but_gone_is_lost_by_name(root):
    """Case H: reading says DATA_LOST, never that the file is unknown."""
    (root / layout.sealed_path(KEY)).unlink()
    store, notes = reopened(root)
    assert "case H, LOST" in notes
    assert status_of_read(store) is Status.DATA_LOST
    assert_all_readable(store, but=[KEY])
    store.close()


def test_sealed_but_not_recorded_is_taken_in(root):
    """Case E: the footer is the record."""
    disk_index = Index(env_of(), root / names.INDEX, 1 << 30)
    disk_index.remove_file(KEY)
    disk_index.close()
    store, notes = reopened(root)
    assert "case E, ADOPT" in notes
    assert_all_readable(store)
    store.close()
    store, notes = reopened(root)
    assert notes == ""
    store.close()


def test_neither_record_nor_footer_is_put_aside(root):
    """Case F: a file of which nothing is known goes to quarantine, whole."""
    stray = root / layout.sealed_path(file_key(SHUFFLE, 77))
    stray.write_bytes(b"not a map file")
    store, notes = reopened(root)
    assert "case F, QUARANTINE" in notes
    assert not stray.exists()
    assert [path.read_bytes() for path in (root / names.QUARANTINE).iterdir()] == [b"not a map file"]
    assert_all_readable(store)
    store.close()


def test_a_file_under_another_name_is_not_taken_for_it(root):
    """A sealed file copied to another key's name is put aside: its footer names whose it is."""
    shutil.copy(root / layout.sealed_path(KEY), root / layout.sealed_path(file_key(SHUFFLE, 55)))
    store, notes = reopened(root)
    assert "case F, QUARANTINE" in notes
    assert_all_readable(store)
    store.close()


def test_recorded_under_its_open_name_is_renamed(root):
    """Case G: a disk that lost the rename but not the record (it lied about a sync) loses nothing."""
    path = root / layout.sealed_path(KEY)
    path.rename(path.with_name(path.name.replace(".map", ".1.written.open")))
    store, notes = reopened(root)
    assert "case G, FINISH" in notes
    assert_all_readable(store)
    store.close()


def test_unknown_names_are_left_alone(root):
    """What has no name of ours is reported and stays."""
    stranger = root / layout.shuffle_folder(SHUFFLE) / "notes.txt"
    stranger.write_text("mine")
    store, notes = reopened(root)
    assert "notes.txt" in notes
    assert stranger.read_text() == "mine"
    store.close()


def test_folders_and_links_under_names_of_ours_do_not_stop_a_start(root):
    """Only regular files are ours: the others are left alone, and everything else is served."""
    folder = root / layout.shuffle_folder(SHUFFLE)
    (folder / "m-7-7-0.map").mkdir()
    (folder / "m-8-8-0.map").symlink_to("/etc/passwd")
    store, _ = reopened(root)
    assert (folder / "m-7-7-0.map").is_dir()
    assert (folder / "m-8-8-0.map").is_symlink()
    assert store.files == len(list(folder.glob("*.map"))) - 2
    store.close()


class FullDisk(Disk):
    """A file system that others have filled: no new file, no longer file, no new page."""

    def create(self, path: Name) -> Handle:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def commit(self, transaction: Callable[[], None]) -> None:
        raise OSError(errno.ENOSPC, "the index: No space left on device")

    def file_system(self, path: Name) -> FileSystem:
        return FileSystem(super().file_system(path).size, 0)


def test_a_start_on_a_full_disk_serves_what_is_sealed(root):
    """The start is counted in place, the files are there, and the directory takes nothing new."""
    before, _ = reopened(root)
    files, incarnation = before.files, before.incarnation
    before.close()
    full, _ = reopened(root, FullDisk())
    assert (full.files, full.incarnation) == (files, incarnation + 1)
    assert not full.directories()[0].healthy
    full.close()
    after, _ = reopened(root)
    assert (after.files, after.incarnation) == (files, incarnation + 2)
    assert after.directories()[0].healthy
    after.close()


def test_nothing_is_deleted_at_a_start(root):
    """Whatever is found, a start removes no file: unsealed ones wait, damaged ones are moved."""
    store = open_store(root)
    append_all(store, make_content(file_key(SHUFFLE, 9)))
    store.close()
    (root / names.INDEX_DATA).write_bytes(b"x" * 10_000)
    before = sorted(path.read_bytes() for path in root.rglob("m-*"))
    store, _ = reopened(root)
    assert sorted(path.read_bytes() for path in root.rglob("m-*")) == before
    assert_all_readable(store)
    store.close()


@pytest.mark.parametrize("damage", ["rubbish", "empty", "gone", "cut", "another directory's"])
def test_row_37_a_damaged_index_is_rebuilt_from_footers(root, tmp_path_factory, damage):
    """The damaged index goes to quarantine, and every sealed file is served with the same answer to its seal."""
    index = root / names.INDEX_DATA
    if damage == "gone":
        index.unlink()
    elif damage == "another directory's":
        other = tmp_path_factory.mktemp("other")
        open_store(other).close()
        shutil.copy(other / names.INDEX_DATA, index)
    else:
        index.write_bytes({"rubbish": os.urandom(50_000), "empty": b"", "cut": index.read_bytes()[:9_000]}[damage])
    store, _ = reopened(root)
    assert_all_readable(store)
    for content in CONTENTS:
        assert store.seal(content.key, content.totals).result(0).incarnation == 1
    assert store.incarnation == 2
    assert list((root / names.QUARANTINE).iterdir())
    store.close()
    check_file(SystemFiles(), str(index))


class SyncedFolders(Disk):
    """Notes which folders are synced."""

    def __init__(self):
        self.synced = []

    def sync_folder(self, path):
        self.synced.append(Path(path))
        super().sync_folder(path)


def test_a_start_that_makes_an_index_again_syncs_folders_in_order(root):
    """Those of each shuffle, from the inmost out, then those of the next: the same under each hash seed."""
    store = open_store(root)
    for number in range(1, 21):
        write(store, make_content(file_key(shuffle_key(bytes([number]) * 16), 1), partitions=3))
    store.close()
    (root / names.INDEX_DATA).unlink()
    disk = SyncedFolders()
    reopened(root, disk)[0].close()
    data = root / "data"
    inside = list(dict.fromkeys(one for one in disk.synced if data in one.parents))
    shuffles = [one for one in inside if one.parent.parent == data]
    assert len(shuffles) == 21
    assert inside == [each for one in shuffles for each in (one, one.parent)]


def test_a_damaged_identity_is_restored_from_the_index(root):
    """One damaged copy of the identity loses nothing."""
    before = (root / names.IDENTITY).read_bytes()
    (root / names.IDENTITY).write_bytes(b"rubbish")
    store, _ = reopened(root)
    assert (root / names.IDENTITY).read_bytes() == before
    assert_all_readable(store)
    store.close()


def test_what_is_written_into_an_emptied_directory_makes_it_nobodys(tmp_path):
    """A directory that was emptied in use has what its worker wrote there before it noticed: the next start makes it
    anew and believes none of that, which may be another worker's. With a folder beside it the directory is refused."""
    late = [tmp_path / name for name in sorted(names.STRAYS)]
    for path in late:
        path.write_bytes(b"of another worker")
    (tmp_path / names.DATA).mkdir()
    with pytest.raises(ConfigError, match="is not empty and has no readable identity"):
        open_store(tmp_path)
    assert all(path.read_bytes() == b"of another worker" for path in late)
    (tmp_path / names.DATA).rmdir()
    late[0].unlink()
    late[0].mkdir()
    with pytest.raises(ConfigError, match=f"{late[0]} is a folder.*move it elsewhere"):
        open_store(tmp_path)
    late[0].rmdir()
    store = open_store(tmp_path)
    assert store.incarnation == 1
    assert [path.name for path in late if path.exists()] == [names.STARTS]
    assert (tmp_path / names.STARTS).read_bytes() != b"of another worker"
    store.close()


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_a_directory_of_another_format_is_refused_untouched(root, version):
    """A sound identity of another format is no damage: the start is refused with both versions and with what to do, and
    nothing changes."""
    whole = (root / names.IDENTITY).read_bytes()
    other = whole[:4] + version.to_bytes(2, "little") + whole[6:-4]
    (root / names.IDENTITY).write_bytes(other + crc32c(other).to_bytes(4, "little"))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(
        ConfigError,
        match=rf"format {version}.* reads format {FORMAT}.*name an empty directory.*docs/operate/upgrade\.md",
    ):
        open_store(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_record_that_rots_while_serving_is_read_from_the_footer(root):
    """A damaged or vanished index record of a running store is replaced by the footer, without a wrong answer."""
    store = open_store(root)
    directory = store._directories[0]
    directory.index.commit(IndexChange(removes=[b"F" + encode_key(KEY)]))
    long_key = CONTENTS[1].key
    with directory.index._open.reading() as snapshot:
        found = snapshot.first(b"C" + encode_key(long_key))
    assert found is not None
    victim, value = found
    directory.index.commit(IndexChange([(victim, value[:-1] + b"?")]))
    assert_all_readable(store)
    store.close()


def everything(path):
    """All records of an index, by liblmdb."""
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def test_the_page_check_misses_nothing_that_liblmdb_would(root, tmp_path):
    """300 flips in the index: where the check finds nothing, liblmdb lives and gives the same records as before."""
    folder = root / names.INDEX
    good = everything(folder)
    original = (root / names.INDEX_DATA).read_bytes()
    chance = random.Random(5)
    sound = 0
    for number in range(300):
        page = chance.randrange(len(original) // 4096)
        at = page * 4096 + chance.choice((chance.randrange(64), chance.randrange(4096)))
        damaged = bytearray(original)
        damaged[at] ^= 1 << chance.randrange(8)
        try:
            check_index(memoryview(damaged))
        except LmdbDamagedError:
            continue
        sound += 1
        copy = tmp_path / f"copy{number}"
        copy.mkdir()
        (copy / "data.mdb").write_bytes(damaged)
        try:
            same = forked(partial(everything, copy)) == good
        except DiedError as died:
            pytest.fail(f"liblmdb died of byte {at}, which the check let pass: {died}")
        assert same, f"byte {at} changed the records, and the check let it pass"
    assert 30 < sound < 270
