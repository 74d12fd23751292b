"""Strangers at a worker's HTTP port: connections that say nothing, and some that say what is not HTTP."""

import asyncio
import contextlib
import ssl
from collections import Counter, deque
from collections.abc import Callable

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


async def garbage(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """What is neither TLS nor HTTP, again and again: each wrote into the log."""
    found: Counter[str] = Counter()
    host, _, port = target.cluster.workers[0].http.rpartition(":")
    ways: tuple[ssl.SSLContext | None, ...] = (None, target.context)
    while not until():
        for context in ways:
            with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
                async with asyncio.timeout(5.0):
                    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
                    writer.write(b"\x00\xff NONSENSE / HTP/1.9\r\n\r\n")
                    found["answered"] += bool(await reader.read(1_024))
                    writer.close()
    return found
