"""Who waits for what the log does to shuffles and workers: woken by applied commands, and when leadership is lost.

Rules: long polls are bounded in number, and divided by user and application (common/shares.py); a waiter is woken to
check again, in the order they came. Runs in the event loop. Used by long polls (`wait`) and by
scopes.py (`watch`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.common.ids import ShuffleKey
from holdfast.common.shares import Shares
from holdfast.master.api.access import share_owner
from holdfast.master.state_machine.state_machine import Subject

#: Long polls that wait.
WAITERS_MAX = 8_192


class Waiters:
    """Callbacks by what they wait for: (instance, shuffle), since what happens to one generation may concern another,
    or the number of a worker."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, dict[object, Callable[[], None]]] = {}
        #: long polls, by owner
        self._polls = Shares(WAITERS_MAX)
        #: all waiters
        self.watching = 0

    @property
    def count(self) -> int:
        """Long polls that wait."""
        return self._polls.total

    async def wait(self, key: ShuffleKey, seconds: float) -> None:
        """Return when the shuffle may have changed or after `seconds`. Raises RetryError (BUSY) past the bounds."""
        owner = share_owner(key.instance)
        self._polls.claim(owner, "more long polls")
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            with self.watch((key,), lambda: None if woken.done() else woken.set_result(None)):
                await asyncio.wait((woken,), timeout=seconds)
        finally:
            self._polls.give(owner, 1)

    @contextmanager
    def watch(self, subjects: Iterable[ShuffleKey | int], changed: Callable[[], None]) -> Iterator[None]:
        """Have `changed` called, inside, whenever one of these shuffles or workers may have changed, or this master
        loses the leadership."""
        me = object()
        places: list[Hashable] = [_place(each) for each in subjects]
        for place in places:
            self._waiting.setdefault(place, {})[me] = changed
        self.watching += 1
        try:
            yield
        finally:
            self.watching -= 1
            for place in places:
                waiting = self._waiting[place]
                del waiting[me]
                if not waiting:
                    del self._waiting[place]

    def wake(self, changed: Iterable[Subject]) -> None:
        """Wake waiters: for a shuffle by a key of it, by its instance, or by b"" for all; for a worker by its number,
        or by b""."""
        for subject in changed:
            if isinstance(subject, ShuffleKey | int):
                self._wake(_place(subject))
                continue
            for place in list(self._waiting):
                if not subject or (isinstance(place, tuple) and subject == place[0]):
                    self._wake(place)

    def _wake(self, place: Hashable) -> None:
        for changed in list(self._waiting.get(place, {}).values()):
            changed()


def _place(subject: ShuffleKey | int) -> Hashable:
    return subject if isinstance(subject, int) else (subject.instance, subject.shuffle)
