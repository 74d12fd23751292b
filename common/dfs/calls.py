"""Calls into a store's client, each in a thread of its own pool, so that a store that hangs cannot hang the caller.

Rules: a call has a deadline; past it the caller gets StoreHangsError and the thread is left behind until the client
returns, which may be never. So threads are daemons, and there is a bound on them: when all of them hang, callers wait
for one until their deadline and fail the same way. The thread keeps what the call holds, so nothing that talks to
the store is torn down under the interpreter's lock. Used by store.py and uploads.py.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.common.system.waiting import SAY_SECONDS

T = TypeVar("T")

#: Calls of one store under way at a time, those that hang included.
THREADS_MAX = 32


class StoreHangsError(TimeoutError):
    """A call did not come back in time; whether the store carries it out is not known."""


class ClosedError(OSError):
    """The store was closed by its user while the call waited."""


class _Call(Generic[T]):
    def __init__(self, act: Callable[[], T]) -> None:
        self._act = act
        self._done = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        """Called in one of the threads."""
        try:
            self.result = self._act()
        except BaseException as error:  # noqa: BLE001 - hdfs-native raises panics, which are no Exceptions
            self.error = self.error or error
        finally:
            del self._act
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Return whether there is a result or an error within that time."""
        return self._done.wait(seconds)

    def give_up(self) -> None:
        """Have the caller go on at once, whatever the client does."""
        self.error = ClosedError("this store was closed")
        self._done.set()


class Calls:
    """The threads of one store."""

    def __init__(self, store: str = "a DFS store", threads_max: int = THREADS_MAX) -> None:
        """`store` is how logs call it."""
        self._store = store
        self._free = threading.Semaphore(threads_max)
        self._jobs: queue.SimpleQueue[_Call[object] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._waiting: set[_Call[object]] = set()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def run(self, act: Callable[[], T], seconds: float) -> T:
        """Return act(), or raise what it raises; StoreHangsError after `seconds`."""
        deadline = time.monotonic() + seconds
        if not self._waited(lambda left: self._free.acquire(timeout=left), seconds, "a free thread"):
            raise StoreHangsError(f"all {self._threads} calls that may be pending hang")
        call = _Call(act)
        del act  # the call's thread alone keeps what is called
        self._hand_over(cast("_Call[object]", call))
        try:
            if not self._waited(call.wait, max(deadline - time.monotonic(), 0.0), "an answer"):
                raise StoreHangsError(f"no answer within {seconds:g} s")
        finally:
            with self._guard:
                self._waiting.discard(cast("_Call[object]", call))
        if call.error is None:
            return cast(T, call.result)
        if not isinstance(call.error, Exception):
            raise RuntimeError(f"the client of the store broke: {call.error}") from call.error
        raise call.error

    def _waited(self, done: Callable[[float], bool], seconds: float, what: str) -> bool:
        """Return whether it is done within that time; say so in the log if that lasts."""
        if seconds <= SAY_SECONDS:
            return done(seconds)
        if done(SAY_SECONDS):
            return True
        log_event(LogEvent.DFS_SLOW, dfs=self._store, seconds=round(SAY_SECONDS), what=what)
        return done(seconds - SAY_SECONDS)

    @property
    def running(self) -> int:
        """Calls that have not returned from the client, also those that have no waiter any more."""
        with self._guard:
            return self._threads - self._idle

    def close(self) -> None:
        """End waiting callers with ClosedError, and idle threads; those that hang end when the client returns."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            for call in self._waiting:
                call.give_up()
            for _ in range(self._threads):
                self._jobs.put(None)
        self._free.release()  # a caller that waits for a thread wakes too, and wakes the next one

    def _hand_over(self, call: _Call[object]) -> None:
        with self._guard:
            if self._closed:
                self._free.release()
                raise ClosedError("this store was closed")
            self._waiting.add(call)
            self._jobs.put(call)
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                threading.Thread(target=self._work, name=f"holdfast-dfs-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while (call := self._jobs.get()) is not None:
            call.carry_out()
            del call
            with self._guard:
                self._idle += 1
            self._free.release()
