"""A DFS store that is killed, hangs, comes back, refuses or is the wrong one; and a worker killed while it uploads."""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.common.config import config
from holdfast.common.config.config import Config
from holdfast.common.dfs import names
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import ConfigError, DfsError
from holdfast.common.statuses import Status
from tests.dfs.test_promises import KEY, MIB, UID, name_in, write
from tests.dfs.worlds import KINDS, S3, SECRET, Local, World, make_world, skip_reason
from tests.support.waiting import wait_until

T = TypeVar("T")
CLUSTER = "c1"
#: Long enough for a store to come back on a busy machine, while every single call is given up soon.
PATIENT = {"call_timeout": "1s", "connect_timeout": "1s", "retry_window": "60s"}
SERVED = [each for each in KINDS if each != "local"]

served = pytest.mark.parametrize("world", SERVED, indirect=True)


def claimed(world: World, **changed: str) -> DfsStore:
    store = DfsStore(world.section(**changed), CLUSTER)
    store.claim()
    return store


def during(store: DfsStore, ask: Callable[[], T], act: Callable[[], None]) -> T:
    """Ask the store, do something as soon as it had to be asked again, and return its answer.

    What is done runs in this thread: a server dies with the thread that started it.
    """
    before = store.counts.retries
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        wait_until(lambda: store.counts.retries > before, "a call to be tried again", 60)
        act()
        return asked.result()


def test_kill_9_in_the_middle_of_an_upload(world, processes, tmp_path):
    """A worker killed while it uploads leaves nothing with the name of a file; what it left goes with its folder."""
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(1024 * MIB)
    settings = tmp_path / "dfs.toml"
    settings.write_text(config.render(Config(dfs=world.section(call_timeout="60s"))))
    store = claimed(world)
    command = [sys.executable, "-m", "tests.dfs.putter", settings, CLUSTER, name_in(CLUSTER), big]
    child = processes.start("putter", command, {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    wait_until(
        lambda: world.uploading(name_in(CLUSTER), [name for name, _ in store.list(CLUSTER)]) or child.poll(),
        "parts of the upload to be there",
    )
    child.kill()
    child.wait()
    assert "stored" not in processes.log("putter").read_text()
    left = [name for name, _ in store.list(CLUSTER) if not name.startswith(names.marker(CLUSTER))]
    assert [name for name in left if names.parse(name)] == []
    store.remove_folder(names.worker_folder(CLUSTER, KEY, UID))
    assert all(name.startswith(names.marker(CLUSTER)) for name, _ in store.list(CLUSTER))
    assert store.read(store.put(name_in(CLUSTER), settings).name, 0, 5) == settings.read_bytes()[:5]


class Late:
    """The store's file system, whose first move is carried out when the second is asked for, before it."""

    def __init__(self, real):
        self._real = real
        self._moves = 0
        self._go, self._done = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._real, name)

    def move(self, source, target):
        self._moves += 1
        if self._moves == 1:
            self._go.wait(60)
            self._real.move(source, target)
            self._done.set()
        else:
            self._go.set()
            self._done.wait(60)
            self._real.move(source, target)


@pytest.mark.parametrize("world", ["local", "hdfs"], indirect=True)
def test_a_marker_whose_first_write_comes_late(world):
    """A call that was given up and is carried out all the same takes nothing from the one that was tried again."""
    # Writing a marker takes HDFS a second and more on a busy machine: only the call that hangs may be given up.
    store = DfsStore(world.section(**PATIENT | {"call_timeout": "10s"}), CLUSTER)
    store._filesystem = Late(store._filesystem)
    store.claim()
    assert store.counts.retries == 1
    assert DfsStore(world.section(), CLUSTER).is_marked()


@served
def test_a_store_that_hangs_and_comes_back(world, tmp_path):
    """While the store answers nothing calls are given up and tried again; when it answers, they succeed."""
    data = write(tmp_path / "file", 3 * MIB)
    store = claimed(world, **PATIENT)
    before = store.put(name_in(CLUSTER), tmp_path / "file").name
    world.hang()
    after = during(store, lambda: store.put(name_in(CLUSTER), tmp_path / "file"), world.wake).name
    world.hang()
    assert during(store, lambda: store.read(before, 10, MIB), world.wake) == data[10 : 10 + MIB]
    assert store.read(after, 0, len(data)) == data


@pytest.mark.parametrize("world", ["local", "hdfs"], indirect=True)
def test_a_store_that_was_down_and_is_back(world, tmp_path):
    """A store that is down for less than the retry window is not noticed; what it held before is still read."""
    data = write(tmp_path / "file", 3 * MIB)
    store = claimed(world, **PATIENT)
    before = store.put(name_in(CLUSTER), tmp_path / "file").name
    world.stop()
    if isinstance(world, Local):
        with pytest.raises(DfsError, match="mounted"):  # a mount that is gone is no store that is busy
            store.put(name_in(CLUSTER), tmp_path / "file")
        world.start()
    else:
        during(store, lambda: store.put(name_in(CLUSTER), tmp_path / "file"), world.start)
    assert store.read(before, 10, MIB) == data[10 : 10 + MIB]


def test_a_store_that_is_gone(world, tmp_path):
    """Longer than the retry window: every call is a DfsError that names store and request, and none hangs."""
    write(tmp_path / "file", 3 * MIB)
    store = claimed(world)
    name = store.put(name_in(CLUSTER), tmp_path / "file").name
    world.stop()
    questions = {
        f"store {name_in(CLUSTER)}": lambda: store.put(name_in(CLUSTER), tmp_path / "file"),
        "read bytes 5 to 10": lambda: DfsStore(world.section(), CLUSTER).read(name, 5, 5),
        "": lambda: store.size(name),
        f"list {CLUSTER}": lambda: list(store.list(CLUSTER)),
    }
    for what, ask in questions.items():
        with pytest.raises(DfsError) as caught:
            ask()
        assert store.shown in str(caught.value)
        if not isinstance(world, Local):
            assert what in str(caught.value)
            assert caught.value.passing
            assert caught.value.status is Status.UNAVAILABLE
    assert store.shown in store.look()
    if isinstance(world, Local):
        assert not world.folder.exists(), "an unmounted folder is not made again below the mount"
    world.start()
    if store.look():  # what came back is empty: another store, in which who has seen the first makes no marker
        with pytest.raises(DfsError, match="is not the store of this cluster"):
            store.claim()
        store = claimed(world)
    assert store.look() == ""
    assert store.put(name_in(CLUSTER), tmp_path / "file").size_bytes == 3 * MIB


@served
def test_a_store_that_hangs_for_good(world, tmp_path):
    """A store that never answers is an error in bounded time, a look at it too; nobody waits for it at the end."""
    write(tmp_path / "file", 3 * MIB)
    claimed(world).close()  # a server that has just started answers its first calls late
    store = claimed(world, call_timeout="1s", retry_window="5s")
    world.hang()
    for ask in (lambda: store.put(name_in(CLUSTER), tmp_path / "file"), lambda: store.size(f"{CLUSTER}/x")):
        with pytest.raises(DfsError, match="DFS store") as caught:
            ask()
        assert caught.value.passing
    assert "DFS store" in store.look()
    store.close()
    world.wake()


@pytest.mark.skipif(bool(skip_reason("s3")), reason=skip_reason("s3"))
def test_credentials_that_are_refused(processes, tmp_path):
    """Access denied is said at once, without a second try and without the secret."""
    world = make_world("s3", processes, tmp_path)
    assert isinstance(world, S3)
    claimed(world)
    world.stop()
    # moto lets two requests pass without asking who it is: the making of the bucket.
    world.start(INITIAL_NO_AUTH_ACTION_COUNT="2")
    store = DfsStore(world.section(), CLUSTER)
    with pytest.raises(DfsError, match="rights of its credentials") as caught:
        store.claim()
    assert not caught.value.passing
    assert caught.value.status is Status.DISK_FAILED
    assert store.counts.retries == 0
    assert SECRET not in str(caught.value) + repr(caught.value.__cause__) + store.look() + repr(world.section())


@pytest.mark.skipif(bool(skip_reason("s3")), reason=skip_reason("s3"))
def test_credentials_of_the_environment(processes, tmp_path, monkeypatch):
    """Without access_key the usual AWS variables are used, the address of the server among them."""
    world = make_world("s3", processes, tmp_path)
    assert isinstance(world, S3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{world.port}")
    write(tmp_path / "file", 100)
    store = DfsStore(world.section(endpoint="", access_key="", secret_key_file=""), CLUSTER)
    store.claim()
    assert store.put(name_in(CLUSTER), tmp_path / "file").size_bytes == 100


@pytest.mark.skipif(bool(skip_reason("s3")), reason=skip_reason("s3"))
def test_a_bucket_that_is_not_there(processes, tmp_path):
    """A bucket is never made here: the error says that there is none, at once."""
    world = make_world("s3", processes, tmp_path)
    store = DfsStore(world.section(url="s3://another-bucket/x"), CLUSTER)
    with pytest.raises(DfsError, match="NO_SUCH_BUCKET"):
        store.claim()
    assert store.counts.retries == 0


@pytest.mark.skipif(bool(skip_reason("hdfs")), reason=skip_reason("hdfs"))
def test_a_user_without_rights(processes, tmp_path, monkeypatch):
    """HDFS that forbids is said at once, without a second try."""
    world = make_world("hdfs", processes, tmp_path)
    claimed(world)
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody-in-particular")
    store = DfsStore(world.section(), CLUSTER)
    with pytest.raises(DfsError, match="Permission denied"):
        store.put(name_in(CLUSTER), Path(__file__))
    assert store.counts.retries == 0


def test_a_folder_that_cannot_be_written(processes, tmp_path):
    """A local store that forbids, or is no folder, is said at once."""
    world = make_world("local", processes, tmp_path)
    store = claimed(world)
    (tmp_path / "dfs" / CLUSTER / KEY.instance.hex()).write_text("in the way")
    with pytest.raises(DfsError, match="check \\[dfs\\] url"):
        store.put(name_in(CLUSTER), Path(__file__))
    assert store.counts.retries == 0


def test_what_is_not_installed_is_said(monkeypatch):
    """Without pyarrow or hdfs-native the error says what to install."""
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.delitem(sys.modules, "holdfast.common.dfs.hdfs", raising=False)
    with pytest.raises(ConfigError, match=r"pip install '\.\[dfs\]' in a clone"):
        DfsStore(config.parse('dfs.url = "hdfs://h:1/x"').dfs, CLUSTER)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[dfs\]' in a clone"):
        DfsStore(config.parse('dfs.url = "/x"').dfs, CLUSTER)
