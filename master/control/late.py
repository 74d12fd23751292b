"""Late copies: copies that a commit skipped are sealed when their worker is back, and added to the manifest.

Rules
* Missing copies are read from the state: those with UNAVAILABLE in a manifest. So any leader continues where
  the one before was, and a worker that comes back after days is asked, too.
* A late copy is asked for and judged as at the commit: the same SEAL, the same rules of starts and levels. What the
  manifest says of other copies stays as it is. Readers read the longer copy first, so one that lacks what is committed
  is never the first choice.
* One command for each shuffle and worker replaces the manifest (manifests.py).
* Every worker has a queue of its own. Failed ones are tried again after growing pauses, queued after
  what else its worker has to seal.

Runs in the event loop, while this master is the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.formats.reduce_messages import SealFlag
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import SEAL_EPOCHS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.master.control.locations import Locations
from holdfast.master.control.manifests import replace_manifest, with_manifest
from holdfast.master.core.seals import EpochKey, PlacedEpoch, Seals, unsealed, with_late
from holdfast.master.core.state.records import Shuffle, Worker
from holdfast.master.leader.asking import Asker
from holdfast.master.leader.leader import Leader, WhileLeading

_PAUSE_MIN_NS, _PAUSE_MAX_NS = 10**9, 60 * 10**9


@dataclass(frozen=True, slots=True)
class _Pause:
    """A start of a worker that failed: when it is tried again, and how long the pause was."""

    incarnation: int
    until_ns: int
    length_ns: int


class LateCopies(WhileLeading):
    """Asks workers that are back for the copies that commits skipped."""

    def __init__(self, leader: Leader, locations: Locations, asker: Asker) -> None:
        super().__init__(leader)
        self._locations = locations
        self._asker = asker
        #: generations whose manifest was looked through
        self._known: set[ShuffleKey] = set()
        #: by worker, the generations of which it has copies to seal, in the order in which they are tried
        self._of: dict[int, dict[ShuffleKey, None]] = {}
        #: workers that are being asked
        self._asked: set[int] = set()
        self._paused: dict[int, _Pause] = {}

    def _reset(self) -> None:
        for each in (self._known, self._of, self._asked, self._paused):
            each.clear()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._leader.config.lease.tick.seconds)
            try:
                await self._look()
            except HoldfastError as error:
                log_event(LogEvent.SEAL_LATE_FAILED, status=error.status.name, reason=error)

    async def _look(self) -> None:
        """Hand on what workers can seal that are here."""
        there = self._leader.peek(lambda state: list(state.unsealed))
        if len(there) != len(self._known) or not self._known.issuperset(there):
            await self._learn(there)
        if not self._of:
            return
        workers = self._leader.peek(lambda state: [each for one in self._of if (each := state.workers.get(one))])
        for worker in workers:
            if worker.id in self._asked or not worker.alive or self._rests(worker):
                continue
            if self._asker.queues.add(worker.id, partial(self._seal_all, worker)):
                self._asked.add(worker.id)

    async def _learn(self, there: Sequence[ShuffleKey]) -> None:
        """Find out which workers have copies of these generations to seal, and of no others."""
        current = set(there)
        for key in self._known - current:
            self._forget(key)
        for key in there:
            if key in self._known:
                continue
            shuffle = self._leader.peek(lambda state: state.shuffle(key))  # noqa: B023
            if shuffle is not None and shuffle.unsealed:
                await asyncio.sleep(0)  # there may be thousands
                for number in await unsealed_copies(shuffle):
                    self._of.setdefault(number, {})[key] = None
                self._known.add(key)

    def _forget(self, key: ShuffleKey) -> None:
        self._known.discard(key)
        for number in [number for number, keys in self._of.items() if key in keys]:
            del self._of[number][key]
            if not self._of[number]:
                del self._of[number]

    def _rests(self, worker: Worker) -> bool:
        pause = self._paused.get(worker.id)
        return pause is not None and pause.incarnation == worker.incarnation and self._leader.now_ns() < pause.until_ns

    async def _seal_all(self, worker: Worker) -> None:
        """Have one worker seal all that it can."""
        failed = False
        for key in list(self._of.get(worker.id, ())):
            try:
                await self._seal(key, worker.id)
            except HoldfastError as error:
                log_event(LogEvent.SEAL_LATE_FAILED, shuffle=key, worker=worker.name, reason=error)
                failed = True
                if (keys := self._of.get(worker.id)) is not None and key in keys:
                    del keys[key]
                    keys[key] = None
                if isinstance(error, RetryError) and error.status in (Status.UNAVAILABLE, Status.BUSY):
                    break  # it cannot be reached, or hangs: others of its queue wait
        self._asked.discard(worker.id)
        if failed:
            self._pause(worker)
        else:
            self._paused.pop(worker.id, None)

    def _pause(self, worker: Worker) -> None:
        before = self._paused.get(worker.id)
        length = _PAUSE_MIN_NS
        if before is not None and before.incarnation == worker.incarnation:
            length = min(before.length_ns * 2, _PAUSE_MAX_NS)
        self._paused[worker.id] = _Pause(worker.incarnation, self._leader.now_ns() + length, length)

    async def _seal(self, key: ShuffleKey, number: int) -> None:
        """Have one worker seal its copies of one generation, and say so. Raises HoldfastError if it does not."""
        shuffle = self._leader.peek(lambda state: state.shuffle(key))
        wanted = (await unsealed_copies(shuffle)).get(number) if shuffle is not None and shuffle.unsealed else None
        if shuffle is None or wanted is None:
            self._forget(key)  # dropped, or replaced: looked at anew
            return

        def placed(epochs: Iterable[PlacedEpoch]) -> Seals:
            return Seals(shuffle.copies_wanted, (each for each in epochs if (each.partition, each.epoch) in wanted))

        late = await self._locations.with_epochs(shuffle, placed)
        while missing := late.missing(number, SEAL_EPOCHS_MAX):
            worker = self._asker.worker(key, number)
            answer = await self._asker.ask(worker, key, missing, SealFlag.FINAL)
            late.heard(worker, shuffle.ack, missing, answer.epochs)
        added = await replace_manifest(self._leader, key, partial(with_late, late=late))
        self._leader.counts.late_copies += added or 0
        self._forget(key)


async def unsealed_copies(shuffle: Shuffle) -> dict[int, set[EpochKey]]:
    """What each worker said nothing of, by the manifest. Raises ProtocolError."""
    return await with_manifest(shuffle, unsealed)
