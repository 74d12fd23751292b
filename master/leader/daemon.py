"""A thread for what may hang for ever: the process ends all the same.

Rules: one job at a time, in the order they came. The threads of a ThreadPoolExecutor are waited for when the process
ends, however long what they do takes; this one is not. Called by fleet.py for resolvers, which are programs of users.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThread(Executor):
    """Runs jobs in a thread of its own, which lasts as long as the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._started = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a job done; see Executor."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - the waiter gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._jobs.put(job)
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            self._jobs.get()()
