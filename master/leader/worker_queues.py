"""Work of the leader in the background, one queue for each worker: what hangs on one of them delays no other.

Rules: the queue of a worker is bounded, and work for a full one is refused: its caller finds it again in the
state. Jobs of one worker run one after another. All end with the leadership. Runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from holdfast.common.system.tasks import Failed, background

Job = Callable[[], Coroutine[Any, Any, None]]

#: Jobs that wait for one worker, and for all.
QUEUE_MAX = 4_096
JOBS_MAX = 65_536


@dataclass(slots=True)
class _Queue:
    jobs: deque[Job] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class WorkerQueues:
    """Queues by worker number; a worker has one while it has work."""

    def __init__(self, failed: Failed) -> None:
        """`failed` gets the error of a job, which should not raise."""
        self._failed = failed
        self._queues: dict[int, _Queue] = {}
        self.waiting = 0

    def add(self, worker: int, job: Job) -> bool:
        """Have a job run when those before it are done; return False where too many wait."""
        queue = self._queues.setdefault(worker, _Queue())
        if len(queue.jobs) >= QUEUE_MAX or self.waiting >= JOBS_MAX:
            return False
        queue.jobs.append(job)
        self.waiting += 1
        if queue.task is None:
            queue.task = background(self._run(worker, queue), self._failed)
        return True

    def clear(self) -> None:
        """End everything."""
        for queue in self._queues.values():
            queue.jobs.clear()
            if queue.task is not None:
                queue.task.cancel()
        self._queues.clear()
        self.waiting = 0

    async def _run(self, worker: int, queue: _Queue) -> None:
        while queue.jobs:
            job = queue.jobs.popleft()
            self.waiting -= 1
            await job()
        if self._queues.get(worker) is queue:
            del self._queues[worker]
