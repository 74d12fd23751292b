"""Admission of an HTTP port, of masters and workers: authentication, a bound on connections, and on silent ones.

Rules: every request but for OPEN_PATHS shows a token if security is on, and is permitted by its handler, before
anything else of it is looked at. A connection that has shown a permitted request is known, all others are strangers.
Users share the places of those that are known (common/shares.py), and a part is kept for strangers and for those that
keep the cluster alive: a connection of a user that has its share is served, and stays a stranger. Where all places are
taken, the oldest unauthenticated connection is closed for a new one; without any, the new one is closed at once.
A connection that has no request under way is closed `first_s` after it came if it never finished
sending a request, and `keepalive_s` after its last answer otherwise; what is unsent `flush_s` later is dropped.
What is not HTTP is answered 400, in words that repeat nothing of it, and logged in one line; a compressed body is
answered 415 and never unpacked. Under TLS a handshake under way counts as a connection and has `handshake_s`; what
is not TLS is hung up on (tls_protocol.py). Built on aiohttp's low-level server. Called by master/api/http.py and
worker/server/observe/http.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import http_exceptions, web
from aiohttp.web_protocol import RequestHandler

from holdfast.common.errors import HoldfastError
from holdfast.common.limits import KIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.tls_protocol import RECEIVED_BYTES, TlsProtocol
from holdfast.common.security.http import CHALLENGE, token_of
from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import Bearer
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event

_SWEEP_SECONDS = 1.0
_STOP_SECONDS = 1.0
#: The part of all connections that users do not get for good.
_RESERVED_SHARE = 8
#: Whether a server lives, and whether the next one may be restarted, as Kubernetes calls them. They need no token;
#: their caller stays a stranger.
HEALTH_PATH, READY_PATH = OPEN_PATHS = ("/healthz", "/readyz")
#: Of an unread body, of each connection; the system keeps the rest.
_READ_BYTES = 32 * KIB

_AS_IT_IS = "send the body as it is: no Content-Encoding is taken here\n"
_NOT_HTTP = "this is not a request of HTTP that is understood here\n"

#: Who makes a request is None where security is off, and at OPEN_PATHS.
Handler = Callable[[web.BaseRequest, Bearer | None], Awaitable[web.StreamResponse]]
#: Raises HoldfastError for a caller without the right to make this request.
Permit = Callable[[web.BaseRequest, Bearer | None], None]


def in_words(error: HoldfastError) -> web.Response:
    """Refuse a caller without a valid token, for people."""
    code = HTTPStatus.FORBIDDEN if error.status is Status.FORBIDDEN else HTTPStatus.UNAUTHORIZED
    return web.Response(text=f"{error}\n", status=code)


@dataclass(frozen=True)
class HttpLimits:
    """Bounds of an HTTP port; times in seconds."""

    #: connections open at once; most are long polls
    connections: int = 16_384
    #: what the system takes at once, also beyond that
    backlog: int = 1024
    #: from connecting to the end of the first request's headers
    first_s: float = 15.0
    #: between an answer and the next request; clients of ours close earlier
    keepalive_s: float = 75.0
    #: from closing a connection to dropping what the other side has not taken of the answers
    flush_s: float = 15.0
    #: from connecting to the end of the handshake of TLS
    handshake_s: float = 5.0


class HttpServer:
    """Serves `handler` on one port; called from its loop's thread alone."""

    def __init__(
        self,
        handler: Handler,
        permit: Permit,
        security: ServerSecurity | None = None,
        *,
        refuse: Callable[[HoldfastError], web.Response] = in_words,
        limits: HttpLimits | None = None,
    ) -> None:
        """With `security` every connection is under TLS. `refuse` answers callers that are not permitted."""
        self._handler, self._permit, self._refuse, self._security = handler, permit, refuse, security
        self.limits = limits or HttpLimits()
        self._tls = None if security is None else security.listening
        self._server = _Server(
            Shares(self.limits.connections, reserved=-(-self.limits.connections // _RESERVED_SHARE)),
            self._answer,
            access_log=None,
            logger=_logger(),
            auto_decompress=False,
            read_bufsize=_READ_BYTES,
        )
        self._listener: asyncio.Server | None = None
        #: what all connections under TLS receive through
        self._received = bytearray(RECEIVED_BYTES if self._tls is not None else 0)
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
            self._listener = await loop.create_server(self._connection, sock=where, backlog=self.limits.backlog)
        else:
            self._listener = await loop.create_server(self._connection, *where, backlog=self.limits.backlog)
        self._sweep()
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for stranger in list(self._server.strangers):
            if isinstance(stranger, TlsProtocol):
                stranger.abort()
        self._server.pre_shutdown()
        await self._server.shutdown(_STOP_SECONDS)

    @property
    def connections(self) -> int:
        """Connections open, handshakes under way among them."""
        return len(self._server.strangers) + len(self._server.known)

    def _connection(self) -> asyncio.BaseProtocol:
        if self.connections >= self.limits.connections and not self._make_room():
            return _Refusing()
        if self._tls is None:
            return self._server()
        strangers = self._server.strangers
        return TlsProtocol(self._tls, self._server, strangers, self._received, self.limits.handshake_s, _STOP_SECONDS)

    def _make_room(self) -> bool:
        """Close the stranger that came first; return whether there was one."""
        first = next(iter(self._server.strangers), None)
        if first is None:
            return False
        del self._server.strangers[first]
        first.abort()
        self.displaced += 1
        return True

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._busy.add(connection)
        try:
            if request.headers.get("Content-Encoding", "identity").lower() != "identity":
                return web.Response(text=_AS_IT_IS, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            caller = None
            if request.path not in OPEN_PATHS:
                try:
                    caller = self._identify(request)
                    self._permit(request, caller)
                except HoldfastError as error:
                    refused = self._refuse(error)
                    refused.headers["WWW-Authenticate"] = CHALLENGE  # browsers ask people for a token then
                    return refused
                self._server.know(connection, caller)
            return await self._handler(request, caller)
        except web.RequestPayloadError:
            return web.Response(text=_NOT_HTTP, status=HTTPStatus.BAD_REQUEST)
        except OSError as error:
            log_event(LogEvent.REQUEST_CUT_OFF, reason=error)
            return web.Response(status=HTTPStatus.BAD_REQUEST)  # not sent: aiohttp logs no traceback then
        finally:
            self._busy.discard(connection)
            self._deadlines[connection] = asyncio.get_running_loop().time() + self.limits.keepalive_s

    def _identify(self, request: web.BaseRequest) -> Bearer | None:
        """Return the caller of a request. Raises UnauthenticatedError, TokenExpiredError."""
        if self._security is None:
            return None
        return self._security.identify(token_of(request.headers.get("Authorization", "")))

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        open_ = self._server.connections
        self._deadlines = {each: self._deadlines.get(each, now + self.limits.first_s) for each in open_}
        for connection, deadline in self._deadlines.items():
            if deadline <= now and connection not in self._busy:
                if connection.transport is not None:
                    loop.call_later(self.limits.flush_s, connection.transport.abort)
                connection.force_close()
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep)


class _Server(web.Server):
    """aiohttp's, with connections of ours."""

    def __init__(self, shares: Shares, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._shares = shares
        #: connections that have shown no permitted request, and handshakes, the first in front
        self.strangers: dict[Any, None] = {}
        #: all others, and whose each is
        self.known: dict[RequestHandler, Hashable] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Hear from a connection."""
        self.strangers[handler] = None
        super().connection_made(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Hear from a connection."""
        self.strangers.pop(handler, None)
        if handler in self.known:
            self._shares.give(self.known.pop(handler), 1)
        super().connection_lost(handler, exc)

    def know(self, handler: RequestHandler, caller: Bearer | None) -> None:
        """A connection has shown a permitted request; it is known from now on, unless its user has its share."""
        owner = () if caller is None else (caller.share_owner,)
        if handler in self.strangers and self._shares.fits(owner, 1, vital=caller is None or caller.vital):
            del self.strangers[handler]
            self.known[handler] = owner
            self._shares.add(owner, 1)

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    """aiohttp's own words for what is not HTTP repeat what came, with the token that may be in it."""

    __slots__ = ()

    def abort(self) -> None:
        """Drop the connection at once."""
        self.force_close()
        if self.transport is not None:
            self.transport.abort()

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
    """aiohttp's own, which logs garbage with a traceback: one line is enough for that."""
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
