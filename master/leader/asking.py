"""Asks workers to seal and to copy, and announces what is placed there: the one way from the leader to them.

Rules: an answer is that of the start of the worker that was asked. A wait for it ends with the shuffle, that start of
the worker, and the leadership (scopes.py). Work without a waiter is in the queue of its worker
(worker_queues.py), and what a worker does not answer in time is left to the next time. Runs in the event loop. Used by
shuffles.py, sealing.py, early.py, late.py and restoring.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from holdfast.common.errors import GiveUpError, HoldfastError, RetryError
from holdfast.common.formats.reduce_messages import Registered, Restore, Seal, SealAnswer, SealFlag
from holdfast.common.ids import RaftIndex, ShuffleKey, WorkerId
from holdfast.common.limits import ANNOUNCED_MAX
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import background
from holdfast.common.system.waiting import said
from holdfast.master.core.state.records import Worker
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.links import Links
from holdfast.master.leader.scopes import Scope
from holdfast.master.leader.worker_queues import WorkerQueues

#: A worker that was lost before it was asked must answer within this.
_LOST_S = 3.0
#: A living worker that takes longer is asked again by a commit, and left for now by what others wait behind.
ANSWER_SECONDS = 60.0
#: Workers that get the announcement of new shuffles at a time, and how long that may take.
ANNOUNCING_MAX = 1_024
ANNOUNCE_SECONDS = 3.0


class Asker:
    """Connections to the workers, and a queue for each."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._links = Links(leader.config.cluster.id, leader.security)
        self.queues = WorkerQueues(leader.fail)
        #: workers that are getting the announcement of a shuffle
        self._announcing = 0
        leader.listeners.append(self._led)

    def _led(self, leads: bool) -> None:
        if not leads:
            self.queues.clear()
            self._links.close()

    def worker(self, key: ShuffleKey, number: int) -> Worker:
        """Return the worker's record as it is now. Raises GiveUpError if the shuffle was dropped."""
        found = self._leader.peek(lambda state: (state.shuffle(key), state.workers.get(number)))
        if found[0] is None:
            raise GiveUpError(f"{key} was dropped meanwhile", status=Status.UNKNOWN_GENERATION)
        if found[1] is None:
            raise HoldfastError(f"{key} has epochs on worker {number}, which never registered")
        return found[1]

    def announce(self, key: ShuffleKey, numbers: Iterable[int], copies: int) -> None:
        """Tell workers of a shuffle that was placed there, so that none has to ask when its first batch comes. Waits
        for nothing; a large shuffle, or one of very many at once, does not notice that its workers ask."""
        numbers = sorted(set(numbers))
        if len(numbers) > ANNOUNCED_MAX or self._announcing + len(numbers) > ANNOUNCING_MAX:
            return
        workers = self._leader.peek(lambda state: [state.workers[one] for one in numbers if one in state.workers])
        places = [(WorkerId(worker.id), worker.data_address) for worker in workers] if copies > 1 else []
        for worker in workers:
            if worker.alive:
                self._announcing += 1
                background(self._announce(worker, Registered(key, places)))

    async def _announce(self, worker: Worker, registered: Registered) -> None:
        try:
            async with asyncio.timeout(ANNOUNCE_SECONDS):
                await self._links.announce(worker, registered, RaftIndex(self._leader.index()))
        except (HoldfastError, TimeoutError):
            pass  # it asks
        finally:
            self._announcing -= 1

    async def ask(self, worker: Worker, key: ShuffleKey, epochs: Sequence[tuple[int, int]], flags: int) -> SealAnswer:
        """Have this start of the worker seal epochs, or with LOOK say which are sealed, and return what it says of
        them.

        Raises RetryError if it cannot be asked, was lost or has started again; GiveUpError if the shuffle is dropped;
        RetryError (BUSY) if it lives and does not answer: it may have the data; and what the worker refuses it with.
        """
        index = RaftIndex(self._leader.index())
        shuffle = self._leader.peek(lambda state: state.shuffle(key))
        if shuffle is not None and shuffle.created_index > worker.started_index and not flags & SealFlag.LOOK:
            flags |= SealFlag.NEW
        seal = Seal(shuffle=key, flags=flags, raft_index=index, epochs=list(epochs))
        seconds = ANSWER_SECONDS if worker.alive else _LOST_S
        return await self._answer(worker, key, self._links.seal(worker, seal), "seal", seconds)

    async def restore(self, worker: Worker, restore: Restore) -> SealAnswer:
        """Have this start of the worker make copies of epochs, and return what it says of them. Raises as `ask`."""
        seconds = ANSWER_SECONDS + 2 * sum(size for _, _, size in restore.epochs) / restore.bytes_per_second
        asking = self._links.restore(worker, restore)
        return await self._answer(worker, restore.shuffle, asking, "copy", seconds)

    async def _answer(
        self, worker: Worker, key: ShuffleKey, asking: Coroutine[Any, Any, SealAnswer], what: str, seconds: float
    ) -> SealAnswer:
        try:
            with said(f'the {what} of worker "{worker.name}", which holds {key}'):
                async with asyncio.timeout(seconds):
                    return await Scope(key, worker).wait(self._leader, asking)
        except TimeoutError:
            if not worker.alive:
                raise RetryError(f'worker "{worker.name}" is lost, and does not answer') from None
            text = f'worker "{worker.name}" did not answer a {what} within {seconds:g} s'
            raise RetryError(text, status=Status.BUSY) from None
