"""A notebook that a kernel runs, as Jupyter shows it."""

from __future__ import annotations

from collections.abc import Sequence

from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook

_SECONDS_MAX = 240


def shown(cells: Sequence[str], last: str, *, dark: bool) -> str:
    """Run cells, and then `last`, which is not shown; return the HTML of the page. Raises CellExecutionError."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in (*cells, last)])
    NotebookClient(notebook, timeout=_SECONDS_MAX, kernel_name="python3").execute()
    del notebook.cells[-1]
    page, _ = HTMLExporter(template_name="lab", theme="dark" if dark else "light").from_notebook_node(notebook)
    return str(page)
