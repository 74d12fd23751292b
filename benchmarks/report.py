"""What was compared, for people: a table in Markdown and a picture in SVG, each with where its figures come from.

Rules: pure but for `origin`, which asks the machine. Called by compare.py.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jinja2
import psutil

from holdfast.client.spark.jar import installed_spark
from holdfast.common.limits import GIB
from holdfast.common.version import VERSION

_ROOT = Path(__file__).resolve().parent.parent
_TEMPLATE = Path(__file__).with_name("picture.svg")
#: Of the picture, in its units.
_WIDTH, _ROW, _GAP, _NAMES, _ABOVE, _BELOW = 760, 18, 14, 120, 44, 66
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")


class Spread(NamedTuple):
    """What became of several rounds: the median, and what lies around it."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}–{self.most:.2f})"


class Compared(NamedTuple):
    """One side on one workload."""

    workload: str
    side: str
    rounds: int
    seconds: Spread
    #: to the first side, round by round
    ratio: Spread
    cpu_ratio: Spread
    #: of the tasks that wrote, as Spark counts them; where these wrote on both sides
    write_cpu_ratio: Spread | None = None
    #: to the floor, if that is a side
    floor_ratio: Spread | None = None
    #: milliseconds that a job took longer than on the first side, where a workload is many like jobs
    job_over_ms: Spread | None = None


class Origin(NamedTuple):
    """Where figures come from: enough to measure them again."""

    machine: str
    versions: str
    commit: str
    command: str

    def __str__(self) -> str:
        return f"{self.machine}. {self.versions}; commit {self.commit}. {self.command}"


def origin(module: str, words: list[str]) -> Origin:
    """This machine, this tree, and the command that was typed."""
    info = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "")
    memory = f"{psutil.virtual_memory().total / GIB:.0f} GiB"
    machine = ", ".join(filter(None, (model, f"{os.cpu_count()} cores", memory, platform.platform())))
    java = _said("java", "-version").splitlines()
    versions = [f"Holdfast {VERSION}", f"Spark {installed_spark().version}", f"Python {platform.python_version()}"]
    commit = _said("git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*")
    command = shlex.join(["python", "-m", module, *words])
    return Origin(machine, ", ".join([*versions, *java[:1]]), commit, command)


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"the report cannot say where its figures come from: {error}")
    return done.stdout.strip()


def table(found: list[Compared], source: Origin) -> str:
    """A table in Markdown."""
    first = found[0].side
    columns: dict[str, list[Spread | None]] = {
        "Seconds": [each.seconds for each in found],
        f"Over {first}": [each.ratio for each in found],
        "CPU": [each.cpu_ratio for each in found],
        "CPU of map tasks": [each.write_cpu_ratio for each in found],
        "Over the floor": [each.floor_ratio for each in found],
        f"ms a job over {first}": [each.job_over_ms for each in found],
    }
    told = {head: cells for head, cells in columns.items() if any(cells)}
    rows = [["Workload", "", *told], ["---"] * (2 + len(told))]
    for each, *cells in zip(found, *told.values(), strict=True):
        rows.append([f"`{each.workload}`", each.side, *("" if cell is None else str(cell) for cell in cells)])
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    rounds = max(each.rounds for each in found)
    said = (
        f"Medians of {rounds} rounds, least and most in brackets; ratios are taken round by round, CPU over {first}'s."
    )
    return f"{text}\n{said}\n\n{source.machine}. {source.versions}; commit {source.commit}.\n\n    {source.command}\n"


def picture(found: list[Compared], source: Origin) -> str:
    """A bar for each ratio, with its spread, in SVG; the first side is the line at 1."""
    first = found[0].side
    others = [each for each in found if each.side != first]
    sides = list(dict.fromkeys(each.side for each in others))
    most = max([1.0, *(each.ratio.most for each in others)]) * 1.05
    scale = (_WIDTH - _NAMES - 70) / most
    bars, labels, at = [], [], float(_ABOVE)
    for workload in dict.fromkeys(each.workload for each in others):
        labels.append({"text": workload, "y": at + 13})
        for each in (one for one in others if one.workload == workload):
            median, least, far = (_NAMES + ratio * scale for ratio in each.ratio)
            color = _COLORS[sides.index(each.side) % len(_COLORS)]
            bars.append({"each": each, "y": at, "median": median, "least": least, "most": far, "color": color})
            at += _ROW
        at += _GAP
    legend = [
        {"text": side, "color": _COLORS[number % len(_COLORS)], "x": _NAMES + 130 * number}
        for number, side in enumerate(sides)
    ]
    shape = {"width": _WIDTH, "height": at + _BELOW, "left": _NAMES, "one": _NAMES + scale, "row": _ROW, "end": at}
    template = jinja2.Template(_TEMPLATE.read_text("utf-8"), autoescape=True, undefined=jinja2.StrictUndefined)
    return template.render(shape=shape, bars=bars, labels=labels, legend=legend, first=first, source=source)
