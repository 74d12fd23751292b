"""When to try again what a store did not do: exponential back-off with full jitter, until a window is over. Pure.

Full jitter: the pause is drawn evenly from nothing to a limit that doubles, so that many callers that failed together
do not come back together (Brooker, "Exponential Backoff And Jitter", 2015). The window starts at the first failure, not
with the call, so that a long upload that fails at its end is tried again. Used by store.py.
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0


class Retries:
    """The retries of one call."""

    def __init__(self, window_seconds: float, draw: Callable[[], float]) -> None:
        """`draw` returns numbers from 0 to 1."""
        self._window = window_seconds
        self._draw = draw
        self._limit = FIRST_SECONDS
        self._end: float | None = None

    def failed(self, now_seconds: float) -> float | None:
        """Return how many seconds to wait before the next try; None if the time is over."""
        if self._end is None:
            self._end = now_seconds + self._window
        pause = self._limit * self._draw()
        self._limit = min(self._limit * 2, LONGEST_SECONDS)
        return pause if now_seconds + pause < self._end else None
