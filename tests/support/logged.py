"""What was logged, by the names of events: of this process from pytest's `caplog`, of servers from their log files."""

import re
from pathlib import Path

import pytest

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import event_of, facts_of


def logged(caplog: pytest.LogCaptureFixture, *events: LogEvent) -> list[dict[str, object]]:
    """Facts of each line about one of these events, in their order."""
    return [facts_of(each) for each in caplog.records if event_of(each) in events]


def lines_of(log: Path | str, event: LogEvent) -> list[str]:
    """Lines about this event in the log of a process, or in text that it wrote."""
    text = log if isinstance(log, str) else log.read_text("utf-8", "replace")
    return [line for line in text.splitlines() if re.search(rf"(^|\s){re.escape(str(event))} ", line)]
