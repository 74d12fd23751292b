"""Writes the page by the templates beside this module: one document, every number in the HTML itself.

Rules: values are computed before, templates lay them out and escape them, so a name of an application stays a name;
there is one style sheet and one script, whose hashes the Content-Security-Policy names, so that nothing else may run or
load. The script asks for the same page again; without scripts the browser loads it anew.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from jinja2 import Environment

from holdfast.common.sizes import counted, in_bytes
from holdfast.common.system.templates import templates
from holdfast.common.tags import named
from holdfast.master.core.retention import in_time
from holdfast.master.web.picture import Picture
from holdfast.master.web.summary import problems_of
from holdfast.master.web.view import RACKS, REFRESH, address_of

#: By what the page is about.
_TEMPLATES = {
    "": "page.html",
    "shuffles": "shuffle.html",
    "applications": "application.html",
    "hosts": "machine.html",
    "workers": "machine.html",
}
_STYLE, _SCRIPT = (files("holdfast.master.web").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


#: Nothing but these two, the same page again, and the icon, which is part of the document.
POLICY = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def write(picture: Picture) -> bytes:
    """Return the page."""
    problems = problems_of(picture)
    shown = {each.name: getattr(picture, each.name) for each in fields(picture)}
    grave = sum(each.grave for each in problems)
    name = "missing.html" if _is_empty(picture) else _TEMPLATES[picture.view.subject.kind]
    return _templates().get_template(name).render(shown, problems=problems, grave=grave).encode()


def _is_empty(picture: Picture) -> bool:
    """Whether the page is about one thing, and there is nothing to show of it here."""
    return bool(picture.view.subject.kind) and picture.detail is None and picture.fleet is None


@cache
def _templates() -> Environment:
    filters = {
        "ago": lambda ms: f"{in_time(ms)} ago" if ms >= 1_000 else "now",
        "bytes": in_bytes,
        "counted": counted,
        "grouped": "{:,}".format,
        "moment": lambda ms: datetime.fromtimestamp(ms / 1000, UTC),
        "named": named,
        "rate": lambda per_second: f"{in_bytes(per_second)}/s",
    }
    return templates(
        "holdfast.master.web",
        filters,
        racks_max=RACKS,
        refresh=REFRESH,
        style=_STYLE,
        script=_SCRIPT,
        address_of=address_of,
    )
