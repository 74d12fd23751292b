"""How everything logs: one call, one catalogue, one line; servers write it to standard error as text or as JSON.

Rules: what is logged is an event of common/log_events.py and facts about it. Without a set-up, as in a user's program,
the line is the message of a record of the logger "holdfast". Cores do not log; they return decisions. A record is one
line, whatever names it holds; of a traceback every line is indented. What comes again and again, or too much in all, is
left out for a while and counted: no flood from outside fills a disk or hides what matters. Called by all roles.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from textwrap import indent
from types import TracebackType

from holdfast.common.log_events import LogEvent, facts_text, line_of, plain
from holdfast.common.visible import visible, visible_json, visible_lines

_log = logging.getLogger("holdfast")


class _Message:
    """What a record of ours has as its message."""

    __slots__ = ("event", "facts")

    def __init__(self, event: LogEvent, facts: Mapping[str, object]) -> None:
        self.event, self.facts = event, facts

    def __str__(self) -> str:
        return line_of(self.event, self.facts)


def log_event(event: LogEvent, /, *, trace: BaseException | None = None, **facts: object) -> None:
    """Log an event at its level; any thread. `trace` is an error to be shown with its traceback."""
    log_facts(event, facts, trace, stacklevel=3)


def log_facts(
    event: LogEvent, facts: Mapping[str, object], trace: BaseException | None = None, stacklevel: int = 2
) -> None:
    """The same with facts that were put together before."""
    if _log.isEnabledFor(event.level):
        _log.log(event.level, _Message(event, facts), exc_info=trace, stacklevel=stacklevel)


def event_of(record: logging.LogRecord) -> LogEvent:
    """What a record is about; what libraries log is LIBRARY_MESSAGE."""
    return record.msg.event if isinstance(record.msg, _Message) else LogEvent.LIBRARY_MESSAGE


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """The facts of a record."""
    facts: dict[str, object] = {"logger": record.name}
    if isinstance(record.msg, _Message):
        facts = dict(record.msg.facts)
    return {**facts, "left_out": record.left_out} if hasattr(record, "left_out") else facts


def _sentence(record: logging.LogRecord) -> str:
    return record.msg.event.sentence if isinstance(record.msg, _Message) else record.getMessage()


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z ERROR worker.lost worker=w3 — A worker is lost: it sends no heartbeats.`"""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback below it if there is one."""
        parts = (event_of(record).dotted, facts_text(facts_of(record)), "—", _sentence(record))
        line = visible(" ".join(filter(None, (_moment(record), record.levelname, *parts))))
        if not record.exc_info:
            return line
        return f"{line}\n{indent(visible_lines(self.formatException(record.exc_info)), '  ')}"


class JsonFormatter(logging.Formatter):
    """The same as one JSON object a line; values that JSON does not have are written as text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; the traceback is its key `exception`."""
        entry: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname,
            "event": event_of(record).dotted,
            "message": _sentence(record),
            **{key: plain(fact) for key, fact in facts_of(record).items()},
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(entry, ensure_ascii=False))


#: Of one event so many are written in a window, the first with its traceback.
SAME_MAX, INFO_SAME_MAX = 10, 60
#: Of all warnings and errors together.
ALL_MAX = 600
WINDOW_SECONDS = 60.0


class Floods(logging.Filter):
    """Lets through what is new, and says where it begins to leave out. Any thread: its handler's lock is held.

    Rules: counted is by event, and by the type of error, so that the traceback of another mistake is written. There are
    as many of these as the sources have.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()
        self._all = 0
        self._seen: Counter[tuple[LogEvent, str, str]] = Counter()
        #: records that were left out since the start
        self.left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it; changes what is written of one that was written before."""
        if record.levelno < logging.INFO:
            return True
        loud = record.levelno >= logging.WARNING
        most = SAME_MAX if loud else INFO_SAME_MAX
        now = self._clock()
        if now - self._began >= WINDOW_SECONDS:
            self._began, self._all = now, 0
            self._seen.clear()
        error = record.exc_info[0] if record.exc_info else None
        kind = (event_of(record), record.name, error.__name__ if error else "")
        self._seen[kind] += 1
        count = self._seen[kind]
        if count > most or (loud and self._all == ALL_MAX):
            self.left_out += 1
            return False
        self._all += loud
        if count > 1 and record.exc_info:
            record.exc_info = record.exc_text = None
        if count == most or (loud and self._all == ALL_MAX):
            record.left_out = f"more like this, for up to {WINDOW_SECONDS:g} s"
        return True


FLOODS = Floods()


def set_up_logging(level: str, form: str) -> None:
    """Send records of `level` and above to standard error as `form`, "text" or "json"; replaces an earlier set-up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(FLOODS)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda thrown: _uncaught(
        thrown.exc_type, thrown.exc_value or thrown.exc_type(), thrown.exc_traceback
    )


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An uncaught error is one record like any other, so that a log of JSON lines stays one."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    elif not issubclass(kind, SystemExit):
        log_event(LogEvent.PROCESS_CRASHED, trace=error)


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
