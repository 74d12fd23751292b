"""Strangers at a worker's HTTP port: connections that say nothing, or nothing that they may ask."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from itertools import cycle

from tests.attack.target import Target

#: Connections that the attacker holds at a time.
_HELD = 1_500


async def flood(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Connections without end, none of which says a word: each took a descriptor of the worker's, until there were none
    for files, and writes failed with NoRoom."""
    found: Counter[str] = Counter()
    host, _, port = target.cluster.workers[0].http.rpartition(":")
    held: deque[asyncio.StreamWriter] = deque()
    try:
        while not until():
            try:
                async with asyncio.timeout(5.0):
                    _, writer = await asyncio.open_connection(host, int(port))
            except (OSError, TimeoutError):
                found["refused"] += 1
                continue
            found["connected"] += 1
            held.append(writer)
            if len(held) > _HELD:
                held.popleft().close()
        return found
    finally:
        for writer in held:
            writer.close()


async def refused(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Connections that ask without a token, with one that nobody made, and with a tenant's own, and stay; silent ones
    between them. With a tenant's token they held all places, and nobody who runs the cluster got in."""
    found: Counter[str] = Counter()
    host, _, port = target.cluster.workers[0].http.rpartition(":")
    held: deque[asyncio.StreamWriter] = deque()
    asked = cycle(("", "Authorization: Bearer x\r\n", f"Authorization: Bearer {target.application.token}\r\n", None))
    try:
        while not until():
            authorization = next(asked)
            secure = None if authorization is None else target.context
            try:
                async with asyncio.timeout(60.0):
                    reader, writer = await asyncio.open_connection(host, int(port), ssl=secure)
                    if authorization is not None:
                        writer.write(f"GET /status HTTP/1.1\r\nHost: x\r\n{authorization}\r\n".encode())
                        found[(await reader.readline()).decode().strip()] += 1
            except OSError:
                found["closed"] += 1
                continue
            held.append(writer)
            if len(held) > _HELD:
                held.popleft().close()
        return found
    finally:
        for writer in held:
            writer.close()
