"""The two parts of a writer: the caller's, and the sender on the loop; and how the caller waits for the sender.

Rules: no wait here has a bound of its own: the sender ends by itself, whatever it waits for, and sets its outcome.
Every SAY_SECONDS without an acknowledgement it logs what it waits for. If the loop has stopped, the wait ends. Called
by push_writer.py and writer.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast.client.connection.runtime import Runtime, runtime
from holdfast.common.errors import ConfigError, RetryError
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.common.system.tasks import background

#: A wait for acknowledgements is logged after this time without one, and again as often.
SAY_SECONDS = 10.0


class AttemptSender:
    """The part on the loop: sends the requests of the core's effects, and gives the core the answers as events."""

    def __init__(self) -> None:
        #: acknowledged so far; read by the caller's thread
        self.settled_bytes = 0
        #: set whenever settled_bytes or the outcome changed
        self.settled = threading.Event()
        self.outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
        #: strong references; asyncio keeps none
        self._tasks: set[asyncio.Task[None]] = set()

    def guarded(self, work: Callable[[], object]) -> None:
        """Run `work`; an unexpected error ends the attempt, so that the caller does not wait for ever."""
        try:
            work()
        except Exception as error:
            self._broke(error)
            raise

    def abort(self) -> None:
        """The caller aborts the attempt."""
        raise NotImplementedError

    def takes_long(self, seconds: float) -> None:
        """Nothing was acknowledged for so long while the caller waits: log why, or end the attempt."""
        raise NotImplementedError

    def _broke(self, error: BaseException) -> None:
        """An unexpected error must end the attempt: a task that fails silently would leave the caller waiting."""
        raise NotImplementedError

    def _stop(self) -> None:
        """The outcome is known: cancel the pending work of the attempt."""
        raise NotImplementedError

    def _settle_outcome(self, error: BaseException | None, result: object = None) -> None:
        self._stop()
        if self.outcome.done():
            return
        if error is None:
            self.outcome.set_result(result)
        else:
            self.outcome.set_exception(error)
        self.settled.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = background(work, self._broke)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


_SenderT = TypeVar("_SenderT", bound=AttemptSender)


class AttemptWriter(Generic[_SenderT]):
    """The caller's part. As a context manager it aborts unless `close` was called. Works in its own process only."""

    def __init__(self, sender: _SenderT, unanswered_bytes_max: int) -> None:
        self._runtime = runtime()
        self._sender = sender
        self._unanswered_bytes_max = unanswered_bytes_max
        #: bytes that were handed to the loop
        self._added = 0

    def abort(self) -> None:
        """Abort the attempt and drop its data. Does nothing after `close`, and in a forked child."""
        if self._runtime.pid != os.getpid():
            return
        self._call(self._sender.abort)
        turn(self._runtime)
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._sender.outcome.done() or kind is not None:
            self.abort()

    def _forget(self) -> None:
        """Forget everything that was written."""
        raise NotImplementedError

    def _check_process(self, what: str) -> None:
        if self._runtime.pid != os.getpid():
            raise ConfigError(f"a {what} writer belongs to the process that made it; make one after the fork")

    def _call(self, work: Callable[..., object], *values: object) -> None:
        self._runtime.loop.call_soon_threadsafe(self._sender.guarded, partial(work, *values))

    def _wait_for_room(self) -> None:
        """Wait until what is not acknowledged fits, or the attempt is over."""
        wait(self._runtime, self._sender, self._fits)

    def _fits(self) -> bool:
        return self._added - self._sender.settled_bytes <= self._unanswered_bytes_max


def wait(runtime: Runtime, sender: AttemptSender, enough: Callable[[], bool]) -> None:
    """Return when `enough()` is true or the attempt is over. Raises RetryError if the process ends meanwhile."""

    def look(seconds: float) -> None:
        sender.settled.wait(seconds)
        sender.settled.clear()

    _wait(runtime, sender, lambda: enough() or sender.outcome.done(), look)


def wait_until_over(runtime: Runtime, sender: AttemptSender) -> None:
    """Return when the attempt is over; single acknowledgements do not wake it. Raises as `wait`."""
    _wait(runtime, sender, sender.outcome.done, lambda seconds: concurrent.futures.wait((sender.outcome,), seconds))


def _wait(runtime: Runtime, sender: AttemptSender, over: Callable[[], bool], look: Callable[[float], object]) -> None:
    settled, since = sender.settled_bytes, time.monotonic()
    while not over():
        if runtime.ended:
            raise RetryError("this process is ending, and what was written is not acknowledged")
        look(SAY_SECONDS)
        seconds = time.monotonic() - since
        if settled != sender.settled_bytes:
            settled, since = sender.settled_bytes, time.monotonic()
        elif seconds >= SAY_SECONDS and not over():
            runtime.loop.call_soon_threadsafe(sender.guarded, lambda seconds=seconds: sender.takes_long(seconds))


def turn(runtime: Runtime) -> None:
    """Return when the loop has run everything that was scheduled before."""
    try:
        runtime.run(_nothing())
    except RetryError as error:
        log_event(LogEvent.WRITER_ABANDONED, reason=error)


async def _nothing() -> None:
    """Runs after everything that was scheduled before."""
