"""The threads of a process, one at a time: who runs, and when work begins and ends, is drawn from the seed.

Each piece of work has a stack of its own, a greenlet: the loop goes on with it until it ends or waits at a step. So
whatever may happen between two steps does: other work, the loop, a kill.
"""

from __future__ import annotations

import contextvars
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ClassVar, Protocol

from greenlet import getcurrent, greenlet

from tests.sim.env.disks import Device
from tests.sim.env.process import KilledError, Process


class Loop(Protocol):
    """What a loop of virtual time offers."""

    now: float

    def call_later(self, delay: float, act: Callable[[], object], *values: Any) -> Any: ...


class _Work:
    """One piece of work on its way, in a stack of its own."""

    #: the one that runs now; None on the loop
    running: ClassVar[_Work | None] = None

    def __init__(self, threads: SimThreads, act: Callable[[], None]) -> None:
        self.threads, self._act = threads, act
        self.over = False
        self._stack = greenlet(self._run)
        self._stack.gr_context = contextvars.copy_context()

    def _run(self) -> None:
        try:
            self._act()
        except KilledError:
            pass
        finally:
            self.over = True

    def resume(self) -> None:
        """Go on until it ends or waits; from the loop, or from other work."""
        if not self.over:
            before, _Work.running = _Work.running, self
            self._stack.parent = getcurrent()
            try:
                self._stack.switch()
            finally:
                _Work.running = before
        if self.over:
            self.threads.works.pop(self, None)

    def pause(self, seconds: float) -> None:
        """Let others run for so long. Raises KilledError."""
        if self.threads.process.alive:
            self.threads.loop.call_later(seconds, self.resume)
            assert self._stack.parent is not None, "whoever went on with it waits"
            self._stack.parent.switch()
        if not self.threads.process.alive:
            raise KilledError


class SimThreads:
    """Of one process."""

    def __init__(self, process: Process, loop: Loop, rng: random.Random, speed: float, pauses: float = 0.3) -> None:
        """`speed`: seconds that a step takes at most; `pauses`: the share of steps at which others may run."""
        self.process, self.loop, self.rng = process, loop, rng
        self.speed, self.pauses = speed, pauses
        self.works: dict[_Work, None] = {}
        process.threads = self

    def begin(self, act: Callable[[], None]) -> None:
        """Start a thread."""
        work = _Work(self, act)
        self.works[work] = None
        self.loop.call_later(self.rng.uniform(0.0, self.speed), work.resume)

    def may_wait(self, device: Device | None) -> None:
        """A step of whoever runs: others may come first."""
        work = _Work.running
        if work is None:
            return
        if device is not None and device.hangs_until > self.loop.now:
            work.pause(device.hangs_until - self.loop.now + self.rng.uniform(0.0, self.speed))
        elif self.rng.random() < self.pauses:
            work.pause(self.rng.uniform(0.0, self.speed))

    def let_others(self, seconds: float | None = None) -> None:
        """Whoever runs cannot go on before somebody else has: on the loop that one runs now."""
        work = _Work.running
        if work is not None:
            work.pause(self.rng.uniform(0.0, self.speed) if seconds is None else seconds)
            return
        others = list(self.works)
        assert others, "somebody holds what the loop waits for"
        self.rng.choice(others).resume()

    def end(self) -> None:
        """The process is dead: nothing goes on."""
        for work in list(self.works):
            while not work.over:
                work.resume()
        self.works.clear()

    # what the product asks for

    def pool(self, threads: int, name: str) -> Executor:
        return SimPool(self, threads)

    def start(self, run: Callable[[], object], name: str) -> SimThread:
        thread = SimThread(self)

        def act() -> None:
            try:
                run()
            finally:
                thread.over = True

        self.begin(act)
        return thread

    def lock(self) -> SimLock:
        return SimLock(self)

    def event(self) -> SimEvent:
        return SimEvent(self)


class SimPool(Executor):
    """So many threads at most, each with one piece of work after another."""

    def __init__(self, threads: SimThreads, count: int) -> None:
        self._threads, self._left = threads, count
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed = False

    def submit(self, work: Callable[..., Any], /, *values: Any, **named: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: work(*values, **named)))
        if self._left and self._threads.process.alive:
            self._left -= 1
            self._threads.begin(self._serve)
        return future

    def _serve(self) -> None:
        while self._waiting:
            future, work = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                found = work()
            except Exception as error:  # noqa: BLE001 - as executors do
                future.set_exception(error)
            else:
                if not self._threads.process.alive:
                    raise KilledError
                future.set_result(found)
            del future, work
        self._left += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            for future, _ in self._waiting:
                future.cancel()
        while wait and self._threads.process.alive and (self._waiting or self._busy()):
            self._threads.let_others()

    def _busy(self) -> bool:
        return any(not work.over for work in self._threads.works)


class SimThread:
    """One that was started."""

    def __init__(self, threads: SimThreads) -> None:
        self._threads = threads
        self.over = False

    def join(self, timeout: float | None = None) -> None:
        tries = 10_000
        while not self.over and self._threads.process.alive and tries:
            self._threads.let_others()
            tries -= 1 if timeout is not None else 0


class SimLock:
    """Held by one at a time."""

    def __init__(self, threads: SimThreads) -> None:
        self._threads = threads
        self._held = False

    def __enter__(self) -> bool:
        while self._held:
            self._threads.let_others()
        self._held = True
        return True

    def __exit__(self, *_: object) -> None:
        self._held = False


class SimEvent:
    """Comes once."""

    def __init__(self, threads: SimThreads) -> None:
        self._threads = threads
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        threads = self._threads
        end = None if timeout is None else threads.loop.now + timeout
        on_loop = _Work.running is None
        while not self._set and (end is None or threads.loop.now < end):
            if on_loop and (not threads.works or end is not None):
                break  # the loop waits for no time: it has only just come
            left = 0.5 if end is None else end - threads.loop.now
            threads.let_others(min(0.5, left) + 1e-9)
        return self._set
