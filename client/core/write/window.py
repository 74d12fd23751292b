"""How much one attempt has on its way to one worker: slow start, halving on congestion, slow growth after.

Rules: pure; as TCP does it (RFC 5681, sections 3.1), counted in body bytes; SLOW_DOWN and BUSY signal congestion
instead of by losses. The worker's credit bounds all attempts together; the window makes one of them polite before it
has to. Called by push.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.limits import KIB, MIB

WINDOW_BYTES_MIN = 256 * KIB
WINDOW_BYTES_FIRST = 4 * MIB
WINDOW_BYTES_MAX = 32 * MIB


@dataclass(slots=True)
class Window:
    """The window of one worker."""

    size: int = WINDOW_BYTES_FIRST
    #: below it the window doubles with every window answered, above it grows by WINDOW_BYTES_MIN
    threshold: int = WINDOW_BYTES_MAX
    #: pushed and not answered
    unanswered: int = 0

    @property
    def free(self) -> int:
        """What may be pushed now."""
        return max(0, self.size - self.unanswered)

    def sent(self, size: int) -> None:
        self.unanswered += size

    def answered(self, size: int, *, kept: bool) -> None:
        """A push is answered, or will never be; only what was kept makes the window grow."""
        self.unanswered -= size
        assert self.unanswered >= 0, "each push is answered once"
        if kept:
            grow = size if self.size < self.threshold else size * WINDOW_BYTES_MIN // self.size
            self.size = min(WINDOW_BYTES_MAX, self.size + grow)

    def congested(self) -> None:
        """The worker reports congestion."""
        self.size = self.threshold = max(WINDOW_BYTES_MIN, self.size // 2)

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        assert self.unanswered >= 0
        assert WINDOW_BYTES_MIN <= self.size <= WINDOW_BYTES_MAX
