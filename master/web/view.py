"""What part of the cluster is asked for: the query of the page's address, read leniently and written back. Pure.

Rules: no input is an error; unknown parts are left out, and pages beyond the last show
the last. So every address shows something, and a link of an hour ago still works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

#: Rows of a page; what is longer has links to its other pages.
PAGE = 50
EVENTS = 40
RACKS = 60
_NUMBER_MAX = 1_000_000
_NAME_MAX = 600
#: Seconds after which the page loads itself again.
REFRESH = 10


@dataclass(frozen=True, slots=True)
class View:
    """What is asked for; pages count from 1."""

    workers: int = 1
    shuffles: int = 1
    rack: str = ""
    application: str = ""
    events: int = EVENTS
    refresh: bool = True

    @classmethod
    def of(cls, query: Mapping[str, str]) -> View:
        """Read a query."""
        return cls(
            workers=_number(query, "workers", 1),
            shuffles=_number(query, "shuffles", 1),
            rack=query.get("rack", "")[:_NAME_MAX],
            application=_hex(query.get("application", "")),
            events=min(_number(query, "events", EVENTS), 1_000),
            refresh=query.get("refresh", "") != "off",
        )

    def link(self, anchor: str = "", **changed: Any) -> str:
        """The address of this view with something changed."""
        wanted, usual = replace(self, **changed), View()
        fields = {name: getattr(wanted, name) for name in ("workers", "shuffles", "rack", "application", "events")}
        text = {name: value for name, value in fields.items() if value != getattr(usual, name)}
        if not wanted.refresh:
            text["refresh"] = "off"
        query = f"?{urlencode(text)}" if text else "/"
        return f"{query}#{anchor}" if anchor else query

    def further(self) -> str:
        """The address with four times as many events."""
        return self.link("events", events=max(self.events, EVENTS) * 4)


@dataclass(frozen=True, slots=True)
class Cut:
    """One page of something long."""

    page: int
    pages: int
    first: int
    end: int
    total: int

    @classmethod
    def of(cls, total: int, page: int, size: int = PAGE) -> Cut:
        """Page `page` of `total` rows; the last if there are not so many."""
        pages = max((total + size - 1) // size, 1)
        page = min(max(page, 1), pages)
        first = (page - 1) * size
        return cls(page, pages, first, min(first + size, total), total)


def _number(query: Mapping[str, str], name: str, usual: int) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 7):
        return usual
    return min(max(int(text), 1), _NUMBER_MAX)


def _hex(text: str) -> str:
    return text if len(text) == 32 and all(each in "0123456789abcdef" for each in text) else ""
