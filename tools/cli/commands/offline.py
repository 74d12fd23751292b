"""`holdfast inspect DIR` and `holdfast verify DIR`: read a storage directory while no server uses it.

The only commands that import the worker, and only its storage library.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.config.config import parse
from holdfast.common.errors import ConfigError
from holdfast.common.ids import shuffle_name
from holdfast.common.sizes import in_bytes
from holdfast.tools.cli.output import PATH, console, escape, json_option, show, table

if TYPE_CHECKING:
    from rich.console import Console

_directory = click.argument("directory", metavar="DIR", type=PATH)


@click.command()
@_directory
@click.option("--files", is_flag=True, help="Show every file and epoch, not only the shuffles; --json always has all.")
@click.option("--names", is_flag=True, help="Only names and sizes: no data is opened, and the worker may run.")
@json_option
def inspect(directory: Path, files: bool, names: bool, as_json: bool) -> int:
    """Show what the storage directory DIR of a stopped worker holds.

    Exit 1 if identity, index, or a sealed file's footer is damaged or missing; `verify` reads every byte instead.
    """
    _need(directory)
    if names:
        return _inspect_names(directory, files, as_json)
    from holdfast.worker.storage.offline.inspect import inspect_directory

    document = _plain(inspect_directory(str(directory)))
    show(document, as_json, lambda screen: _draw_inspect(document, files, screen))
    return 1 if document["problems"] else 0


@click.command()
@_directory
@click.option("--config", "file", type=PATH, help="The worker's TOML file: check the files on its DFS as well.")
@json_option
def verify(directory: Path, file: Path | None, as_json: bool) -> int:
    """Check every byte of the storage directory DIR of a stopped worker. Exit 1 if something is damaged.

    A finding is DAMAGE in bytes that something refers to, HARMLESS in bytes that nothing refers to. Files that were
    moved from DIR to the DFS are only checked with --config; without it the last line has their number.
    """
    _need(directory)
    from rich.progress import Progress

    from holdfast.common.system.files import read_small_text
    from holdfast.worker.storage.offline.verify import verify_directory

    text = read_small_text(file, "the worker's configuration") if file is not None else None
    config = parse(text, os.environ, str(file)) if text is not None else None
    screen = console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(f"verify {directory}", total=None)
        report = verify_directory(
            str(directory), lambda done, total: bar.update(task, completed=done, total=total), config
        )
    document = _plain(report)
    document["good"] = not any(finding["severity"] == "DAMAGE" for finding in document["findings"])
    show(document, as_json, lambda screen: _draw_verify(document, screen))
    return 0 if document["good"] else 1


def _inspect_names(directory: Path, files: bool, as_json: bool) -> int:
    from holdfast.tools.doctor.listing import list_names

    if files:
        raise ConfigError("--files reads the files, and --names opens none: choose one of the two")
    document = list_names(directory)
    show(document, as_json, lambda screen: _draw_names(document, screen))
    return 1 if document["problems"] else 0


def _draw_names(document: dict[str, Any], screen: Console) -> None:
    _draw_fields(document, screen)
    rows = [(each["kind"], each["files"], in_bytes(each["bytes"])) for each in document["kinds"]]
    screen.print(table(("kind", "#files", "#bytes"), rows))
    for path in document["unknown"]:
        screen.print(f"not ours: {escape(path)}", soft_wrap=True)
    for problem in document["problems"]:
        screen.print(f"[bold red]problem[/]: {escape(problem)}", soft_wrap=True)


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
    """Single values, a line each."""
    for key, value in document.items():
        if not isinstance(value, list):
            shown = in_bytes(value) if key.endswith("_bytes") else value
            screen.print(f"{key.removesuffix('_bytes').replace('_', ' '):<17} {shown}")


def _without_dfs(document: dict[str, Any]) -> dict[str, Any]:
    """Without the lines on a DFS that nothing of the directory is on."""
    if document["dfs_files"]:
        return document
    return {key: value for key, value in document.items() if not key.startswith("dfs_")}


#: What --files lists of every shuffle, and which columns: files of MAP, epochs and sealed files of REDUCE partitions.
_LISTS = {
    "files": (
        *("path", "state", "#map", "#attempt", "#epoch"),
        *("#partitions", "#batches", "#file_bytes", "ack", "problem"),
    ),
    "epochs": ("path", "state", "dfs", "#partition", "#epoch", "#batches", "#size_bytes", "ack"),
    "data_files": ("path", "kind", "dfs", "#file_bytes", "indexed", "problem"),
}


def _shuffle_row(shuffle: dict[str, Any]) -> tuple[object, ...]:
    """One shuffle: its MAP files, its REDUCE epochs by state, what all of it takes on the disk, and on the DFS."""
    files, epochs, data_files = shuffle["files"], shuffle["epochs"], shuffle["data_files"]
    sealed = sum(one["state"] == "sealed" for one in files)
    states = [one["state"] for one in epochs]
    away = sum(one["file_bytes"] for one in data_files if one["dfs"])
    stored = sum(one["file_bytes"] for one in (*files, *data_files)) - away
    stored += sum(one["size_bytes"] for one in epochs if one["state"] == "open")
    return (
        shuffle_name(shuffle["instance"], shuffle["shuffle"], shuffle["generation"]),
        sealed,
        len(files) - sealed,
        states.count("sealed"),
        states.count("open"),
        len(states) - states.count("sealed") - states.count("open"),
        sum(one["kind"] == "pack" for one in data_files),
        sum(one["batches"] for one in (*files, *epochs)),
        in_bytes(stored),
        in_bytes(away) if away else "",
    )


def _draw_inspect(document: dict[str, Any], files: bool, screen: Console) -> None:
    _draw_fields(_without_dfs(document), screen)
    columns = (
        *("shuffle", "#map files", "#unsealed", "#sealed epochs", "#open"),
        *("#other", "#packs", "#batches", "#bytes", "#on the DFS"),
    )
    screen.print(table(columns, [_shuffle_row(shuffle) for shuffle in document["shuffles"]]))
    if files:
        for kind, keys in _LISTS.items():
            listed = [one for shuffle in document["shuffles"] for one in shuffle[kind]]
            if listed:
                rows = [[one[key.lstrip("#")] for key in keys] for one in listed]
                screen.print(table(keys, rows, title=kind.replace("_", " ")))
    for path in document["unknown"]:
        screen.print(f"not ours: {escape(path)}", soft_wrap=True)
    for problem in document["problems"]:
        screen.print(f"[bold red]problem[/]: {escape(problem)}", soft_wrap=True)


def _draw_verify(document: dict[str, Any], screen: Console) -> None:
    _draw_fields(_without_dfs({key: value for key, value in document.items() if key != "good"}), screen)
    for finding in document["findings"]:
        colour = "red" if finding["severity"] == "DAMAGE" else "yellow"
        numbers = [f"{key} {finding[key]}" for key in ("region", "partition", "offset") if finding[key] is not None]
        place = escape(", ".join([finding["path"], *numbers]))
        screen.print(f"[bold {colour}]{finding['severity']}[/] {place}: {escape(finding['message'])}", soft_wrap=True)
    screen.print(_verdict(document), soft_wrap=True)


def _verdict(document: dict[str, Any]) -> str:
    """The last line: what was seen, and what was not looked at."""
    unchecked = document["dfs_unchecked"]
    rest = (
        f"{unchecked} files on the DFS ({document['dfs_epochs']} epochs, {in_bytes(document['dfs_bytes'])}) were not"
        " looked at: give --config FILE, that of the worker, to check them too"
    )
    if not document["good"]:
        return f"[bold red]damaged[/]{f'; {rest}' if unchecked else ''}"
    if unchecked:
        return f"[bold yellow]good as far as was looked[/]: every byte in the directory is as it was written; {rest}"
    return "[bold green]good[/]: every byte that something refers to is as it was written"
