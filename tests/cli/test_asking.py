"""Masters that do not answer: who asked is told why he waits, and gets an end, in sentences."""

import logging
import socket
import threading

import pytest

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import event_of
from holdfast.tools.cli import asking, main

#: Nobody listens there.
NOBODY = "127.0.0.1:1"
ASKING = [
    *(["workers"], ["shuffles"], ["apps"], ["top", "--once"], ["forget", "nightly"], ["handover"]),
    *(["drain", "w1"], ["undrain", "w1"], ["placement", "nightly/0"], ["export", "nightly/0", "--to", "nowhere"]),
]


def test_bounds_leave_room_for_the_start_of_a_process():
    """The first line comes within two seconds and the end within ten, with a second for the process to start."""
    assert asking.SAY_SECONDS <= 2 - 1
    assert asking.ANSWER_SECONDS_MAX <= 10 - 1
    assert 2 * asking.MASTER_SECONDS_MAX <= 10 - 1, "status asks every master, and then the leader for workers"


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_waiting_is_told_in_a_sentence(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    """Each command that needs the leader says first that nobody answers, and why, then gives up with 1 and a sentence;
    the line that servers log is not shown to people."""
    monkeypatch.setattr(asking, "SAY_SECONDS", 0.1)
    monkeypatch.setattr(asking, "ANSWER_SECONDS_MAX", 0.5)
    with caplog.at_level(logging.INFO):
        assert main.run([*words, "--masters", NOBODY]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"holdfast: no answer yet, asking for 0.5 s: there is no leader: {NOBODY}: connection refused"
    assert last == f"holdfast: there is no leader: {NOBODY}: connection refused"
    # What another test's session still asks for in its own thread is not this command's line.
    own = [each for each in caplog.records if each.thread == threading.get_ident()]
    assert LogEvent.LEADER_MISSING not in map(event_of, own)


@pytest.mark.parametrize("command", ["status", "events", "doctor"])
def test_silent_masters_are_named(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A master that takes connections and never answers is named while one waits, by commands that ask each master."""
    monkeypatch.setattr(asking, "SAY_SECONDS", 0.1)
    monkeypatch.setattr("holdfast.tools.doctor.asking._SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert main.run([command, "--masters", address]) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("holdfast: no answer yet, asking for ")
    assert first.endswith(f": {address}")
