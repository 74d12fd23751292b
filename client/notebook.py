"""What notebooks show of an object: a small table.

Rules: only what the object knows already, since a cell must not wait for a server; every text is escaped; nothing
secret. Called by the `_repr_html_` of sessions, shuffles and local clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

#: Jupyter sets tables of all outputs to the right, as is good for numbers alone.
_LEFT = 'style="text-align:left"'
#: Rows that are shown; a cluster may have more servers.
ROWS_MAX = 20


def table(title: str, rows: Iterable[Sequence[object]]) -> str:
    """HTML of a table; the first cell of a row is its heading."""
    left = iter(rows)
    lines = "".join(map(_row, islice(left, ROWS_MAX)))
    more = sum(1 for _ in left)
    end = f"<p>and {more} more</p>" if more else ""
    return f"<div><b>{escape(title)}</b><table>{lines}</table>{end}</div>"


def _row(cells: Sequence[object]) -> str:
    first, *others = (escape(str(each)) for each in cells)
    return f"<tr><th {_LEFT}>{first}</th>{''.join(f'<td {_LEFT}>{each}</td>' for each in others)}</tr>"
