"""tests/docs/waits.md and the sources agree on where Holdfast waits, and for how long."""

import re
from dataclasses import dataclass
from functools import cache

import pytest

from holdfast.common.log_events import LogEvent
from tests.docs.waits import PARTS, places
from tests.support.tree import ROOT

_ROW = re.compile(
    r"^\| `(?P<place>[^`|]+)` \| (?P<who>[^|]+) \| (?P<most>[^|]+) \| (?P<ends>[^|]+) \| (?P<log>[^|]+) \|$"
)
_SECONDS = re.compile(r"^(?P<number>[\d.]+) (?P<unit>ms|s|min|h)\b")
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_NAMED = re.compile(r"`([\w./ ]+)`")
_EVENT = re.compile(r"`([a-z]+\.[a-z_]+)`")
_SAID = re.compile(r"\"([^\"]{8,})\"")
#: Longer than this no wait may be silent.
SILENT_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class Row:
    """One line of the tables."""

    place: str
    who: str
    most: str
    ends: str
    log: str

    @property
    def function(self) -> str:
        return self.place.split()[1]


@cache
def rows() -> tuple[Row, ...]:
    """All lines of all tables."""
    text = (ROOT / "tests/docs/waits.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    found = [_ROW.match(line) for line in lines]
    assert all(found), f"not five columns: {[line for line, each in zip(lines, found, strict=True) if not each]}"
    return tuple(Row(**each.groupdict()) for each in found if each)


@cache
def sources() -> str:
    """All code that ships."""
    return "\n".join(
        path.read_text("utf-8")
        for part in PARTS
        for path in sorted((ROOT / part).rglob("*"))
        if path.suffix in (".py", ".java") and "_pb2" not in path.name
    )


@cache
def words() -> frozenset[str]:
    """All names in that code."""
    return frozenset(re.findall(r"\w+", sources()))


def test_every_place_that_waits_is_listed_once() -> None:
    """A new place that waits is described in tests/docs/waits.md, and one that went is removed from it."""
    listed = [row.place for row in rows()]
    assert len(set(listed)) == len(listed), "a place is listed twice"
    there = places()
    assert len(there) > 100
    assert sorted(set(listed) - there) == [], "tests/docs/waits.md lists what does not wait, or is not there"
    assert sorted(there - set(listed)) == [], "tests/docs/waits.md does not list these"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.place.replace(" ", ":"))
def test_no_place_waits_without_a_bound_or_in_silence(row: Row) -> None:
    """Each has a time, whose constants exist, or names the place that bounds it; who waits for more than 10 s logs an
    event of the catalogue, and what it waits for in words that the sources have."""
    code = sources()
    if row.most.startswith("as "):
        named = _NAMED.findall(row.most)
        others = {name for other in rows() if other != row for name in (other.place, other.function)}
        assert set(named[:1]) & others, "names no other row"
        return
    if row.most in ("idle", "a disk"):
        return
    time = _SECONDS.match(row.most)
    assert time is not None, f'"{row.most}" is no time, no other place, and not idle'
    names = {part for name in _NAMED.findall(row.most) for part in name.split(".")}
    assert names <= words(), f"the sources have no {names - words()}"
    if float(time["number"]) * _UNITS[time["unit"]] > SILENT_SECONDS_MAX:
        logged = set(_EVENT.findall(row.log))
        assert logged, "waits for more than 10 s and logs nothing"
        assert logged <= {event.dotted for event in LogEvent}
        said = _SAID.findall(row.log)
        assert all(each in code for each in said), f"the sources do not say {said}"
