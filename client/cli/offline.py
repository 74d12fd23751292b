"""`holdfast inspect DIR` and `holdfast verify DIR`: read a storage directory while no server uses it.

The only commands that import the worker, and only its storage library.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.client.cli.output import console, in_bytes, json_option, show, table
from holdfast.common.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.command()
@_directory
@json_option
def inspect(directory: Path, as_json: bool) -> None:
    """Show what the storage directory DIR of a stopped worker holds, from its index."""
    _need(directory)
    from holdfast.worker.storage.inspect import inspect_directory

    document = _plain(inspect_directory(directory))
    show(document, as_json, lambda screen: _draw_fields(document, screen))


@click.command()
@_directory
@json_option
def verify(directory: Path, as_json: bool) -> int:
    """Check every byte of the storage directory DIR of a stopped worker. Exit 1 if something is damaged.

    A finding is DAMAGE in bytes that something refers to, HARMLESS in bytes that nothing refers to.
    """
    _need(directory)
    from rich.progress import Progress

    from holdfast.worker.storage.verify import verify_directory

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"verify {directory}", total=None)
        report = verify_directory(directory, lambda done, total: bar.update(task, completed=done, total=total))
    document = _plain(report)
    document["good"] = not any(finding["severity"] == "DAMAGE" for finding in document["findings"])
    show(document, as_json, lambda screen: _draw_verify(document, screen))
    return 0 if document["good"] else 1


def _need(directory: Path) -> None:
    if not directory.is_dir():
        raise ConfigError(f"there is no directory {directory}: give one of the worker's storage directories")


def _plain(value: Any) -> Any:
    """Dataclasses, paths and bytes as JSON has them; ids are hex."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key.name: _plain(getattr(value, key.name)) for key in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _draw_fields(document: dict[str, Any], screen: Console) -> None:
    """Single values as lines, lists of records as tables."""
    for key, value in document.items():
        if not isinstance(value, list):
            shown = f"{in_bytes(value)} ({value})" if key.endswith("bytes") and value >= 1024 else value
            screen.print(f"{key.replace('_', ' '):<20} {shown}")
    for key, value in document.items():
        if isinstance(value, list) and value:
            if isinstance(value[0], dict):
                screen.print(table(value[0], [list(record.values()) for record in value], title=key))
            else:
                screen.print(f"{key}: {', '.join(map(str, value))}")


def _draw_verify(document: dict[str, Any], screen: Console) -> None:
    _draw_fields({key: value for key, value in document.items() if key not in ("good", "findings")}, screen)
    for finding in document["findings"]:
        colour = "red" if finding["severity"] == "DAMAGE" else "yellow"
        place = ", ".join(
            f"{key} {value}" for key, value in finding.items() if key not in ("severity", "message", "where")
        )
        screen.print(
            f"[bold {colour}]{finding['severity']}[/] {finding['where']} ({place}): {finding['message']}",
            soft_wrap=True,
        )
    screen.print(
        "[bold green]good[/]: every byte that is referred to is as it was written"
        if document["good"]
        else "[bold red]damaged[/]"
    )
