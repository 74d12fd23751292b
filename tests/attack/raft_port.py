"""Strangers at the masters' Raft ports: silence, handshakes that stop half way, and questions who is there."""

from __future__ import annotations

import asyncio
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from tests.attack.target import Target
from tests.support.waiting import wait_until_async

#: Connections that each attack has open at each port.
_AT_ONCE = 64
#: Before the next try at a port that is not there now.
_AWAY_SECONDS = 0.05
_ANSWER_SECONDS = 5.0


async def silent(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Connections that never say anything, opened again as soon as they are closed."""
    return await _hold(target, until, tls=False, said=b"")


async def half_way(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Handshakes of TLS and a proper hello, and then silence."""
    return await _hold(target, until, tls=True, said=frame(hello(2)))


def frame(data: bytes) -> bytes:
    """One frame."""
    return struct.pack("<I", len(data)) + data


def hello(version: int, *names: bytes) -> bytes:
    """A hello of that version, as anybody can make it; version 1 had names in it."""
    return b"\x01" + struct.pack("<H", version) + os.urandom(32) + b"".join(bytes([len(each)]) + each for each in names)


async def asked(target: Target, port: tuple[str, int], said: Iterable[bytes]) -> bytes:
    """All that a Raft port answers to these frames of a stranger."""
    reader, writer = await asyncio.open_connection(*port, ssl=target.context)
    heard = bytearray()
    try:
        for each in said:
            writer.write(frame(each))
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                while piece := await reader.read(4096):
                    heard += piece
        return bytes(heard)
    finally:
        writer.transport.abort()


async def _hold(target: Target, until: Callable[[], bool], *, tls: bool, said: bytes) -> Counter[str]:
    reported: Counter[str] = Counter()
    loop = asyncio.get_running_loop()

    async def one(host: str, port: int) -> None:
        while not until():
            try:
                reader, writer = await asyncio.open_connection(host, port, ssl=target.context if tls else None)
            except OSError:
                reported["away"] += 1
                soon = loop.time() + _AWAY_SECONDS
                await wait_until_async(lambda soon=soon: until() or loop.time() > soon, "the next try")  # type: ignore[misc]
                continue
            reported["opened"] += 1
            try:
                writer.write(said)
                while not until():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1):
                            if not await reader.read(4096):
                                break
            except OSError:
                reported["reset"] += 1
            finally:
                writer.transport.abort()
            reported["closed"] += 1

    async with asyncio.TaskGroup() as group:
        for host, port in target.raft:
            for _ in range(_AT_ONCE):
                group.create_task(one(host, port))
    return reported
