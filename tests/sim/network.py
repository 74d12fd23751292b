"""The simulated network: connections that delay, break, cut one way, and, where the seed says so, repeat and reorder.

`Link` stands for common/net/frames/client.FrameClient and has what the product calls of it; a server has `accept` and
`handle`. A message that is lost breaks its connection, at once or late, as TCP does; a repeated one is a resend that
arrives twice. Calls of the masters go the same ways without a connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.net.frames.client import Reply
from holdfast.common.statuses import Status
from tests.sim.clock import Life, VirtualLoop, here

#: Frames that may arrive twice: everything that a client may send again.
_REPEATABLE = (FrameType.PUSH, FrameType.REPLICATE, FrameType.SEAL)


class Server(Protocol):
    """What a host that takes connections has."""

    life: Life

    def accept(self, end: ServerEnd) -> object: ...
    def handle(self, end: ServerEnd, header: FrameHeader, meta: bytes, body: bytes) -> None: ...
    def lost(self, end: ServerEnd) -> None: ...


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


@dataclass(eq=False)
class ServerEnd:
    """The server's side of a connection: stands for common/net/frames/server.ServerConnection."""

    link: Link
    role: Role
    number: int
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        return self.link.closed

    def reply(self, header: FrameHeader, meta: Any) -> None:
        self.link.back(header, meta, None)

    def refuse(self, header: FrameHeader, error: HoldfastError) -> None:
        self.link.back(header, None, error)


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
        self._requests: dict[int, asyncio.Future[Reply]] = {}
        self._next = 0
        self._times = [0.0, 0.0]
        self.end = ServerEnd(self, hello.role, network.number())
        self.hello: Any = server.accept(self.end)
        network.links[self] = None

    async def request(self, kind: FrameType, meta: bytes = b"", *parts: Any) -> Reply:
        """Send a frame; return its answer, or raise what it says. Raises RetryError if the connection is lost."""
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
        self._carry(0, lambda: self.server.handle(self.end, header, meta, body), kind in _REPEATABLE)
        try:
            return await future
        finally:
            self._requests.pop(number, None)

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
        if network.weather.reorder:
            network.carry(sender, receiver, arrive, self.broke, repeat)
            return
        # In order: what comes later does not arrive before what was sent first.
        first = max(self._times[way], network.loop.now)
        self._times[way] = first + 1e-6
        network.loop.call_later(first - network.loop.now, network.carry, sender, receiver, arrive, self.broke, repeat)

    def broke(self) -> None:
        """The connection is lost: all who wait for an answer hear of it."""
        if self.closed:
            return
        self.closed = True
        self._network.links.pop(self, None)
        for future in list(self._requests.values()):
            if not future.done():
                future.set_exception(RetryError(f"the connection to {self.peer} is lost"))
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
        shown: None = None,
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


#: An answer to HELLO as far as the product looks at it.
def greeting(worker: int, incarnation: int, uid: bytes) -> SimpleNamespace:
    return SimpleNamespace(worker=worker, incarnation=incarnation, uid=uid)
