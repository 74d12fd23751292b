"""A wait that lasts says so in the log: after 10 s, and then once a minute, with what it waits for.

Rules: `said` neither bounds nor wakes a wait; the bound belongs to the wait itself. Whatever may last longer than
SAY_SECONDS is inside `said` or `bounded`, or its log is silent while people look for the reason. All waits of a loop
share one timer, since nearly all are over long before they are logged. Event loop only. Called by all roles;
tests/docs/waits.md lists the places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event

T = TypeVar("T")

#: After this time a wait is logged, and again as often.
SAY_SECONDS = 10.0
SAY_AGAIN_SECONDS = 60.0


class said:  # noqa: N801 - a context manager, read as a verb where it is used
    """Tell every wait inside that lasts. `what` is what it waits for, as in "the answer of worker w1", or says that."""

    __slots__ = ("_due", "_since", "_waits", "_what")

    def __init__(self, what: str | Callable[[], str]) -> None:
        self._what = what

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._waits = waits = _of_loops.get(loop) or _begin(loop)
        self._since = loop.time()
        self._due = self._since + SAY_SECONDS
        waits.add(self, self._due)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waits.remove(self)

    def look(self, now: float) -> float:
        """Do what is due; return when something is due again."""
        if self._due <= now:
            what = self._what if isinstance(self._what, str) else self._what()
            log_event(LogEvent.WAIT_LONG, seconds=round(now - self._since), what=what)
            self._due = now + SAY_AGAIN_SECONDS
        return self._due


class _Bounded(said):
    """One call of `bounded`."""

    __slots__ = ("_end", "_future", "expired")

    def __init__(self, future: asyncio.Future[T], seconds: float, what: str | Callable[[], str]) -> None:
        super().__init__(what)
        self._future = future
        self._end = future.get_loop().time() + seconds
        self.expired = False

    def __enter__(self) -> None:
        super().__enter__()
        self._waits.wake(self._end)

    def look(self, now: float) -> float:
        if self._end <= now and not self._future.done():
            self.expired = True
            self._future.cancel()
        return min(super().look(now), self._end if self._end > now else now + SAY_AGAIN_SECONDS)


async def bounded(future: asyncio.Future[T], seconds: float, what: str | Callable[[], str]) -> T:
    """Return the result of a future with no other waiter, and log the wait as `said` does. After `seconds` the
    future is cancelled and TimeoutError raised; what the future raises is raised."""
    with (wait := _Bounded(future, seconds, what)):
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if wait.expired and (task is None or not task.cancelling()):
                raise TimeoutError from None
            raise


class _Waits:
    """The waits of one loop, and the timer that looks at them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time, self._call_at = loop.time, loop.call_at
        self._open: dict[said, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, wait: said, due: float) -> None:
        self._open[wait] = None
        self.wake(due)

    def remove(self, wait: said) -> None:
        del self._open[wait]

    def wake(self, due: float) -> None:
        """Look at all waits at `due`, if not before. The timer stays when they are over, and is used by the next."""
        if self._timer is None or due < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._time()
        due = min((wait.look(now) for wait in list(self._open)), default=None)
        if due is not None:
            self.wake(due)


def _begin(loop: asyncio.AbstractEventLoop) -> _Waits:
    for closed in [each for each in list(_of_loops) if each.is_closed()]:
        _of_loops.pop(closed, None)
    _of_loops[loop] = waits = _Waits(loop)
    return waits


_of_loops: dict[asyncio.AbstractEventLoop, _Waits] = {}
