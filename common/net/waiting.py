"""A wait that lasts says so in the log: after 10 s, and then once a minute, with what it waits for.

Rules: this bounds nothing and wakes nobody; the bound belongs to the wait itself. Whatever may last longer than
SAY_SECONDS is inside `said`, or its log is silent while people look for the reason. Event loop only. Called by all
roles; docs/waits.md lists the places.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)

#: From when on a wait is told, and how often after that.
SAY_SECONDS = 10.0
SAY_AGAIN_SECONDS = 60.0


@contextmanager
def said(what: str | Callable[[], str]) -> Iterator[None]:
    """Tell every wait inside that lasts. `what` is what it waits for, as in "the answer of worker w1", or says that."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    timer: asyncio.TimerHandle

    def say() -> None:
        nonlocal timer
        _log.warning("has waited for %.0f s for %s", loop.time() - since, what if isinstance(what, str) else what())
        timer = loop.call_later(SAY_AGAIN_SECONDS, say)

    timer = loop.call_later(SAY_SECONDS, say)
    try:
        yield
    finally:
        timer.cancel()
