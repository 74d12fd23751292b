"""The table of docs/use/spark.md with what was seen to work on which Spark and Java, from tests/spark/features.json,
which test runs write. Called by tests/write_tables.py."""

from __future__ import annotations

from tests.support.features import FEATURES, Record
from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "use" / "spark.md"
_BEGIN, _END = "<!-- features -->\n", "<!-- end of features -->\n"


def documentation(records: list[Record]) -> str:
    """docs/use/spark.md with the table as it has to be."""
    before, _, rest = PAGE.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return "".join((before, _BEGIN, _table(records), _END, after))


def _table(records: list[Record]) -> str:
    lines = [
        _row("Spark", [record["spark"] for record in records]),
        "|---|" + "---|" * len(records),
        _row("Java", [record["java"].partition(".")[0] for record in records]),
        *(_row(name, ["yes" if name in record["features"] else "–" for record in records]) for name in FEATURES),
    ]
    return "".join(f"{line}\n" for line in lines)


def _row(head: str, cells: list[str]) -> str:
    return f"|{'|'.join((head, *cells))}|"
