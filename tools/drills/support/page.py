"""The report of a drill as one HTML file: nothing is loaded from elsewhere, light and dark, readable without scripts.

    write(Path("report.html"), [report])

Laid out by page.html beside this module. Called by drill.py for `--html`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from holdfast.common.errors import HoldfastError
from holdfast.common.system.templates import templates
from holdfast.common.version import VERSION
from holdfast.tools.cli.output import in_seconds
from holdfast.tools.drills.support.report import Report


def write(path: Path, reports: Sequence[Report]) -> None:
    """Write the page. Raises HoldfastError if that cannot be."""
    try:
        path.write_text(page(reports, datetime.now().astimezone()), encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"the report cannot be written to {path}: {error}; give --html another file") from error


def page(reports: Sequence[Report], written: datetime) -> str:
    """The whole page; of several drills it begins with a table of their verdicts."""
    filters = {"seconds": in_seconds, "times": Report.time_rows, "moments": _moments}
    return (
        templates("holdfast.tools.drills.support", filters)
        .get_template("page.html")
        .render(
            title=f"Drill {reports[0].drill}" if len(reports) == 1 else f"{len(reports)} drills",
            good=all(report.good for report in reports),
            version=VERSION,
            written=f"{written:%Y-%m-%d %H:%M:%S %Z}",
            reports=reports,
        )
    )


def _moments(report: Report) -> Iterator[tuple[str, str]]:
    return ((f"{second:.3f} s", what) for second, what in report.events)
