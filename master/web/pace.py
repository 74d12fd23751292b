"""How fast all workers together take and give data, over the last minutes: the curve of the page.

Rules: bounded; kept while this master leads, and begun anew when it leads again. Runs in the event loop. Made by
main.py.
"""

from __future__ import annotations

import asyncio
from collections import deque

from holdfast.master.core.rates import Rates, rates_of
from holdfast.master.leader.leader import Leader, WhileLeading
from holdfast.master.web.picture import Pace

EVERY_SECONDS = 5
_SAMPLES = 120


class PaceKeeper(WhileLeading):
    """Adds up the rates of the last heartbeats."""

    def __init__(self, leader: Leader) -> None:
        super().__init__(leader)
        self._samples: deque[Rates] = deque(maxlen=_SAMPLES)

    def pace(self) -> Pace:
        """The last minutes."""
        return Pace(EVERY_SECONDS, tuple(self._samples))

    def _reset(self) -> None:
        self._samples.clear()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            self._samples.append(self._look())

    def _look(self) -> Rates:
        """The current rates; a worker without a recent heartbeat has none."""
        now, limit = self._leader.now_ns(), self._leader.config.lease.worker.ns
        return rates_of(report.rates for report in self._leader.reports.values() if now - report.at_ns < limit)
