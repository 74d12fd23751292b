"""Carries one control call to one master: over gRPC, or as HTTP/1.1 POST with a protobuf body (Connect unary).

Rules: one try, no policy; whatever goes wrong is a typed error: the master's own refusal by its status number,
everything that says nothing about the call (refused, reset, timed out) as RetryError with UNAVAILABLE. Connections are
kept and shared by concurrent calls. gRPC is imported when first used, so that a process that only reads does not pay
for it. Called by control.py only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
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
from holdfast.common.net.methods import LEADER_KEY, LOWEST_KEY, STATUS_KEY

_HEAD_BYTES_MAX = 16 * KIB
#: Idle HTTP connections kept per master.
_IDLE_MAX = 32

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


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Transport(Protocol):
    """What control.py needs of a way to a master."""

    async def call(self, address: str, path: str, request: bytes, timeout_s: float) -> bytes:
        """Make one try at the master at `address`; return the reply's bytes or raise a HoldfastError."""

    async def close(self) -> None:
        """Drop all connections."""


class GrpcTransport:
    """Calls over grpc.aio; one channel per address."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], Any] = {}
        self._channels: dict[str, Any] = {}

    async def call(self, address: str, path: str, request: bytes, timeout_s: float) -> bytes:
        """Make one try at the master at `address`, a gRPC address."""
        from grpc import RpcError

        try:
            reply: bytes = await self._method(address, path)(request, timeout=timeout_s)
        except RpcError as error:
            raise _from_grpc(error, address) from error
        return reply

    async def close(self) -> None:
        """Close the channels; calls under way fail."""
        channels, self._channels, self._calls = self._channels, {}, {}
        for channel in channels.values():
            await channel.close()

    def _method(self, address: str, path: str) -> Any:
        found = self._calls.get((address, path))
        if found is None:
            from grpc import aio

            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = aio.insecure_channel(address, options=_GRPC_OPTIONS)
            found = self._calls[(address, path)] = channel.unary_unary(path)
        return found


class HttpTransport:
    """Calls over kept HTTP/1.1 connections, one call at a time on each."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Connection]] = {}

    async def call(self, address: str, path: str, request: bytes, timeout_s: float) -> bytes:
        """Make one try at the master at `address`, an HTTP address."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(address, path, request)
        except TimeoutError:
            raise RetryError(f"master {address} did not answer within {timeout_s:.2f} s") from None
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise RetryError(f"master {address} cannot be reached: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        """Close idle connections; one with a call under way closes when it is done."""
        idle, self._idle = self._idle, {}
        for _, writer in (each for kept in idle.values() for each in kept):
            writer.close()

    async def _exchange(self, address: str, path: str, request: bytes) -> bytes:
        kept = self._idle.setdefault(address, [])
        reader, writer = _living(kept) or await _connect(address)
        try:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/proto\r\n"
                f"Content-Length: {len(request)}\r\n\r\n"
            )
            writer.write(head.encode("ascii") + request)
            await writer.drain()
            status, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
            size = int(headers.get("content-length", "-1"))
            if not 0 <= size <= CONTROL_MESSAGE_BYTES_MAX:
                raise ProtocolError(f"{address} answered without a sane Content-Length; is it a Holdfast master?")
            body = await reader.readexactly(size)
        except BaseException:
            writer.close()
            raise
        if (
            headers.get("connection", "").lower() == "close"
            or self._idle.get(address) is not kept
            or len(kept) >= _IDLE_MAX
        ):
            writer.close()
        else:
            kept.append((reader, writer))
        if status != 200:
            raise refusal(headers, _message(body) or f"HTTP status {status}")
        return body


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


def _living(kept: list[_Connection]) -> _Connection | None:
    """Take the last connection that the master has not closed while it was idle."""
    while kept:
        reader, writer = kept.pop()
        if not reader.at_eof() and not writer.is_closing():
            return reader, writer
        writer.close()
    return None


async def _connect(address: str) -> _Connection:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port), limit=_HEAD_BYTES_MAX)


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
        raise ProtocolError("what answers there does not speak HTTP/1.1; endpoints name the masters' HTTP ports")
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
