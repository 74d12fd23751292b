"""One set-up of stdlib logging for all servers: to standard error, as text for people or as JSON lines.

Rules: modules log through `logging.getLogger(__name__)`; facts go into `extra={"worker": 3}`, which both formats show,
so that a message is a fixed sentence that can be searched for. Cores do not log; they return decisions. A record is one
line, whatever names it holds; of a traceback every line is indented.
Called by the mains and the CLI.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
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


def set_up_logging(level: str, form: str) -> None:
    """Send records of `level` and above to standard error as `form`, "text" or "json"; replaces an earlier set-up."""
    handler = logging.StreamHandler(sys.stderr)
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
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
