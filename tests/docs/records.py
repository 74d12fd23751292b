"""The lists of docs/operate/cli.md with the keys that --json prints, from the classes of tools/cli/records.py. Called
by tests/write_docs.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_type_hints

from holdfast.tools.cli.records import ApplicationRecord, ShuffleDescriptionRecord, ShuffleRecord, WorkerRecord
from tests.support.tree import ROOT

_BEGIN, _END = "<!-- records -->\n", "<!-- end of records -->\n"


def documentation() -> str:
    """docs/operate/cli.md with the lists as they have to be."""
    text = (ROOT / "docs" / "operate" / "cli.md").read_text("utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    lists = map(_list, (WorkerRecord, ShuffleRecord, ShuffleDescriptionRecord, ApplicationRecord))
    return "".join((before, _BEGIN, *lists, "\n", _END, after))


def _list(record: type[Any]) -> str:
    name = record.__name__.removesuffix("Record")
    return "\n".join((f"\n**{name}**: {record.__doc__}\n", "|Keys|Meaning|", "|---|---|", *_rows(record), ""))


def _rows(record: type[Any]) -> Iterator[str]:
    """Keys that say themselves what they are first, in one row; keys with the same text together."""
    hints = get_type_hints(record, include_extras=True)
    of: dict[str, list[str]] = {"": []}
    for field in fields(record):
        of.setdefault(hints[field.name].__metadata__[0], []).append(f"`{field.name}`")
    yield from (f"|{', '.join(names)}|{text}|" for text, names in of.items())
