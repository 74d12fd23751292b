"""The report of a drill as a page."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.tools.drills.support.page import page, write
from holdfast.tools.drills.support.report import FAILURES_MAX, Report

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def report(*, good: bool = True, name: str = "rack") -> Report:
    """A report with something of everything."""
    made = Report(name, seed=7, rounds=1, repeat=f"holdfast drill {name} --count 1 --seed 7")
    made.killed("w1", "w2")
    made.check("every record read once", good, "<script>alert(1)</script> & 3 records are missing")
    made.time("commit", 0.25)
    made.limits["commit"] = 1.5
    made.counts["records"] = 800
    made.done = 1
    return made


class Tags(HTMLParser):
    """Collects tags, and checks that they close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.seen.add(tag)
        self.links += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It must be the last one opened."""
        assert self.open.pop() == tag


def test_the_page_says_all_that_the_report_has():
    """Verdict, seed, the command that repeats it, kills with their moments, checks, times with their limits."""
    reported = page([report()], NOW)
    for text in ("Drill rack", "good", "seed 7", "holdfast drill rack --count 1 --seed 7", "killed w1, w2", "250.0 ms"):
        assert text in reported
    assert "p99 ≤ 1.5 s" in reported
    assert "an embedded cluster" in reported


def test_the_page_stands_alone_and_is_well_formed():
    """Nothing is loaded, nothing runs, tags close in order, dark and light are both there."""
    tags = Tags()
    reported = page([report(), report(good=False, name="driver")], NOW)
    tags.feed(reported)
    assert tags.open == []
    assert tags.links == []
    assert "script" not in tags.seen
    assert "prefers-color-scheme: dark" in reported
    assert not re.search(r"https?://", reported)


def test_what_was_reported_is_escaped():
    """Angle brackets of an error are text."""
    reported = page([report(good=False)], NOW)
    assert "<script>" not in reported
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; 3 records" in reported
    assert "bad" in reported


def test_many_failures_are_counted():
    """Those that are not kept word by word are told by their number."""
    made = report()
    for number in range(FAILURES_MAX + 5):
        made.check("x", False, f"failure {number}")
    assert "and 5 more" in page([made], NOW)


def test_a_page_that_cannot_be_written_is_reported(tmp_path: Path):
    """A sentence with the file and what to do."""
    with pytest.raises(HoldfastError, match="give --html another file"):
        write(tmp_path / "none" / "x.html", [report()])
