"""Asks the masters which shuffles are registered and where workers are, for whoever is about to believe a client.

Rules: write/registered.py decides; one call at a time is under way, with all that waits then. What a caller does then
is its own: a mistake of ours there keeps the others from nothing. Loop thread only. Used by map_service.py,
push_service.py and forwarding.py; registration.py makes the calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.common.errors import ForbiddenError, HoldfastError
from holdfast.common.formats.reduce_messages import ReplicaPlace
from holdfast.common.ids import ShuffleKey, WorkerId
from holdfast.common.net.keys import key_in, key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.worker.core.write.registered import ANSWER_NS, RegisteredShuffles, Then
from holdfast.worker.server.services.request import in_parts

if TYPE_CHECKING:
    from holdfast.common.net.control import ControlClient

#: After an answer that something is not registered: so often may strangers make this worker ask.
_PAUSE_SECONDS = 0.02


class Asking:
    """What this worker knows of what the masters have."""

    def __init__(self) -> None:
        self.registered = RegisteredShuffles()
        self._due = asyncio.Event()

    # Who needs an answer.

    def knows(self, shuffle: ShuffleKey) -> bool:
        return self.registered.knows(shuffle)

    def ask(self, shuffle: ShuffleKey, connection: int, owner: Hashable, then: Then) -> None:
        """Have `then` called, once, when the masters have said whether they have a shuffle, or did not in time. Raises
        RetryError BUSY where too many wait, in all or of this owner."""
        self.registered.ask(shuffle, connection, owner, time.monotonic_ns(), then)
        self._due.set()

    async def check_replica(self, replica: ReplicaPlace, owner: Hashable) -> None:
        """Return if the masters say that this worker is at this address, for a push of this owner. Raises
        ForbiddenError if it is elsewhere or nowhere, RetryError if they do not say."""
        if self.registered.address_of(replica.worker) == replica.address:
            return
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def then(reason: HoldfastError | None) -> None:
            if answer.done():
                return
            if reason is None:
                answer.set_result(None)
            else:
                answer.set_exception(reason)

        self.registered.ask(replica.worker, owner, owner, time.monotonic_ns(), then)
        self._due.set()
        await answer
        if self.registered.address_of(replica.worker) != replica.address:
            raise ForbiddenError(f"the masters have no worker {replica.worker} at {replica.address}")

    # What is learnt.

    def learn(self, shuffles: Iterable[ShuffleKey]) -> None:
        """These are registered: the masters say so, or there is something of them on the disks."""
        in_parts(*(partial(then, None) for then in self.registered.learn(shuffles)))

    def placed(self, shuffle: ShuffleKey, workers: Iterable[tuple[WorkerId, str]]) -> None:
        """The leader has placed a shuffle here, and other copies at these workers."""
        for worker, address in workers:
            self.registered.learn_address(worker, address)
        self.learn([shuffle])

    def forget(self, shuffle: ShuffleKey) -> None:
        self.registered.forget(shuffle)

    def tick(self, now_ns: int) -> None:
        in_parts(*(partial(then, reason) for then, reason in self.registered.tick(now_ns)))

    async def step(self, client: ControlClient) -> float:
        """Wait until somebody asks, have the masters answer all that waits; returns when to do so again. Raises
        HoldfastError if they do not answer."""
        await self._due.wait()
        shuffles, workers = self.registered.questions()
        if not shuffles and not workers:
            self._due.clear()
            return 0.0
        request = pb.LookUpRequest(keys=[key_message(key) for key in shuffles], workers=workers)
        reply = await client.call("Registry/LookUp", request, deadline_s=ANSWER_NS / 1e9)
        found = dict.fromkeys(map(key_in, reply.registered))  # in order: who asked first goes on first
        addresses = {WorkerId(each.worker): each.address for each in reply.workers}
        calls = self.registered.answered(shuffles, found, workers, addresses)
        in_parts(*(partial(then, reason) for then, reason in calls))
        return _PAUSE_SECONDS if len(found) < len(shuffles) or len(addresses) < len(workers) else 0.0
