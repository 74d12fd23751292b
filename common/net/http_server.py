"""The door of an HTTP port, master's and worker's alike: a bound on connections, and none that sits there silent.

Rules: a connection that has no request under way is closed FIRST_SECONDS after it came if it never finished sending a
request, and KEEPALIVE_SECONDS after its last answer otherwise; one beyond the bound is closed at once. What is not HTTP
is answered 400 by aiohttp and logged in one line. Under TLS a handshake under way counts as a connection and has
HANDSHAKE_SECONDS; what is not TLS is hung up on. Built on aiohttp's low-level server; no routes and no policy here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler

#: From connecting to the end of the first request's headers.
FIRST_SECONDS = 15.0
#: Between an answer and the next request; clients of ours close earlier.
KEEPALIVE_SECONDS = 75.0
#: From connecting to the end of the handshake of TLS.
HANDSHAKE_SECONDS = 5.0
#: Connections open at once; most are long polls.
CONNECTIONS_MAX = 16_384
_SWEEP_SECONDS = 1.0
_STOP_SECONDS = 1.0
_BACKLOG = 1024
#: Nothing is left to accept a connection with; it waits.
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpServer:
    """Serves `handler` on one port; called from its loop's thread alone."""

    def __init__(
        self,
        handler: Handler,
        *,
        connections_max: int = CONNECTIONS_MAX,
        first_seconds: float = FIRST_SECONDS,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: every connection is under TLS."""
        self._handler, self._connections_max = handler, connections_max
        self._tls, self._handshake_seconds = tls, handshake_seconds
        self._first_seconds, self._keepalive_seconds = first_seconds, keepalive_seconds
        self._server = web.Server(self._answer, access_log=None, logger=_logger())
        self._listener: asyncio.Server | None = None
        #: the same under TLS, where handshakes under way have to be counted
        self._accepting: asyncio.Task[None] | None = None
        self._shaking: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: Connections with a request under way; the others, with the time at which they are closed.
        self._busy: set[RequestHandler] = set()
        self._deadlines: dict[RequestHandler, float] = {}

    async def start(self, where: tuple[str, int] | socket.socket) -> int:
        """Listen on an address or a listening socket; return the port. Raises OSError if the address is taken."""
        loop = asyncio.get_running_loop()
        if self._tls is not None:
            return self._start_tls(where, self._tls)
        if isinstance(where, socket.socket):
            self._listener = await loop.create_server(self._connection, sock=where, backlog=_BACKLOG)
        else:
            self._listener = await loop.create_server(self._connection, *where, backlog=_BACKLOG)
        self._sweep()
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for task in (self._accepting, *self._shaking):
            if task is not None:
                task.cancel()
        self._server.pre_shutdown()
        await self._server.shutdown(_STOP_SECONDS)

    def _start_tls(self, where: tuple[str, int] | socket.socket, tls: ssl.SSLContext) -> int:
        if not isinstance(where, socket.socket):
            where = socket.create_server(where, family=socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
        where.setblocking(False)
        where.listen(_BACKLOG)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(where, tls))
        self._accepting.add_done_callback(lambda _: where.close())
        self._sweep()
        return int(where.getsockname()[1])

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                await asyncio.sleep(_SWEEP_SECONDS if error.errno in _USED_UP else 0)
                continue
            if len(self._server.connections) + len(self._shaking) >= self._connections_max:
                accepted.close()
                continue
            task = loop.create_task(self._shake(accepted, tls))
            self._shaking.add(task)
            task.add_done_callback(self._shaking.discard)

    async def _shake(self, accepted: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._server,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self._handshake_seconds,
                ssl_shutdown_timeout=_STOP_SECONDS,
            )
        except OSError:
            pass  # no TLS, none in time, or a peer that refuses us: it has been hung up on

    def _connection(self) -> asyncio.BaseProtocol:
        return self._server() if len(self._server.connections) < self._connections_max else _Refusing()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._busy.add(connection)
        try:
            return await self._handler(request)
        finally:
            self._busy.discard(connection)
            self._deadlines[connection] = asyncio.get_running_loop().time() + self._keepalive_seconds

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        open_ = self._server.connections
        self._deadlines = {each: self._deadlines.get(each, now + self._first_seconds) for each in open_}
        for connection, deadline in self._deadlines.items():
            if deadline <= now and connection not in self._busy:
                connection.force_close()
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep)


class _Refusing(asyncio.Protocol):
    """A connection beyond the bound: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _logger() -> logging.Logger:
    """aiohttp's own, which tells of garbage with a traceback: one line is enough for that."""
    logger = logging.getLogger("aiohttp.server")
    if not any(isinstance(each, _Short) for each in logger.filters):
        logger.addFilter(_Short())
    return logger


class _Short(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, http_exceptions.BadHttpMessage):
            record.exc_info = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = "what came in is not HTTP, and was refused", ()
        return True
