"""What both readers share: streams of several workers, in one iteration of the caller's.

Rules: the loop receives and assembles batches, the caller's thread checks them and runs the core (read/fetch.py); one
queue leads from the one to the other. What waits in the queue is bounded by the credit that the streams were given. A
reader of a kind of partitions says what a data frame means, and when a file that was sent in full is whole. Where reads
are speculative the core gets which streams are late and which made progress; they share the same credit with their
rivals. Called by reader.py and push_reader.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import queue
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from holdfast.client.compress import Buffer, PayloadError
from holdfast.client.connection.addresses import ASK_SECONDS, Addresses
from holdfast.client.connection.runtime import Runtime, runtime
from holdfast.client.core.read.check import IncompleteError
from holdfast.client.core.read.chunk_fetch import Holders
from holdfast.client.core.read.fetch import (
    RIVALS_MAX,
    STREAMS_MAX,
    AskMasters,
    CloseStream,
    Complete,
    Effect,
    Fetch,
    K,
    OpenStream,
    ReadFailed,
    WorkerState,
)
from holdfast.client.read.assemble import Assembler
from holdfast.client.read.shared_read_state import SharedReadState
from holdfast.common.errors import ConfigError, CorruptError, DataLostError, HoldfastError, RetryError
from holdfast.common.formats.messages import DataFlag, StreamOpened
from holdfast.common.formats.reduce_messages import ChunksOpened
from holdfast.common.ids import MapId, PartitionId, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.client import ClientStream, FrameClient
from holdfast.common.system.log import log_event

if TYPE_CHECKING:
    from holdfast.client.generation import ClientShuffle
    from holdfast.client.read.manifests import AnyManifest, PushManifest

#: Credit of one stream: a few frames are on their way while one is being checked.
CREDIT_BYTES = 8 * MIB
#: A stream that has credit and brings nothing for so long is taken for lost.
STALL_SECONDS = 30.0
#: The same where everything that it owes can be read elsewhere.
SWITCH_SECONDS = 3.0
#: How often a waiting reader looks for stalled streams.
_LOOK_SECONDS = 1.0
#: A reader without data for so long logs what it waits for, and again as often.
_SAY_SECONDS = 10.0


class Record(NamedTuple):
    """One payload, exactly as it was written. BROADCAST_PARTITION means "every partition"."""

    partition: PartitionId
    map: MapId
    payload: Buffer


class StreamPiece(Protocol):
    """A data frame's batches, put together; `size` is the credit to give back."""

    @property
    def stream(self) -> int: ...
    @property
    def file(self) -> int: ...
    @property
    def size(self) -> int: ...


class Sink:
    """Takes what one stream brings, on the loop. `seen_ns` is read by the caller's thread to find stalls.

    A subclass has `data`, which calls `take` with how to cut the frame. Into the queue go pieces, and calls of what
    follows.
    """

    def __init__(self, number: int, reader: StreamReader[Any, Any]) -> None:
        self.number = number
        self._reader = reader
        self.assembler = Assembler()
        self.seen_ns = time.monotonic_ns()
        #: when the first frame came, 0 before
        self.first_ns = 0
        self.opened: ClientStream | None = None
        self.over = False
        self._events = reader.events
        #: what came before the answer to the request was seen
        self._early: list[object] = []

    def take(self, file: int, flags: int, body: Body | None, piece: Any, *, empty: bool = False) -> None:
        """Copy the batches out, by `piece(view)`, give the memory back, pass them on. `empty`: it means something also
        without a body. An empty one means that the worker lives, and waits for the DFS."""
        self.seen_ns = time.monotonic_ns()
        if body is not None or empty or flags:
            self.first_ns = self.first_ns or self.seen_ns
        try:
            if not self.over and (body is not None or empty):
                self._put(piece(memoryview(b"") if body is None else body.view))
            if not self.over and flags & DataFlag.END:
                self.assembler.end()
                self._put(partial(self._reader.on_end, self.number))
        except CorruptError as error:
            self.over = True
            self._put(partial(self._reader.on_damage, self.number, file, str(error), corrupt=True))
        finally:
            if body is not None:
                body.release()

    def failed(self, error: HoldfastError) -> None:
        """The stream broke off."""
        if not self.over:
            self.over = True
            self._put(partial(self._reader.on_broken, self.number, error))

    def refused(self, error: HoldfastError) -> None:
        """The stream was not opened: nothing was passed on yet, and what came does not matter."""
        self.over = True
        self._events.put(partial(self._reader.on_broken, self.number, error))

    def give_credit(self, size: int) -> None:
        """Allow the worker to send `size` more."""
        self.seen_ns = time.monotonic_ns()  # a reader that paused is not the worker's silence
        if self.opened is not None and not self.over:
            self.opened.credit(size)

    def use(self, opened: ClientStream) -> None:
        """The answer is here."""
        self.opened = opened
        self._events.put(partial(self._reader.on_opened, self.number, opened.opened))
        for event in self._early:
            self._events.put(event)
        self._early.clear()
        if self.over:
            opened.close()

    def close(self) -> None:
        """Want nothing more of it."""
        self.over = True
        if self.opened is not None:
            self.opened.close()

    def _put(self, event: object) -> None:
        if self.opened is None:
            self._early.append(event)
        else:
            self._events.put(event)


@dataclass(slots=True)
class Reading(Generic[K]):
    """The state of an open stream in the caller's thread."""

    sink: Sink
    worker: WorkerId
    files: tuple[K, ...]
    asked_ns: int
    #: when it is late, unless something comes before; 0: never
    late_ns: int
    #: what the worker answered
    opened: StreamOpened | ChunksOpened | None = None
    #: index of the file that is being read
    file: int = 0
    #: consumed, and not yet given back as credit
    consumed: int = 0


P = TypeVar("P", bound=StreamPiece)


class StreamReader(Generic[K, P]):
    """Iterate once. One thread at a time."""

    def __init__(
        self, shuffle: ClientShuffle[Any], core: Fetch[K], manifest: AnyManifest, read_state: SharedReadState
    ) -> None:
        self._shuffle = shuffle
        self._core = core
        self._addresses = Addresses(shuffle.ticket, manifest.addresses, read_state.learn)
        self._read_state = read_state
        #: of one stream: rivals take nothing that was not there before
        self._credit_bytes = CREDIT_BYTES * STREAMS_MAX // (STREAMS_MAX + RIVALS_MAX * read_state.speculative)
        #: pieces, and calls of what follows
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open: dict[int, Reading[K]] = {}
        self._runtime: Runtime = runtime()
        self._complete = False
        #: when something came last, or it was said that nothing does
        self._quiet_ns = 0

    # What a kind of partitions decides.

    _SINK: ClassVar[type[Sink]]

    async def _request(self, client: FrameClient, reading: Reading[K]) -> ClientStream:
        """Open the stream, on the loop."""
        raise NotImplementedError

    def _records(self, reading: Reading[K], piece: P) -> Iterator[Record]:
        """Yield what a piece brings. Raises CorruptError or IncompleteError, naming what is wrong where; PayloadError
        for what no other copy has better."""
        raise NotImplementedError

    def _finish(self, stream: int, reading: Reading[K], key: K) -> list[Effect[K]]:
        """A file was sent in full: raises IncompleteError unless it is whole; returns what the core makes of it."""
        raise NotImplementedError

    def _holders(self) -> Holders:
        """Return who has copies of what is not read yet, where a newer manifest may be asked for."""
        return Holders()

    def _learn(self, newer: PushManifest) -> None:
        """Read from the copies that it names, too."""

    def _first(self) -> list[Effect[K]]:
        """Return what to do first."""
        return self._core.started()

    def __iter__(self) -> Iterator[Record]:
        try:
            self._do(self._first())
            while not self._complete:
                event = self._next_event()
                if event is None:
                    continue
                if isinstance(event, partial):
                    event()
                else:
                    yield from self._on_piece(event)
        finally:
            if self._runtime.pid == os.getpid():
                for number in list(self._open):
                    self._close(number)

    # Events, in the caller's thread.

    def _next_event(self) -> Any:
        if self._runtime.pid != os.getpid():
            raise ConfigError("a reader belongs to the process that made it; make one after the fork")
        try:
            event = self.events.get(timeout=self._wait_seconds())
        except queue.Empty:
            self._say()
            self._look_for_late()
            self._look_for_stalls()
            return None
        if not isinstance(event, partial):
            self._quiet_ns = 0
        return event

    def _say(self) -> None:
        """Nothing came: say so in the log when that lasts."""
        now_ns = time.monotonic_ns()
        self._quiet_ns = self._quiet_ns or now_ns
        if now_ns - self._quiet_ns >= _SAY_SECONDS * 1e9:
            self._quiet_ns = now_ns
            log_event(LogEvent.READ_WAITING, shuffle=self._shuffle.key, what=self._core.waits_for())

    def on_opened(self, stream: int, opened: StreamOpened | ChunksOpened) -> None:
        """The worker has answered."""
        reading = self._open.get(stream)
        if reading is not None:
            reading.opened = opened

    def on_broken(self, stream: int, error: HoldfastError) -> None:
        """The stream broke off, or was not opened."""
        self._forget(stream)
        self._do(self._core.stream_failed(stream, error, time.monotonic_ns()))

    def _on_workers(self, states: dict[WorkerId, WorkerState], newer: PushManifest | None) -> None:
        """`newer`: where copies may have been sealed since the shuffle's manifest was read."""
        if newer is not None:
            self._learn(newer)
        self._do(self._core.workers_known(states, time.monotonic_ns()))

    def _on_silence(self, error: HoldfastError) -> None:
        self._do(self._core.masters_silent(error, time.monotonic_ns()))

    def _on_crash(self, error: BaseException) -> None:
        """A mistake of ours on the loop: it must end the iteration, not leave it waiting."""
        raise error

    def _on_piece(self, event: P) -> Iterator[Record]:
        reading = self._open.get(event.stream)
        if reading is None:
            return
        self._came(event.stream, reading)
        if event.file >= len(reading.files):
            self.on_damage(event.stream, reading.file, f"worker {reading.worker} sent a file that was not asked for")
            return
        if not self._up_to_file(event.stream, reading, event.file):
            return
        try:
            yield from self._records(reading, event)
        except PayloadError as error:
            key = reading.files[event.file]
            self._do(self._core.stop(CorruptError(f"{self._core.name_of(key)}: {error}")))
        except (CorruptError, IncompleteError) as error:
            self.on_damage(event.stream, event.file, str(error), corrupt=isinstance(error, CorruptError))
            return
        self._give_credit(reading, event.size)

    def _up_to_file(self, stream: int, reading: Reading[K], file: int) -> bool:
        """Finish the files before `file`, which the worker has sent in full; return whether all of them were whole."""
        if not reading.file <= file <= len(reading.files):
            self.on_damage(stream, reading.file, f"worker {reading.worker} sent file {file} out of turn")
            return False
        while reading.file < file:
            key = reading.files[reading.file]
            try:
                effects = self._finish(stream, reading, key)
            except IncompleteError as error:
                what = f"partition {error.partition} from worker {reading.worker}: {error}"
                self.on_damage(stream, reading.file, what)
                return False
            reading.file += 1
            self._do(effects)
        return True

    def on_end(self, stream: int) -> None:
        """The stream came to its end."""
        reading = self._open.get(stream)
        if reading is None:
            return
        self._came(stream, reading)
        if self._up_to_file(stream, reading, len(reading.files)):
            self._forget(stream)
            self._do(self._core.stream_ended(stream))

    def on_damage(self, stream: int, file: int, what: str, *, corrupt: bool = False) -> None:
        """What came of a file, by its index in the stream, is of no use. `corrupt`: a check found other bytes than were
        written; what is too short may also be of a shuffle that is dropped meanwhile."""
        reading = self._open.get(stream)
        if reading is not None:
            key = reading.files[min(file, len(reading.files) - 1)]
            if corrupt and self._read_state.may_log_corrupt(reading.worker):
                self._say_corrupt(reading.worker, f"{self._core.name_of(key)}: {what}")
            self._close(stream)
            self._do(self._core.file_bad(stream, key, what))

    def _say_corrupt(self, worker: WorkerId, what: str) -> None:
        address = self._addresses.address(worker)
        log_event(LogEvent.READ_CORRUPT, shuffle=self._shuffle.key, worker=worker, address=address, reason=what)

    def _came(self, stream: int, reading: Reading[K]) -> None:
        """Something came of a stream that was asked for: it is in time, or it was quicker than another one."""
        if reading.late_ns:
            reading.late_ns = 0
            self._read_state.took(reading.sink.first_ns - reading.asked_ns)
            self._do(self._core.data_came(stream))

    def _wait_seconds(self) -> float:
        """How long to wait for an event: until a stream is late, or it is time to check for stalls."""
        if not self._read_state.speculative:
            return _LOOK_SECONDS
        late_ns = min((each.late_ns for each in self._open.values() if each.late_ns), default=0)
        left = (late_ns - time.monotonic_ns()) / 1e9 if late_ns else _LOOK_SECONDS
        return min(max(left, 0.0), _LOOK_SECONDS)

    def _look_for_late(self) -> None:
        """The queue is empty: give the core the late streams, and again after as long."""
        now_ns = time.monotonic_ns()
        for number, reading in list(self._open.items()):
            if reading.late_ns and now_ns >= reading.late_ns:
                reading.late_ns = now_ns + self._read_state.delay_ns()
                self._do(self._core.late(number))

    def _look_for_stalls(self) -> None:
        now_ns = time.monotonic_ns()
        for number, reading in list(self._open.items()):
            patience = self._patience(number)
            if reading.opened is not None and now_ns - reading.sink.seen_ns > patience * 1e9:
                self._close(number)
                error = RetryError(f"worker {reading.worker} sent nothing for {patience:.0f} s")
                self._do(self._core.stream_failed(number, error, now_ns))

    def _patience(self, stream: int) -> float:
        """Seconds that the worker of a stream may be silent."""
        return SWITCH_SECONDS if self._core.may_switch(stream) else STALL_SECONDS

    def _give_credit(self, reading: Reading[K], size: int) -> None:
        """Give consumed bytes back in a few large steps."""
        reading.consumed += size
        if reading.consumed >= self._credit_bytes // 4:
            self._runtime.loop.call_soon_threadsafe(reading.sink.give_credit, reading.consumed)
            reading.consumed = 0

    # Effects.

    def _do(self, effects: list[Effect[K]]) -> None:
        for effect in effects:
            match effect:
                case OpenStream():
                    now_ns = time.monotonic_ns()
                    late_ns = now_ns + self._read_state.delay_ns() if self._read_state.speculative else 0
                    reading = Reading(self._SINK(effect.stream, self), effect.worker, effect.files, now_ns, late_ns)
                    self._open[effect.stream] = reading
                    self._read_state.opened(effect.worker)
                    self._spawn(self._open_stream(reading, self._patience(effect.stream)))
                case CloseStream():
                    self._close(effect.stream)
                case AskMasters():
                    self._spawn(self._ask_masters(effect, self._holders()))
                case Complete():
                    self._complete = True
                case ReadFailed():
                    # Missing data was lost, or dropped on purpose: only the masters can say.
                    if isinstance(effect.error, DataLostError):
                        self._shuffle.forget_manifest()
                        if (dropped := self._shuffle.dropped_error()) is not None:
                            raise dropped from effect.error
                    raise effect.error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        future = asyncio.run_coroutine_threadsafe(work, self._runtime.loop)
        future.add_done_callback(self._ended)

    def _ended(self, future: concurrent.futures.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self.events.put(partial(self._on_crash, error))

    async def _open_stream(self, reading: Reading[K], patience: float) -> None:
        try:
            client = await self._addresses.connect(reading.worker)
            async with asyncio.timeout(patience):
                reading.sink.use(await self._request(client, reading))
        except TimeoutError:
            text = f"worker {reading.worker} did not answer within {patience:.0f} s"
            reading.sink.refused(RetryError(text))
        except HoldfastError as error:
            reading.sink.refused(error)

    async def _ask_masters(self, effect: AskMasters, holders: Holders) -> None:
        await asyncio.sleep(effect.after_ns / 1e9)
        try:
            states = await self._addresses.refresh()
        except HoldfastError as error:
            self.events.put(partial(self._on_silence, error))
            return
        newer = None
        if holders.may_be_more({worker for worker, state in states.items() if state == WorkerState.ALIVE}):
            # Who is alive counts without it.
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    newer = await self._shuffle.newer_manifest()
        self.events.put(partial(self._on_workers, states, newer))

    def _forget(self, number: int) -> Reading[K] | None:
        reading = self._open.pop(number, None)
        if reading is not None:
            self._read_state.closed(reading.worker)
        return reading

    def _close(self, number: int) -> None:
        reading = self._forget(number)
        if reading is not None:
            self._runtime.loop.call_soon_threadsafe(reading.sink.close)
