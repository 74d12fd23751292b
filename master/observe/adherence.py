"""Counts how the partitions of open shuffles stand to what placement wishes now, and which epochs of them have fewer
copies than asked for: for status, page and metrics.

Rules: what is committed takes no more batches, and is not counted. A shuffle is judged anew when its record, the policy
or the workers have changed, so a look costs little while nothing moves. Runs in the event loop, on the leader, which
rests in between; what is read is as old as the last look.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from holdfast.common.errors import HoldfastError
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.master.core.state.records import Shuffle
from holdfast.master.fleet.fleet import Fleet
from holdfast.master.leader.leader import Leader, WhileLeading
from holdfast.master.observe.explaining import Explainer, PlacementView
from holdfast.master.placement.groups import Adhering

#: Between two looks, or so many times what the last one took.
EVERY_SECONDS = 5.0
_PAUSE_TIMES = 20
#: Shuffles between two rests.
_SLICE = 500


class _Judged(NamedTuple):
    shuffle: Shuffle
    tags: frozenset[str]
    adhering: Adhering
    short: int


class AdherenceCount(WhileLeading):
    """How many open partitions stand how far as wished; of MAP shuffles the places of their rings."""

    def __init__(self, leader: Leader, fleet: Fleet, explainer: Explainer) -> None:
        super().__init__(leader)
        self._fleet, self._explainer = fleet, explainer
        self._reset()

    def _reset(self) -> None:
        #: of the last look; none on a follower
        self.found = Adhering()
        #: epochs of open shuffles with fewer copies than asked for
        self.short = 0
        self._lost: frozenset[int] = frozenset()
        self._judged: dict[ShuffleKey, _Judged] = {}
        self._view: PlacementView | None = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            # No leader any more, or a user's policy that fails, which is told wherever places are chosen.
            with suppress(HoldfastError):
                await self._look()
            await asyncio.sleep(max(EVERY_SECONDS, _PAUSE_TIMES * (loop.time() - began)))

    async def _look(self) -> None:
        shuffles = self._leader.peek(lambda state: [each for each in state.every_shuffle() if not each.committed_ms])
        view, tags = self._explainer.view(), self._fleet.tags_by_instance(shuffles)
        lost = self._leader.peek(lambda state: frozenset(state.not_alive))
        before = self._judged if (view, lost) == (self._view, self._lost) else {}
        judged: dict[ShuffleKey, _Judged] = {}
        for number, shuffle in enumerate(shuffles, 1):
            known, own = before.get(shuffle.key), tags[shuffle.key.instance]
            if known is None or known.shuffle is not shuffle or known.tags != own:  # records never change
                _, adhering = await self._explainer.judged(shuffle, view)
                short = await self._explainer.short(shuffle, lost) if shuffle.copies_wanted > 1 else 0
                known = _Judged(shuffle, own, Adhering.of(Counter(adhering)), short)
            judged[shuffle.key] = known
            if not number % _SLICE:
                await asyncio.sleep(0)
        self._judged, self._view, self._lost = judged, view, lost
        self.found = Adhering(*map(sum, zip(Adhering(), *(each.adhering for each in judged.values()), strict=True)))
        was, self.short = self.short, sum(each.short for each in judged.values())
        if self.short and not was:
            having = sum(bool(each.short) for each in judged.values())
            self._leader.events.tell(LogEvent.SHUFFLE_OPEN_SHORT, epochs=self.short, shuffles=having)
