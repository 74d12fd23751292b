"""Does what is done beside requests, every second or when a connection has gone, part by part: one that fails is
logged, and keeps no other from being done. Called by the services."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event


def in_parts(*parts: Callable[[], object]) -> None:
    """Do one thing after the other."""
    for part in parts:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged, and the others are to be done
            log_event(LogEvent.TICK_INTERNAL_ERROR, trace=error)
