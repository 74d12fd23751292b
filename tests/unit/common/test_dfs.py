"""The pure parts of the DFS tier and its threads: URLs, names, faults, back-off, bounded calls, handles, settings."""

import errno
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.config.config import parse
from holdfast.common.dfs import names
from holdfast.common.dfs.calls import Calls, ClosedError, StoreHangsError
from holdfast.common.dfs.faults import Fault, classify, error_of
from holdfast.common.dfs.handles import Handles
from holdfast.common.dfs.retry import FIRST_SECONDS, LONGEST_SECONDS, Retries
from holdfast.common.dfs.urls import StoreKind, parse_url
from holdfast.common.errors import ConfigError
from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey, StateId
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from tests.support.logged import logged

U32 = st.integers(0, 2**32 - 1)
KEYS = st.builds(
    ShuffleKey,
    st.binary(min_size=16, max_size=16).map(Instance),
    U32.map(ShuffleId),
    U32.map(Generation),
    st.integers(0, 2**64 - 1).map(StateId),
)
WORDS = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda text: not text.startswith("."))


@pytest.mark.parametrize(
    ("text", "kind", "host", "path", "base", "shown"),
    [
        ("/mnt/dfs/", StoreKind.LOCAL, "", "/mnt/dfs", "/mnt/dfs", "file:///mnt/dfs"),
        ("file:///mnt/dfs", StoreKind.LOCAL, "", "/mnt/dfs", "/mnt/dfs", "file:///mnt/dfs"),
        ("s3://bucket", StoreKind.S3, "bucket", "", "bucket", "s3://bucket"),
        ("s3://bucket/a/b/", StoreKind.S3, "bucket", "/a/b", "bucket/a/b", "s3://bucket/a/b"),
        ("hdfs://name:8020/a", StoreKind.HDFS, "name:8020", "/a", "/a", "hdfs://name:8020/a"),
        ("hdfs://service/a", StoreKind.HDFS, "service", "/a", "/a", "hdfs://service/a"),
    ],
)
def test_urls(text, kind, host, path, base, shown):
    """Each form of URL says where the store is, and how it is shown."""
    url = parse_url(text)
    assert (url.kind, url.host, url.path, url.base, str(url)) == (kind, host, path, base, shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnt/dfs", "must be /path"),
        ("gs://bucket/x", "must be /path"),
        ("s3://bucket/x?region=a", "must be /path"),
        ("/", "absolute path"),
        ("file://host/x", "absolute path"),
        ("s3:///x", "name of a bucket"),
        ("s3://B/x", 'name of a bucket, .*: 2 to 63 lower-case letters, .* not "s3://B/x"$'),
        ("s3://b", '2 to 63 lower-case letters, digits, .* not "s3://b"$'),
        ("relative", 'hdfs://host:port/path, not "relative"$'),
        ("file://host/y", 'url of a folder must be an absolute path, .* not "file://host/y"$'),
        ("ftp://key:hunter2@host/x", "must be /path"),
        ("s3://bucket/x?token=hunter2", "must be /path"),
        ("key:hunter2", "must be /path"),
        ("s3://key:hunter2/bucket", "name of a bucket"),
        ("hdfs://name:8020", "and a folder"),
        ("hdfs:///x", "a name node"),
        ("/a//b", "empty parts"),
        ("/a/../b", "empty parts"),
        ("s3://key:hunter2@bucket/x", "must not hold credentials"),
    ],
)
def test_urls_that_are_refused(text, expected):
    """What cannot be a store is refused with what to write, and without repeating a secret."""
    with pytest.raises(ConfigError, match=expected) as caught:
        parse_url(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('url = "ftp://x/y"', "h.toml line 1: [dfs] url must be /path"),
        ('url = "s3:/bucket"', 'or hdfs://host:port/path, not "s3:/bucket"'),
        ('url = "hdfs:host/path"', 'not "hdfs:host/path"'),
        ('url = "/x"\nregion = "a"', "[dfs] has a url of a folder, to which endpoint, region"),
        ('url = "s3://bucket"\nendpoint = "host:1"', "endpoint must be http://host:port"),
        ('url = "s3://bucket"\nendpoint = "http://host:1/path"', 'without a path, not "http://host:1/path"'),
        ('url = "s3://bucket"\naccess_key = "a"', "needs access_key and secret_key_file, or neither"),
        ('url = "/x"\npart_bytes = "1KiB"', "part_bytes must be from 1MiB to 256MiB"),
        ('url = "/x"\ncall_timeout = "100ms"', "call_timeout must be at least 1s"),
        ('url = "/x"\nconnect_timeout = "40s"', "connect_timeout more than 0 and at most call_timeout"),
        ('url = "/x"\nclean_every = "0"', "clean_every must be at least 100ms"),
        ('url = "/x"\nverify = "none"', 'dfs.verify must be one of "ends", "whole"'),
        ('url = "/x"\nsecret_key = "a"', '[dfs] has no key "secret_key"; did you mean "secret_key_file"?'),
    ],
)
def test_settings_that_are_refused(text, expected):
    """Impossible settings are refused with the line and what to write instead."""
    with pytest.raises(ConfigError) as caught:
        parse(f"[dfs]\n{text}", None, "h.toml")
    assert expected in str(caught.value)


def test_settings_of_a_store_of_ones_own():
    """A server of the S3 kind other than Amazon's needs an endpoint and a key, whose secret is in a file."""
    text = 'dfs.url = "s3://bucket/x"\ndfs.endpoint = "https://[::1]:9000"\n'
    section = parse(text + 'dfs.access_key = "k"\ndfs.secret_key_file = "/run/secret"').dfs
    assert (section.endpoint, section.secret_key_file) == ("https://[::1]:9000", "/run/secret")


@given(KEYS, st.binary(min_size=16, max_size=16), WORDS, WORDS)
def test_names_are_read_back(key, uid, cluster, file):
    """Whatever is stored can be told from its name: whose it is, of which shuffle, and which file."""
    name = names.file_name(cluster, key, uid, file) + ".0123abcd"
    parsed = names.parse(name)
    assert parsed == names.ObjectName(cluster, key, uid, file, "0123abcd")
    assert name.startswith(names.worker_folder(cluster, key, uid) + "/")
    assert names.worker_folder(cluster, key, uid).startswith(names.shuffle_folder(cluster, key) + "/")
    assert names.shuffle_folder(cluster, key).startswith(names.instance_folder(cluster, key.instance) + "/")
    assert names.parse(name + names.TEMPORARY_SUFFIX) is None


@pytest.mark.parametrize("cluster", ["", "..", ".hidden", "a/b", "ä", "x" * 129, "a b"])
def test_cluster_ids_that_name_no_folder(cluster):
    """An id that would leave its folder, or is no portable name, is refused with what to use."""
    with pytest.raises(ConfigError, match="cannot name a folder"):
        names.marker(cluster)


@pytest.mark.parametrize(
    "name", ["", "c/holdfast-store", "c/x/1-1/y/f.00000000", "c/" + "0" * 32 + "/1-01-0123456789abcdef/a/f.1", "a/b"]
)
def test_names_of_others_are_no_names_of_ours(name):
    """What we did not name is never taken for ours."""
    assert names.parse(name) is None
    assert names.parse_instance(name) is None
    assert names.parse_shuffle(Instance(b"i" * 16), "1-4294967296-0123456789abcdef") is None


AWS = "When reading information for key 'k' in bucket 'b': AWS Error {} during HeadObject operation: No response body."
HADOOP = 'RPCError("org.apache.hadoop.{}", "Permission denied: user=bob")'


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (FileNotFoundError(errno.ENOENT, "x"), Fault.MISSING),
        (FileNotFoundError("/x"), Fault.MISSING),
        (PermissionError("/x"), Fault.REFUSED),
        (OSError(errno.ENOSPC, "x"), Fault.FULL),
        (OSError(errno.EROFS, "x"), Fault.REFUSED),
        (OSError(errno.ESTALE, "x"), Fault.PASSING),
        (OSError(AWS.format("ACCESS_DENIED")), Fault.REFUSED),
        (OSError(AWS.format("NO_SUCH_BUCKET")), Fault.REFUSED),
        (OSError(AWS.format("NO_SUCH_KEY")), Fault.MISSING),
        (OSError(AWS.format("NETWORK_CONNECTION")), Fault.PASSING),
        (OSError(AWS.format("SLOW_DOWN")), Fault.PASSING),
        (OSError(AWS.format("UNKNOWN (HTTP status 400)")), Fault.REFUSED),
        (OSError(AWS.format("UNKNOWN (HTTP status 429)")), Fault.PASSING),
        (OSError(AWS.format("UNKNOWN (HTTP status 503)")), Fault.PASSING),
        (RuntimeError(HADOOP.format("security.AccessControlException")), Fault.REFUSED),
        (RuntimeError(HADOOP.format("hdfs.protocol.DSQuotaExceededException")), Fault.FULL),
        (RuntimeError(HADOOP.format("hdfs.server.namenode.SafeModeException")), Fault.PASSING),
        (OSError("Connection refused (os error 111)"), Fault.PASSING),
        (StoreHangsError("no answer within 5 s"), Fault.PASSING),
    ],
)
def test_faults_of_stores(error, fault):
    """What may pass is told from what no second try helps; what is not known may pass."""
    assert classify(error) is fault


def test_errors_say_store_request_reason_and_advice():
    """A DfsError names all four, is short, and has the status that tells a reader what to do."""
    error = error_of("s3://b", "read x", OSError(AWS.format("ACCESS_DENIED") + "y" * 1000))
    assert str(error).startswith("DFS store s3://b: cannot read x: When reading")
    assert "check [dfs] url and the rights" in str(error)
    assert len(str(error)) < 500
    assert (error.passing, error.status) == (False, Status.DISK_FAILED)
    error = error_of("/x", "store x", OSError(errno.ENOSPC, "No space left on device"))
    assert (error.passing, error.status) == (False, Status.DISK_FULL)
    error = error_of("/x", "store x", OSError(errno.EIO, "io"))
    assert (error.passing, error.status) == (True, Status.UNAVAILABLE)


@given(st.floats(0, 100), st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0, 5))
def test_back_off_is_bounded(window, draws, each_call_seconds):
    """Pauses never exceed their limit, which doubles up to the longest, and end within the window after the first."""
    drawn = iter(draws)
    retries, now, limit = Retries(window, lambda: next(drawn)), 1000.0, FIRST_SECONDS
    for _ in draws:
        pause = retries.failed(now)
        if pause is None:
            break
        assert 0 <= pause <= limit
        assert now + pause < 1000.0 + window
        now += pause + each_call_seconds
        limit = min(limit * 2, LONGEST_SECONDS)


def test_back_off_begins_with_the_first_failure():
    """A call that fails late has the whole window still before it; one without a window is never tried again."""
    retries = Retries(10, lambda: 1.0)
    assert retries.failed(5_000.0) == FIRST_SECONDS
    assert retries.failed(5_009.0) == 2 * FIRST_SECONDS
    assert retries.failed(5_009.9) is None
    assert Retries(0, lambda: 0.0).failed(1.0) is None


def test_calls_give_results_and_errors():
    """What a call returns or raises is what its caller gets; a panic that is no Exception becomes one."""

    class Panic(BaseException):
        pass

    def panic() -> None:
        raise Panic("past the end")

    def refuse() -> None:
        raise KeyError("x")

    calls = Calls()
    assert [calls.run(partial(pow, at, 2), 10) for at in range(50)] == [at**2 for at in range(50)]
    with pytest.raises(KeyError):
        calls.run(refuse, 10)
    with pytest.raises(RuntimeError, match="past the end"):
        calls.run(panic, 10)
    calls.close()


def test_a_call_that_hangs_hurts_nobody_else():
    """A call past its deadline is given up; others go on until the bound of threads; all is well when it returns."""
    gate, calls = threading.Event(), Calls(threads_max=2)

    def hang() -> None:
        """Until a thread has it: the one of the call before may come free a moment after its answer."""
        refused = "all 2 calls"
        while "all 2 calls" in refused:
            with pytest.raises(StoreHangsError, match=r"no answer within|all 2 calls") as caught:
                calls.run(gate.wait, 0.01)
            refused = str(caught.value)

    hang()
    assert calls.run(lambda: 5, 60) == 5
    hang()
    with pytest.raises(StoreHangsError, match="all 2 calls"):
        calls.run(lambda: 5, 0.01)
    gate.set()
    assert calls.run(lambda: 5, 60) == 5
    calls.close()


def test_closing_ends_who_waits():
    """Callers that wait when a store is closed go on at once, with an error; later calls are refused."""
    gate, entered, calls = threading.Event(), threading.Event(), Calls()
    seen: list[BaseException] = []

    def hang() -> None:
        entered.set()
        gate.wait()

    def wait() -> None:
        try:
            calls.run(hang, 600)
        except ClosedError as error:
            seen.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait(60)
    calls.close()
    thread.join(60)
    assert len(seen) == 1
    with pytest.raises(ClosedError):
        calls.run(lambda: 5, 10)
    gate.set()


def test_a40_a_call_that_lasts_is_in_the_log(monkeypatch, caplog):
    """While a store hangs the log names it and what is waited for: an answer, or a thread."""
    monkeypatch.setattr("holdfast.common.dfs.calls.SAY_SECONDS", 0.001)
    gate, calls = threading.Event(), Calls("s3://bucket", threads_max=1)
    for what in ("an answer", "a free thread"):
        with pytest.raises(StoreHangsError):
            calls.run(gate.wait, 1.0)  # for a thread to start, too
        assert logged(caplog, LogEvent.DFS_SLOW)[-1] == {"dfs": "s3://bucket", "seconds": 0, "what": what}
    gate.set()
    calls.close()


def test_a40_closing_ends_who_waits_for_a_thread():
    """Every thread of a store hangs, and others wait for one: all of these go on when it is closed."""
    gate, calls = threading.Event(), Calls(threads_max=1)
    with pytest.raises(StoreHangsError):
        calls.run(gate.wait, 0.01)
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            calls.run(gate.wait, 600)
        except OSError as error:
            seen.append(error)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    calls.close()
    for thread in threads:
        thread.join(60)
    assert [type(error) for error in seen] == [ClosedError] * 3
    gate.set()


class Handle:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_handles_are_with_one_reader_and_bounded():
    """An open file is given to one reader at a time; the ones not used for longest are closed beyond the bound."""
    handles, made = Handles(handles_max=2), [Handle() for _ in range(4)]
    handles.give("a", made[0])
    handles.give("a", made[1])
    assert handles.take("a") is made[1]
    assert handles.take("a") is made[0]
    assert handles.take("a") is None
    for name, handle in zip("abc", made, strict=False):
        handles.give(name, handle)
    assert [each.closed for each in made] == [True, False, False, False]
    handles.forget("b")
    handles.forget("b")
    assert made[1].closed
    handles.close()
    assert made[2].closed
    assert handles.take("c") is None
