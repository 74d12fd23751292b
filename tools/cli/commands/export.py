"""`holdfast export SHUFFLE --to DIR`: a committed shuffle's rows as files that anything reads, one a partition."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.sizes import counted, in_bytes
from holdfast.tools.cli.asking import with_masters
from holdfast.tools.cli.naming import ShuffleName, find_application, newest_generation, shuffle_argument
from holdfast.tools.cli.output import PATH, json_option, masters_option, progress, show

if TYPE_CHECKING:
    from holdfast.client.arrow.tables import ArrowRows
    from holdfast.common.net.control import ControlClient

FORMATS = ("parquet", "arrow", "csv")
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@click.command()
@shuffle_argument()
@click.option("--to", "directory", required=True, type=PATH, help="Where the files go: a new or empty directory.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="parquet", show_default=True)
@click.option("--partitions", default="", metavar="0-9,17", help="Only these. Default: all.")
@masters_option
@json_option
def export(shuffle: ShuffleName, directory: Path, form: str, partitions: str, masters: str, as_json: bool) -> int:
    """Write the rows of a committed shuffle to DIR, a file for each partition, without Spark.

    APP is a name, an instance (32 hex digits, or at least the first 4) or an id in Spark. Without GENERATION it is the
    newest one. Only shuffles that PySpark wrote without the plug-in, or
    write_table, have rows. A file gets its name when it is complete, and DIR the file _SUCCESS when all are.
    """
    instance, generation = with_masters(masters, lambda client: _find(client, shuffle))
    from holdfast.client.arrow.tables import open_rows
    from holdfast.client.session import Session

    with Session(masters, attach=instance) as session:
        rows = open_rows(session, shuffle.shuffle, generation=generation)
        wanted = _wanted(partitions, rows.partitions)
        _prepare(directory)
        document = _export(rows, wanted, directory, form)
    show(document, as_json, lambda _: click.echo(_summary(document)))
    return 0


async def _find(client: ControlClient, named: ShuffleName) -> tuple[bytes, int]:
    """Return the instance and the generation that are meant. Raises HoldfastError."""
    known = await find_application(client, named.application)
    newest = await newest_generation(client, known, named.shuffle)
    if newest is None:
        raise HoldfastError(f"there is no shuffle {named}: `holdfast shuffles` lists them")
    return known.instance, newest if named.generation is None else named.generation


def _prepare(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        there = next(directory.iterdir(), None)
    except OSError as error:
        raise ConfigError(f"nothing can be written to {directory}: {error.strerror or error}") from error
    if there is not None:
        raise ConfigError(f"{directory} is not empty (it has {there.name}): name a new directory, or empty it first")


def _wanted(text: str, count: int) -> list[int]:
    if not text:
        return list(range(count))
    found: set[int] = set()
    for part in text.split(","):
        numbers = _RANGE.fullmatch(part.strip())
        first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (1, 0)
        if not first <= last < count:
            raise ConfigError(f'--partitions takes numbers and ranges below {count}, such as "0-9,17", not "{part}"')
        found |= set(range(first, last + 1))
    return sorted(found)


def _export(rows: ArrowRows, wanted: list[int], directory: Path, form: str) -> dict[str, Any]:
    write = _writer(form, rows)
    total_rows = total_bytes = 0
    with progress("exporting", len(wanted)) as step:
        for number in wanted:
            path = directory / f"part-{number:05}.{form}"
            with _whole(path) as unfinished:
                total_rows += write(unfinished, number)
            total_bytes += path.stat().st_size
            step(in_bytes(total_bytes))
    with _whole(directory / "_SUCCESS") as unfinished:
        unfinished.touch()
    return {"directory": str(directory), "files": len(wanted), "rows": total_rows, "bytes": total_bytes, "format": form}


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A temporary name to write to, which is renamed to `path` on success and removed otherwise."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        yield unfinished
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        raise HoldfastError(
            f"{path} cannot be written: {error.strerror or error}; correct that, empty {path.parent}, and export again"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _writer(form: str, rows: ArrowRows) -> Callable[[Path, int], int]:
    """What writes one partition's rows to a path and returns how many there were."""
    import pyarrow as pa

    def open_file(path: Path) -> Any:
        if form == "parquet":
            from pyarrow import parquet

            return parquet.ParquetWriter(path, rows.schema)
        if form == "csv":
            from pyarrow import csv

            return csv.CSVWriter(path, rows.schema)
        return pa.ipc.new_file(path, rows.schema)

    def write(path: Path, number: int) -> int:
        count = 0
        try:
            with open_file(path) as file:
                for batch in rows.stream([number]):
                    file.write_batch(batch)
                    count += batch.num_rows
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(
                f"{form} has no form for these columns ({error}): take --format arrow, which has all"
            ) from error
        return count

    return write


def _summary(document: dict[str, Any]) -> str:
    rows, files = counted(document["rows"], "row"), counted(document["files"], "file")
    return f"{rows} in {files}, {in_bytes(document['bytes'])}, in {document['directory']}"
