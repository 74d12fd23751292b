"""How a writer's thread waits for the half of it that lives on the loop.

Rules: no wait here has a bound of its own: the other half ends by itself, whatever it waits for, and settles its
outcome. What takes long is told by it every SAY_SECONDS, and where the loop turns no more nobody waits. Called by
push_writer.py and writer.py.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.client.connection.runtime import Runtime
from holdfast.common.errors import RetryError
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event

#: Who waits for acknowledgements says so after this time without one, and again as often.
SAY_SECONDS = 10.0


class Half(Protocol):
    """What is on the loop."""

    #: acknowledged so far
    settled_bytes: int
    #: set whenever settled_bytes or the outcome changed
    settled: threading.Event
    outcome: concurrent.futures.Future[Any]

    def guarded(self, work: Callable[[], object]) -> None:
        """Do it; a mistake of ours ends the attempt instead of leaving the caller waiting."""

    def takes_long(self, seconds: float) -> None:
        """Nothing was acknowledged for so long while somebody waits for that: say why, or end the attempt."""


def wait(runtime: Runtime, half: Half, enough: Callable[[], bool]) -> None:
    """Return when that is so, or the attempt is over. Raises RetryError if the process ends meanwhile."""

    def look(seconds: float) -> None:
        half.settled.wait(seconds)
        half.settled.clear()

    _wait(runtime, half, lambda: enough() or half.outcome.done(), look)


def wait_until_over(runtime: Runtime, half: Half) -> None:
    """Return when the attempt is over; single acknowledgements wake nobody. Raises as `wait`."""
    _wait(runtime, half, half.outcome.done, lambda seconds: concurrent.futures.wait((half.outcome,), seconds))


def _wait(runtime: Runtime, half: Half, over: Callable[[], bool], look: Callable[[float], object]) -> None:
    settled, since = half.settled_bytes, time.monotonic()
    while not over():
        if runtime.ended:
            raise RetryError("this process is ending, and what was written is not acknowledged")
        look(SAY_SECONDS)
        seconds = time.monotonic() - since
        if settled != half.settled_bytes:
            settled, since = half.settled_bytes, time.monotonic()
        elif seconds >= SAY_SECONDS and not over():
            runtime.loop.call_soon_threadsafe(half.guarded, lambda seconds=seconds: half.takes_long(seconds))


def turn(runtime: Runtime) -> None:
    """Return when the loop has done all that was asked of it before."""
    try:
        runtime.run(_nothing())
    except RetryError as error:
        log_event(LogEvent.WRITER_ABANDONED, reason=error)


async def _nothing() -> None:
    """Runs behind what the loop was asked before."""
