"""A turn at work that one caller does at a time: a caller that does not get it soon has to ask again.

Rules: an earlier caller may wait for the log, or work on something large, so none waits in the queue for longer than
TURN_SECONDS: clients ask again, and a caller that has left is not kept. Runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from holdfast.common.errors import RetryError
from holdfast.common.statuses import Status

#: How long a call waits for those before it.
TURN_SECONDS = 10.0


@asynccontextmanager
async def turn(lock: asyncio.Lock | asyncio.Semaphore, what: str) -> AsyncIterator[None]:
    """Hold `lock`. Raises RetryError (BUSY), which names `what` the others do, where that takes too long."""
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await lock.acquire()
    except TimeoutError:
        raise RetryError(f"others have been at {what} for {TURN_SECONDS:g} s; try again", status=Status.BUSY) from None
    try:
        yield
    finally:
        lock.release()


class UserTurns:
    """One at a time, and one of each user in the queue: no user waits for all calls of another."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._of_user: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, user: Hashable, what: str) -> AsyncIterator[None]:
        """Have the turn. Raises RetryError (BUSY), as `turn`."""
        mine = self._of_user.setdefault(user, asyncio.Lock())
        async with turn(mine, f"{what} of yours"), turn(self._turn, what):
            yield
