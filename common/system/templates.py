"""HTML by templates that lie beside the module that writes them: the masters' page, the report of drills.

Rules: whatever a template puts out is escaped, and what cannot be printed or turns text round is marked; a name that is
not there is an error; each template is compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined


def templates(package: str, filters: Mapping[str, Any], **values: object) -> Environment:
    """Return the templates of a package, with what they may use beside what each is given."""
    place = files(package)
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        loader=FunctionLoader(lambda name: place.joinpath(name).read_text("utf-8")),
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters
    made.globals |= values
    return made


def _printable(value: object) -> object:
    if isinstance(value, str) and not hasattr(value, "__html__") and not value.isprintable():
        return "".join(each if each.isprintable() else "\ufffd" for each in value)
    return value
