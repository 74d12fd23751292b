"""Every asyncio task has an owner: none is collected while it runs, and none ends unseen.

Rules: asyncio keeps only weak references to tasks and tells of an error that nobody fetched when the task is collected,
which may be never. So no other module makes a task itself (tests/test_house.py), but inside a TaskGroup. Work that its
maker awaits is `awaited`; all other work is `background`, and says who is told if it fails. Called by all roles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_log = logging.getLogger(__name__)

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
            _log.error("a task ended unexpectedly", extra={"task": name}, exc_info=error)
            return
        try:
            failed(error)
        except Exception:  # noqa: BLE001 - whatever it is, it is told of
            _log.exception("what handles the end of a task failed", extra={"task": name, "why": str(error)})

    task.add_done_callback(ended)
    return task


def awaited(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run `work` as a task whose result its maker fetches, or that its maker cancels."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
