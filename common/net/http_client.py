"""Asks servers over HTTP/1.1, the one client of Python: calls with protobuf bodies (Connect unary), and pages.

Rules: one try, no policy; every failure is a typed error whose message begins with the address: what says nothing
about the request (refused, reset, timed out) is RetryError with UNAVAILABLE, what a master answers is read by
answers.py. A connection carries one request at a time, and is kept for the next one only after a whole exchange: all of
the request sent, an answer of the intended server, and nothing after it. After anything else it is closed. Called by
transports.py and client/connection/direct.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from holdfast.common.errors import HoldfastError, NotMasterError, ProtocolError, RetryError
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, KIB
from holdfast.common.net.answers import read_http
from holdfast.common.net.lookups import connect
from holdfast.common.net.tls import words_of
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import background

T = TypeVar("T")
#: What an answer is worth: status, headers with keys in lower case, body. Status 0: this is no HTTP, and the body says
#: why. Raises HoldfastError.
Read = Callable[[int, Mapping[str, str], bytes], T]

_OK = 200
_HEAD_BYTES_MAX = 16 * KIB
#: Answers of a resolver for a name that does not exist, not for a temporary failure.
_UNKNOWN_HOST = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
#: Idle connections kept per server.
_IDLE_MAX = 32
#: How long a connection under TLS waits for the other side to agree that it is closed.
_SHUTDOWN_SECONDS = 1.0
_HUNG_UP = "closed the connection without an answer (is this an HTTP port of the cluster? Is TLS on at both ends?)"
_HUNG_UP_PLAIN = (
    "closed the connection without an answer (is this an HTTP port of the cluster? If it uses TLS, set HOLDFAST_CA"
    " and HOLDFAST_TOKEN_FILE)"
)


class UnknownHostError(RetryError):
    """No host has the name in the address."""


class HttpClient:
    """Asks over kept connections; called from its loop's thread alone."""

    def __init__(self, credentials: CredentialsProvider | None = None, *, detours: bool = True) -> None:
        """`credentials`: of a secured cluster. `detours`: take those of a drill (detour.py)."""
        self.credentials = credentials
        #: whose masters are meant; "" while any will do
        self.cluster_id = ""
        self._detours = detours
        self._idle: dict[str, list[_Connection]] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    def call(self, address: str, path: str, request: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin one try at the master at `address`, "host:port"; see ControlTransport."""

        def read(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
            return read_http(address, status, headers, body, self.cluster_id)

        return self._ask(address, "POST", path, request, timeout_s, read)

    def get(self, address: str, path: str, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin to ask a server for a page such as /metrics."""

        def read(status: int, _: Mapping[str, str], body: bytes) -> bytes:
            if status != _OK:
                reason = f"HTTP status {status}" if status else body.decode()
                raise RetryError(f"{address}: answers {path} with {reason}")
            return body

        return self._ask(address, "GET", path, b"", timeout_s, read)

    def _ask(
        self, address: str, verb: str, path: str, body: bytes, timeout_s: float, read: Read[T]
    ) -> asyncio.Future[T]:
        """The future gets what `read` makes of the answer, or a HoldfastError. Whoever gives the request up resolves or
        cancels the future; the connection is not used again then."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()
        timer = loop.call_later(timeout_s, _time_out, answered, address, timeout_s)
        answered.add_done_callback(lambda _: timer.cancel())
        head = f"{verb} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/proto\r\n"
        if self.credentials is not None:
            head += f"Authorization: Bearer {self.credentials.token}\r\n"
        asked = _Asked(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body, answered, read)
        kept = self._idle.get(address)
        if kept:
            kept.pop().begin(asked)
        else:
            opening = background(self._open(address, asked, timeout_s), partial(broke, answered, address))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            # A host that drops what it is sent is called again and again: each try ends with its call.
            answered.add_done_callback(lambda _: opening.cancel())
        return answered

    async def close(self) -> None:
        """Close idle connections; one with a request under way closes when it is done."""
        self._closed = True
        idle, self._idle = self._idle, {}
        for connection in [each for kept in idle.values() for each in kept]:
            connection.close()
        for opening in self._opening:
            opening.cancel()

    async def _open(self, address: str, asked: _Asked, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        secure: dict[str, Any] = {}
        if self.credentials is not None:
            secure = {
                "ssl": self.credentials.context,
                "server_hostname": host.strip("[]"),
                "ssl_handshake_timeout": timeout_s,
                "ssl_shutdown_timeout": _SHUTDOWN_SECONDS,
            }
        try:
            make = partial(_Connection, self, address)
            connection = await connect(make, host.strip("[]"), int(port), detours=self._detours, **secure)
        except (OSError, UnicodeError) as error:
            fail(asked.answered, _unreachable(address, error))
            return
        if asked.answered.done():
            connection.close()
        else:
            connection.begin(asked)

    # Called by connections.

    def keep(self, address: str, connection: _Connection) -> bool:
        """Keep a connection for the next request, if there is room and this client is open."""
        kept = self._idle.setdefault(address, [])
        if self._closed or len(kept) >= _IDLE_MAX:
            return False
        kept.append(connection)
        return True

    def forget(self, address: str, connection: _Connection) -> None:
        """A connection is closed; no request gets it."""
        kept = self._idle.get(address, [])
        if connection in kept:
            kept.remove(connection)


class _Asked(NamedTuple):
    """A request under way."""

    data: bytes
    answered: asyncio.Future[Any]
    read: Read[Any]


class _Connection(asyncio.Protocol):
    """One connection to a server: sends a request, gathers its answer, and is kept if the exchange was whole."""

    def __init__(self, home: HttpClient, address: str) -> None:
        self._home = home
        self._address = address
        self._asked: _Asked | None = None
        self._received = bytearray()
        #: where the answer's body begins and ends in what was received, once its head is there
        self._body = (0, 0)
        self._status = 0
        self._headers: dict[str, str] = {}

    def begin(self, asked: _Asked) -> None:
        """Send a request; nothing else is under way."""
        self._asked = asked
        asked.answered.add_done_callback(lambda _: self._ended(asked))
        self._transport.write(asked.data)

    def close(self) -> None:
        """Close the connection at once; no request gets it from now on."""
        self._home.forget(self._address, self)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear from asyncio."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """Hear from asyncio; an idle connection is forgotten, a request under way fails."""
        self._home.forget(self._address, self)
        if self._asked is not None:
            reason = error or (_HUNG_UP_PLAIN if self._home.credentials is None else _HUNG_UP)
            fail(self._asked.answered, RetryError(f"{self._address}: {reason}"))

    def data_received(self, data: bytes) -> None:
        """Hear from asyncio."""
        if self._asked is None:
            self.close()  # nothing was asked
            return
        self._received += data
        try:
            if not self._body[1] and not self._read_head():
                return
        except (ProtocolError, ValueError) as error:
            self._status, self._headers = 0, {"connection": "close"}
            self._finish(self._asked, str(error).encode())
            return
        start, end = self._body
        if len(self._received) >= end:
            self._finish(self._asked, bytes(memoryview(self._received)[start:end]))

    def _read_head(self) -> bool:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > _HEAD_BYTES_MAX:
                raise ProtocolError("the head of its answer does not end")
            return False
        self._status, self._headers = _parse_head(bytes(self._received[:end]))
        length = self._headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() and "transfer-encoding" not in self._headers else -1
        if not 0 <= size <= CONTROL_MESSAGE_BYTES_MAX:
            raise ProtocolError("no sane Content-Length")
        self._body = (end + 4, end + 4 + size)
        return True

    def _finish(self, asked: _Asked, body: bytes) -> None:
        self._asked = None
        whole = len(self._received) == self._body[1] and self._transport.get_write_buffer_size() == 0
        self._received.clear()
        self._body = (0, 0)
        try:
            read = asked.read(self._status, self._headers, body)
        except HoldfastError as error:
            whole &= not isinstance(error, NotMasterError)
            fail(asked.answered, error)
        else:
            if not asked.answered.done():
                asked.answered.set_result(read)
        stays = self._headers.get("connection", "").lower() != "close"
        if not (whole and stays and self._home.keep(self._address, self)):
            self._transport.close()

    def _ended(self, asked: _Asked) -> None:
        """The request was cancelled before its answer came, which would be taken for the answer of the next one."""
        if self._asked is asked:
            self._asked = None
            self.close()


def fail(answered: asyncio.Future[Any], error: HoldfastError) -> None:
    """Complete the request, if it still has a waiter."""
    if not answered.done():
        answered.set_exception(error)


def _unreachable(address: str, error: OSError | UnicodeError) -> HoldfastError:
    if isinstance(error, UnicodeError) or (isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_HOST):
        return UnknownHostError(f"{address}: unknown host")
    if isinstance(error, ssl.SSLError):
        wrong = isinstance(error, ssl.SSLCertVerificationError)
        return NotMasterError(f"{address}: {words_of(error)}", status=Status.UNAUTHENTICATED if wrong else None)
    if isinstance(error, ConnectionRefusedError):
        return RetryError(f"{address}: connection refused")
    return RetryError(f"{address}: cannot be reached: {error}")


def broke(answered: asyncio.Future[Any], address: str, error: BaseException) -> None:
    """Fail the request because of an unexpected error."""
    fail(answered, RetryError(f"{address}: the call ended unexpectedly: {error!r}"))


def _time_out(answered: asyncio.Future[Any], address: str, seconds: float) -> None:
    fail(answered, RetryError(f"{address}: did not answer within {seconds:.2f} s"))


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ProtocolError("it does not speak HTTP/1.1; set the endpoints to the masters' HTTP ports")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(parts[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}
