"""A wait of the leader with what it is about: a shuffle, a worker, the leadership. It ends as soon as one of them does.

Rules: a wait for a worker, or for the end of something that concerns a shuffle, is inside a scope. What ends
it is read from the state, when the log says that it may have changed, and compared with the record that the waiter
has: a worker that was lost or has started again since is another one. The wait is cancelled then.
Runs in the event loop. Used by sealing.py and late.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.common.errors import GiveUpError, RetryError
from holdfast.common.ids import ShuffleKey
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited
from holdfast.master.core.state.records import Worker
from holdfast.master.core.state.state import State
from holdfast.master.leader.leader import Leader

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a wait is about."""

    shuffle: ShuffleKey
    #: as the waiter has it
    worker: Worker | None = None

    def check(self, state: State) -> None:
        """Raise what ended: GiveUpError for a shuffle that was dropped, RetryError for a worker that was lost or has
        started again."""
        if state.shuffle(self.shuffle) is None:
            raise GiveUpError(f"{self.shuffle} was dropped meanwhile", status=Status.UNKNOWN_GENERATION)
        if self.worker is not None:
            now = state.workers.get(self.worker.id)
            if now is None or (self.worker.alive and not now.alive) or now.incarnation != self.worker.incarnation:
                raise RetryError(f'worker "{self.worker.name}" was lost, or has started again, while it was asked')

    async def wait(self, leader: Leader, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` comes to. Raises what it raises, what ended the scope before (see `check`), and
        NotLeaderError when the leadership in which the wait began is over."""
        term = leader.term
        changed = asyncio.Event()
        task = awaited(work)
        task.add_done_callback(lambda _: changed.set())
        subjects = (self.shuffle,) if self.worker is None else (self.shuffle, self.worker.id)
        try:
            with leader.waiters.watch(subjects, changed.set):
                while not task.done():
                    changed.clear()
                    leader.require(term)
                    leader.peek(self.check)
                    await changed.wait()
                return task.result()
        finally:
            task.cancel()
