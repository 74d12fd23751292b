"""One set-up of stdlib logging for all servers: to standard error, as text for people or as JSON lines.

Rules: modules log through `logging.getLogger(__name__)`; facts go into `extra={"worker": 3}`, which both formats show,
so that a message is a fixed sentence that can be searched for. Cores do not log; they return decisions. A record is one
line, whatever names it holds; of a traceback every line is indented. What says the same again and again, or too much in
all, is left out for a while and counted: no flood from outside fills a disk or hides what matters.
Called by the mains and the CLI.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from textwrap import indent
from types import TracebackType

from holdfast.common.visible import visible, visible_json, visible_lines

#: What a record carries without being asked; everything beyond came through `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO holdfast.worker.main: sealed file=7 bytes=1024`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback below it if there is one."""
        facts = "".join(f" {key}={value}" for key, value in _facts(record).items())
        line = visible(f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}{facts}")
        if not record.exc_info:
            return line
        return f"{line}\n{indent(visible_lines(self.formatException(record.exc_info)), '  ')}"


class JsonFormatter(logging.Formatter):
    """The same as one JSON object a line; values that JSON does not know are written as text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object; the traceback is its key `exception`."""
        entry: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(entry, default=str, ensure_ascii=False))


#: Of records with the same sentence: so many in a window are written, the first with its traceback.
SAME_MAX, INFO_SAME_MAX = 10, 100
#: Of all warnings and errors together, so that no sentence that is new each time gets around that.
ALL_MAX = 600
WINDOW_SECONDS = 60.0
#: Sentences that are told apart; all beyond count as one.
_KINDS_MAX = 1_024
#: Facts are cut to this.
_FACT_CHARS_MAX = 2_048


class Floods(logging.Filter):
    """Lets through what is new, and says where it begins to leave out. Any thread: its handler's lock is held."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began = clock()
        self._all = 0
        self._seen: dict[tuple[str, str, str], int] = {}
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
        error = record.exc_info[1] if record.exc_info else None
        kind = (record.name, str(record.msg), type(error).__name__)
        if kind not in self._seen and len(self._seen) >= _KINDS_MAX:
            kind = ("", "", "")
        count = self._seen[kind] = self._seen.get(kind, 0) + 1
        self._all += loud
        if count > most or (loud and self._all > ALL_MAX):
            self.left_out += 1
            return False
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
    threading.excepthook = lambda told: _uncaught(told.exc_type, told.exc_value or told.exc_type(), told.exc_traceback)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What nobody catches is one record like any other, so that a log of JSON lines stays one."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    elif not issubclass(kind, SystemExit):
        logging.getLogger(__name__).critical("nobody caught this", exc_info=(kind, error, trace))


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {key: _cut(value) for key, value in vars(record).items() if key not in _STANDARD}


def _cut(value: object) -> object:
    text = value if isinstance(value, str) else None
    return value if text is None or len(text) <= _FACT_CHARS_MAX else f"{text[:_FACT_CHARS_MAX]}…"


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
