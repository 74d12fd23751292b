"""How long a commit waits for one worker: for its copies alone, and where there are others.

Rules
* A worker whose copies exist elsewhere, too, is waited for `copy_grace` from when it was asked, or until it has been
  silent for as long: it may only have been started again.
* One that is unreachable, or fails, is lost after `return_grace` without a sign of life; an answer that it
  is busy or full is one, and so is a later start of it that has not registered yet.
* One that says again and again that it is busy or full has the data. It is asked for five times `return_grace`, counted
  from the first time, whatever came in between; only an answer ends the count.

Pure; times are monotonic nanoseconds. Used by commit.py, one for each worker of a commit.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A worker that is busy or full is asked for so many times the return grace.
BUSY_GRACES = 5
#: A worker that gave no answer is asked again after the first, and later and later up to the second.
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 1.0


@dataclass(slots=True)
class Patience:
    """What one worker said to one commit, and when. 0: it did not."""

    copy_grace_ns: int
    return_grace_ns: int
    #: since when it is asked without an answer
    asked: int = 0
    #: since when it fails, or cannot be reached
    failing: int = 0
    #: since when it says that it is busy or full
    busy: int = 0
    #: it said once that it is full
    was_full: bool = False
    #: after what it is asked again when it gives no answer
    pause_s: float = PAUSE_MIN_S

    def asks(self, now: int) -> None:
        """It is asked, for the first time or again."""
        self.asked = self.asked or now

    def answered(self) -> None:
        """It sealed what it was asked for."""
        self.asked = self.failing = self.busy = 0

    def failed(self, now: int) -> None:
        """It could not be reached, or failed."""
        self.failing = self.failing or now

    def was_busy(self, now: int) -> None:
        """It has the data, and cannot seal it now."""
        self.failing, self.busy = 0, self.busy or now

    def pause(self) -> float:
        """Return after how many seconds to ask it again; the next pause is longer."""
        pause_s, self.pause_s = self.pause_s, min(self.pause_s * 1.5, PAUSE_MAX_S)
        return pause_s

    def left_at(self, silence: int, now: int) -> int:
        """Return from when on it is not waited for where there are other copies; `silence` is how long it sent no
        heartbeat."""
        in_time = (self.asked or now) + self.copy_grace_ns
        return min(in_time, now - silence + self.copy_grace_ns) if self.failing else in_time

    def gone(self, silence: int | None, now: int) -> bool:
        """Whether it is not waited for at all any more; `silence` is None of one that the masters call alive."""
        if not self.failing:
            return False
        return max(now - self.failing, silence or 0) >= self.return_grace_ns

    def spent(self, now: int) -> bool:
        """Whether it has been busy or full for too long."""
        return self.busy > 0 and now - self.busy >= BUSY_GRACES * self.return_grace_ns
