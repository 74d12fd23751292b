"""Strangers without a token: connections that say nothing, that begin TLS and stop, that say what no port understands,
and floods of handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections import Counter
from collections.abc import Callable

from tests.attack.target import Target

#: Connections that one attacker holds open.
HELD_MAX = 300
#: Handshakes under way at a time.
HANDSHAKES = 16
_CONNECT_SECONDS = 10.0


def _ports(target: Target) -> list[tuple[str, int]]:
    return [("127.0.0.1", port) for server in target.cluster.servers for port in server.ports.values()]


async def silent_connections(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Open connections to every port in turn and say nothing, or half a TLS greeting; those that are closed are opened
    again."""
    counts: Counter[str] = Counter()
    ports = _ports(target)
    chance = random.Random(19)

    async def hold() -> None:
        while not until():
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(*chance.choice(ports))
            except (OSError, TimeoutError):
                counts["refused"] += 1
                continue
            counts["opened"] += 1
            writer.write(chance.choice([b"", b"\x16\x03\x01\x02\x00\x01", b"HFF1", b"GET / HT"]))
            while not until():
                try:
                    async with asyncio.timeout(0.5):
                        if not await reader.read(1 << 12):
                            break
                except TimeoutError:
                    continue
                except OSError:
                    break
            writer.transport.abort()

    await asyncio.gather(*(hold() for _ in range(HELD_MAX)))
    return counts


async def handshakes(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Make TLS handshakes with every port as fast as it goes, and leave."""
    counts: Counter[str] = Counter()
    ports = _ports(target)
    chance = random.Random(20)

    async def shake() -> None:
        while not until():
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    _, writer = await asyncio.open_connection(*chance.choice(ports), ssl=target.context)
                writer.transport.abort()
                counts["made"] += 1
            except (OSError, TimeoutError):
                counts["refused"] += 1

    await asyncio.gather(*(shake() for _ in range(HANDSHAKES)))
    return counts


async def garbage(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Say to every port what it does not understand, in the clear and under TLS: each wrote into the log."""
    counts: Counter[str] = Counter()

    async def talk(port: tuple[str, int], context: ssl.SSLContext | None) -> None:
        while not until():
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(*port, ssl=context)
                    try:
                        writer.write(b"\x00\xff NONSENSE / HTP/1.9\r\n\r\n")
                        counts["answered"] += bool(await reader.read(1_024))
                    finally:
                        writer.transport.abort()
            counts["said"] += 1

    await asyncio.gather(*(talk(port, context) for port in _ports(target) for context in (None, target.context)))
    return counts
