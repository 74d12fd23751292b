"""Work of the leader in the background, one queue for each worker: what hangs on one of them delays no other.

Rules: the queue of a worker is bounded, and what finds it full is refused: whoever hands it in finds it again in the
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
LANE_MAX = 4_096
LANES_JOBS_MAX = 65_536


@dataclass(slots=True)
class _Lane:
    jobs: deque[Job] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class WorkerQueues:
    """Queues by worker number; a worker has one while it has work."""

    def __init__(self, failed: Failed) -> None:
        """`failed` hears what a job raised, which none should."""
        self._failed = failed
        self._lanes: dict[int, _Lane] = {}
        self.waiting = 0

    def add(self, worker: int, job: Job) -> bool:
        """Have a job run when those before it are done; return False where too many wait."""
        lane = self._lanes.setdefault(worker, _Lane())
        if len(lane.jobs) >= LANE_MAX or self.waiting >= LANES_JOBS_MAX:
            return False
        lane.jobs.append(job)
        self.waiting += 1
        if lane.task is None:
            lane.task = background(self._run(worker, lane), self._failed)
        return True

    def clear(self) -> None:
        """End everything."""
        for lane in self._lanes.values():
            lane.jobs.clear()
            if lane.task is not None:
                lane.task.cancel()
        self._lanes.clear()
        self.waiting = 0

    async def _run(self, worker: int, lane: _Lane) -> None:
        while lane.jobs:
            job = lane.jobs.popleft()
            self.waiting -= 1
            await job()
        if self._lanes.get(worker) is lane:
            del self._lanes[worker]
