"""What part of the cluster is asked for: the query of the page's address, read leniently and written back. Pure.

Rules: no input is an error; unknown parts are left out, and pages beyond the last show
the last. So every address shows something, and a link of an hour ago still works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

#: Rows of a page; what is longer has links to its other pages.
PAGE = 50
EVENTS = 40
RACKS = 60
_NUMBER_MAX = 1_000_000
_NAME_MAX = 600
#: Seconds after which the page loads itself again.
REFRESH = 10


#: What has pages of its own, and how many names are in their addresses.
_SUBJECTS = {"shuffles": 3, "applications": 1, "hosts": 1, "workers": 1}


def address_of(kind: str, *names: object) -> str:
    """The address of the page of a shuffle (instance in hex, number, generation), an application (instance in hex), a
    host or a worker (name)."""
    assert len(names) == _SUBJECTS[kind]
    return "/".join(("", kind, *(quote(str(name), safe="") for name in names)))


class Subject(NamedTuple):
    """What a page is about; kind "" is the whole cluster."""

    kind: str = ""
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw_path: str) -> Subject | None:
        """Read the path of an address as it was sent; None if no page has such an address."""
        first, kind, *names = raw_path.split("/") if raw_path.startswith("/") else ("-", "")
        if first or (kind and _SUBJECTS.get(kind) != len(names)) or (not kind and names):
            return None
        return cls(kind, tuple(unquote(name)[:_NAME_MAX] for name in names))

    @property
    def address(self) -> str:
        """The path of its address."""
        return address_of(self.kind, *self.names) if self.kind else "/"


CLUSTER = Subject()


@dataclass(frozen=True, slots=True)
class View:
    """What is asked for; pages count from 1."""

    workers: int = 1
    shuffles: int = 1
    rack: str = ""
    application: str = ""
    events: int = EVENTS
    refresh: bool = True
    subject: Subject = CLUSTER

    @classmethod
    def of(cls, query: Mapping[str, str], subject: Subject = CLUSTER) -> View:
        """Read a query."""
        return cls(
            workers=_number(query, "workers", 1),
            shuffles=_number(query, "shuffles", 1),
            rack=query.get("rack", "")[:_NAME_MAX],
            application=_hex(query.get("application", "")),
            events=min(_number(query, "events", EVENTS), 1_000),
            refresh=query.get("refresh", "") != "off",
            subject=subject,
        )

    def link(self, anchor: str = "", **changed: Any) -> str:
        """The address of this view with something changed."""
        wanted, usual = replace(self, **changed), View()
        fields = {name: getattr(wanted, name) for name in ("workers", "shuffles", "rack", "application", "events")}
        text = {name: value for name, value in fields.items() if value != getattr(usual, name)}
        if not wanted.refresh:
            text["refresh"] = "off"
        query = f"?{urlencode(text)}" if text else self.subject.address
        return f"{query}#{anchor}" if anchor else query

    @property
    def home(self) -> View:
        """The whole cluster."""
        return View(refresh=self.refresh)

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
