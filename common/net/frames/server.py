"""The worker side of framed connections: a listening server, and the interface of its handler.

Rules: the first frame is HELLO, within a time limit that a TLS handshake is part of; a connection that stops in the
middle of a frame is closed, since it holds memory of the pool, and so is one that is too slow while others wait;
connections are bounded, from before their handshake on. A body is received once the handler has admitted it. Whatever a
handler raises as a HoldfastError while it takes a frame closes that connection with its status. Called by worker/server
and tests.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from functools import partial
from typing import Protocol

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, HelloOk
from holdfast.common.limits import FRAME_META_BYTES_MAX
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.connection import SOCKET_BUFFER_BYTES, SWEEP_SECONDS, Buffer, FrameConnection
from holdfast.common.net.frames.reader import Frame
from holdfast.common.net.tls import TlsPipe
from holdfast.common.statuses import Status

#: A connection that has not said HELLO after this is closed.
HELLO_SECONDS = 5.0
#: Connections at a time; an executor has a handful.
CONNECTIONS_MAX = 4_096
#: The part of them that may not have said HELLO yet: the one that has waited longest is closed for the next.
STRANGERS_SHARE = 4
#: What the system takes beyond the bound before it can be refused.
BACKLOG = 100


class Handler(Protocol):
    """Who answers. Everything is called on the loop thread and must not block."""

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        """Accept a connection, or refuse it by raising a HoldfastError."""

    def admit(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> bool:
        """Whether to receive the body of this request. False: it is refused already, and its body is thrown away."""

    def frame(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
        """Take a request; the body is the handler's to release, also if it raises."""

    def writable(self, connection: ServerConnection) -> None:
        """What was queued is nearly sent."""

    def hurried(self) -> bool:
        """Whether others wait for what is reserved for a body on its way."""

    def lost(self, connection: ServerConnection) -> None:
        """The connection is closed. Called once for each that sent HELLO."""


class ServerConnection(FrameConnection):
    """One accepted connection."""

    _answers_only = True

    def __init__(self, server: FrameServer) -> None:
        super().__init__(server.pool, None if server.tls is None else TlsPipe(server.tls))
        self._server = server
        self._greeting: asyncio.TimerHandle | None = None
        #: user and application whose share it uses; empty without security, and for servers
        self.owner: tuple[bytes, ...] = ()
        #: counts connections, as a short name of this one
        self.number = next(server.numbers)

    @property
    def greeted(self) -> bool:
        """HELLO was said and accepted."""
        return self._reader.greeted

    def owner_of(self, instance: bytes) -> tuple[bytes, ...]:
        """The owner whose share it uses for an application; the application alone if its user is not known."""
        return self.owner or (instance,)

    def reply(self, header: FrameHeader, meta: bytes = b"", *body: Buffer) -> None:
        """Answer a request with OK."""
        if not self.closed:
            self.send(header.type, header.request_id, meta, *body, response=True)

    def refuse(self, header: FrameHeader, error: HoldfastError) -> None:
        """Answer a request with an error's status and words."""
        if not self.closed:
            words = str(error).encode()[:FRAME_META_BYTES_MAX]
            self.send(header.type, header.request_id, words, response=True, status=error.status)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (called by asyncio)."""
        super().connection_made(transport)
        self._server.connections.add(self)
        if self._server.ended:
            self.abort()  # the system had taken it before the port was closed
            return
        most = self._server.connections_max
        if len(self._server.connections) > most:
            self.close_because(RetryError(f"{most} connections are open; try later", status=Status.BUSY))
            return
        self._server.met(self)
        self._greeting = self._loop.call_later(HELLO_SECONDS, self._no_hello)

    def _no_hello(self) -> None:
        self.close_because(RetryError(f"no HELLO within {HELLO_SECONDS} s"))

    def _on_frame(self, frame: Frame) -> None:
        header, meta, body = frame
        if self._reader.greeted and not header.is_response and header.type not in (FrameType.HELLO, FrameType.CLOSING):
            self._server.handler.frame(self, header, meta, body)
            return
        if body is not None:
            body.release()
        if header.is_response:
            raise ProtocolError("a client sends requests only, not answers")
        if header.type == FrameType.CLOSING:
            self.abort(RetryError(f"{self.peer} closed: {meta.decode('utf-8', 'replace')}"))
        elif self._reader.greeted:
            raise ProtocolError("HELLO was sent before")
        else:
            self._greet(header, meta)

    def _greet(self, header: FrameHeader, meta: bytes) -> None:
        answer = self._server.handler.hello(self, Hello.decode(meta))
        self._server.strangers.pop(self, None)
        self._reader.greeted = True
        self._reader.owner = self.owner
        self._reader.admit = partial(self._server.handler.admit, self)
        if self._greeting is not None:
            self._greeting.cancel()
        self.reply(header, answer.encode())

    def _on_writable(self) -> None:
        self._server.handler.writable(self)

    def _on_lost(self, error: HoldfastError) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
        self._server.forget(self)
        if self._reader.greeted:
            self._server.handler.lost(self)
        # No circle may be left: under TLS each connection holds 50 KB, and the collector seldom looks (process.py).
        error.__traceback__ = None
        self._reader.admit = None


class FrameServer:
    """A listening port and its connections. Make one with `serve`."""

    def __init__(
        self,
        handler: Handler,
        pool: BufferPool,
        tls: ssl.SSLContext | None = None,
        connections_max: int = 0,
    ) -> None:
        """`connections_max`: CONNECTIONS_MAX, or fewer."""
        self.handler = handler
        self.connections_max = connections_max or CONNECTIONS_MAX
        self.pool = pool
        #: for connections under TLS; None: they are plain
        self.tls = tls
        self.connections: set[ServerConnection] = set()
        #: those that have not said HELLO, as they came
        self.strangers: dict[ServerConnection, None] = {}
        #: frame bytes of closed connections
        self.bytes_in_closed = 0
        self.bytes_out_closed = 0
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        #: it closes, or has closed, every connection
        self.ended = False
        #: of connections, each once
        self.numbers = itertools.count(1)
        #: (host, port) it listens on
        self.address: tuple[str, int] = ("", 0)

    @property
    def bytes_in(self) -> int:
        """Frame bytes received since the start."""
        return self.bytes_in_closed + sum(connection.bytes_in for connection in self.connections)

    @property
    def bytes_out(self) -> int:
        """Frame bytes sent since the start."""
        return self.bytes_out_closed + sum(connection.bytes_out for connection in self.connections)

    async def listen(self, host: str, port: int) -> None:
        """Listen; raises OSError if the address is taken."""
        loop = asyncio.get_running_loop()
        # The receive buffer is set before listening: the window scale of accepted connections follows from it.
        listener = socket.create_server((host, port), backlog=1024)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        self.address = listener.getsockname()[:2]
        self._server = await loop.create_server(lambda: ServerConnection(self), sock=listener, backlog=BACKLOG)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_again)
        self.sweep()

    def sweep(self) -> None:
        """Close connections that stopped in the middle of a frame since the last sweep, or came too slowly."""
        hurried = self.pool.waiting > 0 or self.handler.hurried()
        for connection in list(self.connections):
            reason = connection.slow_reason(hurried)
            if reason is not None:
                connection.close_because(RetryError(reason))  # a network that was cut does the same

    def met(self, connection: ServerConnection) -> None:
        """A new connection without HELLO. The longest silent one is closed for a new one."""
        self.strangers[connection] = None
        if len(self.strangers) > max(self.connections_max // STRANGERS_SHARE, 1):
            next(iter(self.strangers)).abort(
                RetryError("this worker has too many connections without a hello", status=Status.BUSY)
            )

    def forget(self, connection: ServerConnection) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        self.strangers.pop(connection, None)
        self.bytes_in_closed += connection.bytes_in
        self.bytes_out_closed += connection.bytes_out
        if self._empty is not None and not self.connections and not self._empty.done():
            self._empty.set_result(None)

    def stop_accepting(self) -> None:
        """Close the port; connections stay."""
        if self._server is not None:
            self._server.close()

    async def close(self, reason: HoldfastError | None = None) -> None:
        """Close the port and every connection: at once, or after telling each why."""
        self.ended = True
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            if reason is None:
                connection.abort()
            else:
                connection.close_because(reason)  # ends by itself after LINGER_SECONDS at the latest
        if self.connections:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty


async def serve(
    host: str,
    port: int,
    handler: Handler,
    pool: BufferPool,
    tls: ssl.SSLContext | None = None,
    connections_max: int = 0,
) -> FrameServer:
    """Listen on host:port (0 = a free port) and answer with `handler`; `tls`: to nothing but TLS."""
    server = FrameServer(handler, pool, tls, connections_max)
    await server.listen(host, port)
    return server
