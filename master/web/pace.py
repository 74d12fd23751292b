"""What the curves of the page show: the pace of all workers together in the last minutes, of each in the last hour.

Rules: bounded; kept while this master leads, and begun anew when it leads again. Runs in the event loop, which gets a
turn between slices of workers. Made by gather.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from itertools import count

from holdfast.master.core.history import History, Trend
from holdfast.master.core.rates import Rates, rates_of
from holdfast.master.leader.leader import Leader, WhileLeading, WorkerReport
from holdfast.master.web.picture import Pace

EVERY_SECONDS = 5
_SAMPLES = 120
#: Of one worker.
HISTORY_SECONDS = 60
_HISTORY_SAMPLES = 60
#: Workers between two turns of the loop.
_SLICE = 500


class PaceKeeper(WhileLeading):
    """Samples the heartbeats of workers."""

    def __init__(self, leader: Leader) -> None:
        super().__init__(leader)
        self._samples: deque[Rates] = deque(maxlen=_SAMPLES)
        self._history = History(_HISTORY_SAMPLES)
        self._sampled_ns = 0

    def pace(self) -> Pace:
        """The last minutes."""
        return Pace(EVERY_SECONDS, tuple(self._samples))

    def trend(self, workers: Iterable[int]) -> Trend:
        """The last hour of these workers together."""
        return self._history.of(workers)

    def _reset(self) -> None:
        self._samples.clear()
        self._history.clear()

    async def _run(self) -> None:
        self._sampled_ns = self._leader.now_ns()
        for look in count(1):
            await asyncio.sleep(EVERY_SECONDS)
            heard = filter(self._heard, self._leader.reports.values())
            self._samples.append(rates_of(report.rates for report in heard))
            if not look % (HISTORY_SECONDS // EVERY_SECONDS):
                await self.sample()

    async def sample(self) -> None:
        """Add a sample of every worker."""
        now = self._leader.now_ns()
        passed, self._sampled_ns = now - self._sampled_ns, now
        for place, (number, report) in enumerate(list(self._leader.reports.items())):
            if place % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            beat = report.heartbeat
            if self._heard(report):
                stored = sum(each.used_bytes for each in beat.directories)
                self._history.sample(number, report.incarnation, report.totals, stored, passed)
            else:
                self._history.silent(number)
        self._history.keep(self._leader.reports)

    def _heard(self, report: WorkerReport) -> bool:
        """Whether this is a recent heartbeat."""
        return self._leader.now_ns() - report.at_ns < self._leader.config.lease.worker.ns
