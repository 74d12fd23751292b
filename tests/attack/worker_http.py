"""Strangers at a worker's HTTP port: connections that say nothing."""

import asyncio
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
