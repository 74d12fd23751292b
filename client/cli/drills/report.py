"""What a drill found: counts of kills and checks, times, and every broken promise by name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.client.cli.output import in_seconds, percentile, table

if TYPE_CHECKING:
    from rich.console import Console

#: Broken promises that are kept word by word; all are counted.
FAILURES_MAX = 20


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
    #: seconds, by what was timed
    times: dict[str, list[float]] = field(default_factory=dict)
    #: largest p99 in seconds that is still good, by what was timed
    limits: dict[str, float] = field(default_factory=dict)

    def check(self, what: str, good: bool, otherwise: str) -> None:
        """Count one check; `otherwise` says what is wrong if it is not good."""
        self.checks[what] += 1
        if not good:
            self.failed += 1
            if len(self.failures) < FAILURES_MAX:
                place = f"round {self.done + 1}: " if self.done < self.rounds else ""
                self.failures.append(place + otherwise)

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
            "failures": self.failures,
        }

    def draw(self, screen: Console) -> None:
        """The report for people."""
        head = f"drill {self.drill}: {self.done} of {self.rounds} rounds, {self.kills} kills, seed {self.seed}"
        screen.print(f"{head}, {in_seconds(self.seconds)}")
        screen.print(table(("checked", "#times"), sorted(self.checks.items())))
        if self.counts:
            screen.print(table(("happened", "#times"), sorted(self.counts.items())))
        if self.times:
            rows = []
            for what, spans in self.times.items():
                found = summary(spans)
                shown = [in_seconds(found[key]) for key in ("p50", "p99", "max")]
                rows.append(
                    (what, found["count"], *shown, f"p99 ≤ {self.limits[what]:g} s" if what in self.limits else "")
                )
            screen.print(table(("time", "#count", "#p50", "#p99", "#max", "wanted"), rows))
        for failure in self.failures:
            screen.print(f"[bold red]broken[/] {failure}", soft_wrap=True)
        if self.failed > len(self.failures):
            screen.print(f"and {self.failed - len(self.failures)} more")
        screen.print("[bold green]good[/]: nothing was forgotten" if self.good else "[bold red]bad[/]")


def summary(spans: list[float]) -> dict[str, float]:
    """Count, p50, p99 and max of spans in seconds."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {"count": len(spans), **{name: round(percentile(spans, share), 4) for name, share in shares.items()}}
