"""Long polls that wait for a shuffle to change: woken by applied commands, sent away when leadership is lost.

Rules: bounded in number; a waiter is woken to look again, never told what happened. Runs in the event loop.
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
        self._waiting: dict[ShuffleKey, set[asyncio.Future[None]]] = {}
        self.count = 0

    async def wait(self, key: ShuffleKey, seconds: float) -> None:
        """Return when the shuffle may have changed or after `seconds`. Raises RetryError (BUSY) past the bound."""
        if self.count >= WAITERS_MAX:
            raise RetryError(f"{WAITERS_MAX} calls are waiting on this master; try again", status=Status.BUSY)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(woken)
        self.count += 1
        try:
            await asyncio.wait((woken,), timeout=seconds)
        finally:
            self.count -= 1
            waiting = self._waiting.get(key, set())
            waiting.discard(woken)
            if not waiting:
                self._waiting.pop(key, None)

    def wake(self, changed: Iterable[ShuffleKey | bytes]) -> None:
        """Wake who waits for a key: named itself, by its instance, or by b"" for all.

        A key with a later generation wakes the earlier ones too: they may have been dropped with it.
        """
        for subject in changed:
            for key, waiting in self._waiting.items():
                if _concerns(subject, key):
                    for woken in waiting:
                        if not woken.done():
                            woken.set_result(None)


def _concerns(subject: ShuffleKey | bytes, key: ShuffleKey) -> bool:
    if isinstance(subject, ShuffleKey):
        return (subject.instance, subject.shuffle) == (key.instance, key.shuffle)
    return not subject or subject == key.instance
