"""Seals before the commit: epochs that were full, and what workers had open before their latest start.

Rules: every seal passes through the queue of its worker, so one that hangs delays no other worker. What fails is asked
for again, as only sealed files can make room; the commit seals it, too. Runs in the event loop. Called by reviving.py
and moving.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.common.errors import HoldfastError
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import SEAL_EPOCHS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.master.control.locations import Locations
from holdfast.master.core.seals import PlacedEpoch, left_behind
from holdfast.master.core.state.state import State
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader

#: Epochs remembered that were asked for.
_ASKED_MAX = 65_536
#: When a worker is asked again for what it would not seal.
_AGAIN_SECONDS = 2.0


class EarlySeals:
    """Has epochs sealed that have no writers any more, while this master is the leader."""

    def __init__(
        self, leader: Leader, locations: Locations, asker: Asker, committing: Callable[[ShuffleKey], bool]
    ) -> None:
        """`committing`: whether a generation is being committed, so that this is left to the commit."""
        self._leader = leader
        self._locations = locations
        self._asker = asker
        self._committing = committing
        #: epochs that were asked for; the oldest are forgotten, and may be asked for again
        self._asked: dict[tuple[ShuffleKey, int, int], None] = {}
        #: by worker the start, as a place in the log, up to which all was sealed, or is being sealed
        self._started: dict[int, int] = {}
        #: by worker the start of which something could not be sealed, and the shuffles of that
        self._left: dict[int, tuple[int, list[ShuffleKey]]] = {}
        #: of thousands of workers one is looked at after the other, and others have their turn in between
        self._looking = asyncio.Lock()
        leader.listeners.append(self._led)

    def _led(self, _: bool) -> None:
        self._asked.clear()
        self._started.clear()
        self._left.clear()

    # What was full.

    def seal(self, key: ShuffleKey, epochs: Sequence[PlacedEpoch]) -> None:
        """Have epochs sealed that have no writers any more. Clients may name the same ones again and again."""
        fresh = [each for each in epochs if (key, each.partition, each.epoch) not in self._asked]
        for worker in sorted({worker for each in fresh for worker in each.workers}):
            asked = tuple((each.partition, each.epoch) for each in fresh if worker in each.workers)
            self._asker.queues.add(worker, partial(self._seal_full, key, worker, asked[:SEAL_EPOCHS_MAX]))
        for each in fresh:
            self._asked[key, each.partition, each.epoch] = None
        while len(self._asked) > _ASKED_MAX:
            del self._asked[next(iter(self._asked))]

    async def _seal_full(self, key: ShuffleKey, worker: int, epochs: Sequence[tuple[int, int]]) -> None:
        if not await self._seal(key, worker, epochs):
            for partition, epoch in epochs:
                self._asked.pop((key, partition, epoch), None)

    # What a start left.

    def seal_left(self) -> None:
        """Have everything sealed that workers held before their latest start, for each start until that is done."""
        alive = self._leader.peek(lambda state: [each for each in state.workers.values() if each.alive])
        fresh = [each for each in alive if self._started.get(each.id) != each.started_index]
        oldest = self._leader.peek(_oldest_open) if fresh else None
        for worker in fresh:
            if oldest is None or worker.started_index < oldest:
                self._started[worker.id] = worker.started_index  # all that is open is younger, and so is what will be
            elif self._asker.queues.add(worker.id, partial(self._seal_left, worker.id, worker.started_index)):
                self._started[worker.id] = worker.started_index

    async def _seal_left(self, number: int, started: int) -> None:
        """Seal what one worker held before a start, of the shuffles that were open then. One that cannot be sealed
        holds up no other."""
        before, keys = self._left.pop(number, (0, []))
        if before != started:
            async with self._looking:
                await asyncio.sleep(0)
                keys = self._leader.peek(
                    lambda state: [each.key for each in state.every_shuffle() if each.open_since(started)]
                )
        refused: list[ShuffleKey] = []
        for key in keys:
            shuffle, worker = self._leader.peek(lambda state: (state.shuffle(key), state.workers.get(number)))  # noqa: B023
            if worker is None or worker.started_index != started:
                return  # it has started again, and is looked at anew
            if shuffle is None or not shuffle.open_since(started):
                continue
            one = {number: worker}
            async with self._looking:
                await asyncio.sleep(0)
                left = await self._locations.with_epochs(shuffle, lambda epochs: left_behind(epochs, one))  # noqa: B023
            epochs = left.get(number, [])
            for at in range(0, len(epochs), SEAL_EPOCHS_MAX):
                if not await self._seal(key, number, epochs[at : at + SEAL_EPOCHS_MAX]):
                    refused.append(key)
                    break
        if refused:
            self._left[number] = started, refused
            self._started.pop(number, None)
            # It may not know yet that it is registered.
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._leader.workers_changed.set)

    async def _seal(self, key: ShuffleKey, number: int, epochs: Sequence[tuple[int, int]]) -> bool:
        """Have a worker seal at most SEAL_EPOCHS_MAX epochs, and wait for it; return whether it did, or need not."""
        try:
            shuffle, worker = self._leader.peek(lambda state: (state.shuffle(key), state.workers.get(number)))
            if shuffle is None or shuffle.committed_ms or self._committing(key):
                return True
            if worker is None or not worker.alive:
                return False
            await self._asker.ask(worker, key, epochs, 0)
        except HoldfastError as error:
            log_event(LogEvent.SEAL_EARLY_FAILED, shuffle=key, worker=number, reason=error)
            return False
        self._leader.counts.early_seals += len(epochs)
        return True


def _oldest_open(state: State) -> int | None:
    """The place in the log of the oldest shuffle that has open partitions, None if none has."""
    return min([each.created_index for each in state.every_shuffle() if each.open_since(state.index)], default=None)
