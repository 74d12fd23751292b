"""The report of a drill as one HTML file: nothing is loaded from elsewhere, light and dark, readable without scripts.

    write(Path("report.html"), [report])

Everything that came from servers or people is escaped. Called by drill.py for `--html`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path

from holdfast.common.errors import HoldfastError
from holdfast.common.version import VERSION
from holdfast.tools.cli.output import in_seconds
from holdfast.tools.drills.support.report import Report, summary

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #14702f; --bad: #b3161b; }
@media (prefers-color-scheme: dark) { :root { --good: #5fd28a; --bad: #ff7b72; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } h3 { font-size: 1rem; margin-bottom: .3rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
"""


def write(path: Path, reports: Sequence[Report]) -> None:
    """Write the page. Raises HoldfastError if that cannot be."""
    try:
        path.write_text(page(reports, datetime.now().astimezone()), encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"the report cannot be written to {path}: {error}; give --html another file") from error


def page(reports: Sequence[Report], written: datetime) -> str:
    """The whole page; of several drills it begins with a table of their verdicts."""
    good = all(report.good for report in reports)
    title = f"Drill {reports[0].drill}" if len(reports) == 1 else f"{len(reports)} drills"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}: {'good' if good else 'bad'}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}: {_verdict(good)}</h1>",
        f"<p>Holdfast {escape(VERSION)}, written {written:%Y-%m-%d %H:%M:%S %Z}.</p>",
    ]
    if len(reports) > 1:
        rows = [(each.drill, _verdict(each.good), each.done, each.kills, in_seconds(each.seconds)) for each in reports]
        parts.append(_table(("drill", "verdict", "#rounds", "#kills", "#took"), rows, html={1}))
    for report in reports:
        parts += _drill(report, alone=len(reports) == 1)
    return "\n".join([*parts, "</body></html>", ""])


def _drill(report: Report, *, alone: bool) -> Iterable[str]:
    if not alone:
        yield f"<h2>{escape(report.drill)}: {_verdict(report.good)}</h2>"
    yield (
        f"<p>{report.done} of {report.rounds} rounds, {report.kills} kills, {escape(in_seconds(report.seconds))}, "
        f"seed {report.seed}, against {escape(report.against)}.</p>"
    )
    if report.repeat:
        yield f"<p>The same again: <code>{escape(report.repeat)}</code></p>"
    if report.failures:
        more = report.failed - len(report.failures)
        yield "<h3>Broken promises</h3><ul>"
        yield from (f'<li class="bad">{escape(each)}</li>' for each in report.failures)
        yield f"<li>and {more} more</li></ul>" if more > 0 else "</ul>"
    yield "<h3>Checked</h3>"
    yield _table(("what", "#times"), sorted(report.checks.items()))
    if report.counts:
        yield "<h3>Happened</h3>"
        yield _table(("what", "#times"), sorted(report.counts.items()))
    if report.times:
        yield "<h3>Times</h3>"
        rows = [_time(report, each) for each in report.times]
        yield _table(("what", "#count", "#p50", "#p99", "#max", "wanted"), rows)
    if report.events:
        yield "<details><summary>What was done, and when</summary>"
        yield _table(("#after", "what"), [(f"{second:.3f} s", what) for second, what in report.events])
        yield "</details>"


def _time(report: Report, what: str) -> tuple[object, ...]:
    found = summary(report.times[what])
    limit = f"p99 ≤ {report.limits[what]:g} s" if what in report.limits else ""
    return what, found["count"], *(in_seconds(found[key]) for key in ("p50", "p99", "max")), limit


def _verdict(good: bool) -> str:
    return '<span class="good">good</span>' if good else '<span class="bad">bad</span>'


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], html: frozenset[int] | set[int] = frozenset()
) -> str:
    """A table; columns whose name begins with # are numbers, those numbered in `html` are markup already."""
    kinds = [' class="n"' if column.startswith("#") else "" for column in columns]
    names = [escape(column.removeprefix("#")) for column in columns]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{cell if number in html else escape(str(cell))}</td>"
            for number, (kind, cell) in enumerate(zip(kinds, row, strict=True))
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
