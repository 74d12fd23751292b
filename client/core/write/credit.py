"""Shares what a worker lets one connection have unanswered among the attempts that push over it.

Rules: pure. The worker sends one number for the connection, again with every answer; pushes that are given room here
never exceed it. First come, first served, byte-exact. When nothing is left the worker is asked once for all waiters.
What it is asked for begins small, doubles while the worker lets us have it, and is halved when it takes room back,
since it does so only for other waiters: so many clients of a slow worker take short turns instead of long ones.
Called by push_credit.py, one line per connection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.common.limits import MIB

#: What the worker is asked for at most: two frames of the largest usual size are on their way while one is written.
ASK_BYTES = 12 * MIB
#: What it is asked for at first, and at least.
ASK_BYTES_MIN = 1 * MIB


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
    #: what to ask for
    target: int = ASK_BYTES_MIN
    #: answered since the window was last taken back or the target changed
    _calm_bytes: int = 0
    #: the target has grown since the worker was last asked
    _grown: bool = False
    #: the worker has taken room back since it was last asked
    _taken_back: bool = False
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
        assert self.given >= 0, "no more credit is returned than was granted"
        return self._serve()

    def answered(self, size: int, window: int | None) -> list[Effect]:
        """A push of `size` bytes is answered; `window` is None where the answer does not say.

        A push that was refused as beyond the window returns 0: the assumed credit has lapsed.
        """
        self.given -= size
        assert self.given >= 0, "each push is answered once"
        if window is not None:
            self._learn(size, window)
            self.window = window
        return self._serve()

    def _learn(self, size: int, window: int) -> None:
        """Ask for more next time if a whole window was answered in calm, for less if some of it was taken back."""
        self._calm_bytes += size
        if window < self.window:
            self._calm_bytes, self._taken_back, self._grown = 0, True, False
        elif self._calm_bytes >= self.window >= self.target and self.target < ASK_BYTES:
            self._calm_bytes, self.target, self._grown = 0, min(2 * self.target, ASK_BYTES), True

    def granted(self, window: int) -> list[Effect]:
        """The worker answers what was asked for."""
        self._asked = False
        self.window = window
        if self._waiting and window < self._waiting[0][1]:
            # Less than one batch: asking again would not help, and the push itself gets the answer with the reason.
            who, least, _ = self._waiting.popleft()
            self.given += least
            return [Give(who, least), *self._serve()]
        return self._serve()

    def ask_failed(self) -> None:
        """The worker is unreachable: end all waits."""
        self._asked = False
        self._waiting.clear()

    def left(self, who: int) -> list[Effect]:
        """An attempt wants nothing any more; those behind it may fit."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != who)
        return self._serve()

    def _serve(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting:
            who, least, most = self._waiting[0]
            free = self.window - self.given
            if free < least:
                lacking = not self.given or self.window < least
                if not self._asked and (lacking or self._grown):
                    effects.append(self._ask(least))
                break
            self._waiting.popleft()
            size = min(free, most)
            self.given += size
            effects.append(Give(who, size))
        return effects

    def _ask(self, least: int) -> AskWorker:
        if self._taken_back:
            self._taken_back, self.target = False, max(self.target // 2, ASK_BYTES_MIN)
        self._asked, self._grown = True, False
        return AskWorker(max(least, self.target))

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        assert self.given >= 0
        assert all(0 < least <= most for _, least, most in self._waiting)
