"""What a DFS store promises, against every kind of store that runs here."""

import os
from pathlib import Path

import pytest

from holdfast.common.dfs import names
from holdfast.common.dfs.store import END_BYTES, DfsStore
from holdfast.common.dfs.uploads import upload
from holdfast.common.errors import CorruptError, DfsError
from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey
from tests.dfs.worlds import World

KEY = ShuffleKey(Instance(b"i" * 16), ShuffleId(7), Generation(1))
UID = b"w" * 16
MIB = 1 << 20


def name_in(cluster: str, file: str = "p-7-0.part", key: ShuffleKey = KEY, uid: bytes = UID) -> str:
    return names.file_name(cluster, key, uid, file)


def write(path: Path, size: int) -> bytes:
    data = os.urandom(size)
    path.write_bytes(data)
    return data


def files(store: DfsStore, cluster: str) -> dict[str, int]:
    """Everything of a cluster but the marker."""
    return {name: size for name, size in store.list(cluster) if not name.startswith(names.marker(cluster))}


@pytest.mark.parametrize("check", ["ends", "whole"])
@pytest.mark.parametrize("size", [0, 1, 2 * END_BYTES, MIB, 5 * MIB + 17, 23 * MIB + 1])
def test_what_is_put_is_there(store, cluster, tmp_path, size, check):
    """A file of any size is there under the name that put returned, byte for byte, with its length."""
    data = write(tmp_path / "file", size)
    stored = store.put(name_in(cluster), tmp_path / "file", check=check)
    assert stored.size_bytes == store.size(stored.name) == size
    assert store.read(stored.name, 0, size) == data
    parsed = names.parse(stored.name)
    assert parsed is not None
    assert (parsed.cluster, parsed.shuffle, parsed.worker, parsed.file) == (cluster, KEY, UID, "p-7-0.part")
    assert files(store, cluster) == {stored.name: size}


def test_ranges_are_exact(store, cluster, tmp_path):
    """Any range within a file is exactly those bytes; one that reaches past the end is an error with file and range."""
    data = write(tmp_path / "file", 3 * MIB)
    name = store.put(name_in(cluster), tmp_path / "file").name
    for offset, length in [(0, 1), (1, MIB), (3 * MIB - 1, 1), (MIB + 7, 2 * MIB - 7), (3 * MIB, 0)]:
        assert store.read(name, offset, length) == data[offset : offset + length]
    for offset, length in [(3 * MIB - 5, 6), (3 * MIB, 1), (4 * MIB, 10)]:
        with pytest.raises(CorruptError, match=rf"bytes {offset} to {offset + length} of {name}"):
            store.read(name, offset, length)
    assert store.read(name, 5, 5) == data[5:10]


def test_what_is_missing_is_said_to_be_missing(store, cluster, tmp_path):
    """A file that was never there, or was removed, is FileNotFoundError; removing it again is no error."""
    write(tmp_path / "file", 100)
    name = store.put(name_in(cluster), tmp_path / "file").name
    assert store.read(name, 0, 100)
    store.remove(name)
    store.remove(name)
    assert store.size(name) is None
    with pytest.raises(FileNotFoundError, match="p-7-0"):
        store.read(name, 0, 100)
    assert list(store.list(f"{cluster}/nowhere")) == []
    assert store.folders(f"{cluster}/nowhere") == []
    store.remove_folder(f"{cluster}/nowhere")
    assert store.counts.retries == store.counts.failures == 0


def test_each_attempt_has_a_name_of_its_own(store, cluster, tmp_path):
    """The same file stored twice is there twice, so that what was given up never meets what came later."""
    write(tmp_path / "file", 100)
    first, second = (store.put(name_in(cluster), tmp_path / "file").name for _ in range(2))
    assert first != second
    store.remove(first)
    assert store.size(second) == 100


def test_a_folder_goes_with_everything_below(store, cluster, tmp_path):
    """Removing one worker's folder, one shuffle or one instance removes that and nothing else."""
    write(tmp_path / "file", 10)
    other = ShuffleKey(Instance(b"j" * 16), KEY.shuffle, KEY.generation)
    later = ShuffleKey(KEY.instance, KEY.shuffle, Generation(2))
    keys = [(KEY, UID), (KEY, b"v" * 16), (later, UID), (other, UID)]
    kept = [store.put(name_in(cluster, key=key, uid=uid), tmp_path / "file").name for key, uid in keys]
    assert store.folders(cluster) == [KEY.instance.hex(), other.instance.hex()]
    assert store.folders(names.instance_folder(cluster, KEY.instance)) == [f"7-1-{0:016x}", f"7-2-{0:016x}"]
    store.remove_folder(names.worker_folder(cluster, KEY, UID))
    assert set(files(store, cluster)) == set(kept[1:])
    store.remove_folder(names.shuffle_folder(cluster, KEY))
    assert set(files(store, cluster)) == set(kept[2:])
    store.remove_folder(names.instance_folder(cluster, KEY.instance))
    assert set(files(store, cluster)) == set(kept[3:])
    assert store.look() == ""


def test_two_clusters_share_a_store(shared_world, store, cluster, tmp_path):
    """Clusters with different ids see and remove nothing of one another."""
    write(tmp_path / "file", 10)
    neighbour = DfsStore(shared_world.section(), f"{cluster}-2")
    neighbour.claim()
    mine = store.put(name_in(cluster), tmp_path / "file").name
    theirs = neighbour.put(name_in(f"{cluster}-2"), tmp_path / "file").name
    assert set(files(store, cluster)) == {mine}
    store.remove_folder(names.instance_folder(cluster, KEY.instance))
    assert set(files(neighbour, f"{cluster}-2")) == {theirs}
    neighbour.close()


def test_a_store_without_the_marker_is_not_taken_for_an_empty_one(shared_world, cluster, tmp_path):
    """Where the cluster's marker is missing nothing counts as missing: the URL may be wrong, or the mount gone."""
    strange = DfsStore(shared_world.section(), f"{cluster}-nobody")
    assert "is not the store of this cluster" in strange.look()
    questions = (
        lambda: strange.claim(may_create=False),
        lambda: strange.size(f"{cluster}-nobody/x"),
        lambda: strange.read(f"{cluster}-nobody/x", 0, 1),
        lambda: strange.remove(f"{cluster}-nobody/x"),
        lambda: list(strange.list(f"{cluster}-nobody")),
    )
    for ask in questions:
        with pytest.raises(DfsError, match="is not the store of this cluster") as caught:
            ask()
        assert not caught.value.passing
    strange.claim()
    assert strange.look() == ""
    strange.claim(may_create=False)
    assert strange.size(f"{cluster}-nobody/x") is None
    strange.close()


@pytest.mark.parametrize(
    ("flipped", "kept", "check"),
    [(0, 3 * MIB, "ends"), (3 * MIB - 1, 3 * MIB, "ends"), (MIB, 3 * MIB, "whole"), (0, 5, "ends")],
)
def test_an_upload_that_does_not_read_back_right_is_an_error(
    store, cluster, tmp_path, monkeypatch, flipped, kept, check
):
    """What was changed on the way is found before put returns, was tried again, and nothing of it is left."""
    data = bytearray(write(tmp_path / "file", 3 * MIB))
    data[flipped] ^= 1
    (tmp_path / "other").write_bytes(data[:kept])
    monkeypatch.setattr(
        "holdfast.common.dfs.store.upload",
        lambda door, kind, fs, source, *more: upload(door, kind, fs, tmp_path / "other", *more),
    )
    with pytest.raises(DfsError, match="read back"):
        store.put(name_in(cluster), tmp_path / "file", check=check)
    assert store.counts.retries >= 1
    assert files(store, cluster) == {}


def test_a_closed_store_says_so(shared_world: World, cluster: str):
    """After close every call is a DfsError at once, so that a server that ends waits for nothing."""
    store = DfsStore(shared_world.section(retry_window="10m"), cluster)
    store.close()
    with pytest.raises(DfsError, match="was closed"):
        store.size(f"{cluster}/x")
    store.close()
