"""Writes the output of one map attempt: carries out what write/map_write.py decides.

Rules: the caller's thread makes batches and frames and keeps them in the spool; the loop sends them. Memory is
bounded: `write_region` waits while what no worker has acknowledged exceeds the spool's memory. A worker that fails
costs a resend to the next one, not the task. Called through MapShuffle.writer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.client.checks import whole
from holdfast.client.compress import Buffer, Compression
from holdfast.client.connection.addresses import Addresses
from holdfast.client.core.write.map_write import (
    Abandon,
    AskSeal,
    Effect,
    MapFailed,
    MapWrite,
    Open,
    SendFrame,
    WakeMap,
    Written,
)
from holdfast.client.write.region import MapPushFrame, MapRegions
from holdfast.client.write.settling import AttemptSender, AttemptWriter, wait_until_over
from holdfast.client.write.spool import SPOOL_BYTES, Spool
from holdfast.client.write.status import MapStatus
from holdfast.common.errors import GiveUpError, HoldfastError, RetryError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.layouts import MapAssignment, MapWinner
from holdfast.common.formats.messages import Ack, FileTotals, MapAbort, MapOpen, MapOpened, MapPush, MapSeal, MapSealed
from holdfast.common.ids import AttemptId, Epoch, Incarnation, MapFileKey, MapId, ShuffleKey, WorkerId
from holdfast.common.limits import MAPS_MAX
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.client import FrameClient, Reply
from holdfast.common.system.log import log_event

if TYPE_CHECKING:
    from holdfast.client.connection.ticket import Ticket

#: A worker that acknowledges nothing for so long is as good as lost (stopped, or its disk hangs).
ACK_SECONDS = 30.0
#: A seal syncs the whole file; a slow disk may take its time.
SEAL_SECONDS = 120.0
_ATTEMPT_MAX = (1 << 64) - 1


class MapTarget(Protocol):
    """What a writer asks of its shuffle; `MapShuffle` is one."""

    ticket: Ticket
    key: ShuffleKey
    partitions: int
    ack: Ack
    addresses: Mapping[WorkerId, str]


class MapWriter(AttemptWriter["_MapSender"]):
    """The output of one attempt. One thread at a time; leave it with `close` or, on any error, `abort`.

    As a context manager it aborts unless `close` was called. It belongs to the process that made it.
    """

    def __init__(
        self,
        shuffle: MapTarget,
        assignment: MapAssignment,
        map_id: MapId,
        attempt: AttemptId,
        *,
        compression: Compression,
        spool_bytes: int = SPOOL_BYTES,
    ) -> None:
        """Raises ConfigError for numbers that no worker would take."""
        map_id = MapId(whole("map_id", map_id, 0, MAPS_MAX - 1))
        attempt = AttemptId(whole("attempt", attempt, 0, _ATTEMPT_MAX))
        spool_bytes = whole("spool_bytes", spool_bytes, 0, _ATTEMPT_MAX)
        self._shuffle = shuffle
        self._map = map_id
        self._attempt = attempt
        self._regions = MapRegions(shuffle.key, map_id, attempt, shuffle.partitions, compression)
        self._spool = Spool(spool_bytes)
        super().__init__(_MapSender(shuffle, assignment, map_id, attempt, self._spool), spool_bytes)
        self._call(self._sender.start)

    def write_region(self, parts: Iterable[tuple[int, Buffer]]) -> None:
        """Write (partition, payload) in ascending order of partitions, as one region or, beyond 64 MiB, as several.

        Payloads must not change before `close` or `abort`. Raises ValueError for a wrong order or size, which ends the
        attempt as any error here does, and what ended it if it is over: GiveUpError where no worker takes it,
        ApplicationGoneError, ConflictError.
        """
        self._send(self._regions.region(parts))

    def write_broadcast(self, payloads: Iterable[Buffer]) -> None:
        """Write a region that belongs to every partition and is stored once; one per map at most."""
        self._send(self._regions.broadcast(payloads))

    def close(self, parts: Iterable[tuple[int, Buffer]] = ()) -> MapStatus:
        """Write the final region (which may be empty), seal all copies and return the status for the commit."""
        self._send(self._regions.region(parts, final=True))
        totals = self._regions.totals()
        self._call(self._sender.finish, totals)
        try:
            wait_until_over(self._runtime, self._sender)
            done: Written = self._sender.outcome.result()
        except BaseException:
            self.abort()
            raise
        self._spool.close()
        winner = MapWinner(
            attempt=self._attempt,
            epoch=done.epoch,
            workers=done.workers,
            batches=totals.batches,
            size_bytes=totals.size_bytes,
            partitions=self._regions.bitmap(),
        )
        return MapStatus(self._shuffle.key, self._map, self._shuffle.partitions, winner)

    def _forget(self) -> None:
        self._spool.close()

    def _send(self, frames: Iterator[MapPushFrame]) -> None:
        self._check_process("map")
        try:
            self._send_all(frames)
        except BaseException:
            # A part of the region may be on its way: nothing that follows it could be right.
            self.abort()
            raise

    def _send_all(self, frames: Iterator[MapPushFrame]) -> None:
        for frame in frames:
            self._spool.add(frame)
            self._added += frame.size
            self._call(self._sender.add, frame.size)
            self._wait_for_room()
            if self._sender.outcome.done():
                self._sender.outcome.result()
                raise GiveUpError(f"map {self._map} attempt {self._attempt} was closed or aborted")


class _MapSender(AttemptSender):
    """Sends the frames of one map file to its copies, on the loop."""

    def __init__(
        self, shuffle: MapTarget, assignment: MapAssignment, map_id: MapId, attempt: AttemptId, spool: Spool
    ) -> None:
        super().__init__()
        self._shuffle = shuffle
        self._map = map_id
        self._attempt = attempt
        self._spool = spool
        self._assignment = assignment
        self._core = MapWrite(assignment, map_id, attempt)
        self._addresses = Addresses(shuffle.ticket, shuffle.addresses)
        self._queues: dict[int, asyncio.Queue[SendFrame]] = {}
        self._copies: dict[int, asyncio.Task[None]] = {}
        self._sizes: list[int] = []
        #: frames that all copies have acknowledged; their bytes are the settled ones
        self._settled_frames = 0

    # Called from the writer, on the loop.

    def start(self) -> None:
        self._do(self._core.started(time.monotonic_ns()))

    def add(self, size: int) -> None:
        self._sizes.append(size)
        if not self._core.over:
            self._do(self._core.frame_added(size, time.monotonic_ns()))

    def finish(self, totals: FileTotals) -> None:
        if not self._core.over:
            self._do(self._core.finished(totals, time.monotonic_ns()))

    def abort(self) -> None:
        self._do(self._core.aborted())
        self._settle_outcome(GiveUpError("the attempt was aborted"))

    def takes_long(self, seconds: float) -> None:
        """Nothing was acknowledged for so long while the caller waited: opens, pushes and seals have their bounds."""
        if not self._core.over:
            log_event(
                LogEvent.MAP_FILE_SLOW,
                shuffle=self._shuffle.key,
                map=self._map,
                attempt=self._attempt,
                frames=len(self._sizes),
                acknowledged=self._settled_frames,
                seconds=int(seconds),
            )

    # Effects.

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame():
                    self._queues[effect.copy].put_nowait(effect)
                case Open():
                    self._queues[effect.copy] = asyncio.Queue()  # bounded by the core's window
                    self._copies[effect.copy] = self._spawn(self._serve_copy(effect))
                case AskSeal():
                    self._spawn(self._seal(effect))
                case Abandon():
                    self._abandon(effect)
                case WakeMap():
                    wake = partial(self._wake, effect)
                    asyncio.get_running_loop().call_later(effect.after_ns / 1e9, self.guarded, wake)
                case Written():
                    self._settle_outcome(None, effect)
                case MapFailed():
                    self._settle_outcome(effect.error)
        self._note_settled()

    def _wake(self, effect: WakeMap) -> None:
        self._do(self._core.woken(effect.epoch, effect.copy))

    async def _serve_copy(self, place: Open) -> None:
        """Open the file and push what the core queues, until the task is cancelled or something fails."""
        queue = self._queues[place.copy]
        try:
            client = await self._addresses.connect(place.worker)
            handle = await self._open(client, place.epoch)
            self._do(self._core.opened(place.copy, place.epoch, time.monotonic_ns()))
            while True:
                await self._push(client, handle, await queue.get())
        except HoldfastError as error:
            self._failed(place.copy, place.epoch, error)
        except OSError as error:  # the spool cannot be read back: no other worker helps against that
            self._do(self._core.aborted())
            self._settle_outcome(GiveUpError(f"the map's output cannot be read back for a resend: {error}"))

    async def _open(self, client: FrameClient, epoch: Epoch) -> int:
        request = MapOpen(
            file=self._key(epoch),
            incarnation=Incarnation(0),
            partitions=self._shuffle.partitions,
            copies=self._assignment.copies,
            ack=self._shuffle.ack,
        )
        try:
            async with asyncio.timeout(ACK_SECONDS):
                reply = await client.request(FrameType.MAP_OPEN, request.encode())
        except TimeoutError:
            raise RetryError(f"no answer to MAP_OPEN within {ACK_SECONDS:.0f} s") from None
        return MapOpened.decode(reply.meta).handle

    async def _push(self, client: FrameClient, handle: int, push: SendFrame) -> None:
        frame = self._spool.frame(push.frame)
        meta = MapPush(handle=handle, region=frame.region, flags=frame.flags, runs=frame.runs).encode()
        try:
            async with asyncio.timeout(ACK_SECONDS):
                future = await client.start(FrameType.MAP_PUSH, meta, *self._spool.pieces(push.frame))
        except TimeoutError:
            raise RetryError(f"the connection took no more requests within {ACK_SECONDS:.0f} s") from None
        late = RetryError(f"no acknowledgement within {ACK_SECONDS:.0f} s")
        give_up = partial(self._failed, push.copy, push.epoch, late)
        timer = asyncio.get_running_loop().call_later(ACK_SECONDS, self.guarded, give_up)
        future.add_done_callback(lambda done: self.guarded(partial(self._answered, push, timer, done)))

    def _answered(self, push: SendFrame, timer: asyncio.TimerHandle, future: asyncio.Future[Reply]) -> None:
        timer.cancel()
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._do(self._core.acked(push.copy, push.epoch, push.frame, time.monotonic_ns()))
        else:
            self._failed(push.copy, push.epoch, error if isinstance(error, HoldfastError) else RetryError(str(error)))

    async def _seal(self, effect: AskSeal) -> None:
        try:
            client = await self._addresses.connect(effect.worker)
            async with asyncio.timeout(SEAL_SECONDS):
                request = MapSeal(file=self._key(effect.epoch), totals=effect.totals)
                reply = await client.request(FrameType.MAP_SEAL, request.encode())
            sealed = MapSealed.decode(reply.meta)
        except TimeoutError:
            self._failed(effect.copy, effect.epoch, RetryError(f"no answer to MAP_SEAL within {SEAL_SECONDS:.0f} s"))
        except HoldfastError as error:
            self._failed(effect.copy, effect.epoch, error)
        else:
            self._do(self._core.sealed(effect.copy, effect.epoch, sealed.totals))

    def _failed(self, copy: int, epoch: Epoch, error: HoldfastError) -> None:
        self._do(self._core.failed(copy, epoch, error, time.monotonic_ns()))

    def _abandon(self, effect: Abandon) -> None:
        task = self._copies.pop(effect.copy, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._spawn(self._tell_abort(effect.worker, effect.epoch))

    async def _tell_abort(self, worker: WorkerId, epoch: Epoch) -> None:
        """Best effort: otherwise a worker deletes its part with the shuffle."""
        client = self._addresses.open_connection(worker)
        if client is None:
            return
        try:
            async with asyncio.timeout(ACK_SECONDS):
                await client.request(FrameType.MAP_ABORT, MapAbort(self._key(epoch)).encode())
        except (HoldfastError, TimeoutError):
            return  # it was lost or stops; it drops unsealed files by itself

    def _stop(self) -> None:
        for task in self._copies.values():
            if task is not asyncio.current_task():
                task.cancel()
        self._copies.clear()

    def _note_settled(self) -> None:
        settled = self._core.settled
        if settled > self._settled_frames:
            self.settled_bytes += sum(self._sizes[self._settled_frames : settled])
            self._settled_frames = settled
            self.settled.set()

    def _broke(self, error: BaseException) -> None:
        self._settle_outcome(error)
        self._do(self._core.aborted())

    def _key(self, epoch: Epoch) -> MapFileKey:
        return MapFileKey(self._shuffle.key, self._map, self._attempt, epoch)
