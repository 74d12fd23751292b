"""The drills by name, with a short form of each: what `holdfast drill all` runs, and the default tests in part.

The short form is the least that means something; the tox environments have the long ones. The drill of Spark is not
among them: it needs a JDK and the extra `spark`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.errors import ConfigError
from holdfast.common.limits import MIB
from holdfast.tools.cli.output import in_seconds, table
from holdfast.tools.drills import (
    bit_flip,
    clock_skew,
    disk_full,
    disk_slow,
    driver,
    failure_domain,
    leader,
    masters,
    partition,
    push,
    restored,
    rolling,
    worker,
)
from holdfast.tools.drills.running import Drill, Ground, run_drill
from holdfast.tools.drills.support.report import Report, verdict

if TYPE_CHECKING:
    from rich.console import Console

_SLOW_MEMORY = 64 * MIB


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One drill in its short form."""

    rounds: int
    #: the drill and the ground that it wants, by its seed
    make: Callable[[int], tuple[Drill, Ground]]
    #: options behind its name that make the command the same as this
    options: str = ""


def _fixed(rounds: int, drill: Drill, ground: Ground | None = None, options: str = "") -> CatalogueEntry:
    return CatalogueEntry(rounds, lambda _seed: (drill, ground or Ground()), options)


CATALOGUE = {
    "leader": _fixed(3, leader.drill_kill),
    "leader --stop": _fixed(3, leader.drill_stop),
    "masters": _fixed(4, masters.drill),
    "masters --masters 5": _fixed(2, masters.drill, Ground(masters=5)),
    "worker": _fixed(7, worker.drill),
    "push --copies 1": _fixed(3, partial(push.drill, copies=1), Ground(workers=push.workers(1))),
    "push --copies 2": _fixed(3, partial(push.drill, copies=2), Ground(workers=push.workers(2))),
    "push --copies 3": _fixed(3, partial(push.drill, copies=3), Ground(workers=push.workers(3))),
    "push --copies 3 --ack-copies 2": _fixed(
        3, partial(push.drill, copies=3, ack_copies=2), Ground(workers=push.workers(3))
    ),
    "rolling --copies 1": _fixed(1, partial(rolling.drill, copies=1), Ground(workers=rolling.workers(1))),
    "rolling --copies 2": _fixed(1, partial(rolling.drill, copies=2), Ground(workers=rolling.workers(2))),
    **{
        f"{each.word} --copies {copies}": _fixed(
            1, partial(failure_domain.drill, domain=each, copies=copies), each.ground(copies)
        )
        for each, copies in (
            (failure_domain.HOST, 2),
            (failure_domain.HOST, 3),
            (failure_domain.RACK, 2),
            (failure_domain.RACK, 3),
            (failure_domain.REGION, 3),
        )
    },
    "restored": _fixed(1, restored.drill, restored.GROUND),
    "driver": _fixed(1, partial(driver.drill, files=False), driver.GROUND),
    "disk-full": _fixed(1, disk_full.drill, disk_full.GROUND),
    "disk-slow": _fixed(
        1,
        partial(disk_slow.drill, clients=16, seconds=4.0, memory=_SLOW_MEMORY),
        Ground(settings=disk_slow.settings(_SLOW_MEMORY)),
        f" --clients 16 --seconds 4 --memory {_SLOW_MEMORY // MIB}",
    ),
    "bit-flip": _fixed(2, bit_flip.drill, bit_flip.GROUND),
    "partition": CatalogueEntry(1, lambda _: partition.ground()),
    "clock-skew": CatalogueEntry(1, lambda seed: (clock_skew.drill, clock_skew.ground(seed))),
}


def run_short(name: str, seed: int, directory: Path | None = None) -> Report:
    """Run one drill of the catalogue in its short form."""
    entry = CATALOGUE[name]
    drill, ground = entry.make(seed)
    report = run_drill(name, drill, entry.rounds, seed, directory, ground)
    report.repeat = f"holdfast drill {name}{entry.options} --count {entry.rounds} --seed {seed}"
    return report


def run_all(
    times: int,
    seed: int,
    directory: Path | None,
    only: Sequence[str],
    on_reports: Callable[[list[Report]], None] = lambda _: None,
) -> list[Report]:
    """Run every drill, or those named, `times` times in turn, each with another seed; `on_reports` gets what
    there is after each of them. Raises ConfigError."""
    names = [name for name in CATALOGUE if not only or name in only or name.partition(" ")[0] in only]
    if strange := [each for each in only if not any(each in (name, name.partition(" ")[0]) for name in CATALOGUE)]:
        raise ConfigError(f"there is no drill {strange[0]!r} here: the names are {', '.join(CATALOGUE)}")
    seeds = random.Random(seed)
    reports: list[Report] = []
    for turn in range(times):
        for name in names:
            place = directory / f"{turn + 1}-{name.replace(' ', '')}" if directory is not None else None
            reports.append(run_short(name, seeds.getrandbits(32), place))
            on_reports(reports)
    return reports


def draw_all(screen: Console, reports: Sequence[Report]) -> None:
    """What came of many drills, for people: a line for each, and all of what is bad."""
    rows = []
    for name in dict.fromkeys(report.drill for report in reports):
        of_it = [report for report in reports if report.drill == name]
        seconds = sum(report.seconds for report in of_it)
        good = sum(report.good for report in of_it)
        rows.append((name, len(of_it), good, sum(report.kills for report in of_it), in_seconds(seconds)))
    screen.print(table(("drill", "#times", "#good", "#kills", "#took"), rows))
    for report in reports:
        if not report.good:
            report.draw(screen)
    screen.print(verdict(all(report.good for report in reports)))
