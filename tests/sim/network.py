"""The simulated network: connections that delay, break, cut one way, and, where the seed says so, repeat and reorder.

`Link` stands for common/net/frames/client.FrameClient and has what the product calls of it; a server has `accept` and
`handle`. A message that is lost breaks its connection, at once or late, as TCP does; a repeated one is a resend that
arrives twice. Calls of the masters go the same ways without a connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from holdfast.common.errors import HoldfastError, RetryError, error_for
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import (
    DataFlag,
    Hello,
    Role,
    StreamCredit,
    StreamData,
    StreamOpen,
    StreamOpened,
)
from holdfast.common.formats.reduce_messages import ChunksData, ChunksOpen, ChunksOpened
from holdfast.common.net.frames.client import Reply
from holdfast.common.net.frames.wire import FileRange
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import background
from tests.sim.clock import Life, VirtualLoop, here
from tests.sim.env.files import read_range

#: Frames of streams that a connection takes before it is crowded.
FRAMES_MAX = 4
#: Frames that may arrive twice: everything that a client may send again.
_REPEATABLE = (FrameType.PUSH, FrameType.REPLICATE, FrameType.SEAL)


class Server(Protocol):
    """What a host that takes connections has."""

    life: Life

    def accept(self, end: ServerEnd, hello: Hello) -> object: ...
    def handle(self, end: ServerEnd, header: FrameHeader, meta: bytes, body: bytes) -> None: ...
    def lost(self, end: ServerEnd) -> None: ...
    def writable(self, end: ServerEnd) -> None: ...


@dataclass
class Weather:
    """What the network does to messages now."""

    drop: float = 0.0
    repeat: float = 0.0
    turn: float = 0.0  #: a byte of a body arrives changed
    slow: float = 0.002
    reorder: bool = False


class Network:
    """All connections of one world."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.weather = Weather()
        self.servers: dict[str, Server] = {}
        #: one-way cuts and until when they last
        self.cuts: dict[tuple[str, str], float] = {}
        self.links: dict[Link, None] = {}
        #: calls that masters have not answered: where they are, and how to say that they are lost
        self._calls: dict[asyncio.Future[Any], tuple[str, Callable[[], None]]] = {}
        self._numbers = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self.messages = 0

    def note(self, *what: object) -> None:
        """Add something to the trace."""
        self._trace.update(f"{self.loop.now:.9f} {what}\n".encode())

    def digest(self) -> str:
        return self._trace.hexdigest()

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def carry(
        self, sender: Life, receiver: Life, act: Callable[[], object], lost: Callable[[], object], repeat: bool = False
    ) -> None:
        """Bring a message over: `act` runs at the receiver, or `lost` somewhere later."""
        if not sender.alive:
            return
        rng, weather = self.rng, self.weather
        wait = rng.uniform(0.0001, weather.slow)
        self.messages += 1
        until = self.cuts.get((sender.host, receiver.host), 0.0)
        if until > self.loop.now:
            if rng.random() < 0.5:
                self.loop.call_later(rng.uniform(0.0, until - self.loop.now + 1.0), lost)
                return
            wait += until - self.loop.now
        if rng.random() < weather.drop:
            self.loop.call_later(rng.uniform(0.0, 1.0) ** 3, lost)
            return
        self.loop.on(receiver, wait, act)
        if repeat and rng.random() < weather.repeat:
            self.loop.on(receiver, wait + rng.uniform(0.0, 0.5), act)

    def host_ended(self, host: str) -> None:
        """A host crashed: its connections break, sooner or later."""
        for link in [each for each in self.links if host in (each.source.host, each.target.host)]:
            self.loop.call_later(self.rng.uniform(0.0, 0.3), link.broke)
        for at, lost in list(self._calls.values()):
            if at == host:
                self.loop.call_later(self.rng.uniform(0.0, 0.3), lost)

    def close_all(self, life: Life) -> None:
        """A process closes every connection to it; the others hear of it sooner or later."""
        for link in [each for each in self.links if each.target is life]:
            self.loop.call_later(self.rng.uniform(0.0, 0.3), link.broke)

    # Calls to masters.

    async def ask(self, host: str, method: str, request: Any, seconds: float) -> Any:
        """Call a method of a master; raises what it raises, or RetryError if no answer came."""
        source, server = here.get(), self.servers.get(host)
        future: asyncio.Future[Any] = self.loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

        def lost() -> None:
            settle(None, RetryError(f"{host} does not answer"))

        async def work() -> None:
            assert server is not None
            try:
                reply = await server.call(method, request)  # type: ignore[attr-defined]
            except HoldfastError as error:
                reworded = error.reworded(str(error))
                reworded.from_server = True
                self.carry(server.life, source, lambda: settle(None, reworded), lost)
            else:
                self.carry(server.life, source, lambda: settle(reply, None), lost)

        if server is None or not server.life.alive:
            self.loop.call_later(0.01, lost)
        else:
            self.carry(source, server.life, lambda: self.loop.create_task(work()), lost)
        self._calls[future] = host, lost
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise RetryError(f"{host} did not answer in time") from None
        finally:
            del self._calls[future]


class ServerEnd:
    """The server's side of a connection: stands for common/net/frames/server.ServerConnection."""

    def __init__(self, link: Link, role: Role, number: int) -> None:
        self.link, self.role, self.number = link, role, number
        self.peer = f"{link.source.host}:{number}"
        #: whose it is: without security nobody knows
        self.owner: tuple[bytes, ...] = ()
        #: looks at answers before they go
        self.watch: Callable[[ServerEnd, FrameHeader, bytes], None] = lambda *_: None
        #: requests whose answers are watched: meta and body, by header
        self.asked: dict[FrameHeader, tuple[bytes, bytes]] = {}
        self.held_bytes = 0
        self._frames = 0
        #: requests that came while nothing was to be read
        self._held: list[Callable[[], None]] | None = None

    @property
    def closed(self) -> bool:
        return self.link.closed

    @property
    def crowded(self) -> bool:
        """Enough waits to be sent."""
        return self._frames >= FRAMES_MAX

    def owner_of(self, instance: bytes) -> tuple[bytes, ...]:
        return self.owner or (instance,)

    def reply(self, header: FrameHeader, meta: bytes = b"", *body: Any) -> None:
        self.watch(self, header, meta)
        self.link.back(header, meta, None)

    def refuse(self, header: FrameHeader, error: HoldfastError) -> None:
        if header.type is FrameType.STREAM_CREDIT:
            self._bring(header.type, header.request_id, b"", b"", error)
        else:
            self.link.back(header, None, error)

    def send(
        self,
        frame_type: FrameType,
        request_id: int,
        meta: bytes = b"",
        *body: Any,
        response: bool = False,
        status: Status = Status.OK,
    ) -> None:
        """Send a frame of a stream."""
        error = None if status is Status.OK else error_for(status, meta.decode(errors="replace"))
        self._bring(frame_type, request_id, meta, b"".join(body), error)

    def send_range(self, frame_type: FrameType, request_id: int, meta: bytes, body: FileRange) -> None:
        """Send a part of a file: what cannot be read ends the connection."""
        try:
            data = read_range(body.fileno, body.count, body.offset)
        except OSError as error:
            assert body.failed is not None, "whoever sends a file hears of it"
            body.failed(error)
            data = b""
        if len(data) == body.count:
            self._bring(frame_type, request_id, meta, data, None)
        else:
            self.abort()

    def _bring(
        self, frame_type: FrameType, request_id: int, meta: bytes, body: bytes, error: HoldfastError | None
    ) -> None:
        self._frames += 1
        self.held_bytes += len(body)
        link = self.link

        def gone() -> None:
            was_crowded, self._frames = self.crowded, self._frames - 1
            self.held_bytes -= len(body)
            if was_crowded and not self.closed and link.target.alive:
                link.network.loop.on(link.target, 0.0, lambda: link.server.writable(self))

        link.bring(frame_type, request_id, meta, body, error, gone)

    def take(self, act: Callable[[], None]) -> None:
        """A request came."""
        if self._held is None:
            act()
        else:
            self._held.append(act)

    def hold(self) -> None:
        """Read nothing more for the moment."""
        self._held = self._held or []

    def unhold(self) -> None:
        """Go on."""
        held, self._held = self._held or [], None
        for act in held:
            self.take(act)

    def cork(self) -> None:
        """Frames go one by one here."""

    uncork = cork

    def abort(self, error: HoldfastError | None = None) -> None:
        self.link.network.loop.call_soon(self.link.broke)

    close_because = abort


class Sink:
    """Takes the frames of one stream, in their order."""

    def __init__(self) -> None:
        self.request = 0
        #: meta, body, or what ended the stream
        self.frames: asyncio.Queue[tuple[bytes, bytes, HoldfastError | None]] = asyncio.Queue()
        self._early: dict[int, tuple[bytes, bytes, HoldfastError | None]] = {}
        self._next = 0

    def come(self, place: int, meta: bytes, body: bytes, error: HoldfastError | None) -> None:
        self._early[place] = meta, body, error
        while self._next in self._early:
            self.frames.put_nowait(self._early.pop(self._next))
            self._next += 1


class SimBody:
    """Stands for common/net/buffers.Body."""

    def __init__(self, data: bytes) -> None:
        self.view = memoryview(data)

    def __len__(self) -> int:
        return len(self.view)

    def release(self) -> None:
        """It is the collector's."""


class OpenedStream:
    """Stands for common/net/frames/client.ClientStream."""

    def __init__(self, link: Link, frames: Sink, opened: StreamOpened | ChunksOpened) -> None:
        self._link, self._frames, self.opened = link, frames, opened

    def credit(self, size: int) -> None:
        """Allow `size` more body bytes."""
        self._post(FrameType.STREAM_CREDIT, size)

    def close(self) -> None:
        """Forget the stream; what is still on its way is dropped."""
        self._post(FrameType.STREAM_CLOSE, 0)
        self._link.forget(self._frames)

    def _post(self, kind: FrameType, size: int) -> None:
        meta = StreamCredit(stream=self.opened.stream, credit_bytes=size).encode()
        self._link.post(kind, self._frames.request, meta)


class Link:
    """The client's side of a connection."""

    def __init__(self, network: Network, source: Life, server: Server, hello: Hello) -> None:
        self._network = network
        self.source = source
        self.server = server
        self.target = server.life
        self.closed = False
        self.peer = f"{server.life.host}:1"
        #: of those who push over it, as client/push_credit.WorkerLink has it
        self.line: Any = None
        #: frames come in the order in which they were sent, as over TCP
        self.in_order = False
        self._sent_frames, self._due_frames = [0, 0], [0, 0]
        self._early_frames: tuple[dict[int, Callable[[], object]], ...] = ({}, {})
        self._requests: dict[int, asyncio.Future[Reply]] = {}
        self._next = 0
        self._times = [0.0, 0.0]
        #: of streams, by the requests that opened them: what waits for the frames before it, and who takes them
        self._sinks: dict[int, Sink] = {}
        self._sent: Counter[int] = Counter()
        self.end = ServerEnd(self, hello.role, network.number())
        self.hello: Any = server.accept(self.end, hello)
        network.links[self] = None

    @property
    def network(self) -> Network:
        return self._network

    async def request(self, kind: FrameType, meta: bytes = b"", *parts: Any, sink: Sink | None = None) -> Reply:
        """Send a frame; return its answer, or raise what it says. Raises RetryError if the connection is lost."""
        return await self._start(kind, meta, *parts, sink=sink)

    async def start(self, kind: FrameType, meta: bytes = b"", *parts: Any) -> asyncio.Future[Reply]:
        """Send a frame, and return the future of its answer."""
        return self._start(kind, meta, *parts)

    def _start(self, kind: FrameType, meta: bytes, *parts: Any, sink: Sink | None = None) -> asyncio.Future[Reply]:
        if self.closed:
            raise RetryError(f"the connection to {self.peer} is lost")
        self._next += 1
        number, body = self._next, b"".join(parts)
        header = FrameHeader(kind, 0, number, len(meta), len(body), 0, 0)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._requests[number] = future
        network = self._network
        network.note(self.source.host, self.target.host, kind.name, len(meta), len(body))
        if body and network.rng.random() < network.weather.turn:
            at = network.rng.randrange(len(body))
            body = body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :]
        if sink is not None:
            self._sinks[number] = sink
            sink.request = number
        self._ask(header, meta, body, kind in _REPEATABLE)
        future.add_done_callback(lambda _: self._requests.pop(number, None))
        return future

    async def open_stream(self, request: StreamOpen, sink: Any) -> OpenedStream:
        """Open a stream of MAP files into the product's sink."""
        frames = Sink()
        reply = await self.request(FrameType.STREAM_OPEN, request.encode(), sink=frames)
        background(self._bring_to(frames, sink, StreamData.decode))
        return OpenedStream(self, frames, StreamOpened.decode(reply.meta))

    async def open_chunks(self, request: ChunksOpen, sink: Any) -> OpenedStream:
        """Open a stream of chunks into the product's sink."""
        frames = Sink()
        reply = await self.request(FrameType.CHUNKS_OPEN, request.encode(), sink=frames)
        background(self._bring_to(frames, sink, ChunksData.decode))
        return OpenedStream(self, frames, ChunksOpened.decode(reply.meta))

    @staticmethod
    async def _bring_to(frames: Sink, sink: Any, decode: Callable[[bytes], StreamData | ChunksData]) -> None:
        while True:
            meta, body, error = await frames.frames.get()
            if error is not None:
                sink.failed(error)
                return
            data = decode(meta)
            sink.data(data, SimBody(body) if body else None)
            if data.flags & DataFlag.END:
                return

    def _ask(self, header: FrameHeader, meta: bytes, body: bytes, repeat: bool) -> None:
        end = self.end
        self._carry(0, lambda: end.take(lambda: self.server.handle(end, header, meta, body)), repeat)

    def post(self, kind: FrameType, number: int, meta: bytes) -> None:
        """Send a frame that is not answered."""
        if not self.closed:
            self._ask(FrameHeader(kind, 0, number, len(meta), 0, 0, 0), meta, b"", False)

    def forget(self, sink: Sink) -> None:
        """Nobody takes what comes of a stream any more."""
        self._sinks.pop(sink.request, None)

    def bring(
        self,
        kind: FrameType,
        number: int,
        meta: bytes,
        body: bytes,
        error: HoldfastError | None,
        gone: Callable[[], None],
    ) -> None:
        """Bring a frame of a stream to who opened it, behind those before it."""
        place = self._sent[number]
        self._sent[number] += 1
        self._network.note(self.target.host, self.source.host, kind.name, len(body), error and error.status)

        def arrive() -> None:
            gone()
            sink = self._sinks.get(number)
            if sink is not None:
                sink.come(place, meta, body, error)

        self._carry(1, arrive, False)

    def back(self, header: FrameHeader, meta: Any, error: HoldfastError | None) -> None:
        """Bring an answer to who asked."""

        def arrive() -> None:
            future = self._requests.get(header.request_id)
            if future is None or future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(Reply(meta))

        self._network.note(self.target.host, self.source.host, header.type.name, error and error.status)
        self._carry(1, arrive, False)

    def _carry(self, way: int, act: Callable[[], object], repeat: bool) -> None:
        ends = (self.source, self.target)
        sender, receiver = ends[way], ends[1 - way]

        def arrive() -> None:
            if not self.closed:
                act()

        network = self._network
        if self.in_order:
            arrive = partial(self._in_turn, way, self._sent_frames[way], arrive)
            self._sent_frames[way] += 1
        if self.in_order or network.weather.reorder:
            network.carry(sender, receiver, arrive, self.broke, repeat)
            return
        # A little in order: what comes later does not set off before what was sent first.
        first = max(self._times[way], network.loop.now)
        self._times[way] = first + 1e-6
        network.loop.call_later(first - network.loop.now, network.carry, sender, receiver, arrive, self.broke, repeat)

    def _in_turn(self, way: int, place: int, arrive: Callable[[], object]) -> None:
        """A frame has arrived: it waits for those that were sent before it."""
        early = self._early_frames[way]
        early[place] = arrive
        while (due := self._due_frames[way]) in early:
            self._due_frames[way] += 1
            early.pop(due)()

    def broke(self) -> None:
        """The connection is lost: all who wait for an answer hear of it."""
        if self.closed:
            return
        self.closed = True
        self._network.links.pop(self, None)
        for future in list(self._requests.values()):
            if not future.done():
                future.set_exception(RetryError(f"the connection to {self.peer} is lost"))
        for sink in list(self._sinks.values()):
            sink.frames.put_nowait((b"", b"", RetryError(f"the connection to {self.peer} is lost")))
        if self.target.alive:
            self._network.loop.on(self.target, 0.001, lambda: self.server.lost(self.end))

    abort = close = broke


class Dialer:
    """Stands for the class FrameClient where the product connects."""

    network: Network

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        hello: Hello,
        pool: object = None,
        *,
        timeout_seconds: float = 5.0,
        inflight_max: int = 64,
        credentials: None = None,
    ) -> Link:
        """Connect to a host. Raises RetryError if it cannot be reached."""
        network, source = cls.network, here.get()
        server = network.servers.get(host)
        future: asyncio.Future[None] = network.loop.create_future()

        def arrived() -> None:
            if not future.done():
                future.set_result(None)

        if server is not None and server.life.alive:
            network.carry(source, server.life, arrived, lambda: None)
        try:
            async with asyncio.timeout(timeout_seconds if server is not None and server.life.alive else 0.01):
                await future
        except TimeoutError:
            raise RetryError(f"{host} cannot be reached") from None
        assert server is not None
        if not server.life.alive:
            raise RetryError(f"{host} refuses connections")
        return Link(network, source, server, hello)


def refusal(text: str, status: Status) -> RetryError:
    return RetryError(text, status=status)
