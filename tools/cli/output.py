"""What all commands share: the --json and --masters options, and one way to show a result.

Rules: a command builds one document (plain dicts, lists, strings, numbers) and a way to draw it for people; `show`
prints one of the two on standard output. Progress is drawn on standard error. Sizes and times are shown by one hand.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.common.errors import ConfigError, RetryError
from holdfast.common.net.endpoints import MASTERS_VARIABLE
from holdfast.common.visible import visible, visible_lines

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

Document = Mapping[str, Any]

PATH = click.Path(path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
state_option = click.option(
    "--dir",
    "directory",
    type=PATH,
    help="Where state and logs go, kept at the end. Default: a temporary directory, removed at the end.",
)


class FiniteRange(click.FloatRange):
    """Numbers in a range; click takes NaN for one of any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read what was typed."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number that one can count to.", param, ctx)
        return number


def masters_of(value: str | None) -> str:
    """The masters that were named. Raises ConfigError if none were."""
    if not value:
        raise ConfigError(
            "pass the masters: --masters host:port,host:port,host:port, or the variable HOLDFAST_MASTERS "
            "(`holdfast local` prints them)"
        )
    return value


_masters = functools.partial(
    click.option,
    "--masters",
    envvar=MASTERS_VARIABLE,
    metavar="HOST:PORT,…",
    help="HTTP addresses of the masters. Default: the variable HOLDFAST_MASTERS.",
)
masters_option = _masters(callback=lambda _, __, value: masters_of(value))
#: Of commands that do something without masters, too.
masters_if_any_option = _masters()


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")


def ask_first(what: str, yes: bool, as_json: bool = False) -> None:
    """Have a person agree to `what`, such as "this drops nightly", unless `yes`. Raises ConfigError where the answer is
    no, or nobody can be asked."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        reason = "With --json nobody is asked" if as_json else "No terminal to ask for confirmation"
        raise ConfigError(f"{what}\n{reason}: pass --yes")
    if not click.confirm(f"{visible_lines(what)}. Go on?", err=True):
        raise ConfigError("nothing was done")


def show(document: Document, as_json: bool, draw: Callable[[Console], None]) -> None:
    """Print the result: as JSON, or as `draw` draws it."""
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    screen = console()
    with screen.capture() as captured:
        draw(screen)
    context = click.get_current_context(silent=True)
    if context is not None and _WATCHED in context.meta:
        click.clear()
    # Columns are filled up to their width, which makes long lines of nothing.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def console(stderr: bool = False) -> Console:
    """A console on standard output (or error) that keeps lines whole when it is not a terminal."""
    from rich.console import Console

    class Screen(Console):
        """Shows control characters; the caller applies `escape` to parts of a line."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(visible_lines(text), **how)

    screen = Screen(stderr=stderr, highlight=False, soft_wrap=False)
    return screen if screen.is_terminal else Screen(stderr=stderr, highlight=False, width=200)


def escape(text: str) -> str:
    """What others wrote, as rich prints it, in one line: square brackets of errors and keys are no markup, and what a
    terminal would obey is shown."""
    from rich.markup import escape as escaped

    return escaped(visible(text))


def draw_problem(problem: str, screen: Console) -> None:
    """Print a problem so that it is seen."""
    screen.print(f"[bold red]problem[/]: {escape(problem)}", soft_wrap=True)


def table(columns: Iterable[str], rows: Iterable[Sequence[object]], title: str | None = None) -> Table:
    """A table of text, as it is (rich's Text: with its colours); columns whose name begins with `#` are numbers and
    stand to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column.removeprefix("#"), justify="right" if column.startswith("#") else "left")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else escape(str(cell)) for cell in row))
    return made


#: Text that is longer is broken into lines where a table would be too wide otherwise.
_CELL_WIDTH = 24


class Fitted:
    """A table as `table` draws it, which leaves out columns where the terminal is too narrow: those whose name begins
    with `?`, the last ones first, and says so. Whole where it goes into a file or a pipe."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self._columns, self._rows = columns, rows

    def _width(self, shown: Sequence[int]) -> int:
        """Columns of the terminal that it takes; numbers are never broken, and other text where it may be."""
        width = 3 * len(shown) - 1
        for index in shown:
            name = self._columns[index].lstrip("?")
            longest = max((len(str(row[index])) for row in self._rows), default=0)
            width += max(len(name.lstrip("#")), longest if name.startswith("#") else min(longest, _CELL_WIDTH))
        return width

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        shown = list(range(len(self._columns)))
        for index in reversed(range(len(self._columns))):
            if not screen.is_terminal or self._width(shown) <= options.max_width:
                break
            if self._columns[index].startswith("?"):
                shown.remove(index)
        names = [self._columns[each].lstrip("?") for each in shown]
        yield table(names, [[row[each] for each in shown] for row in self._rows])
        if left := [name.lstrip("?#") for index, name in enumerate(self._columns) if index not in shown]:
            yield f"[dim]too narrow for: {', '.join(left)}; --json has all[/]"


#: Between two looks of --watch.
_LOOK_SECONDS = 2.0
_WATCHED = "holdfast.watched"


def watched(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command that lists something the option --watch."""

    @click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
    @functools.wraps(command)
    def repeated(*, watch: bool, **options: Any) -> int | None:
        if not watch:
            return command(**options)
        if options["as_json"]:
            raise ConfigError("--watch never ends, and --json is one document: choose one of the two")
        click.get_current_context().meta[_WATCHED] = True
        with suppress(KeyboardInterrupt):
            while True:
                try:
                    command(**options)
                except RetryError as error:
                    click.echo(f"holdfast: {visible_lines(str(error))}", err=True)
                time.sleep(_LOOK_SECONDS)
        return 0

    return repeated


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Draw a bar on standard error; call what is yielded after each of `total` steps, with a short status.

    Where standard error is not a terminal, a line is written about twenty times in all.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _lines(what, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=screen, transient=True) as bar:
        task = bar.add_task(what, total=total, note="")
        yield lambda note: bar.update(task, advance=1, note=note)


def _lines(what: str, total: int) -> Callable[[str], None]:
    every = max(1, total // 20)
    done = 0

    def step(note: str) -> None:
        nonlocal done
        done += 1
        if done % every == 0 or done == total:
            click.echo(f"{what}: {done} of {total}" + (f", {note}" if note else ""), err=True)

    return step


def in_seconds(seconds: float) -> str:
    """A span for people: "950 µs", "12.3 ms", "4.56 s", "3 min 20 s", "5 h 10 min", "3 d 2 h"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    minutes = int(seconds) // 60
    if minutes < 120:
        return f"{minutes} min {int(seconds) % 60} s"
    return (
        f"{minutes // 60} h {minutes % 60} min" if minutes < 2_880 else f"{minutes // 1_440} d {minutes // 60 % 24} h"
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below or at which `share` (0.0 to 1.0) of the values lie: nearest rank, never interpolated."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
