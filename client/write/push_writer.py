"""Pushes the output of one map attempt: carries out what write/push.py decides.

Rules: the caller's thread makes batches, the loop pushes them. Memory is bounded: `write` waits while what no worker
has acknowledged exceeds the buffer. No attempt restarts from the beginning: a refused batch is sent elsewhere,
under its number. Whatever fails once a payload was taken is final, an interrupt as well: it may be in no batch, so the
attempt has failed, even if the caller ignores the error. Called through ReduceShuffle.writer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, Protocol

from holdfast.client.compress import Buffer, Compression
from holdfast.client.connection.addresses import Addresses, known_addresses
from holdfast.client.connection.push_credit import ROOM_WAIT_SECONDS, PushLine
from holdfast.client.connection.runtime import runtime
from holdfast.client.core.write.laggards import Settle
from holdfast.client.core.write.locations import PartitionLocations
from holdfast.client.core.write.push import AllKept, Ask, Effect, PushFailed, PushSession, Return, Send, Settled, Wake
from holdfast.client.core.write.revivals import AskRevive
from holdfast.client.write.batches import PushBatch, PushBatches
from holdfast.client.write.settling import AttemptSender, AttemptWriter, wait_until_over
from holdfast.client.write.status import PushStatus
from holdfast.common.errors import ApplicationGoneError, ConfigError, GiveUpError, HoldfastError, RetryError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_layouts import Location
from holdfast.common.formats.reduce_messages import IncompleteCopy, Push, PushSettle, ReplicaPlace
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Incarnation,
    MapId,
    PartitionId,
    RaftIndex,
    ShuffleKey,
    WorkerId,
)
from holdfast.common.limits import KIB, MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event

if TYPE_CHECKING:
    from holdfast.client.connection.ticket import Ticket

#: Batches made and not acknowledged.
BUFFER_BYTES = 64 * MIB
#: Smaller buffers than a frame of the largest usual size would only make pushes small.
BUFFER_BYTES_MIN = 1 * MIB
#: The caller's thread hands batches to the loop in portions: waking it costs more than making a batch.
HAND_OVER_BYTES = 256 * KIB
#: Frames of more pieces than this are joined: many small buffers cost more than one copy.
PIECES_MAX = 64
#: Masters that elect a leader need about a second; the session asks again if they do not answer.
REVIVE_SECONDS = 10.0
_OVER = "shuffle {} map {} attempt {} was closed or aborted; nothing more can be written through this writer"


@dataclass(frozen=True, slots=True)
class Routes:
    """The locations of a shuffle, shared by all attempts of a process."""

    locations: PartitionLocations
    addresses: Addresses
    #: (map, attempt) of the writers that were made, where the caller chose the attempt
    attempts: dict[tuple[int, int], object] = field(default_factory=dict)


class PushTarget(Protocol):
    """What a writer asks of its shuffle; `ReduceShuffle` is one."""

    ticket: Ticket
    key: ShuffleKey
    partitions: int
    ack: Ack
    #: so many copies hold a batch before it is acknowledged
    ack_copies: int
    raft_index: RaftIndex

    def routes(self) -> Routes:
        """The places of this process."""

    def dropped_error(self) -> HoldfastError | None:
        """The masters' word that it was dropped, None if it was not or they do not answer."""


class PushWriter(AttemptWriter["_PushSender"]):
    """The pushed output of one attempt, used like a MapWriter."""

    def __init__(
        self,
        shuffle: PushTarget,
        map_id: MapId,
        attempt: AttemptId,
        *,
        compression: Compression,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        """Numbers were checked by ReduceShuffle.writer. Raises ConfigError for a codec that is not installed."""
        self._shuffle = shuffle
        self._map = map_id
        self._attempt = attempt
        self._batches = PushBatches(shuffle.key, map_id, attempt, shuffle.partitions, compression)
        self._fresh: list[PushBatch] = []
        self._fresh_bytes = 0
        #: bytes that were written, and bytes of them that are in batches
        self._written_bytes = 0
        #: why the attempt failed here; None while it has not
        self._lost: BaseException | None = None
        super().__init__(_PushSender(shuffle, map_id, attempt, buffer_bytes // 2), buffer_bytes)

    def write(self, partition: int, payload: Buffer) -> None:
        """Write one record for a partition; waits while too much is unacknowledged.

        The payload must not change before `close` or `abort`. Raises ConfigError for one that cannot be written, and
        what ended the attempt if it is over: AbortedError if another attempt of the map won, NoRoomError if no worker
        has room for it, RetryError if no place takes it for another reason, ApplicationGoneError; GiveUpError after
        `close` or `abort`, and after an error in the middle of a row.
        """
        self._check()
        try:
            self._hold(self._batches.add(partition, payload))
            self._written_bytes += len(payload) if type(payload) is bytes else memoryview(payload).nbytes
            if self._fresh_bytes >= HAND_OVER_BYTES:
                self._hand_over()
        except ConfigError:
            raise  # nothing was taken
        except BaseException as error:
            self._give_up(error)
            raise

    def flush(self) -> None:
        """Hand everything but the newest batches to the loop; does not wait for acknowledgements."""
        self._check()
        try:
            self._hand_over()
        except BaseException as error:
            self._give_up(error)
            raise

    @property
    def acknowledged_bytes(self) -> int:
        """Bytes of batches that workers have acknowledged so far."""
        return self._sender.settled_bytes

    def close(self) -> PushStatus:
        """Push the LAST batches, wait until all are acknowledged and return the status for the commit.

        Raises as `write`.
        """
        self._check()
        try:
            bitmap = self._batches.bitmap()
            self._hold(self._batches.end())
            self._hand_over()
            self._call(self._sender.finish)
            wait_until_over(self._runtime, self._sender)
            if self._sender.outcome.exception() is not None:
                self._raise_over()
            self._compare()
        except BaseException as error:
            self._give_up(error)
            raise
        return PushStatus(self._shuffle.key, self._map, self._attempt, self._shuffle.partitions, bitmap)

    def _compare(self) -> None:
        """Raise GiveUpError unless all that was written is in batches, and workers have acknowledged all of these."""
        made, kept = self._batches.payload_bytes, self._sender.settled_bytes
        if made != self._written_bytes or kept != self._added:
            raise GiveUpError(
                f"shuffle {self._shuffle.key} map {self._map} attempt {self._attempt}: {self._written_bytes} bytes were"
                f" written, {made} of them are in batches; of {self._added} bytes of batches {kept} were acknowledged"
            )

    def _forget(self) -> None:
        self._fresh.clear()

    def _check(self) -> None:
        """Raise what ended the attempt, if it is over."""
        if self._lost is not None:
            where = f"shuffle {self._shuffle.key} map {self._map} attempt {self._attempt}"
            raise GiveUpError(f"{where} has failed: {self._lost!r}; nothing more can be written") from self._lost
        if self._sender.outcome.done():
            self._raise_over()

    def _give_up(self, error: BaseException) -> None:
        if self._lost is None and not self._sender.outcome.done():
            self._lost = error
        self.abort()

    def _hold(self, batches: list[PushBatch]) -> None:
        for batch in batches:
            self._fresh.append(batch)
            self._fresh_bytes += batch.size

    def _hand_over(self) -> None:
        self._check_process("push")
        batches, self._fresh = self._fresh, []
        self._added += self._fresh_bytes
        self._fresh_bytes = 0
        if batches:
            self._call(self._sender.add, batches)
        self._wait_for_room()
        if self._sender.outcome.done():
            self._raise_over()

    def _raise_over(self) -> NoReturn:
        """Raise what ended the attempt; if a worker reports that all was forgotten the masters have the reason."""
        error = self._sender.outcome.exception()
        if isinstance(error, ApplicationGoneError):
            error = self._shuffle.dropped_error() or error
        if isinstance(error, HoldfastError):
            raise error.reworded(str(error))
        if error is not None:
            raise error
        raise GiveUpError(_OVER.format(self._shuffle.key, self._map, self._attempt))


class _PushSender(AttemptSender):
    """Pushes the batches of one attempt, on the loop."""

    def __init__(self, shuffle: PushTarget, map_id: MapId, attempt: AttemptId, press_bytes: int) -> None:
        super().__init__()
        self._shuffle = shuffle
        self._map = map_id
        self._attempt = attempt
        routes = shuffle.routes()
        self._addresses = routes.addresses
        self._where = where = f"shuffle {shuffle.key} map {map_id} attempt {attempt}"
        grace_ns = shuffle.ticket.no_room_grace_ns
        self._core = PushSession(routes.locations, where=where, press_bytes=press_bytes, no_room_grace_ns=grace_ns)
        #: batches by the core's numbers, until they are settled
        self._batches: dict[int, PushBatch] = {}
        self._next = 0
        #: where the room came from that the core uses
        self._lines: dict[WorkerId, PushLine] = {}
        self._credit_tasks: set[asyncio.Task[None]] = set()
        #: pauses that are not over
        self._pauses = 0
        self._patience = 2 * ROOM_WAIT_SECONDS + grace_ns / 1e9

    # Called from the writer, on the loop.

    def add(self, batches: list[PushBatch]) -> None:
        if self._core.over:
            return
        for batch in batches:
            self._batches[self._next] = batch
            self._next += 1
        self._do(self._core.added([(batch.partition, batch.number, batch.size) for batch in batches]))

    def finish(self) -> None:
        if not self._core.over:
            self._do(self._core.finished())

    def abort(self) -> None:
        self._core.aborted()
        self._settle_outcome(GiveUpError(_OVER.format(self._shuffle.key, self._map, self._attempt)))

    def takes_long(self, seconds: float) -> None:
        """Nothing was acknowledged for so long while the caller waited for that: say why, and do not wait for ever."""
        if self._core.over:
            return
        text = f"{self._where}: nothing was acknowledged for {seconds:.0f} s: {self._core.waits_for()}"
        if not self._tasks and not self._pauses:
            self._broke(GiveUpError(f"{text}; no request is pending"))
        elif seconds > self._patience:
            self._broke(RetryError(text))
        else:
            log_event(LogEvent.PUSH_SLOW, task=self._where, seconds=int(seconds), reason=self._core.waits_for())

    # Effects.

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._spawn(self._push(effect, self._lines[effect.destination.primary]))
                case Ask():
                    task = self._spawn(self._ask(effect))
                    self._credit_tasks.add(task)
                    task.add_done_callback(self._credit_tasks.discard)
                case Return():
                    self._lines[effect.worker].returned(effect.size)
                case Settled():
                    self._settle(effect.batches)
                case Settle():
                    self._spawn(self._settle_copies(effect))
                case AskRevive():
                    self._spawn(self._revive(effect))
                case Wake():
                    self._pauses += 1
                    asyncio.get_running_loop().call_later(effect.after_ns / 1e9, self._wake, effect.worker)
                case AllKept():
                    self._settle_outcome(None)
                case PushFailed():
                    self._settle_outcome(effect.error)

    def _wake(self, worker: WorkerId | None) -> None:
        self._pauses -= 1
        self.guarded(lambda: self._do(self._core.woken(worker)))

    def _settle(self, batches: list[int]) -> None:
        self.settled_bytes += sum(self._batches.pop(batch).size for batch in batches)
        self.settled.set()

    async def _ask(self, ask: Ask) -> None:
        try:
            line = (await self._addresses.connect(ask.worker)).line
            size = await line.wait_for_room(ask.least, ask.most)
        except HoldfastError as error:
            self._do(self._core.unreachable(ask.worker, error))
            return
        self._lines[ask.worker] = line
        self._do(self._core.granted(ask.worker, size))

    async def _push(self, send: Send, line: PushLine) -> None:
        if self._core.over:
            line.returned(send.size)
            return
        try:
            push, body = self._frame(send)
        except BaseException as error:
            line.returned(send.size)  # others push over this connection, too
            if not isinstance(error, HoldfastError):
                raise
            self._do(self._core.failed(send.frame, error))
            return
        try:
            answer = await line.push(push, send.size, body)
        except HoldfastError as error:
            self._do(self._core.failed(send.frame, error))
        else:
            self._do(self._core.answered(send.frame, answer.statuses, answer.failed, answer.behind))

    def _frame(self, send: Send) -> tuple[Push, list[Buffer]]:
        """The meta section and the body of a push. Raises RetryError if a replica's address is not known."""
        body = [piece for batch in send.batches for piece in self._batches[batch].pieces]
        if len(body) > PIECES_MAX:
            body = [b"".join(body)]
        crc = 0
        for piece in body:
            crc = crc32c(piece, crc)
        return self._meta(send, crc), body

    def _meta(self, send: Send, crc: int) -> Push:
        destination = send.destination
        replicas = tuple([ReplicaPlace(*each, self._addresses.address(each[0])) for each in destination.replicas])
        return Push(
            shuffle=self._shuffle.key,
            incarnation=destination.incarnation,
            ack=self._shuffle.ack,
            map=self._map,
            attempt=self._attempt,
            body_crc=crc,
            raft_index=self._shuffle.raft_index,
            replicas=replicas,
            ack_copies=min(self._shuffle.ack_copies, 1 + len(replicas)),
            entries=send.entries,
        )

    async def _settle_copies(self, settle: Settle) -> None:
        try:
            incomplete = await self._incomplete(settle)
        except HoldfastError:  # whatever it is: who does not say leaves them unknown
            self._do(self._core.unsettled(settle))
        else:
            self._do(self._core.settled(settle, incomplete))

    async def _incomplete(self, settle: Settle) -> list[IncompleteCopy]:
        """What the primary says. A connection may have broken for other reasons: it is asked once more."""
        asked = PushSettle(
            shuffle=self._shuffle.key,
            incarnation=settle.destination.incarnation,
            map=self._map,
            attempt=self._attempt,
            epochs=list(settle.epochs),
        )
        try:
            return await (await self._addresses.connect(settle.destination.primary)).line.settle(asked)
        except RetryError as error:
            if error.status is not Status.UNAVAILABLE:
                raise
            return await (await self._addresses.connect(settle.destination.primary)).line.settle(asked)

    async def _revive(self, revive: AskRevive) -> None:
        request = pb.ReviveRequest(
            key=key_message(self._shuffle.key),
            failed=[pb.FailedEpoch(partition=row[0], epoch=row[1], status=row[2]) for row in revive.failed],
            unusable_workers=revive.unusable,
            incomplete=[pb.IncompleteCopy(partition=row[0], epoch=row[1], worker=row[2]) for row in revive.incomplete],
            holder=self._shuffle.ticket.holder,
        )
        try:
            reply = await runtime().call(self._shuffle.ticket, "Shuffles/Revive", request, REVIVE_SECONDS)
        except HoldfastError as error:
            self._do(self._core.revive_failed(error))
            return
        self._addresses.learn(known_addresses(reply.workers))
        locations = [
            (PartitionId(row.partition), Location(Epoch(row.epoch), tuple(map(WorkerId, row.workers)), row.hint))
            for row in reply.locations
        ]
        incarnations = {WorkerId(each.worker): Incarnation(each.incarnation) for each in reply.workers}
        self._do(self._core.revived(locations, incarnations, reply.room))

    def _stop(self) -> None:
        for task in self._credit_tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._batches.clear()

    def _broke(self, error: BaseException) -> None:
        self._core.aborted()
        self._settle_outcome(error)
