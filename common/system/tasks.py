"""Every asyncio task has an owner: none is collected while it runs, and none ends unseen.

Rules: asyncio keeps only weak references to tasks and reports an unfetched error when the task is collected,
which may be never. So no other module makes a task itself (tests/test_house.py), but inside a TaskGroup. Work that its
maker awaits is `awaited`; all other work is `background`, and names the handler of its failure. Called by all roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Called with what ended a task.
Failed = Callable[[BaseException], None]

_running: set[asyncio.Task[Any]] = set()


def background(work: Coroutine[Any, Any, T], failed: Failed | None = None) -> asyncio.Task[T]:
    """Run `work` in the background. If it raises, `failed` gets the error, and has to answer and release whatever waits
    for this work; without `failed` the error is logged with its trace. Being cancelled is no failure."""
    task = awaited(work)
    name = getattr(work, "__qualname__", repr(work))

    def ended(task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if failed is None:
            log_event(LogEvent.TASK_INTERNAL_ERROR, task=name, trace=error)
            return
        try:
            failed(error)
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is logged
            log_event(LogEvent.TASK_INTERNAL_ERROR, task=name, reason=error, trace=failure)

    task.add_done_callback(ended)
    return task


def awaited(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run `work` as a task whose result its maker fetches, or that its maker cancels."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


class Shared(Generic[K, T]):
    """Work that many want in the same moment: it runs once for all that ask while it does, and goes on when one of them
    is cancelled. Nothing of it is kept."""

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[T]] = {}

    async def result(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return, or raise, what `work` does, or what others of this key are waiting for already."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = awaited(work())
            running.add_done_callback(partial(self._over, key))
        return await asyncio.shield(running)

    def _over(self, key: K, done: asyncio.Task[T]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # its callers may have ended: no reason for a warning
