"""The health of one storage directory: whether anything new goes there, judged by what went wrong and by probes.

    well ──── a write, sync, commit or probe failed ────▶ suspect ── `errors_max` of them in a window ──▶ critical
      ▲                                                   ▲   │  ▲                                          │
      │                                                   │   │  └──────── a window without an error ───────┘
      └──── `probes_to_return` good ones, one after the other │
                 hanging ── its probe ended ──────────────┘   └── a probe runs for longer than its time ──▶ hanging

Rules: only a directory that is well takes anything new; what was given up on it stays given up, whatever is said here.
A disk that is full is no error, and no proof that it is well either. A probe that read back other bytes makes it
critical at once. A directory that was deleted or unmounted is suspect, which says nothing against the disk: nothing is
counted. Errors are counted over returns, so that a disk that fails, comes back and fails again is promoted. Times come
in, in ns of one monotonic clock. Called by worker/storage/disks/monitor.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

SECOND_NS = 1_000_000_000
#: Errors that are remembered of one window; what is told of more is this number.
ERRORS_KEPT_MAX = 1_024


class DirectoryHealth(Enum):
    """What a directory is; the values are shown to people and go to the masters."""

    WELL = "well"
    SUSPECT = "suspect"
    CRITICAL = "critical"
    HANGING = "hanging"


class Outcome(Enum):
    """How a probe ended."""

    GOOD = "good"
    FULL = "full"  #: no room to write: says nothing
    FAILED = "failed"
    WRONG = "wrong"  #: other bytes came back
    GONE = "gone"  #: the directory is not there, or not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """When a directory is what; the defaults are those of [disk_check]."""

    #: a probe that has not ended after so long hangs
    probe_timeout_ns: int = 30 * SECOND_NS
    #: so many errors within the window make a directory critical
    errors_max: int = 3
    error_window_ns: int = 60 * SECOND_NS
    #: good probes, one after the other, before anything goes there again
    probes_to_return: int = 3

    def __post_init__(self) -> None:
        assert 0 < self.errors_max <= ERRORS_KEPT_MAX, self
        assert min(self.probe_timeout_ns, self.error_window_ns, self.probes_to_return) > 0, self


class Health:
    """Of one directory."""

    def __init__(self, limits: HealthLimits) -> None:
        self.limits = limits
        self._errors: deque[int] = deque(maxlen=ERRORS_KEPT_MAX)
        self._isolated = self._critical = self._hanging = False
        #: thorough good probes that began after everything that was wrong, and when that was
        self._good = 0
        self._bad_ns = -1

    @property
    def state(self) -> DirectoryHealth:
        if self._hanging:
            return DirectoryHealth.HANGING
        if self._critical:
            return DirectoryHealth.CRITICAL
        return DirectoryHealth.SUSPECT if self._isolated else DirectoryHealth.WELL

    def errors(self, now_ns: int) -> int:
        """Errors within the window, at most ERRORS_KEPT_MAX."""
        while self._errors and self._errors[0] <= now_ns - self.limits.error_window_ns:
            self._errors.popleft()
        return len(self._errors)

    def failed(self, at_ns: int, *, counts: bool = True) -> None:
        """A write, sync, commit or probe failed, at that time; `counts`: which speaks against the disk."""
        self._bad(at_ns)
        if counts:
            # Threads tell of their errors a moment late: the times stay in order.
            self._errors.append(max(at_ns, self._errors[-1] if self._errors else 0))
            self._critical = self._critical or self.errors(at_ns) >= self.limits.errors_max

    def probe_runs(self, now_ns: int, since_ns: int) -> None:
        if now_ns - since_ns >= self.limits.probe_timeout_ns:
            self._hanging = True
            self._bad(now_ns)

    def _bad(self, at_ns: int) -> None:
        self._isolated, self._good, self._bad_ns = True, 0, max(at_ns, self._bad_ns)

    def probe_ended(self, at_ns: int, took_ns: int, outcome: Outcome, *, thorough: bool = True) -> None:
        """A probe of this directory ended; `thorough`: it tried everything that has to work before a return."""
        self._hanging = False
        if took_ns >= self.limits.probe_timeout_ns:
            self._bad(at_ns)
        elif outcome is Outcome.GOOD and self._isolated and thorough and at_ns - took_ns >= self._bad_ns:
            self._good = min(self._good + 1, self.limits.probes_to_return)
        if outcome in (Outcome.FAILED, Outcome.WRONG):
            self.failed(at_ns)
            self._critical = self._critical or outcome is Outcome.WRONG
        elif outcome is Outcome.GONE:
            self.failed(at_ns, counts=False)

    def tick(self, now_ns: int) -> None:
        """Time passed: a window without an error ends what is critical."""
        if self._critical and not self.errors(now_ns):
            self._critical = False

    @property
    def may_return(self) -> bool:
        """All that was asked of an isolated directory is met."""
        return self.state is DirectoryHealth.SUSPECT and self._good >= self.limits.probes_to_return

    def returned(self) -> None:
        assert self.may_return, self.state
        self._isolated, self._good = False, 0

    def check(self) -> None:
        assert self._isolated or not (self._critical or self._hanging or self._good)
        assert 0 <= self._good <= self.limits.probes_to_return
        assert list(self._errors) == sorted(self._errors)


class WindowMean:
    """The mean time of something over a window: of the last whole one, or of the running one if that had none.

    One window is kept as two numbers, so that adding costs a few hundred ns. For one thread.
    """

    __slots__ = ("_count", "_last_ns", "_number", "_sum_ns", "_window_ns")

    def __init__(self, window_ns: int = 10 * SECOND_NS) -> None:
        assert window_ns > 0
        self._window_ns = window_ns
        self._number = self._count = self._sum_ns = self._last_ns = 0

    def add(self, now_ns: int, took_ns: int) -> None:
        number = now_ns // self._window_ns
        if number != self._number:
            self._turn(number)
        self._sum_ns += took_ns
        self._count += 1

    def mean_ns(self, now_ns: int) -> int:
        """The mean; 0 if there was nothing in the last window and in the running one."""
        number = now_ns // self._window_ns
        if number != self._number:
            self._turn(number)
        return self._last_ns or self._running_ns

    @property
    def _running_ns(self) -> int:
        return self._sum_ns // self._count if self._count else 0

    def _turn(self, number: int) -> None:
        """Another window has begun; only the one right before it counts."""
        self._last_ns = self._running_ns if number == self._number + 1 else 0
        self._number, self._sum_ns, self._count = number, 0, 0
