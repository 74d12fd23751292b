"""Bodies of calls to masters: refused ones, cut ones, many at once, and answers that are not taken."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from itertools import cycle
from typing import Any

import grpc
from grpc import aio

from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, MIB
from tests.attack.target import Target

#: Nearly the longest body that any method takes.
BODY_BYTES = CONTROL_MESSAGE_BYTES_MAX - 2 * MIB
_PIECE = bytes(MIB)
_AT_ONCE = 40
_HEAD = (
    "POST /holdfast.v1.Shuffles/Commit HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\n"
    "Authorization: Bearer {}\r\nContent-Length: {}\r\n\r\n"
)


async def refused_over_grpc(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Somebody who may only look calls what he may with 62 MiB each, which is refused as too long."""
    reported: Counter[str] = Counter()
    credentials = grpc.ssl_channel_credentials(target.viewer.ca_pem.encode())
    body = b"\x0a" + _varint(BODY_BYTES) + bytes(BODY_BYTES)
    metadata = (("authorization", f"Bearer {target.viewer.token}"),)
    for address in cycle(target.grpc):
        if until():
            return reported
        async with aio.secure_channel(address, credentials, options=(("grpc.max_send_message_length", -1),)) as channel:
            try:
                call: Any = channel.unary_unary("/holdfast.v1.Admin/Status")
                await call(body, metadata=metadata, timeout=60)
                reported["answered"] += 1
            except aio.AioRpcError as error:
                reported[error.code().name] += 1
    return reported


async def cut_over_http(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """A tenant sends commits of 62 MiB and hangs up just before each one's end."""
    reported: Counter[str] = Counter()
    for master in cycle(target.cluster.masters):
        if until():
            return reported
        with suppress(OSError):
            reported[await _begin(target, master.address, hang_up=True)] += 1
    return reported


async def at_once_over_http(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """A tenant sends 40 commits of 62 MiB at once to each master, and never the last byte of any."""
    reported: Counter[str] = Counter()

    async def one(address: str) -> None:
        while not until():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(20):
                    reported[await _begin(target, address, hang_up=False)] += 1

    async with asyncio.TaskGroup() as group:
        for master in target.cluster.masters:
            for _ in range(_AT_ONCE):
                group.create_task(one(master.address))
    return reported


async def _begin(target: Target, address: str, *, hang_up: bool) -> str:
    """Send all of a commit but its last byte; return the status that was answered, or what was done."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=target.context)
    answered = asyncio.ensure_future(reader.readline())
    try:
        writer.write(_HEAD.format(target.application.token, BODY_BYTES).encode())
        for _ in range(BODY_BYTES // MIB - 1):
            writer.write(_PIECE)
            await writer.drain()
        writer.write(_PIECE[1:])
        await writer.drain()
        if hang_up:
            return "cut"
        return _status(await answered)
    except OSError:
        return _status(answered.result()) if answered.done() and not answered.exception() else "closed"
    finally:
        answered.cancel()
        writer.transport.abort()


async def begin_commit(target: Target, stack: AsyncExitStack) -> asyncio.Task[str]:
    """Send the head of a commit of 62 MiB, and keep the connection; the task ends with the status that is answered."""
    host, _, port = target.cluster.masters[0].address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=target.context)
    stack.callback(lambda kept: kept.transport.abort(), writer)  # nobody else keeps it, and then it closes

    async def answered() -> str:
        return _status(await reader.readline())

    writer.write(_HEAD.format(target.application.token, BODY_BYTES).encode())
    await writer.drain()
    return asyncio.ensure_future(answered())


def _status(line: bytes) -> str:
    return line.split(b" ")[1].decode() if line.count(b" ") > 1 else "closed"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + struct.pack("B", value)
