"""Processes that die with their parent, ports that can be had again, logs in two forms."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from holdfast.common.errors import ConfigError
from holdfast.common.log_events import LogEvent
from holdfast.common.system import log, ports, process
from tests.support.waiting import wait_until

FOREVER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]


def is_gone(pid: int) -> bool:
    """Gone or a zombie that only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_child_dies_with_its_parent(processes, tmp_path):
    """A parent killed with -9 takes its child along, since nobody else would ever stop it."""
    parent = (
        "import signal, sys; from pathlib import Path; from holdfast.common.system import process;"
        f"child = process.spawn({FOREVER!r}, log=Path('child.log'));"
        "Path('pid.part').write_text(str(child.pid)); Path('pid.part').rename('pid'); signal.pause()"
    )
    started = processes.start("parent", [sys.executable, "-c", parent])
    wait_until((tmp_path / "pid").exists, "the parent to start its child")
    wait_until(lambda: "up" in (tmp_path / "child.log").read_text("utf-8"), "the child to be up")
    child = int((tmp_path / "pid").read_text("utf-8"))
    assert not is_gone(child)
    started.kill()
    wait_until(lambda: is_gone(child), "the child to die with its parent")


def test_command_keeps_pid_arguments_and_environment(processes):
    """The launcher becomes the command: same pid, same arguments, the environment added to."""
    show = "import os, sys; print(os.getpid(), sys.argv[1:], os.environ['ADDED'], 'PATH' in os.environ)"
    child = processes.start("show", [sys.executable, "-c", show, "a b", "--c"], {"ADDED": "yes"})
    assert child.wait(30) == 0
    assert processes.log("show").read_text("utf-8") == f"{child.pid} ['a b', '--c'] yes True\n"


def test_child_of_a_parent_that_is_gone_does_not_start(processes):
    """A parent that died before the request leaves no child behind: the launcher sees another parent and ends."""
    child = processes.start("late", [sys.executable, "-I", "-S", process.__file__, "1", *FOREVER])
    assert child.wait(30) == 1


def test_stop_asks_first_and_kills_in_the_end(processes):
    """A process that follows SIGTERM ends by it, also when it was stopped; one that ignores it is killed."""
    polite = processes.start("polite", FOREVER)
    wait_until(lambda: "up" in processes.log("polite").read_text("utf-8"), "the child to be up")
    polite.send_signal(signal.SIGSTOP)
    assert process.stop(polite) == -signal.SIGTERM
    deaf = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile 1: signal.pause()"
    )
    stubborn = processes.start("stubborn", [sys.executable, "-c", deaf])
    wait_until(lambda: "up" in processes.log("stubborn").read_text("utf-8"), "the child to be up")
    assert process.stop(stubborn, seconds=0.1) == -signal.SIGKILL
    assert process.stop(stubborn) == -signal.SIGKILL


def test_ports_are_free_different_and_not_for_outgoing_connections():
    """No port comes from the range of outgoing connections, and a server can listen on every one."""
    found = ports.free_ports(20)
    first, last = ports.outgoing_range()
    assert len(set(found)) == 20
    assert [port for port in found if first <= port <= last] == []
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_ports_of_a_process_are_nobody_elses(processes):
    """What one process was given no other one gets while it lives, though nobody listens there."""
    imported = "import signal; from holdfast.common.system import ports"
    ask = f"{imported}; print(*ports.free_ports(5000), flush=True); signal.pause()"
    names = ["one", "two", "three", "four"]
    for name in names:
        processes.start(name, [sys.executable, "-c", ask])
    said = [processes.log(name) for name in names]
    wait_until(lambda: all(log.read_text("utf-8").endswith("\n") for log in said), "four to have their ports")
    taken = [set(map(int, log.read_text("utf-8").split())) for log in said]
    assert [len(each) for each in taken] == [5_000] * 4
    assert len(set.union(*taken)) == 20_000


def test_a_port_is_given_again_late(monkeypatch):
    """A process that asks often gets ports that it had already, those that it was given longest ago first."""
    monkeypatch.setattr(ports, "_own", ports._Own())
    first = ports.free_ports(ports._OWN_ENOUGH)
    assert set(ports.free_ports(100)) <= set(first[:150])


def test_port_in_use_is_not_free():
    """A port that somebody listens on is not offered."""
    (port,) = ports.free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert not ports.is_free(port)
    assert ports.is_free(port)


def test_too_many_ports_are_refused():
    """Asking for more ports than there are says so instead of handing out fewer."""
    with pytest.raises(ConfigError, match="ports are free"):
        ports.free_ports(65_536, host="192.0.2.1")


@pytest.fixture
def record(caplog):
    """A record with facts of several types, as it is made where something is logged."""
    log.log_event(
        LogEvent.FILE_SOURCE_LEFT, file=7, path=Path("data"), reason="torn\ntail of it", trace=ValueError("torn\ntail")
    )
    (made,) = caplog.records
    made.created = 0.25
    return made


def test_text_line_has_moment_level_name_facts_and_sentence(record):
    """Text is one line for people; a traceback follows it."""
    line, *trace = log.TextFormatter().format(record).splitlines()
    sentence = LogEvent.FILE_SOURCE_LEFT.sentence
    assert (
        line
        == rf'1970-01-01T00:00:00.250Z WARNING file.source_left file=7 path=data reason="torn\ntail of it" — {sentence}'
    )
    assert trace[0] == "  ValueError: torn"
    record.exc_info = None
    assert log.TextFormatter().format(record) == line


def test_json_line_is_one_object(record):
    """JSON carries the same facts as keys of one object on one line; the sentence has none of them in it."""
    line = log.JsonFormatter().format(record)
    entry = json.loads(line)
    assert "\n" not in line
    assert entry.pop("exception").endswith("ValueError: torn\ntail")
    assert entry == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "WARNING",
        "event": "file.source_left",
        "message": LogEvent.FILE_SOURCE_LEFT.sentence,
        "file": 7,
        "path": "data",
        "reason": "torn\ntail of it",
    }


def test_without_a_set_up_the_message_is_the_line(record):
    """A program that uses the client and logs as it likes has name, facts and sentence in its messages."""
    assert record.getMessage().startswith("file.source_left file=7 path=data reason=")
    assert (record.name, record.filename) == ("holdfast", Path(__file__).name)


def test_set_up_logging_writes_to_standard_error(processes):
    """After set-up, records of the level and above go to standard error in the form asked for, others nowhere; those of
    libraries have a name, too."""
    code = (
        "import logging; from holdfast.common.log_events import LogEvent;"
        "from holdfast.common.system.log import log_event, set_up_logging; set_up_logging('WARNING', 'json');"
        "log_event(LogEvent.SHUFFLE_COMMITTED); log_event(LogEvent.PUSH_SLOW, n=1);"
        "logging.getLogger('a').info('no'); logging.getLogger('a').warning('yes %d', 2)"
    )
    assert processes.start("logs", [sys.executable, "-c", code]).wait(60) == 0
    first, second = [json.loads(line) for line in processes.log("logs").read_text("utf-8").splitlines()]
    assert (first["event"], first["message"], first["n"]) == ("push.slow", LogEvent.PUSH_SLOW.sentence, 1)
    assert (second["event"], second["message"], second["logger"]) == ("library.message", "yes 2", "a")


def test_log_of_a_failed_test_is_shown_and_kept(processes, tmp_path):
    """The end of a child's log is in the report of a failing test, and a copy outlives the run."""
    (tmp_path / "test_inner.py").write_text(
        "def test_inner(tmp_path):\n    (tmp_path / 'worker.log').write_text('last words')\n    assert False\n", "utf-8"
    )
    conftest = Path(__file__).parent.parent / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text("utf-8"), "utf-8")
    inner = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    # A directory of its own: where runs share one, the end of a run removes what older runs left, however much it is.
    command = [*inner, "--basetemp", tmp_path / "inner", "--rootdir", tmp_path, tmp_path]
    keep = {"HOLDFAST_TEST_LOGS": str(tmp_path / "kept"), "PYTHONPATH": os.pathsep.join(sys.path)}
    assert processes.start("inner", command, keep).wait(60) == 1
    kept = tmp_path / "kept" / "test_inner.py_test_inner" / "worker.log"
    assert kept.read_text("utf-8") == "last words"
    output = processes.log("inner").read_text("utf-8")
    assert f"end of {kept}" in output
    assert "last words" in output


def test_what_nobody_catches_is_a_json_line_too(processes):
    """Of the main thread and of any other, and a warning: each is one object, the first two with their tracebacks."""
    code = (
        "import threading, warnings; from holdfast.common.system.log import set_up_logging;"
        "set_up_logging('WARNING', 'json'); warnings.warn('old');"
        "other = threading.Thread(target=lambda: 1 / 0); other.start(); other.join(); raise ValueError('end')"
    )
    assert processes.start("log", [sys.executable, "-c", code]).wait(30) == 1
    entries = [json.loads(line) for line in processes.log("log").read_text("utf-8").splitlines()]
    assert [each["level"] for each in entries] == ["WARNING", "CRITICAL", "CRITICAL"]
    assert [each["event"] for each in entries] == ["library.message", "process.crashed", "process.crashed"]
    assert "ZeroDivisionError" in entries[1]["exception"]
    assert "ValueError: end" in entries[2]["exception"]


def test_no_name_makes_a_line_of_a_log(caplog):
    """Newlines and what terminals obey are shown in messages, facts and tracebacks of text; a traceback's own lines are
    indented, so that whatever begins at the left is one record. JSON holds the same, escaped, and means the same."""
    forged = "x\n1970-01-01T00:00:00.250Z ERROR holdfast: all is gone \x1b[31m\x9b2J\u2028\x7f"
    log.log_event(LogEvent.WORKER_LOST, worker=forged, trace=ValueError(forged))
    (record,) = caplog.records
    first, *rest = log.TextFormatter().format(record).split("\n")
    assert r'worker="x\n1970' in first
    assert rest
    assert all(line.startswith("  ") for line in rest)
    raw = log.JsonFormatter().format(record)
    assert json.loads(raw)["worker"] == forged
    for text in (first, *rest, raw):
        assert not set(text) & set("\n\x1b\x9b\u2028\x7f")
