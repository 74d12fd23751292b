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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.swap import Swap, swapped


class Violation(Exception):  # noqa: N818 - it is a verdict
    """Something that must hold does not."""


class Life:
    """One run of a host, from its start to its crash."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.tasks: dict[asyncio.Task[Any], None] = {}

    def end(self) -> None:
        """Stop everything that runs on behalf of this life."""
        self.alive = False
        for task in list(self.tasks):
            task.cancel()
        self.tasks.clear()


#: On whose behalf the running code acts.
here: contextvars.ContextVar[Life] = contextvars.ContextVar("here")


class _Jump:
    """Takes the place of the selector: waiting is a jump of the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Violation("nothing is left to happen, and the scenario has not ended")
        if self._loop.broken is not None:
            raise self._loop.broken
        self._loop.now += timeout
        self._loop.turns += 1
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without any input or output."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0
        #: the first thing that went wrong where nobody would have heard of it; ends the scenario
        self.broken: BaseException | None = None
        self.over = False
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_exception_handler(self._on_exception)

    def time(self) -> float:
        return self.now

    def _process_events(self, events: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    @staticmethod
    def _make_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **more)
        life = here.get(None)
        if life is not None:
            life.tasks[task] = None
            task.add_done_callback(lambda done: life.tasks.pop(done, None))
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
    swaps.append((real, "monotonic_ns", lambda: int((loop.now + 1000.0) * 1e9)))
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
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait((woken,), timeout=seconds)
