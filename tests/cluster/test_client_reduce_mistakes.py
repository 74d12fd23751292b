"""Mistakes of those who push from Python: each is told at the call, in a sentence that says what to do instead."""

import math
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

import holdfast.client
from holdfast.client import MapShuffle, PushStatus, Record, ReduceShuffle, Session, WorkerInfo, generation
from holdfast.client.cluster import local
from holdfast.client.cluster.local import LocalCluster
from holdfast.client.connection.runtime import Runtime
from holdfast.common.errors import AbortedError, ConfigError, ConflictError, GiveUpError, RetryError
from holdfast.common.statuses import Status
from tests.cluster.shapes import Shape
from tests.support.reduce_client import PARTITIONS, contents, fill, push, read, records_of
from tests.support.waiting import wait_until

#: What `shared` is here.
SHARED = Shape(masters=1, workers=1)


def test_nothing_is_written_after_the_end(session: Session) -> None:
    """A record written after close, abort or the `with` block would vanish: `write` raises what a second close does."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    closed, aborted = shuffle.writer(0, 1), shuffle.writer(0, 2)
    closed.close()
    aborted.abort()
    with shuffle.writer(0, 3) as left:
        left.write(0, b"dropped")
    for writer in (closed, aborted, left):
        for late in (lambda writer=writer: writer.write(0, b"late"), writer.flush, writer.close):
            with pytest.raises(GiveUpError, match="was closed or aborted"):
                late()


def test_a_loser_hears_that_it_lost_at_every_call(session: Session) -> None:
    """After another attempt won the writer raises AbortedError again and again, also from `write`."""
    shuffle, _ = fill(session)
    loser = shuffle.writer(0)
    loser.write(0, b"late")
    with pytest.raises(AbortedError):
        loser.close()
    for again in (lambda: loser.write(0, b"later"), loser.close):
        with pytest.raises(AbortedError):
            again()


def test_an_attempt_number_is_used_once(session: Session) -> None:
    """A second writer of one map and attempt is refused by name, also through a pickled shuffle; without a number
    every writer gets one of its own."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    shuffle.writer(0, 7)
    shuffle.writer(1, 7)
    for same in (shuffle, pickle.loads(pickle.dumps(shuffle))):  # noqa: S301 - our own bytes
        with pytest.raises(ConfigError, match=r"map 0 attempt 7 .*leave `attempt` out"):
            same.writer(0, 7)
    attempts = set()
    for _ in range(3):
        with shuffle.writer(0) as writer:
            attempts.add(writer.close().attempt)
    assert len(attempts) == 3


def test_a_commit_names_what_is_missing(session: Session) -> None:
    """Too few statuses are refused before any master is asked, and are not remembered: nothing was committed then."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, maps=2)
    first, second = push(shuffle, 0, 1, records_of(1)), push(shuffle, 1, 2, records_of(2))
    for end in (shuffle.commit, shuffle.offer):
        with pytest.raises(ConflictError, match="1 status for 2 maps; missing: map 1"):
            end([first])
    shuffle.commit([first, second])
    assert read(shuffle) == contents({0: records_of(1), 1: records_of(2)})
    unknown = session.register_reduce_shuffle(PARTITIONS)
    for end in (unknown.commit, unknown.offer):
        with pytest.raises(ConfigError, match="maps=0"):
            end([])


def test_a_refused_commit_is_not_remembered(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the masters refused is not tried again by a later read, which hears that nothing is committed."""
    ours = session.register_reduce_shuffle(PARTITIONS, maps=2)
    status = push(ours, 0, 1, records_of(1))
    # as a task would have it that was told nothing of the maps
    ours.maps = None
    with pytest.raises(ConflictError, match="do not fit"):
        ours.commit([status])
    monkeypatch.setattr(generation, "COMMIT_WAIT_SECONDS", 0.0)
    with pytest.raises(RetryError) as refused:
        read(ours)
    assert refused.value.status is Status.NOT_COMMITTED


_WRITER: list[tuple[dict[str, Any], str]] = [
    ({"map_id": 2}, "`map_id` is 0 to 1, not 2"),
    ({"map_id": "0"}, "`map_id` is a whole number"),
    ({"map_id": 0, "attempt": 1.5}, "`attempt` is a whole number"),
    ({"map_id": 0, "attempt": -1}, "`attempt` is 0 to"),
    ({"map_id": 0, "attempt": 2**64 - 1}, "`attempt` is 0 to"),
    ({"map_id": 0, "codec": "gzip"}, "`codec` is none, lz4, zstd"),
    ({"map_id": 0, "codec": 1}, "`codec` is none, lz4, zstd"),
    ({"map_id": 0, "buffer_bytes": 1}, "`buffer_bytes` is "),
]


@pytest.mark.parametrize(("wrong", "reported"), _WRITER)
def test_writers_refuse_wrong_arguments(session: Session, wrong: dict[str, Any], reported: str) -> None:
    """Each wrong argument of `writer` is named."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, maps=2)
    with pytest.raises(ConfigError, match=reported):
        shuffle.writer(**wrong)


def test_readers_refuse_wrong_arguments(session: Session) -> None:
    """Wrong partitions and maps are told at the call, before anything is asked or waited for."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, maps=2)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"partitions": 0}, r"as in \[0\]"),
        ({"partitions": ["0"]}, "whole number"),
        ({"partitions": "0"}, "whole number"),
        ({"partitions": [PARTITIONS]}, "0 to 3, not 4"),
        ({"partitions": [0], "maps": [0]}, "a range with step 1"),
        ({"partitions": [0], "maps": range(0, 2, 2)}, "a range with step 1"),
        ({"partitions": [0], "maps": range(1, 3)}, "the shuffle has 2 maps"),
        ({"partitions": [0], "return_grace": math.inf}, "`return_grace` is 0 to"),
        ({"partitions": [0], "return_grace": math.nan}, "`return_grace` is 0 to"),
        ({"partitions": [0], "return_grace": 10**400}, "`return_grace` is 0 to"),
    ]
    for arguments, reported in wrong:
        with pytest.raises(ConfigError, match=reported):
            shuffle.reader(**arguments)


def test_a_codec_may_be_named(session: Session) -> None:
    """`codec="lz4"` is Codec.LZ4, and zstd may have its level."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    statuses = [push(shuffle, 0, 1, records_of(1), codec="lz4"), push(shuffle, 1, 1, records_of(2), codec="zstd:9")]
    shuffle.commit(statuses)
    assert read(shuffle) == contents({0: records_of(1), 1: records_of(2)})


@pytest.mark.parametrize("wrong", [(7,), (["127.0.0.1:1"],), ("127.0.0.1:1", None), ("127.0.0.1:1", "")])
def test_sessions_refuse_wrong_arguments(wrong: tuple[Any, ...]) -> None:
    """What is no text is told as such, before anything is connected to."""
    with pytest.raises(ConfigError, match=r"endpoints are |`app` is "):
        Session(*wrong)


def test_the_other_method_is_named(session: Session) -> None:
    """Opening a shuffle of the other kind names the method that opens it."""
    shuffle, _ = fill(session)
    with pytest.raises(ConflictError, match=r"Session\.open_reduce_shuffle"):
        session.open_shuffle(shuffle.key.shuffle)


def test_short_names(session: Session) -> None:
    """What an interpreter shows of the objects is one short line."""
    shuffle, _ = fill(session)
    status: Any = PushStatus(shuffle.key, 0, 5, PARTITIONS, b"\x03")  # type: ignore[arg-type]
    assert repr(status) == f"PushStatus(shuffle {shuffle.key}, map 0, attempt 5, wrote for 2 of 4 partitions)"
    assert repr(shuffle) == f"ReduceShuffle({shuffle.key}, partitions=4, maps=4, copies=1, ack=WRITTEN)"
    assert repr(session) == f"Session(app='tests', instance={session.instance.hex()[:8]})"
    assert "to read" in repr(session.open_reduce_shuffle(shuffle.key.shuffle))
    files = session.register_map_shuffle(2)
    assert repr(files) == f"MapShuffle({files.key}, partitions=2, copies=1, ack=WRITTEN)"


def test_notebooks_show_a_small_table(shared: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session, a shuffle and a cluster, with texts escaped; no server is asked."""
    with holdfast.connect(shared.endpoints, "<b>&") as session:
        shuffle, _ = fill(session)
        monkeypatch.setattr(Runtime, "run", None)
        monkeypatch.setattr(local, "ask", None)
        pages = [each._repr_html_().replace(' style="text-align:left"', "") for each in (session, shuffle, shared)]
        monkeypatch.undo()
    assert "Session &lt;b&gt;&amp;" in pages[0]
    assert f"<tr><th>masters</th><td>{shared.endpoints}</td></tr>" in pages[0]
    assert "<tr><th>copies</th><td>1</td></tr>" in pages[1]
    assert f"<td>{shared.workers[0].address}</td><td>running</td>" in pages[2]
    assert max(map(len, pages)) < 1_000


def test_what_a_session_returns_is_no_message(session: Session) -> None:
    """Nothing that a real session, its shuffles and errors give, and nothing in that, is of protobuf."""
    shuffle, _ = fill(session)
    with pytest.raises(ConflictError) as refused:
        session.open_shuffle(shuffle.key.shuffle)
    with pytest.raises(GiveUpError) as unknown:
        session.open_reduce_shuffle(9_999)
    given = [session.workers(), session.ticket, shuffle, shuffle.manifest(), list(shuffle.reader([0]))]
    found = list(reached([*given, session.register_map_shuffle(2), refused.value, unknown.value]))
    assert {WorkerInfo, Record, MapShuffle, ReduceShuffle, Status} <= set(map(type, found))
    assert [each for each in found if isinstance(each, Message)] == []
    assert (unknown.value.code, type(unknown.value.__cause__)) == ("UNKNOWN_SHUFFLE", GiveUpError)


def reached(values: list[Any]) -> Iterator[Any]:
    """One of each type that is among these values and in them by a public name."""
    seen: set[type] = set()
    left = list(values)
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            left += value
        if type(value) in seen or isinstance(value, type):
            continue
        seen.add(type(value))
        yield value
        if type(value).__module__.startswith("holdfast"):
            named = (getattr(value, name) for name in dir(value) if name[0] != "_")
            left += [each for each in named if not callable(each)]
        left += [value.__cause__] if isinstance(value, BaseException) else []


def test_connect_has_defaults(shared: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The masters are those of HOLDFAST_MASTERS, the name is the program's; to attach one has to be given."""
    monkeypatch.setenv("HOLDFAST_MASTERS", shared.endpoints)
    monkeypatch.setattr(sys, "argv", ["jobs/nightly.py", "1"])
    with holdfast.connect() as session, holdfast.connect(app="nightly", attach=True) as other:
        assert (session.app, other.instance) == ("nightly", session.instance)
        with pytest.raises(ConfigError, match="`app`"):
            holdfast.connect(attach=True)


def test_a_shuffle_that_was_dropped(session: Session) -> None:
    """A writer and a reader of a shuffle that was unregistered say so in the same words once its worker has heard of
    it; before that a writer may get a status, which no commit takes."""
    dropped, _ = fill(session, maps=1)
    dropped.manifest()
    writer = dropped.writer(0)
    writer.write(0, b"early")
    early = session.register_reduce_shuffle(PARTITIONS)
    status = push(early, 0, 1, records_of(1))
    for each in (early, dropped):
        each.unregister()
    words = "dropped, or never registered"
    with pytest.raises(GiveUpError, match=words):
        early.commit([status])
    wait_until(lambda: words in _refusal(dropped), "the reader hears that the shuffle was dropped")
    with pytest.raises(GiveUpError, match=words):
        writer.close()


def _refusal(shuffle: ReduceShuffle) -> str:
    try:
        read(shuffle)
    except GiveUpError as error:
        return str(error)
    return ""


def test_errors_are_exported() -> None:
    """Every public name is listed by dir() and can be imported."""
    assert set(holdfast.client.__all__) <= set(dir(holdfast.client))
    for name in holdfast.client.__all__:
        assert getattr(holdfast.client, name).__name__ == name
    assert holdfast.client.DataLostError.__module__ == "holdfast.common.errors"


def test_an_abandoned_writer_ends_quietly(shared: LocalCluster, tmp_path: Path) -> None:
    """A process that ends with a writer open and pushes on their way prints nothing."""
    script = tmp_path / "leaves.py"
    script.write_text(
        "import sys\nfrom holdfast.client import Session\n"
        "session = Session(sys.argv[1], app='leaves')\n"
        "writer = session.register_reduce_shuffle(4).writer(0)\n"
        "for n in range(400):\n    writer.write(n % 4, bytes(100_000))\nwriter.flush()\n"
    )
    command = [sys.executable, str(script), shared.endpoints]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
