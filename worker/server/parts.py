"""Does what is done beside requests, every second or when a connection has gone, part by part: one that fails is
logged, and keeps no other from being done. Called by the services."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)


def in_parts(*parts: Callable[[], object]) -> None:
    """Do one thing after the other."""
    for part in parts:
        try:
            part()
        except Exception:  # noqa: BLE001 - whatever it is, it is told of, and the others are to be done
            _log.exception("a part of what is done beside requests failed")
