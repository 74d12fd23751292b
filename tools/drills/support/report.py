"""What a drill found: kills and when, counts of checks, times, and every broken promise by name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.tools.cli.output import escape, in_seconds, percentile, table

if TYPE_CHECKING:
    from rich.console import Console

#: Called after each round, with a short status.
Step = Callable[[str], None]
#: Broken promises that are kept word by word; all are counted.
FAILURES_MAX = 20
#: Moments that are kept; later ones are counted, not kept.
EVENTS_MAX = 1_000


class DrillError(Exception):
    """Something did not happen before its deadline; ends the drill with a bad verdict."""


@dataclass(slots=True)
class Report:
    """Filled by a drill while it runs."""

    drill: str
    seed: int
    rounds: int
    done: int = 0
    seconds: float = 0.0
    kills: int = 0
    #: what was looked at, and how often
    checks: Counter[str] = field(default_factory=Counter)
    #: facts that are neither good nor bad
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    #: what was looked at and not good, and how often
    broken: Counter[str] = field(default_factory=Counter)
    #: seconds, by what was timed
    times: dict[str, list[float]] = field(default_factory=dict)
    #: largest p99 in seconds that is still good, by what was timed
    limits: dict[str, float] = field(default_factory=dict)
    #: what it ran against
    against: str = "an embedded cluster"
    #: the command that does the same again
    repeat: str = ""
    #: (seconds since the beginning, what was done then)
    events: list[tuple[float, str]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def event(self, what: str) -> None:
        """Note what is done to the cluster at this moment."""
        if len(self.events) < EVENTS_MAX:
            self.events.append((time.monotonic() - self.began, what))

    def killed(self, *names: str) -> None:
        """Count and note kills."""
        self.kills += len(names)
        self.event(f"killed {', '.join(names)}")

    def check(self, what: str, good: bool, otherwise: str) -> None:
        """Count one check; `otherwise` says what is wrong if it is not good."""
        self.checks[what] += 1
        if not good:
            self.failed += 1
            self.broken[what] += 1
            place = f"round {self.done + 1}: " if self.done < self.rounds else ""
            if len(self.failures) < FAILURES_MAX:
                self.failures.append(place + otherwise)
            self.event(f"broken: {place}{otherwise}")

    def time(self, what: str, seconds: float) -> None:
        """Add one span."""
        self.times.setdefault(what, []).append(seconds)

    @contextmanager
    def until(self, deadline_passed: str) -> Iterator[None]:
        """Turn a TimeoutError inside into a DrillError that says what did not happen."""
        try:
            yield
        except TimeoutError:
            raise DrillError(deadline_passed) from None

    def close(self) -> None:
        """Judge the times; call once, at the end."""
        for what, limit in self.limits.items():
            if what in self.times:
                p99 = percentile(self.times[what], 0.99)
                self.check(f"{what} in time", p99 <= limit, f"{what}: p99 {in_seconds(p99)} is above {limit:g} s")

    @property
    def good(self) -> bool:
        """The verdict: all rounds were run, something was checked and no promise was broken."""
        return self.done == self.rounds and bool(self.checks) and not self.failed

    def document(self) -> dict[str, Any]:
        """The report for --json."""
        return {
            "drill": self.drill,
            "good": self.good,
            "seed": self.seed,
            "rounds": self.rounds,
            "rounds_done": self.done,
            "seconds": round(self.seconds, 1),
            "kills": self.kills,
            "checks": dict(self.checks),
            "counts": dict(self.counts),
            "times_s": {what: summary(spans) for what, spans in self.times.items()},
            "limits_p99_s": self.limits,
            "failed": self.failed,
            "broken": dict(self.broken),
            "failures": self.failures,
            "against": self.against,
            "repeat": self.repeat,
            "events": [{"s": round(second, 3), "what": what} for second, what in self.events],
        }

    def time_rows(self) -> Iterator[tuple[object, ...]]:
        """What was timed, for people: how often, p50, p99, max, and the limit."""
        for what, spans in self.times.items():
            found = summary(spans)
            limit = f"p99 ≤ {self.limits[what]:g} s" if what in self.limits else ""
            yield what, found["count"], *(in_seconds(found[key]) for key in ("p50", "p99", "max")), limit

    def draw(self, screen: Console) -> None:
        """The report for people."""
        head = f"drill {self.drill}: {self.done} of {self.rounds} rounds, {self.kills} kills, seed {self.seed}"
        screen.print(f"{head}, {in_seconds(self.seconds)}, against {self.against}", soft_wrap=True)
        screen.print(table(("checked", "#times"), sorted(self.checks.items())))
        if self.counts:
            screen.print(table(("happened", "#times"), sorted(self.counts.items())))
        if self.times:
            screen.print(table(("time", "#count", "#p50", "#p99", "#max", "wanted"), self.time_rows()))
        for failure in self.failures:
            screen.print(f"[bold red]broken[/] {escape(failure)}", soft_wrap=True)
        if self.failed > len(self.failures):
            screen.print(f"and {self.failed - len(self.failures)} more")
        screen.print(verdict(self.good))
        if self.repeat and not self.good:
            screen.print(f"again: {escape(self.repeat)}", soft_wrap=True)


def verdict(good: bool) -> str:
    """The last line, for people."""
    return "[bold green]good[/]: nothing was forgotten" if good else "[bold red]bad[/]"


def summary(spans: list[float]) -> dict[str, float]:
    """Count, p50, p99 and max of spans in seconds."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {"count": len(spans), **{name: round(percentile(spans, share), 4) for name, share in shares.items()}}
