"""Long polls that wait for a shuffle to change: woken by applied commands, sent away when leadership is lost.

Rules: bounded in number; a waiter is woken to look again, in the order they came, never told what happened. Runs in
the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.common.errors import RetryError, Status
from holdfast.common.ids import ShuffleKey

WAITERS_MAX = 8_192


class Waiters:
    """Futures by the key they wait for."""

    def __init__(self) -> None:
        #: by instance and shuffle: what happens to one generation may concern another
        self._waiting: dict[tuple[bytes, int], dict[asyncio.Future[None], None]] = {}
        self.count = 0

    async def wait(self, key: ShuffleKey, seconds: float) -> None:
        """Return when the shuffle may have changed or after `seconds`. Raises RetryError (BUSY) past the bound."""
        if self.count >= WAITERS_MAX:
            raise RetryError(f"{WAITERS_MAX} calls are waiting on this master; try again", status=Status.BUSY)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (key.instance, key.shuffle)
        self._waiting.setdefault(place, {})[woken] = None
        self.count += 1
        try:
            await asyncio.wait((woken,), timeout=seconds)
        finally:
            self.count -= 1
            waiting = self._waiting[place]
            del waiting[woken]
            if not waiting:
                del self._waiting[place]

    def wake(self, changed: Iterable[ShuffleKey | bytes]) -> None:
        """Wake who waits for a shuffle: by a key of it, by its instance, or by b"" for all."""
        for subject in changed:
            if isinstance(subject, ShuffleKey):
                self._wake((subject.instance, subject.shuffle))
                continue
            for place in list(self._waiting):
                if not subject or subject == place[0]:
                    self._wake(place)

    def _wake(self, place: tuple[bytes, int]) -> None:
        for woken in self._waiting.get(place, ()):
            if not woken.done():
                woken.set_result(None)
