"""Reads partitions of a committed shuffle: carries out what core/fetch.py decides, and believes nothing unchecked.

Rules: the loop receives and assembles batches, the caller's thread checks them and runs the core; one queue leads
from the one to the other. What waits in the queue is bounded by the credit that the streams were given. A record is
handed on only after its checksum was right and its number was due; the iteration ends only when every file was seen
to its end. Called through MapShuffle.reader.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import time
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.client.addresses import Addresses
from holdfast.client.assemble import Assembler
from holdfast.client.compress import Buffer, decompress
from holdfast.client.core.check import FileCheck, IncompleteError, writes_to
from holdfast.client.core.fetch import (
    RETURN_GRACE_NS,
    AskMasters,
    CloseStream,
    Complete,
    Effect,
    Failed,
    Fetch,
    OpenStream,
    WorkerState,
)
from holdfast.client.runtime import Runtime, runtime
from holdfast.common.batch import MORE, Batch, parse_batches
from holdfast.common.checksum import partition_seed
from holdfast.common.errors import ConfigError, CorruptError, DataLostError, HoldfastError, RetryError
from holdfast.common.ids import MapId, PartitionId, WorkerId
from holdfast.common.layouts import MapWinner
from holdfast.common.limits import MIB
from holdfast.common.messages import DataFlag, StreamData, StreamOpen
from holdfast.common.net.buffers import Body
from holdfast.common.net.frame_client import ClientStream

if TYPE_CHECKING:
    from holdfast.client.shuffle import Manifest, MapShuffle

#: Credit of one stream: a few frames are on their way while one is being checked.
CREDIT_BYTES = 8 * MIB
#: A stream that has credit and brings nothing for so long is taken for lost.
STALL_SECONDS = 30.0
#: How often a waiting reader looks for stalled streams.
_LOOK_SECONDS = 1.0


class Record(NamedTuple):
    """One payload, exactly as it was written. BROADCAST_PARTITION stands for "every partition"."""

    partition: PartitionId
    map: MapId
    payload: Buffer


class _Data(NamedTuple):
    """A frame's batches; `size` is the credit to give back."""

    stream: int
    file: int
    region: int
    batches: list[tuple[int, bytes | memoryview]]
    size: int


class _Ended(NamedTuple):
    stream: int


class _Broken(NamedTuple):
    stream: int
    error: HoldfastError


class _Damaged(NamedTuple):
    """Bytes that cannot be batches; `file` is the index in the stream."""

    stream: int
    file: int
    what: str


class _Workers(NamedTuple):
    states: dict[WorkerId, WorkerState]


class _Silent(NamedTuple):
    error: HoldfastError


class _Crashed(NamedTuple):
    """A mistake of ours on the loop: it must end the iteration, not leave it waiting."""

    error: BaseException


_Event = _Data | _Ended | _Broken | _Damaged | _Workers | _Silent | _Crashed


class _Stream:
    """The sink of one stream, on the loop; `seen_ns` is read by the caller's thread to find stalls."""

    def __init__(self, number: int, events: queue.SimpleQueue[_Event]) -> None:
        self.number = number
        self._events = events
        self._assembler = Assembler()
        self.seen_ns = time.monotonic_ns()
        self.opened: ClientStream | None = None
        self.over = False
        #: credit that came back before the answer to STREAM_OPEN was seen
        self._early_credit = 0

    def data(self, data: StreamData, body: Body | None) -> None:
        """Copy the batches out, give the memory back, pass them on."""
        self.seen_ns = time.monotonic_ns()
        try:
            if not self.over and body is not None:
                self._take(data, body.view)
            if not self.over and data.flags & DataFlag.END:
                self._assembler.end()
                self._events.put(_Ended(self.number))
        except CorruptError as error:
            self.over = True
            self._events.put(_Damaged(self.number, data.file, str(error)))
        finally:
            if body is not None:
                body.release()

    def _take(self, data: StreamData, view: memoryview) -> None:
        batches: list[tuple[int, bytes | memoryview]] = []
        at = 0
        for partition, size in data.runs:
            if at + size > len(view):
                raise CorruptError("a frame's runs are longer than its body")
            whole = self._assembler.feed((data.file, data.region, partition), view[at : at + size])
            batches += [(partition, buffer) for buffer in whole]
            at += size
        self._events.put(_Data(self.number, data.file, data.region, batches, len(view)))

    def failed(self, error: HoldfastError) -> None:
        """The stream broke off."""
        if not self.over:
            self.over = True
            self._events.put(_Broken(self.number, error))

    def give_credit(self, size: int) -> None:
        """Allow the worker to send `size` more."""
        self.seen_ns = time.monotonic_ns()  # a reader that paused is not the worker's silence
        if self.opened is None:
            self._early_credit += size
        elif not self.over:
            self.opened.credit(size)

    def use(self, opened: ClientStream) -> None:
        """The answer to STREAM_OPEN is here."""
        self.opened = opened
        if self.over:
            opened.close()
        elif self._early_credit:
            opened.credit(self._early_credit)

    def close(self) -> None:
        """Want nothing more of it."""
        self.over = True
        if self.opened is not None:
            self.opened.close()


@dataclass(slots=True)
class _Reading:
    """What the caller's thread knows of an open stream."""

    sink: _Stream
    worker: WorkerId
    maps: tuple[MapId, ...]
    #: index of the file that is being read
    file: int = 0
    #: consumed, and not yet given back as credit
    consumed: int = 0


@dataclass(slots=True)
class _File:
    check: FileCheck
    #: payloads of a record whose last batch is still to come, by partition
    parts: dict[int, list[Buffer]] = field(default_factory=dict)


class RangeReader:
    """Reads partitions [begin, end) of the winners; iterate once. One thread at a time."""

    def __init__(
        self,
        shuffle: MapShuffle,
        manifest: Manifest,
        begin: PartitionId,
        end: PartitionId,
        maps: Iterable[MapId] | None = None,
        return_grace: float = RETURN_GRACE_NS / 1e9,
    ) -> None:
        """`maps`: only these, whether they wrote to the range or not; by default all that did."""
        self._shuffle = shuffle
        self._begin = begin
        self._end = end
        winners = manifest.winners.maps
        if maps is None:
            maps = [MapId(index) for index, winner in enumerate(winners) if writes_to(winner, begin, end)]
        self._winners: dict[MapId, MapWinner] = {map_id: winners[map_id] for map_id in maps}
        self._name = _range_name(shuffle, begin, end)
        self._core = Fetch(self._winners, where=self._name, grace_ns=int(return_grace * 1e9))
        self._files: dict[MapId, _File] = {}
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._open: dict[int, _Reading] = {}
        self._runtime: Runtime = runtime()
        self._addresses = Addresses(shuffle.ticket.endpoints, shuffle.ticket.cluster_id, manifest.addresses)
        self._complete = False

    def __iter__(self) -> Iterator[Record]:
        try:
            self._do(self._core.started())
            while not self._complete:
                event = self._next_event()
                if isinstance(event, _Data):
                    yield from self._on_data(event)
                elif event is not None:
                    self._on_event(event)
        finally:
            if self._runtime.pid == os.getpid():
                for number in list(self._open):
                    self._close(number)

    # Events, in the caller's thread.

    def _next_event(self) -> _Event | None:
        if self._runtime.pid != os.getpid():
            raise ConfigError("a reader belongs to the process that made it; make one after the fork")
        try:
            return self._events.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            self._look_for_stalls()
            return None

    def _on_event(self, event: _Event) -> None:
        match event:
            case _Ended():
                self._on_end(event.stream)
            case _Broken():
                self._open.pop(event.stream, None)
                self._do(self._core.stream_failed(event.stream, event.error, time.monotonic_ns()))
            case _Damaged():
                self._on_damage(event.stream, event.file, event.what)
            case _Workers():
                self._do(self._core.workers_known(event.states, time.monotonic_ns()))
            case _Silent():
                self._do(self._core.masters_silent(event.error, time.monotonic_ns()))
            case _Crashed():
                raise event.error

    def _on_data(self, event: _Data) -> Iterator[Record]:
        reading = self._open.get(event.stream)
        if reading is None:
            return
        if event.file >= len(reading.maps):
            self._on_damage(event.stream, reading.file, f"worker {reading.worker} sent a file that was not asked for")
            return
        if not self._up_to_file(event.stream, reading, event.file):
            return
        map_id = reading.maps[event.file]
        partition = -1
        try:
            file = self._file(map_id)
            for partition, data in event.batches:
                seed = partition_seed(self._shuffle.key, PartitionId(partition))
                for batch in parse_batches(memoryview(data), seed):
                    if file.check.admit(partition, batch):
                        yield from _records(file, partition, batch)
        except (CorruptError, IncompleteError) as error:
            what = f"partition {partition} region {event.region} from worker {reading.worker}: {error}"
            self._on_damage(event.stream, event.file, what)
            return
        self._give_credit(reading, event.size)

    def _up_to_file(self, stream: int, reading: _Reading, file: int) -> bool:
        """Finish the files before `file`, which the worker has sent in full; return whether all of them were whole."""
        if not reading.file <= file <= len(reading.maps):
            self._on_damage(stream, reading.file, f"worker {reading.worker} sent file {file} out of turn")
            return False
        while reading.file < file:
            map_id = reading.maps[reading.file]
            try:
                self._file(map_id).check.finish()
            except IncompleteError as error:
                what = f"partition {error.partition} from worker {reading.worker}: {error}"
                self._on_damage(stream, reading.file, what)
                return False
            self._files.pop(map_id)
            reading.file += 1
            self._do(self._core.file_complete(stream, map_id))
        return True

    def _on_end(self, stream: int) -> None:
        reading = self._open.get(stream)
        if reading is not None and self._up_to_file(stream, reading, len(reading.maps)):
            self._open.pop(stream, None)
            self._do(self._core.stream_ended(stream))

    def _on_damage(self, stream: int, file: int, what: str) -> None:
        reading = self._open.get(stream)
        if reading is not None:
            map_id = reading.maps[min(file, len(reading.maps) - 1)]
            self._close(stream)
            self._do(self._core.file_bad(stream, map_id, what))

    def _look_for_stalls(self) -> None:
        now_ns = time.monotonic_ns()
        for number, reading in list(self._open.items()):
            if reading.sink.opened is not None and now_ns - reading.sink.seen_ns > STALL_SECONDS * 1e9:
                self._close(number)
                error = RetryError(f"worker {reading.worker} sent nothing for {STALL_SECONDS:.0f} s")
                self._do(self._core.stream_failed(number, error, now_ns))

    def _file(self, map_id: MapId) -> _File:
        file = self._files.get(map_id)
        if file is None:
            check = FileCheck(map_id, self._winners[map_id], self._begin, self._end)
            file = self._files[map_id] = _File(check)
        return file

    def _give_credit(self, reading: _Reading, size: int) -> None:
        """Give consumed bytes back in a few large steps."""
        reading.consumed += size
        if reading.consumed >= CREDIT_BYTES // 4:
            self._runtime.loop.call_soon_threadsafe(reading.sink.give_credit, reading.consumed)
            reading.consumed = 0

    # Effects.

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case OpenStream():
                    self._start_stream(effect)
                case CloseStream():
                    self._close(effect.stream)
                case AskMasters():
                    self._spawn(self._ask_masters(effect))
                case Complete():
                    self._complete = True
                case Failed():
                    # Data that is nowhere was lost, or dropped on purpose: only the masters know.
                    dropped = self._shuffle.why_dropped() if isinstance(effect.error, DataLostError) else None
                    raise dropped or effect.error

    def _start_stream(self, effect: OpenStream) -> None:
        sink = _Stream(effect.stream, self._events)
        self._open[effect.stream] = _Reading(sink, effect.worker, effect.maps)
        files: list[tuple[int, int, int]] = [
            (map_id, self._winners[map_id].attempt, self._winners[map_id].epoch) for map_id in effect.maps
        ]
        request = StreamOpen(
            shuffle=self._shuffle.key, begin=self._begin, end=self._end, credit_bytes=CREDIT_BYTES, files=files
        )
        self._spawn(self._open_stream(sink, effect.worker, request))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        future = asyncio.run_coroutine_threadsafe(work, self._runtime.loop)
        future.add_done_callback(self._ended)

    def _ended(self, future: concurrent.futures.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._events.put(_Crashed(error))

    async def _open_stream(self, sink: _Stream, worker: WorkerId, request: StreamOpen) -> None:
        try:
            client = await self._addresses.connect(worker)
            async with asyncio.timeout(STALL_SECONDS):
                sink.use(await client.open_stream(request, sink))
        except TimeoutError:
            sink.failed(RetryError(f"worker {worker} did not answer within {STALL_SECONDS:.0f} s"))
        except HoldfastError as error:
            sink.failed(error)

    async def _ask_masters(self, effect: AskMasters) -> None:
        await asyncio.sleep(effect.after_ns / 1e9)
        try:
            self._events.put(_Workers(await self._addresses.refresh()))
        except HoldfastError as error:
            self._events.put(_Silent(error))

    def _close(self, number: int) -> None:
        reading = self._open.pop(number, None)
        if reading is not None:
            self._runtime.loop.call_soon_threadsafe(reading.sink.close)


def _records(file: _File, partition: int, batch: Batch) -> Iterator[Record]:
    """Yield the record that the batch completes, if it does."""
    if batch.flags & MORE:
        file.parts.setdefault(partition, []).append(batch.payload)
        return
    payload: Buffer = batch.payload
    parts = file.parts.pop(partition, None)
    if parts is not None:
        payload = b"".join([*parts, payload])
    if len(payload):
        yield Record(PartitionId(partition), file.check.map, decompress(batch.codec, payload))


def _range_name(shuffle: MapShuffle, begin: int, end: int) -> str:
    partitions = f"partition {begin}" if end - begin == 1 else f"partitions {begin} to {end - 1}"
    return f"shuffle {shuffle.key}, {partitions}"


def read_partitions(
    shuffle: MapShuffle, manifest: Manifest, partitions: Iterable[int], return_grace: float
) -> Iterator[Record]:
    """Yield the records of these partitions, contiguous ones together, in the order given."""
    for begin, end in ranges(partitions):
        if not 0 <= begin < end <= shuffle.partitions:
            raise ValueError(f"partitions {begin} to {end - 1} of a shuffle with {shuffle.partitions}")
        yield from RangeReader(shuffle, manifest, PartitionId(begin), PartitionId(end), return_grace=return_grace)


def ranges(partitions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield [begin, end) for each run of consecutive numbers."""
    begin = end = None
    for partition in partitions:
        if end is None or partition != end:
            if begin is not None and end is not None:
                yield begin, end
            begin = partition
        end = partition + 1
    if begin is not None and end is not None:
        yield begin, end
