"""Who owns the tables of a worker's storage: the loop. Threads get copies, and what they found is taken in on the loop.

Rules: what is handed over runs once, later, in the order in which it came; what it raises is logged and ends nothing
else. Without a loop (tools, tests) it runs at once, in the thread that hands it over, or in one that is at it already.
Made by store.py, one for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.storage.env.futures import Executor, Future
from holdfast.worker.storage.env.interfaces import Env

Act = Callable[[], object]


class Owner:
    """Runs things on the loop. Any thread."""

    def __init__(self, env: Env) -> None:
        self._on_loop: Callable[[Act], object] | None = None
        #: without a loop: one thing at a time, by whoever finds nobody at it
        self._alone = env.threads.lock()
        self._waiting: deque[Act] = deque()
        self._busy = False

    def run_on(self, on_loop: Callable[[Act], object] | None) -> None:
        """`on_loop` is the loop's call_soon_threadsafe; None: there is no loop any more."""
        self._on_loop = on_loop

    def __call__(self, act: Act) -> None:
        """Run this on the loop."""
        if self._on_loop is None:
            self._waiting.append(act)
            self._run_waiting()
            return
        try:
            self._on_loop(lambda: _guarded(act))
        except RuntimeError as error:  # the loop has ended, and with it everybody who could ask
            log_event(LogEvent.STORAGE_RESULT_UNUSED, reason=error)

    def _run_waiting(self) -> None:
        while True:
            with self._alone:
                if self._busy or not self._waiting:
                    return
                self._busy = True
                act = self._waiting.popleft()
            try:
                act()
            finally:
                self._busy = False

    def after(self, futures: Iterable[Future[Any]], act: Act) -> None:
        """Run this on the loop once all of these have ended, however that came."""
        waiting = list(futures)
        left = [len(waiting)]

        def ended() -> None:
            left[0] -= 1
            if not left[0]:
                act()

        for future in waiting:
            future.add_done_callback(lambda _: self(ended))
        if not waiting:
            self(act)


class DirectoryThreads(NamedTuple):
    """Where the work of one directory runs."""

    #: syncs and seals
    pool: Executor
    #: one thread, for what is done beside those, one thing after the other: removals, marks, small files
    lane: Executor
    owner: Owner


def _guarded(act: Act) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is logged, and the loop goes on
        log_event(LogEvent.STORAGE_INTERNAL_ERROR, trace=error)
