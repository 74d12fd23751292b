"""Carries one control call to one master: over gRPC, or as HTTP/1.1 POST with a protobuf body (Connect unary).

Rules: one try, no policy; whatever goes wrong is a typed error: the master's own refusal by its status number,
everything that says nothing about the call (refused, reset, timed out) as RetryError with UNAVAILABLE, an answer that
no master of the cluster gives as NotMasterError (answers.py). The messages of the latter two begin with the address.
Connections are kept and shared by concurrent calls; one is kept only after a whole exchange with a master, and closed
after anything else. gRPC is imported when first used, so that a process that only reads does not pay for it. Called by
control.py only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial
from typing import Any, Protocol

from holdfast.common.errors import HoldfastError, NotMasterError, ProtocolError, RetryError
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, KIB
from holdfast.common.net.answers import check_cluster, not_master, read_http, refusal
from holdfast.common.net.lookups import connect
from holdfast.common.net.tls import words_of
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import background

_HEAD_BYTES_MAX = 16 * KIB
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


class ControlTransport(Protocol):
    """What control.py needs of a way to a master."""

    #: whose masters are meant; "" while any will do
    cluster_id: str

    def call(self, address: str, path: str, request: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin one try at the master at `address`. The future gets the reply's bytes or a HoldfastError.

        Whoever gives the call up resolves or cancels the future; the connection is not used again then.
        """

    async def close(self) -> None:
        """Drop all connections."""


class GrpcTransport:
    """Calls over grpc.aio; one channel per address."""

    def __init__(self, shown: CredentialsProvider | None = None) -> None:
        """`shown`: what a secured cluster wants to see."""
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its lines about handshakes; errors are told by us
        self._shown = shown
        self.cluster_id = ""
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

        call = self._method(address, path)(request, timeout=timeout_s, metadata=self._metadata())
        try:
            reply = await call
            check_cluster(address, _told(await call.trailing_metadata()), self.cluster_id, "it answers over gRPC")
        except RpcError as error:
            _fail(answered, self._from_grpc(error, address))
            return
        except HoldfastError as error:
            _fail(answered, error)
            return
        if not answered.done():
            answered.set_result(reply)

    def _from_grpc(self, error: Any, address: str) -> HoldfastError:
        from grpc import StatusCode

        told, details = _told(error.trailing_metadata()), str(error.details() or "")
        if told:
            try:
                check_cluster(address, told, self.cluster_id, details)
            except NotMasterError as stranger:
                return stranger
            return refusal(address, told, details)
        if error.code() is StatusCode.RESOURCE_EXHAUSTED:  # of gRPC itself: as many calls as it lets in
            return RetryError(f"master {address} is busy: {details}", status=Status.BUSY)
        return RetryError(f"master {address} cannot be reached: {error.code().name}: {details}")

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

    def __init__(self, shown: CredentialsProvider | None = None) -> None:
        """`shown`: what a secured cluster wants to see."""
        self._shown = shown
        self.cluster_id = ""
        self._idle: dict[str, list[_Connection]] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

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
        kept = self._idle.get(address)
        if kept:
            kept.pop().begin(data, answered)
        else:
            opening = background(self._open(address, data, answered, timeout_s), partial(_broke, answered, address))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            # A host that drops what it is sent is called again and again: each try ends with its call.
            answered.add_done_callback(lambda _: opening.cancel())
        return answered

    async def close(self) -> None:
        """Close idle connections; one with a call under way closes when it is done."""
        self._closed = True
        idle, self._idle = self._idle, {}
        for connection in [each for kept in idle.values() for each in kept]:
            connection.close()
        for opening in self._opening:
            opening.cancel()

    async def _open(self, address: str, data: bytes, answered: asyncio.Future[bytes], timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
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
            make = partial(_Connection, self, address, hung_up)
            connection = await connect(make, host.strip("[]"), int(port), **secure)
        except (OSError, UnicodeError) as error:
            _fail(answered, _unreachable(address, error))
            return
        if answered.done():
            connection.close()
        else:
            connection.begin(data, answered)

    # Called by connections.

    def keep(self, address: str, connection: _Connection) -> bool:
        """Keep a connection for the next call, if there is room and this transport is open."""
        kept = self._idle.setdefault(address, [])
        if self._closed or len(kept) >= _IDLE_MAX:
            return False
        kept.append(connection)
        return True

    def forget(self, address: str, connection: _Connection) -> None:
        """A connection is gone; it is not given to any call."""
        kept = self._idle.get(address, [])
        if connection in kept:
            kept.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection to a master: sends a request, gathers its answer, and is kept if the exchange was whole: all of
    the request sent, an answer of a master, and nothing behind it. After anything else it is closed."""

    def __init__(self, home: HttpTransport, address: str, hung_up: str) -> None:
        self._home = home
        self._address = address
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
        """Close the connection at once; no call gets it from now on."""
        self._home.forget(self._address, self)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear from asyncio."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """Hear from asyncio; an idle connection is forgotten, a call under way fails."""
        self._home.forget(self._address, self)
        if self._answered is not None:
            _fail(self._answered, RetryError(f"{self._address}: {error or self._hung_up}"))

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
            _fail(self._answered, not_master(self._address, str(error)))
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
        length = self._headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() and "transfer-encoding" not in self._headers else -1
        if not 0 <= size <= CONTROL_MESSAGE_BYTES_MAX:
            raise ProtocolError("no sane Content-Length")
        self._body = (end + 4, end + 4 + size)
        return True

    def _finish(self, body: bytes) -> None:
        answered, self._answered = self._answered, None
        whole = len(self._received) == self._body[1] and self._transport.get_write_buffer_size() == 0
        self._received.clear()
        self._body = (0, 0)
        try:
            reply = read_http(self._address, self._status, self._headers, body, self._home.cluster_id)
        except HoldfastError as error:
            whole &= not isinstance(error, NotMasterError)
            if answered is not None:
                _fail(answered, error)
        else:
            if answered is not None and not answered.done():
                answered.set_result(reply)
        stays = self._headers.get("connection", "").lower() != "close"
        if not (whole and stays and self._home.keep(self._address, self)):
            self._transport.close()

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
        return NotMasterError(f"{address}: {words_of(error)}", status=Status.UNAUTHENTICATED if wrong else None)
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


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ProtocolError("it does not speak HTTP/1.1; endpoints name the masters' HTTP ports")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(parts[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _told(metadata: Any) -> dict[str, str]:
    """The metadata of an answer over gRPC."""
    return {str(key): str(value) for key, value in (metadata or ())}
