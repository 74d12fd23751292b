"""Acts on SEAL: closes epochs in write/reduce.py, has storage make them durable, and answers, the same for ever.

Rules: only masters ask; what was split for want of room is sealed unasked, because only sealed files can move, and
whoever pushes may wait for that room with batches of other partitions. Asked while an epoch is being sealed, the
second asker waits for the same outcome. A full disk refuses the whole request with DISK_FULL, one that hangs with BUSY:
nothing is lost, and it is asked again. Called by data_server.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from functools import partial

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.formats.reduce_messages import Seal, SealAnswer, SealedEpoch, SealFlag
from holdfast.common.ids import Epoch, PartitionId, RaftIndex, ShuffleKey
from holdfast.common.limits import SEAL_EPOCHS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event
from holdfast.common.system.waiting import said
from holdfast.worker.core.write.epochs import EpochState
from holdfast.worker.core.write.reduce import Reduce
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.services.request import Request
from holdfast.worker.storage.layout import EpochKey

#: How often a seal that waits for a disk looks whether that hangs.
LOOK_SECONDS = 1.0


Answers = dict[EpochKey, SealedEpoch]


class SealService:
    """All seals of REDUCE partitions. Loop thread only."""

    def __init__(self, context: WorkerContext) -> None:
        self._store = context.store
        self._standing = context.standing
        self._counters = context.counters
        self.reduce = Reduce(context.standing.incarnation, context.store.tiering.choose, context.bounds.split)
        self._running = context.running

    def seal(self, request: Request) -> None:
        """Take a SEAL. Raises ProtocolError for a malformed one; all else is answered."""
        asked = Seal.decode(request.meta)
        if not self._standing.registered:
            # The leader means the start that it knows. This one may have the same incarnation, if that was written to
            # a directory that is not here, and it knows nothing of what the other one took.
            raise RetryError("the masters have not accepted this start of the worker yet", status=Status.BUSY)
        self._running.start(self._carry_out(asked, request), partial(self._broke, request, asked))

    def seal_split(self, states: Sequence[EpochState]) -> None:
        """Seal epochs that accept nothing more. Where that fails they are as they were, for the next time; what waits
        for room is left for then."""
        shuffles: dict[ShuffleKey, list[tuple[int, int]]] = {}
        for state in states:
            if not state.owed:
                shuffles.setdefault(state.shuffle, []).append((state.partition, state.epoch))
        for shuffle, epochs in shuffles.items():
            for first in range(0, len(epochs), SEAL_EPOCHS_MAX):
                some = epochs[first : first + SEAL_EPOCHS_MAX]
                asked = Seal(shuffle=shuffle, flags=0, raft_index=RaftIndex(0), epochs=some)
                self._running.start(self._carry_out(asked, None))

    async def _carry_out(self, asked: Seal, request: Request | None) -> None:
        """Seal what was asked for, or, without a request, what only has to be sealed one day."""
        try:
            epochs = await self._seal(asked)
        except HoldfastError as error:
            if request is not None:
                request.refuse(error)
            else:
                # Every second while it lasts; the masters, who ask for the same, and the state of the disk tell people.
                log_event(LogEvent.SEAL_DEFERRED, shuffle=asked.shuffle, reason=error)
        else:
            if request is not None:
                request.reply(SealAnswer(epochs).encode())

    @staticmethod
    def _broke(request: Request, asked: Seal, error: BaseException) -> None:
        """A mistake of ours: who asked gets an answer all the same, and asks again."""
        log_event(LogEvent.SEAL_INTERNAL_ERROR, shuffle=asked.shuffle, trace=error)
        request.refuse(RetryError(f"{asked.shuffle}: the seal ended unexpectedly: {error!r}"))

    async def _seal(self, request: Seal) -> list[SealedEpoch]:
        began = time.monotonic_ns()
        gone = [SealedEpoch(PartitionId(one), Epoch(epoch), Status.UNKNOWN_FILE) for one, epoch in request.epochs]
        if self.reduce.forgot(request.shuffle):
            return gone
        if request.flags & SealFlag.LOOK:
            return self._store.reduce.held(request.shuffle, request.epochs)
        final = bool(request.flags & SealFlag.FINAL)
        states = self.reduce.seal(request.shuffle, final, request.epochs)
        try:
            answers = await self._seal_states(request, final, states, began)
            return gone if self.reduce.forgot(request.shuffle) else answers  # dropped meanwhile, with what was sealed
        finally:  # whatever came: what is not sealed may be sealed when it is asked for again
            for state in states:
                if state is not None:
                    self.reduce.not_sealed(state)

    async def _ended(self, request: Seal, outcomes: Collection[asyncio.Future[Answers]]) -> None:
        """Return when these seals have ended. Raises RetryError BUSY if that may take for ever, as one of them needs a
        disk that hangs: it goes on without us, and whoever asks again hears how it ended."""
        waiting = set(outcomes)
        with said(f"a disk to seal {request.shuffle}"):
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=LOOK_SECONDS)
                reason = self._store.reduce.hangs(request.shuffle) if waiting else ""
                if reason:
                    raise RetryError(f"{request.shuffle}: {reason}", status=Status.BUSY)

    async def _seal_states(
        self, request: Seal, final: bool, states: Sequence[EpochState | None], began: int
    ) -> list[SealedEpoch]:
        new = bool(request.flags & SealFlag.NEW)
        promised = self._store.reduce.seal(request.shuffle, final, request.epochs, new=new)
        jobs = {id(one): one for _, one in promised if not isinstance(one, SealedEpoch)}
        outcomes = {number: asyncio.wrap_future(one) for number, one in jobs.items()}
        await self._ended(request, outcomes.values())
        answers = []
        errors: list[BaseException] = []
        for (key, one), state in zip(promised, states, strict=True):
            if isinstance(one, SealedEpoch):  # perhaps by a seal whose asker did not wait for the end
                answers.append(one)
            elif (error := outcomes[id(one)].exception()) is not None:
                errors.append(error)
                continue
            else:
                answers.append(outcomes[id(one)].result()[key])
            if state is not None:
                self.reduce.sealed(state)
        if errors:
            raise errors[0] if isinstance(errors[0], HoldfastError) else HoldfastError(str(errors[0]))
        self._counters.epochs_sealed += sum(answer.status == Status.OK for answer in answers)
        self._counters.epoch_bytes += sum(answer.size_bytes for answer in answers)
        self._counters.epoch_seals += 1
        self._counters.epoch_seal_microseconds += (time.monotonic_ns() - began) // 1_000
        return answers
