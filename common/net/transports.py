"""Carries one control call to one master: over gRPC, or as HTTP/1.1 POST with a protobuf body (Connect unary).

Rules: one try, no policy; whatever goes wrong is a typed error: the master's own refusal by its status number,
everything that says nothing about the call (refused, reset, timed out) as RetryError with UNAVAILABLE, an answer that
no master gives as ProtocolError. The messages of the latter two begin with the address. Connections are kept and shared
by concurrent calls. gRPC is imported when first used, so that a process that only reads does not pay
for it. Called by control.py only.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from holdfast.common.errors import (
    HoldfastError,
    IncarnationTooLowError,
    NotLeaderError,
    ProtocolError,
    RetryError,
    Status,
    error_for,
)
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, KIB
from holdfast.common.net import detour
from holdfast.common.net.methods import LEADER_KEY, LOWEST_KEY, STATUS_KEY
from holdfast.common.net.tasks import background
from holdfast.common.net.tls import words_of
from holdfast.common.security.shown import Shown

_HEAD_BYTES_MAX = 16 * KIB
_OK = 200
#: What a resolver says of a name that is not there, and not of a moment in which nobody knows.
_UNKNOWN_HOST = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
#: Idle HTTP connections kept per master.
_IDLE_MAX = 32
#: How long a connection under TLS waits for the other side to agree that it is closed.
_SHUTDOWN_SECONDS = 1.0
_HUNG_UP = "hung up without an answer (is this the HTTP port of a master, and security on at both ends?)"
_HUNG_UP_PLAIN = (
    "hung up without an answer (is this the HTTP port of a master? Where security is on there, set HOLDFAST_CA and"
    " HOLDFAST_TOKEN_FILE)"
)

_GRPC_OPTIONS = (
    ("grpc.max_send_message_length", CONTROL_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", CONTROL_MESSAGE_BYTES_MAX),
    # A master that comes back is to be noticed at once; the retry policy is ours.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # A host that vanished without a word is noticed in 15 s even while a long poll waits.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class UnknownHostError(RetryError):
    """No host has the name in the address."""


class Transport(Protocol):
    """What control.py needs of a way to a master."""

    def call(self, address: str, path: str, request: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin one try at the master at `address`. The future gets the reply's bytes or a HoldfastError.

        Whoever gives the call up resolves or cancels the future; the connection is not used again then.
        """

    async def close(self) -> None:
        """Drop all connections."""


class GrpcTransport:
    """Calls over grpc.aio; one channel per address."""

    def __init__(self, shown: Shown | None = None) -> None:
        """`shown`: what a secured cluster wants to see."""
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its lines about handshakes; errors are told by us
        self._shown = shown
        self._calls: dict[tuple[str, str], Any] = {}
        self._channels: dict[str, Any] = {}

    def call(self, address: str, path: str, request: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin one try at the master at `address`, a gRPC address."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        task = background(self._run(address, path, request, timeout_s, answered), partial(_broke, answered, address))
        answered.add_done_callback(lambda _: task.cancel())
        return answered

    async def close(self) -> None:
        """Close the channels; calls under way fail."""
        channels, self._channels, self._calls = self._channels, {}, {}
        for channel in channels.values():
            await channel.close()

    async def _run(
        self, address: str, path: str, request: bytes, timeout_s: float, answered: asyncio.Future[bytes]
    ) -> None:
        from grpc import RpcError

        try:
            reply = await self._method(address, path)(request, timeout=timeout_s, metadata=self._metadata())
        except RpcError as error:
            if not answered.done():
                answered.set_exception(_from_grpc(error, address))
            return
        if not answered.done():
            answered.set_result(reply)

    def _method(self, address: str, path: str) -> Any:
        found = self._calls.get((address, path))
        if found is None:
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._channel(address)
            found = self._calls[(address, path)] = channel.unary_unary(path)
        return found

    def _channel(self, address: str) -> Any:
        from grpc import aio, ssl_channel_credentials

        if self._shown is None:
            return aio.insecure_channel(address, options=_GRPC_OPTIONS)
        credentials = ssl_channel_credentials(self._shown.ca_pem.encode())
        return aio.secure_channel(address, credentials, options=_GRPC_OPTIONS)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._shown is None else (("authorization", f"Bearer {self._shown.token}"),)


class HttpTransport:
    """Calls over kept HTTP/1.1 connections, one call at a time on each."""

    def __init__(self, shown: Shown | None = None) -> None:
        """`shown`: what a secured cluster wants to see."""
        self._shown = shown
        self._idle: dict[str, list[_Connection]] = {}
        self._opening: set[asyncio.Task[None]] = set()

    def call(self, address: str, path: str, request: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin one try at the master at `address`, an HTTP address."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        timer = loop.call_later(timeout_s, _time_out, answered, address, timeout_s)
        answered.add_done_callback(lambda _: timer.cancel())
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/proto\r\n"
        if self._shown is not None:
            head += f"Authorization: Bearer {self._shown.token}\r\n"
        data = f"{head}Content-Length: {len(request)}\r\n\r\n".encode("ascii") + request
        kept = self._idle.setdefault(address, [])
        if kept:
            kept.pop().begin(data, answered)
        else:
            opening = background(self._open(address, data, answered, timeout_s), partial(_broke, answered, address))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        return answered

    async def close(self) -> None:
        """Close idle connections; one with a call under way closes when it is done."""
        idle, self._idle = self._idle, {}
        for connection in [each for kept in idle.values() for each in kept]:
            connection.close()
        for opening in self._opening:
            opening.cancel()

    async def _open(self, address: str, data: bytes, answered: asyncio.Future[bytes], timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        idle = self._idle
        secure: dict[str, Any] = {}
        hung_up = _HUNG_UP_PLAIN if self._shown is None else _HUNG_UP
        if self._shown is not None:
            secure = {
                "ssl": self._shown.context,
                "server_hostname": host.strip("[]"),
                "ssl_handshake_timeout": timeout_s,
                "ssl_shutdown_timeout": _SHUTDOWN_SECONDS,
            }
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(address, idle.setdefault(address, []), hung_up),
                detour.through(host.strip("[]"), int(port)),
                int(port),
                **secure,
            )
        except (OSError, UnicodeError) as error:
            _fail(answered, _unreachable(address, error))
            return
        if answered.done():
            connection.close()
        else:
            connection.begin(data, answered)


class _Connection(asyncio.Protocol):
    """One connection to a master: sends a request, gathers its answer, and is idle again."""

    def __init__(self, address: str, idle: list[_Connection], hung_up: str) -> None:
        self._address = address
        self._idle = idle
        self._hung_up = hung_up
        self._answered: asyncio.Future[bytes] | None = None
        self._received = bytearray()
        #: where the answer's body begins and ends in what was received, once its head is there
        self._body = (0, 0)
        self._status = 0
        self._headers: dict[str, str] = {}

    def begin(self, data: bytes, answered: asyncio.Future[bytes]) -> None:
        """Send a request; nothing else is under way."""
        self._answered = answered
        answered.add_done_callback(self._ended)
        self._transport.write(data)

    def close(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear from asyncio."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """Hear from asyncio; an idle connection is forgotten, a call under way fails."""
        if self in self._idle:
            self._idle.remove(self)
        if self._answered is not None:
            _fail(
                self._answered,
                RetryError(f"{self._address}: {error or self._hung_up}"),
            )

    def data_received(self, data: bytes) -> None:
        """Hear from asyncio."""
        if self._answered is None:
            self.close()  # nothing was asked
            return
        self._received += data
        try:
            if not self._body[1] and not self._read_head():
                return
        except (ProtocolError, ValueError) as error:
            _fail(self._answered, ProtocolError(f"{self._address}: answers, but is no master: {error}"))
            return
        start, end = self._body
        if len(self._received) >= end:
            self._finish(bytes(memoryview(self._received)[start:end]))

    def _read_head(self) -> bool:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > _HEAD_BYTES_MAX:
                raise ProtocolError("the head of its answer does not end")
            return False
        self._status, self._headers = _parse_head(bytes(self._received[:end]))
        size = int(self._headers.get("content-length", "-1"))
        if not 0 <= size <= CONTROL_MESSAGE_BYTES_MAX:
            raise ProtocolError("no sane Content-Length")
        self._body = (end + 4, end + 4 + size)
        return True

    def _finish(self, body: bytes) -> None:
        answered, self._answered = self._answered, None
        whole = len(self._received) == self._body[1]
        self._received.clear()
        self._body = (0, 0)
        if whole and self._headers.get("connection", "").lower() != "close" and len(self._idle) < _IDLE_MAX:
            self._idle.append(self)
        else:
            self._transport.close()
        if answered is None or answered.done():
            return
        if self._status == _OK:
            answered.set_result(body)
        else:
            answered.set_exception(self._refusal(_message(body).strip() or f"HTTP status {self._status}"))

    def _refusal(self, message: str) -> HoldfastError:
        """What an answer that is no success means: masters give a status, others' words are shown."""
        if STATUS_KEY not in self._headers:
            return ProtocolError(f"{self._address}: answers, but is no master: {message[:200]}")
        return refusal(self._headers, message)

    def _ended(self, answered: asyncio.Future[bytes]) -> None:
        """The call was given up before its answer came: what comes now would be taken for the next one's."""
        if self._answered is answered:
            self._answered = None
            self.close()


def _unreachable(address: str, error: OSError | UnicodeError) -> HoldfastError:
    if isinstance(error, UnicodeError) or (isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_HOST):
        return UnknownHostError(f"{address}: unknown host")
    if isinstance(error, ssl.SSLError):
        wrong = isinstance(error, ssl.SSLCertVerificationError)
        return ProtocolError(f"{address}: {words_of(error)}", status=Status.UNAUTHENTICATED if wrong else None)
    if isinstance(error, ConnectionRefusedError):
        return RetryError(f"{address}: connection refused")
    return RetryError(f"{address}: cannot be reached: {error}")


def _fail(answered: asyncio.Future[bytes], error: HoldfastError) -> None:
    if not answered.done():
        answered.set_exception(error)


def _broke(answered: asyncio.Future[bytes], address: str, error: BaseException) -> None:
    _fail(answered, RetryError(f"{address}: the call ended unexpectedly: {error!r}"))


def _time_out(answered: asyncio.Future[bytes], address: str, seconds: float) -> None:
    _fail(answered, RetryError(f"{address}: did not answer within {seconds:.2f} s"))


def refusal(told: Mapping[str, str], message: str) -> HoldfastError:
    """Return the error that a master's metadata or headers (keys in lower case) describe."""
    number = told.get(STATUS_KEY, "")
    if not number.isdigit():
        return ProtocolError(f"the answer has no Holdfast-Status: {message}")
    error = error_for(int(number), message)
    if isinstance(error, NotLeaderError):
        error.leader = told.get(LEADER_KEY, "")
    if isinstance(error, IncarnationTooLowError):
        lowest = told.get(LOWEST_KEY, "")
        error.lowest = int(lowest) if lowest.isdigit() else 0
    return error


def _message(body: bytes) -> str:
    """The message of a Connect error body; the body itself where it is none."""
    text = body.decode("utf-8", "replace")[:2000]
    try:
        told = json.loads(text)
    except ValueError:
        return text
    return str(told.get("message", text)) if isinstance(told, dict) else text


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ProtocolError("it does not speak HTTP/1.1; endpoints name the masters' HTTP ports")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(parts[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _from_grpc(error: Any, address: str) -> HoldfastError:
    from grpc import StatusCode

    told = {str(key): str(value) for key, value in (error.trailing_metadata() or ())}
    details = str(error.details() or "")
    if STATUS_KEY in told:
        return refusal(told, details)
    if error.code() in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED, StatusCode.UNKNOWN):
        return RetryError(f"master {address} cannot be reached: {details}")
    if error.code() is StatusCode.RESOURCE_EXHAUSTED and "message" in details:
        return ProtocolError(f"master {address}: {details}", status=Status.TOO_LARGE)
    if error.code() is StatusCode.RESOURCE_EXHAUSTED:
        return RetryError(f"master {address} is busy: {details}", status=Status.BUSY)
    return HoldfastError(f"master {address}: {error.code().name}: {details}")
