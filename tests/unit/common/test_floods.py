"""What a log leaves out (common/system/log.py)."""

import logging

import pytest

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import (
    ALL_MAX,
    INFO_SAME_MAX,
    SAME_MAX,
    WINDOW_SECONDS,
    Floods,
    TextFormatter,
    log_event,
)

LOST, SLOW, COMMITTED, DEFERRED = (
    LogEvent.WORKER_LOST,
    LogEvent.PUSH_SLOW,
    LogEvent.SHUFFLE_COMMITTED,
    LogEvent.SEAL_DEFERRED,
)


@pytest.fixture(autouse=True)
def everything(caplog: pytest.LogCaptureFixture) -> None:
    """Records of every level are made."""
    caplog.set_level(logging.DEBUG)


def passed(floods: Floods, caplog: pytest.LogCaptureFixture, event: LogEvent, times: int, **facts: object) -> list[str]:
    """Log an event so many times; return the lines that get through."""
    caplog.clear()
    for number in range(times):
        log_event(event, number=number, **facts)  # type: ignore[arg-type]
    return [TextFormatter().format(record) for record in caplog.records if floods.filter(record)]


def test_the_same_again_and_again_is_left_out_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Of one event a few lines are written, whatever its facts, the last of them says that more are left out, and after
    a while it is written again. Of what is no warning there may be more, what is for debugging is never left out."""
    now = [0.0]
    floods = Floods(lambda: now[0])
    reported = passed(floods, caplog, LOST, 50)
    assert len(reported) == SAME_MAX
    assert 'left_out="more like this' in reported[-1]
    assert "left_out" not in reported[-2]
    assert floods.left_out == 50 - SAME_MAX
    assert passed(floods, caplog, SLOW, 1)
    assert len(passed(floods, caplog, COMMITTED, 1_000)) == INFO_SAME_MAX
    assert len(passed(floods, caplog, DEFERRED, 1_000)) == 1_000
    now[0] = WINDOW_SECONDS
    assert passed(floods, caplog, LOST, 1)


def test_a_flood_of_tracebacks_is_one_of_each_error(caplog: pytest.LogCaptureFixture) -> None:
    """The first of an event and a type of error has its trace, the next are lines."""
    floods = Floods(lambda: 0.0)
    for error in (ValueError("x"), TypeError("y")):
        written = passed(floods, caplog, LogEvent.CALL_INTERNAL_ERROR, 5, trace=error)
        assert [type(error).__name__ in text for text in written] == [True, False, False, False, False]


def test_all_warnings_together_are_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    """Many events that each stay below their bound meet another one."""
    floods = Floods(lambda: 0.0)
    loud = [event for event in LogEvent if event.level >= logging.WARNING]
    assert len(loud) * SAME_MAX > ALL_MAX
    assert len(passed(floods, caplog, LOST, 2 * ALL_MAX)) == SAME_MAX, "and what is left out uses up no room of others"
    assert sum(len(passed(floods, caplog, event, 2 * SAME_MAX)) for event in loud) == ALL_MAX - SAME_MAX


def test_what_libraries_log_is_counted_by_logger(caplog: pytest.LogCaptureFixture) -> None:
    """However a library words its lines, one of them does not keep another one from the log."""
    floods = Floods(lambda: 0.0)
    for name in ("a", "b"):
        caplog.clear()
        for number in range(50):
            logging.getLogger(name).warning("it went wrong %d times", number)
        assert sum(map(floods.filter, caplog.records)) == SAME_MAX


def test_a_fact_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    """No name that somebody chose makes a line of megabytes."""
    (line,) = passed(Floods(), caplog, LOST, 1, name_of="x" * 1_000_000)
    assert len(line) < 3_000
