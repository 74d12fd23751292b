"""Shares what a worker lets one connection have unanswered among the attempts that push over it.

Rules: pure. The worker says one number for the connection, anew with every answer; pushes that are given room here
never exceed it. First come, first served, byte-exact. When nothing is left the worker is asked once for all who wait.
Called by push_credit.py, one line per connection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.common.limits import MIB

#: What the worker is asked for: two frames of the largest usual size are on their way while one is written.
ASK_BYTES = 12 * MIB


@dataclass(frozen=True, slots=True)
class Give:
    """`who` may push `size` bytes now."""

    who: int
    size: int


@dataclass(frozen=True, slots=True)
class AskWorker:
    """Ask the worker for a window of `size` bytes."""

    size: int


Effect = Give | AskWorker


@dataclass(slots=True)
class CreditLine:
    """The window of one connection. Methods return effects, in the order to carry them out."""

    #: what may be unanswered, as the worker said last
    window: int = 0
    #: given to attempts and not answered yet
    given: int = 0
    _asked: bool = False
    _waiting: deque[tuple[int, int, int]] = field(default_factory=deque)

    def want(self, who: int, least: int, most: int) -> list[Effect]:
        """An attempt wants room: at least `least` bytes, `most` if there is so much."""
        assert 0 < least <= most
        self._waiting.append((who, least, most))
        return self._serve()

    def returned(self, size: int) -> list[Effect]:
        """Room that was given is not used."""
        self.given -= size
        return self._serve()

    def answered(self, size: int, window: int | None) -> list[Effect]:
        """A push of `size` bytes is answered; `window` is None where the answer does not say.

        A push that was refused as beyond the window says 0: what we took for granted has lapsed.
        """
        self.given -= size
        if window is not None:
            self.window = window
        return self._serve()

    def granted(self, window: int) -> list[Effect]:
        """The worker answers what was asked for."""
        self._asked = False
        self.window = window
        if self._waiting and window < self._waiting[0][1]:
            # Less than one batch: asking again would not help, and the push itself gets the answer that says why.
            who, least, _ = self._waiting.popleft()
            self.given += least
            return [Give(who, least), *self._serve()]
        return self._serve()

    def ask_failed(self) -> None:
        """The worker cannot be asked: nobody waits any more."""
        self._asked = False
        self._waiting.clear()

    def left(self, who: int) -> None:
        """An attempt wants nothing any more."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != who)

    def _serve(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting:
            who, least, most = self._waiting[0]
            free = self.window - self.given
            if free < least:
                if not self._asked and (not self.given or self.window < least):
                    self._asked = True
                    effects.append(AskWorker(max(least, ASK_BYTES)))
                break
            self._waiting.popleft()
            size = min(free, most)
            self.given += size
            effects.append(Give(who, size))
        return effects

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        assert self.given >= 0
        assert all(0 < least <= most for _, least, most in self._waiting)
