"""The tables of docs/cli.md that say what --json prints of each thing, from the classes of tools/cli/records.py. Called
by tests/write_docs.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_type_hints

from holdfast.tools.cli.records import ApplicationRecord, ShuffleRecord, WorkerRecord
from tests.support.tree import ROOT

_BEGIN, _END = "<!-- records -->\n", "<!-- end of records -->\n"


def documentation() -> str:
    """docs/cli.md with the tables as they have to be."""
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return "".join((before, _BEGIN, *map(_table, (WorkerRecord, ShuffleRecord, ApplicationRecord)), "\n", _END, after))


def _table(record: type[Any]) -> str:
    name = record.__name__.removesuffix("Record")
    head = f"\n**{name}**: {record.__doc__}\n"
    return "\n".join((head, "| Key | Type | |", "|---|---|---|", *_rows(record), ""))


def _rows(record: type[Any]) -> Iterator[str]:
    hints = get_type_hints(record, include_extras=True)
    for field in fields(record):
        kind, text = hints[field.name].__origin__, hints[field.name].__metadata__[0]
        yield f"| `{field.name}` | {_json_type(kind)} | {text} |"


def _json_type(kind: Any) -> str:
    names = {int: "number", str: "text", list[str]: "list of texts", list[dict[str, Any]]: "list of objects"}
    return names.get(kind, "object")
