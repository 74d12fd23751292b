"""`holdfast bench`: measures Holdfast on this machine, with what the machine itself can do beside it."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.common.errors import ConfigError
from holdfast.tools.cli.output import PATH, json_option, progress, show, table

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.tools.benches.figures import Figure

#: Section -> module below holdfast.tools.benches, which has a function of its name.
SECTIONS = {
    "latency": "commands",
    "rate": "commands",
    "placement": "placement",
    "small": "small",
    "data": "data",
    "workers": "data",
    "copies": "copies",
    "restart": "servers",
    "idle": "servers",
    "failover": "commands",
    "page": "page",
    "hosts": "hosts",
    "scale": "scale",
}

_COLUMNS_MAX = 120

#: Workers of a section's cluster, where it is not one.
WORKERS = {"small": 2, "workers": 4, "copies": 3, "placement": 0, "page": 0, "hosts": 0, "scale": 0}


@click.command()
@click.argument("sections", nargs=-1, metavar=f"[{'|'.join(SECTIONS)}]…")
@click.option("--partitions", default=100_000, show_default=True, help="Sealed partitions of the section restart.")
@click.option(
    "--dir",
    "directory",
    type=PATH,
    help="Where the clusters put their state. Default: a temporary directory.",
)
@json_option
def bench(sections: tuple[str, ...], partitions: int, directory: Path | None, as_json: bool) -> None:
    """Measure all SECTIONS, or those named, each against a local cluster of its own.

    The machine is measured in the same minute, for comparison; the target is beside each figure.
    """
    for name in sections:
        if name not in SECTIONS:
            raise ConfigError(f'there is no section "{name}": choose from {", ".join(SECTIONS)}')
    chosen = [name for name in SECTIONS if name in sections or not sections]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=directory) as scratch:
        figures = _measure(chosen, Path(scratch), partitions)
    document = {"figures": [figure.document() for figure in figures]}
    show(document, as_json, lambda screen: draw(figures, screen))


def draw(figures: list[Figure], screen: Console) -> None:
    """Print the table, with notes in several lines where it would be wider than the screen or than 120 columns."""
    columns = ("section", "measured", "#value", "wanted", "note")
    made = table(columns, [figure.row() for figure in figures])
    screen.print(made, width=min(screen.width, _COLUMNS_MAX))


def _measure(chosen: list[str], scratch: Path, partitions: int) -> list[Figure]:
    from holdfast.client.cluster.local import local_cluster
    from holdfast.tools.benches import machine

    with progress("bench", len(chosen) + 1) as step:
        figures = machine.calibrate(scratch)
        step("the machine")
        for name in chosen:
            module = importlib.import_module(f"holdfast.tools.benches.{SECTIONS[name]}")
            workers, settings = WORKERS.get(name, 1), getattr(module, "SETTINGS", None)
            with local_cluster(3, workers, dir=scratch / name, settings=settings) as cluster:
                figures += getattr(module, name)(cluster, *([partitions] if name == "restart" else []))
            step(name)
    return figures
