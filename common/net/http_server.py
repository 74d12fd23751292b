"""The door of an HTTP port, master's and worker's alike: a bound on connections, and none that sits there silent.

Rules: a connection that has no request under way is closed FIRST_SECONDS after it came if it never finished sending a
request, and KEEPALIVE_SECONDS after its last answer otherwise; what is unsent FLUSH_SECONDS later is dropped. Where all
places are taken, that of the first stranger goes to who comes: a stranger is a connection of which no request was found
KNOWN yet. Where there is none, who comes is closed at once. What is not HTTP is answered 400, in words that repeat
nothing of it, and logged in one line; a compressed body is answered 415 and never unpacked. Under TLS a handshake under
way counts as a connection and has HANDSHAKE_SECONDS; what is not TLS is hung up on (tls_protocol.py). Built on
aiohttp's low-level server; no routes and no policy here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler

from holdfast.common.limits import KIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.tls_protocol import RECEIVED_BYTES, TlsProtocol
from holdfast.common.system.log import log_event

#: From connecting to the end of the first request's headers.
FIRST_SECONDS = 15.0
#: Between an answer and the next request; clients of ours close earlier.
KEEPALIVE_SECONDS = 75.0
#: From closing a connection to dropping what the other side has not taken of the answers.
FLUSH_SECONDS = 15.0
#: From connecting to the end of the handshake of TLS.
HANDSHAKE_SECONDS = 5.0
#: Connections open at once; most are long polls.
CONNECTIONS_MAX = 16_384
_SWEEP_SECONDS = 1.0
_STOP_SECONDS = 1.0
#: Set in a request once it is known who makes it.
KNOWN = web.RequestKey("known", bool)
_BACKLOG = 1024
#: Of a body that nobody has read yet, of each connection; the system keeps the rest.
_READ_BYTES = 32 * KIB

_AS_IT_IS = "send the body as it is: no Content-Encoding is taken here\n"
_NOT_HTTP = "this is not a request of HTTP that is understood here\n"

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
        flush_seconds: float = FLUSH_SECONDS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        tls: ssl.SSLContext | None = None,
        backlog: int = _BACKLOG,
    ) -> None:
        """`tls`: every connection is under TLS. `backlog`: what the system takes at once, also beyond the bound."""
        self._backlog = backlog
        self._handler, self.connections_max = handler, connections_max
        self._tls, self._handshake_seconds = tls, handshake_seconds
        self._first_seconds, self._keepalive_seconds = first_seconds, keepalive_seconds
        self._flush_seconds = flush_seconds
        self._server = _Server(
            self._answer, access_log=None, logger=_logger(), auto_decompress=False, read_bufsize=_READ_BYTES
        )
        self._listener: asyncio.Server | None = None
        #: handshakes of TLS under way, and what all connections under TLS receive through
        self._shaking: set[TlsProtocol] = set()
        self._received = bytearray(RECEIVED_BYTES if tls is not None else 0)
        self._timer: asyncio.TimerHandle | None = None
        #: strangers that made room for others
        self.displaced = 0
        #: Connections with a request under way; the others, with the time at which they are closed.
        self._busy: set[RequestHandler] = set()
        self._deadlines: dict[RequestHandler, float] = {}

    async def start(self, where: tuple[str, int] | socket.socket) -> int:
        """Listen on an address or a listening socket; return the port. Raises OSError if the address is taken."""
        loop = asyncio.get_running_loop()
        if isinstance(where, socket.socket):
            self._listener = await loop.create_server(self._connection, sock=where, backlog=self._backlog)
        else:
            self._listener = await loop.create_server(self._connection, *where, backlog=self._backlog)
        self._sweep()
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for shaking in list(self._shaking):
            shaking.abort()
        self._server.pre_shutdown()
        await self._server.shutdown(_STOP_SECONDS)

    @property
    def connections(self) -> int:
        """Connections open, handshakes under way among them."""
        return len(self._server.connections) + len(self._shaking)

    def _connection(self) -> asyncio.BaseProtocol:
        if self.connections >= self.connections_max and not self._make_room():
            return _Refusing()
        if self._tls is None:
            return self._server()
        return TlsProtocol(
            self._tls, self._server, self._shaking, self._received, self._handshake_seconds, _STOP_SECONDS
        )

    def _make_room(self) -> bool:
        """Close the stranger that came first, or a handshake; return whether there was one."""
        strangers = self._server.strangers
        if self._shaking and len(self._shaking) >= len(strangers):
            self._shaking.pop().abort()
        elif strangers:
            first = next(iter(strangers))
            del strangers[first]
            first.force_close()
            if first.transport is not None:
                first.transport.abort()
        else:
            return False
        self.displaced += 1
        return True

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._busy.add(connection)
        try:
            if request.headers.get("Content-Encoding", "identity").lower() != "identity":
                return web.Response(text=_AS_IT_IS, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            return await self._handler(request)
        except web.RequestPayloadError:
            return web.Response(text=_NOT_HTTP, status=HTTPStatus.BAD_REQUEST)
        except OSError as error:
            log_event(LogEvent.REQUEST_CUT_OFF, why=error)
            return web.Response(status=HTTPStatus.BAD_REQUEST)  # for nobody: aiohttp has no traceback then
        finally:
            if KNOWN in request:
                self._server.strangers.pop(connection, None)
            self._busy.discard(connection)
            self._deadlines[connection] = asyncio.get_running_loop().time() + self._keepalive_seconds

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        open_ = self._server.connections
        self._deadlines = {each: self._deadlines.get(each, now + self._first_seconds) for each in open_}
        for connection, deadline in self._deadlines.items():
            if deadline <= now and connection not in self._busy:
                if connection.transport is not None:
                    loop.call_later(self._flush_seconds, connection.transport.abort)
                connection.force_close()
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep)


class _Server(web.Server):
    """aiohttp's, with connections of ours."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        #: connections of which nobody knows whose they are, the first in front
        self.strangers: dict[RequestHandler, None] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Hear from a connection."""
        self.strangers[handler] = None
        super().connection_made(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Hear from a connection."""
        self.strangers.pop(handler, None)
        super().connection_lost(handler, exc)

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    """aiohttp's own words for what is not HTTP repeat what came, with the token that may be in it."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status != HTTPStatus.INTERNAL_SERVER_ERROR:
            message = _NOT_HTTP
        return super().handle_error(request, status, exc, message)


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
        if isinstance(error, http_exceptions.BadHttpMessage | web.RequestPayloadError):
            record.exc_info = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = "A request that is not HTTP was refused.", ()
        return True
