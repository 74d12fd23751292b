"""Clients: executors that push and read with the product's sessions, and what stands for the edges around these.

`_PushSender`, `PushLine`, `Addresses` and `PushBatches` are the product's; `push` does what writer threads do
(push_writer.PushWriter), `Reader` what stream_reader.py and push_reader.py do around `ChunkFetch`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from holdfast.client.compress import Compression
from holdfast.client.connection import push_credit
from holdfast.client.connection.addresses import Addresses, known_addresses
from holdfast.client.connection.ticket import Ticket
from holdfast.client.core.read.check import IncompleteError
from holdfast.client.core.read.chunk_fetch import ChunkFetch, EpochKey
from holdfast.client.core.read.fetch import (
    AskMasters,
    CloseStream,
    Complete,
    Effect,
    OpenStream,
    ReadFailed,
    WorkerState,
)
from holdfast.client.core.write.locations import PartitionLocations
from holdfast.client.core.write.revivals import NO_ROOM_GRACE_NS
from holdfast.client.write import push_writer
from holdfast.client.write.batches import PushBatches
from holdfast.client.write.push_writer import Routes
from holdfast.client.write.status import PushStatus
from holdfast.common.errors import CorruptError, HoldfastError, RetryError
from holdfast.common.formats.batch import Codec, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Ack, Hello, Role, StreamCredit
from holdfast.common.formats.reduce_layouts import ReduceLocations, ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import ChunkFlag, ChunksData, ChunksOpen, ChunksOpened, PushEntry
from holdfast.common.ids import AttemptId, Incarnation, Instance, MapId, PartitionId, RaftIndex, ShuffleKey, WorkerId
from holdfast.common.limits import U32_MAX
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.sim.clock import Life, Violation, here, pause
from tests.sim.control import Control
from tests.sim.network import Dialer, Link, Network, Sink

HOLDER = b"h" * 16
GRACE_NS = 30 * 10**9
#: Of a stream: little, so that it runs out.
CREDIT_BYTES = 1_500


#: Nothing here goes over real connections.
TICKET = Ticket("", "sim", Instance(bytes(16)), bytes(16))


class SimRuntime:
    """Stands for client/runtime.Runtime: one for each life of an executor."""

    pid = 0
    #: connections keep the order of frames, whatever the weather: where the product needs it, as of TCP
    in_order = False

    def __init__(self, network: Network) -> None:
        self._network = network
        self.loop = network.loop
        self.kept: dict[object, dict[Any, Any]] = {}
        self._control: Control | None = None
        self._links: dict[str, Link] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def call(self, ticket: Ticket, method: str, request: Any, deadline_s: float) -> Any:
        return await self.control().call(method, request, deadline_s=deadline_s)

    def control(self) -> Control:
        if self._control is None:
            self._control = Control(self._network)
        return self._control

    def peers(self, ticket: Ticket) -> SimRuntime:
        return self

    async def link(self, address: str) -> Link:
        async with self._opening.setdefault(address, asyncio.Lock()):
            link = self._links.get(address)
            if link is None or link.closed:
                hello = Hello(role=Role.CLIENT, cluster_id="sim")
                link = self._links[address] = await Dialer.connect(address.partition(":")[0], 1, hello)
                link.line = push_credit.PushLine(cast("Any", link))
                link.in_order = self.in_order
            return link

    def open_link(self, address: str) -> Link | None:
        link = self._links.get(address)
        return None if link is None or link.closed else link


def runtime_here() -> Any:
    return here.get().runtime  # type: ignore[attr-defined]


class Executor:
    """One process that runs tasks, over all its starts."""

    def __init__(self, name: str, network: Network) -> None:
        self.name, self._network = name, network
        self.life = Life(name)
        self.start()

    def start(self) -> None:
        self.life = Life(self.name)
        self.life.runtime = SimRuntime(self._network)  # type: ignore[attr-defined]
        self.routes: dict[ShuffleKey, Routes] = {}

    def crash(self) -> None:
        self.life.end()
        self._network.host_ended(self.name)

    def run(self, work: Any) -> asyncio.Task[Any]:
        """Start a task of this executor; it is cancelled when that crashes."""
        token = here.set(self.life)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            here.reset(token)


@dataclass
class ShuffleHere:
    """What a registration told."""

    key: ShuffleKey
    ack: Ack
    partitions: int
    maps: int
    reply: Any
    holder: bytes = HOLDER
    ack_copies: int = 0

    def message(self) -> pb.ShuffleKey:
        return key_message(self.key)

    def routes(self, executor: Executor) -> Routes:
        """Shared by all attempts of a process."""
        found = executor.routes.get(self.key)
        if found is None:
            incarnations = {WorkerId(each.worker): Incarnation(each.incarnation) for each in self.reply.workers}
            first = ReduceLocations.decode(self.reply.assignment_array).partitions
            known = known_addresses(self.reply.workers)
            found = executor.routes[self.key] = Routes(
                PartitionLocations(first, incarnations), Addresses(TICKET, known)
            )
        return found


@dataclass
class Plan:
    """One attempt: its records in order, and how fast it makes them."""

    map: int
    attempt: int
    records: list[tuple[int, bytes]]
    press: int
    pause: float
    #: (partition, epoch, number) of the batches that it counts as kept there
    kept: set[tuple[int, int, int]] = field(default_factory=set)


async def push(executor: Executor, shuffle: ShuffleHere, plan: Plan, rng: random.Random) -> PushStatus:
    """Run one attempt to its end; raises what ended it."""
    ticket = Ticket("", "sim", shuffle.key.instance, shuffle.holder, NO_ROOM_GRACE_NS)
    face: Any = SimpleNamespace(
        key=shuffle.key,
        ack=shuffle.ack,
        ack_copies=shuffle.ack_copies,
        raft_index=RaftIndex(shuffle.reply.raft_index),
        ticket=ticket,
        routes=lambda: shuffle.routes(executor),
    )
    map_id, attempt = MapId(plan.map), AttemptId(plan.attempt)
    pusher = push_writer._PushSender(face, map_id, attempt, plan.press)
    pusher._core._settle = _noting(plan.kept, pusher._core._settle)  # type: ignore[method-assign]
    batches = PushBatches(shuffle.key, map_id, attempt, shuffle.partitions, Compression(Codec.NONE))
    try:
        for partition, payload in plan.records:
            pusher.add(batches.add(partition, payload))
            if plan.pause:
                await pause(rng.uniform(0.0, plan.pause))
        bitmap = batches.bitmap()
        pusher.add(batches.end())
        pusher.finish()
        await asyncio.wrap_future(pusher.outcome)
    finally:
        pusher._core.check()
        pusher.abort()
    return PushStatus(shuffle.key, map_id, attempt, shuffle.partitions, bitmap)


def _noting(kept: set[tuple[int, int, int]], settle: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Settle batches, and note where they are kept."""

    def noted(destination: Any, batches: list[int], entries: list[PushEntry], behind: int) -> list[Any]:
        kept.update((entry.partition, entry.epoch, entry.number) for entry in entries)
        return settle(destination, batches, entries, behind)

    return noted


async def manifest_of(control: Control, shuffle: ShuffleHere, winners: bytes) -> pb.GetManifestReply:
    """Wait for the commit, and commit if nobody has begun to."""
    while True:
        request = pb.GetManifestRequest(
            key=shuffle.message(), wait_ms=5000, holder=shuffle.holder, offers_winners=bool(winners)
        )
        try:
            return await control.call("Shuffles/GetManifest", request, 60.0)
        except HoldfastError as error:
            if error.status is Status.NEED_WINNERS:
                await commit(control, shuffle, winners)
            elif not isinstance(error, RetryError):
                raise


async def commit(control: Control, shuffle: ShuffleHere, winners: bytes) -> None:
    """Say the final word, until it is heard."""
    while True:
        try:
            request = pb.CommitRequest(key=shuffle.message(), winners_array=winners, holder=shuffle.holder)
            await control.call("Shuffles/Commit", request, 60.0)
        except RetryError:
            continue
        return


class Reader:
    """One read of some partitions; `records` has what was handed on, by partition."""

    def __init__(
        self,
        network: Network,
        shuffle: ShuffleHere,
        reply: pb.GetManifestReply,
        partitions: list[int],
        maps: range | None = None,
    ) -> None:
        self._network, self._shuffle = network, shuffle
        #: told what ended a stream
        self.on_broken: Callable[[OpenStream[EpochKey], HoldfastError], None] = lambda *_: None
        self.manifest = ReduceManifest.decode(reply.manifest_array)
        self.winners = ReduceWinners.decode(reply.winners_array)
        wanted = [PartitionId(each) for each in partitions]
        self._maps = maps
        self._core = ChunkFetch(
            self.manifest, self.winners, wanted, where=f"shuffle {shuffle.key}", grace_ns=GRACE_NS, maps=maps
        )
        self._addresses = Addresses(TICKET, known_addresses(reply.workers))
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._open: dict[int, OpenStream[EpochKey]] = {}
        self._complete = False
        #: strong references; asyncio keeps none
        self._tasks: set[asyncio.Task[None]] = set()
        #: copies of which a chunk came with a wrong byte: one each, since three tries may be the end
        self._turned: set[tuple[EpochKey, int]] = set()
        #: how many chunks of a copy came whole, counted apart from the product
        self._whole: Counter[tuple[EpochKey, int]] = Counter()
        #: (stream, index) of files that were read to their end
        self._done: set[tuple[int, int]] = set()
        self.records: dict[int, Counter[bytes]] = {each: Counter() for each in partitions}

    async def read(self) -> None:
        """Read to the end. Raises DataLostError, CorruptError and what else ends a read."""
        self._do(self._core.started())
        while not self._complete:
            act = await self._events.get()
            act()
            self._core.check()

    def _now(self) -> int:
        return int(self._network.loop.now * 1e9) + 1

    def _do(self, effects: list[Effect[EpochKey]]) -> None:
        for effect in effects:
            match effect:
                case OpenStream():
                    self._open[effect.stream] = effect
                    self._spawn(self._stream(effect))
                case CloseStream():
                    self._open.pop(effect.stream, None)
                case AskMasters():
                    self._spawn(self._ask(effect.after_ns))
                case Complete():
                    self._complete = True
                case ReadFailed():
                    raise effect.error

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, after_ns: int) -> None:
        await pause(after_ns / 1e9)
        try:
            states = await self._addresses.refresh()
        except HoldfastError as error:
            told = error
            self._events.put_nowait(lambda: self._do(self._core.fetch.masters_silent(told, self._now())))
            return
        alive = {worker for worker, state in states.items() if state == WorkerState.ALIVE}
        if self._core.holders().may_be_more(alive):
            with suppress(HoldfastError):
                newer = await manifest_of(here.get().runtime.control(), self._shuffle, b"")  # type: ignore[attr-defined]
                self._core.learn(ReduceManifest.decode(newer.manifest_array))
        self._events.put_nowait(lambda: self._do(self._core.fetch.workers_known(states, self._now())))

    async def _stream(self, effect: OpenStream[EpochKey]) -> None:
        try:
            client: Any = await self._addresses.connect(effect.worker)
            files: list[tuple[int, int, int]] = [
                (*key, self._core.first_chunk(key, effect.worker)) for key in effect.files
            ]
            self._put(self._check_asked, effect, files)
            maps = self._maps or range(U32_MAX)
            request = ChunksOpen(
                shuffle=self._shuffle.key,
                map_begin=maps.start,
                map_end=maps.stop,
                credit_bytes=CREDIT_BYTES,
                files=files,
            )
            sink = Sink()
            async with asyncio.timeout(30.0):
                meta = (await client.request(FrameType.CHUNKS_OPEN, request.encode(), sink=sink)).meta
            try:
                await self._frames(effect, client, sink, ChunksOpened.decode(meta))
            finally:
                client.forget(sink)
        except TimeoutError:
            self._put(self._broken, effect, RetryError("no answer"))
        except HoldfastError as error:
            self._put(self._broken, effect, error)

    async def _frames(self, effect: OpenStream[EpochKey], client: Link, sink: Sink, opened: ChunksOpened) -> None:
        """Take the frames of a stream, whole chunks of them, and give credit for each."""
        rng, parts = self._network.rng, b""
        while effect.stream in self._open:
            async with asyncio.timeout(30.0):
                meta, body, error = await sink.frames.get()
            if error is not None:
                raise error
            data = ChunksData.decode(meta)
            parts += body
            if data.flags & ChunkFlag.END_OF_CHUNK:
                copy, whole, parts = (effect.files[data.file], effect.worker), parts, b""
                if whole and copy not in self._turned and rng.random() < self._network.weather.turn:
                    self._turned.add(copy)
                    whole = bytes((whole[0] ^ 1,)) + whole[1:]
                self._put(self._piece, effect, data.file, data.chunk, whole, opened.chunks)
            if data.flags & ChunkFlag.END:
                self._put(self._ended, effect, opened.chunks)
                return
            if body:
                credit = StreamCredit(stream=opened.stream, credit_bytes=len(body)).encode()
                client.post(FrameType.STREAM_CREDIT, sink.request, credit)
        client.post(FrameType.STREAM_CLOSE, sink.request, StreamCredit(stream=opened.stream, credit_bytes=0).encode())

    def _put(self, act: Any, effect: OpenStream[EpochKey], *values: Any) -> None:
        self._events.put_nowait(lambda: act(effect, *values) if effect.stream in self._open else None)

    def _check_asked(self, effect: OpenStream[EpochKey], files: list[tuple[int, int, int]]) -> None:
        """Chunks of one copy say nothing of those of another, even where that would be made good by a third try."""
        for key, (*_, first) in zip(effect.files, files, strict=True):
            had = self._whole[key, effect.worker]
            if first > had:
                raise Violation(f"{key} of worker {effect.worker} is read from chunk {first}, {had} of it had come")

    def _broken(self, effect: OpenStream[EpochKey], error: HoldfastError) -> None:
        del self._open[effect.stream]
        self.on_broken(effect, error)
        self._do(self._core.fetch.stream_failed(effect.stream, error, self._now()))

    def _piece(self, effect: OpenStream[EpochKey], file: int, chunk: int, data: bytes, counts: list[int]) -> None:
        key = effect.files[file]
        partition = key[0]
        core = self._core
        if not self._finish(effect, file, counts):
            return
        try:
            core.chunk_came(key, effect.worker, chunk)
            if self._maps:  # of a range of maps the worker leaves out chunks that have nothing of them
                self._whole[key, effect.worker] = chunk
            for batch in parse_batches(memoryview(data), partition_seed(self._shuffle.key, partition)):
                if core.admit(partition, batch) and len(batch.payload):
                    self.records[partition][bytes(batch.payload)] += 1
            core.chunk_came(key, effect.worker, chunk, size=len(data))
            self._whole[key, effect.worker] = chunk + 1
            self._do(core.fetch.progressed(effect.stream))
        except (CorruptError, IncompleteError) as error:
            self._open.pop(effect.stream, None)
            self._do(core.fetch.file_bad(effect.stream, key, str(error)))

    def _finish(self, effect: OpenStream[EpochKey], file: int, counts: list[int]) -> bool:
        """The files before this one were sent in full; return whether all of their chunks came."""
        for index in range(file):
            key = effect.files[index]
            if (effect.stream, index) in self._done:
                continue
            try:
                self._core.file_sent(key, effect.worker, counts[index])
            except IncompleteError as error:
                self._open.pop(effect.stream, None)
                self._do(self._core.fetch.file_bad(effect.stream, key, str(error)))
                return False
            self._done.add((effect.stream, index))
            self._do(self._core.epoch_complete(effect.stream, key, effect.worker))
        return True

    def _ended(self, effect: OpenStream[EpochKey], counts: list[int]) -> None:
        if not self._finish(effect, len(effect.files), counts):
            return
        self._open.pop(effect.stream, None)
        self._do(self._core.fetch.stream_ended(effect.stream))
