"""One heap of time: an asyncio loop whose clock jumps to the next timer, and the lives of hosts that run on it.

Rules: nothing waits in reality. What runs on behalf of a host carries its `Life` in a context variable, which tasks and
timers inherit: when the host is killed its tasks are cancelled and nothing of it reaches network or disk any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import Any

from tests.sim.swap import Swap, swapped

#: Timers no further apart are due together.
_RESOLUTION = 1e-9
#: So many timers and more are looked through for those that were cancelled.
_TIMERS_MIN = 100


class Violation(Exception):  # noqa: N818 - it is a verdict
    """Something that must hold does not."""


class Life:
    """One run of a host, from its start to its crash."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.tasks: dict[asyncio.Task[Any], None] = {}

    def forget(self, task: asyncio.Task[Any]) -> None:
        """One of its tasks has ended."""
        self.tasks.pop(task, None)

    def end(self) -> None:
        """Stop everything that runs on behalf of this life."""
        self.alive = False
        for task in list(self.tasks):
            task.cancel()
        self.tasks.clear()


#: On whose behalf the running code acts.
here: contextvars.ContextVar[Life] = contextvars.ContextVar("here")


class _Soon(asyncio.Handle):
    """A handle that is made with no questions asked: there are thousands in a seed."""

    __slots__ = ()

    def __init__(
        self, loop: VirtualLoop, act: Callable[..., object], values: Any, context: contextvars.Context | None
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, act, values
        self._cancelled, self._repr, self._source_traceback = False, None, None


class _Timer(asyncio.TimerHandle):
    """The same of a timer."""

    __slots__ = ()

    def __init__(
        self,
        loop: VirtualLoop,
        when: float,
        act: Callable[..., object],
        values: Any,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, act, values
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without any input or output: waiting is a jump of the clock. It has its own turn, since that of
    asyncio takes a fifth of a seed; handles run in the same order."""

    _ready: deque[_Soon | _Timer]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        #: of the hosts, if anybody has some
        self.sockets: Any = None
        #: the first thing that went wrong where nobody would have heard of it; ends the scenario
        self.broken: BaseException | None = None
        self.over = False
        #: a heap; numbers are compared much faster than handles
        self._timers: list[tuple[float, _Timer]] = []
        self.set_exception_handler(self._on_exception)

    def time(self) -> float:
        return self.now

    async def create_unix_server(self, factory: Any, path: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return self.sockets.serve(factory, path)

    async def create_unix_connection(self, factory: Any, path: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return self.sockets.connect(factory, path)

    def _run_once(self) -> None:
        """One turn: what is ready runs, and where nothing is the clock jumps to the next timer."""
        ready, timers = self._ready, self._timers
        if len(timers) > _TIMERS_MIN and self._timer_cancelled_count * 2 > len(timers):
            self._drop_cancelled()
        while timers and timers[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(timers)[1]._scheduled = False
        if not ready and not self._stopping and not timers:
            raise Violation("nothing is left to happen, and the scenario has not ended")
        if self.broken is not None:
            raise self.broken
        if not ready and not self._stopping:
            self.now += max(0.0, timers[0][0] - self.now)
        end = self.now + _RESOLUTION
        while timers and timers[0][0] < end:
            timer = heappop(timers)[1]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as handles do
                    self.call_exception_handler({"exception": error, "handle": handle})

    def _drop_cancelled(self) -> None:
        for _, timer in self._timers:
            timer._scheduled = not timer._cancelled
        self._timers[:] = [each for each in self._timers if each[1]._scheduled]
        heapify(self._timers)
        self._timer_cancelled_count = 0

    def call_soon(self, act: Callable[..., object], *values: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        if self.is_closed():
            raise RuntimeError("the loop is closed")
        handle = _Soon(self, act, values, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(self, when: float, act: Callable[..., object], *values: Any, context: Any = None) -> _Timer:  # type: ignore[override]
        if self.is_closed():
            raise RuntimeError("the loop is closed")
        timer = _Timer(self, when, act, values, context)
        heappush(self._timers, (when, timer))
        return timer

    def call_later(self, delay: float, act: Callable[..., object], *values: Any, context: Any = None) -> _Timer:  # type: ignore[override]
        return self.call_at(self.now + delay, act, *values, context=context)

    def create_task(  # type: ignore[override]
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=self, name=name, context=context)
        life = here.get(None)
        if life is not None:
            life.tasks[task] = None
            task.add_done_callback(life.forget)
            if not life.alive:
                task.cancel()
        return task

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, (AssertionError, TypeError, KeyError, IndexError, AttributeError, OSError, Violation)):
            self.unforeseen(error)

    def unforeseen(self, error: BaseException) -> None:
        """A mistake was made where nobody hears of it, or where the product contains it: it ends the scenario."""
        life = here.get(None)
        if not self.over and self.broken is None and (life is None or life.alive):
            self.broken = error

    def on(self, life: Life, delay: float, act: Callable[[], object]) -> None:
        """Do it after so long on behalf of a life, if that has not ended by then."""
        context = contextvars.copy_context()
        context.run(here.set, life)
        self.call_later(delay, lambda: act() if life.alive else None, context=context)


class Overheard(logging.Handler):
    """Hears what the product logs with its trace, which is what it did not foresee."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._loop.unforeseen(error)


@contextmanager
def overheard(loop: VirtualLoop) -> Iterator[None]:
    """The product's log goes to the loop and nowhere else: its boundaries keep a mistake from others, not from us."""
    log, handler, disabled = logging.getLogger("holdfast"), Overheard(loop), logging.root.manager.disable
    level, propagate = log.level, log.propagate
    logging.disable(logging.NOTSET)
    log.setLevel(logging.ERROR)
    log.propagate = False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
        logging.disable(disabled)


@contextmanager
def virtual_time(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Every clock and every source of randomness of the process is the simulation's."""
    rng = random.Random(seed)
    real: Any = time
    swaps: list[Swap] = [(real, name, lambda: loop.now + 1000.0) for name in ("monotonic", "perf_counter")]
    swaps += [(real, name, lambda: int((loop.now + 1000.0) * 1e9)) for name in ("monotonic_ns", "perf_counter_ns")]
    swaps.append((real, "time_ns", lambda: int((loop.now + 1_700_000_000.0) * 1e9)))
    swaps.append((asyncio, "to_thread", _beside))
    swaps.append((secrets, "token_bytes", lambda size=32: rng.randbytes(size or 32)))
    with swapped(swaps):
        yield


async def _beside(act: Callable[..., Any], *values: Any) -> Any:
    """In the place of asyncio.to_thread: it is done a moment later."""
    await pause(0.001)
    return act(*values)


async def pause(seconds: float) -> None:
    """Wait in virtual time, which takes no time at all."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, _wake, woken)
    try:
        await woken
    finally:
        timer.cancel()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
