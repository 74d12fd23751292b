"""A measured figure and how it is shown. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holdfast.common.sizes import in_bytes
from holdfast.tools.cli.output import in_seconds

if TYPE_CHECKING:
    from rich.text import Text

#: unit -> how people see a value of it
_SHOWN: dict[str, Callable[[float], str]] = {
    "s": in_seconds,
    "GB/s": lambda value: f"{value:.2f} GB/s",
    "GB/core-s": lambda value: f"{value:.2f} GB per core second",
    "s/GiB": lambda value: f"{value:.2f} s for each GiB",
    "1/s": lambda value: f"{value:,.0f} a second",
    "% core": lambda value: f"{value:.2f} % of a core",
    "B": in_bytes,
    "": lambda value: f"{value:,.0f}",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `limit` is what it should reach: at most if `less_is_better`, else at least; in `unit`."""

    section: str
    name: str
    value: float
    unit: str
    limit: float | None = None
    less_is_better: bool = True
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the limit is kept; None without one."""
        if self.limit is None:
            return None
        return self.value <= self.limit if self.less_is_better else self.value >= self.limit

    def document(self) -> dict[str, Any]:
        """The figure for --json."""
        return {**asdict(self), "reached": self.reached}

    def row(self) -> tuple[str, str, str, Text, str]:
        """The figure for people: section, name, value, what was wanted, note."""
        from rich.text import Text

        wanted = Text()
        if self.limit is not None:
            wanted.append(f"{'≤' if self.less_is_better else '≥'} {show(self.limit, self.unit)} ")
            wanted.append(*(("yes", "green") if self.reached else ("no", "red")))
        return self.section, self.name, show(self.value, self.unit), wanted, self.note


def show(value: float, unit: str) -> str:
    """A value with its unit, for people."""
    return _SHOWN[unit](value)
