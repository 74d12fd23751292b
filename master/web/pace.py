"""How fast all workers together take and give data, over the last minutes: the curve of the page.

Rules: bounded; kept while this master leads, and begun anew when it leads again. Runs in the event loop. Made by
main.py.
"""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.common.system.tasks import background
from holdfast.master.core.rates import Rates
from holdfast.master.leader.leader import Leader
from holdfast.master.web.picture import Pace

EVERY_SECONDS = 5
_SAMPLES = 120


class PaceKeeper:
    """Adds up the rates of the last heartbeats."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._samples: deque[Rates] = deque(maxlen=_SAMPLES)
        self._task: asyncio.Task[None] | None = None
        leader.listeners.append(self._led)

    def pace(self) -> Pace:
        """The last minutes."""
        return Pace(EVERY_SECONDS, tuple(self._samples))

    def close(self) -> None:
        """End it."""
        self._led(False)

    def _led(self, leads: bool) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._samples.clear()
        if leads:
            self._task = background(self._run(), self._leader.fail)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            self._samples.append(self._look())

    def _look(self) -> Rates:
        """What holds now; a worker that was not heard lately does nothing."""
        now, limit = self._leader.now_ns(), self._leader.config.lease.worker.ns
        heard = [report.rates for report in self._leader.reports.values() if now - report.at_ns < limit]
        return Rates(sum(each.push for each in heard), sum(each.fetch for each in heard))
