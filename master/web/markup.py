"""HTML by construction: whatever is not markup already is escaped, so a name of an application stays a name. Pure."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

#: Elements without an end.
_VOID = frozenset({"meta", "link"})
#: Longer texts of users are cut; the whole text is in the title.
_LONG = 80


class Markup(str):
    """Text that is HTML already. Only this module makes it."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Anything as HTML: markup as it is, all else escaped, what cannot be printed or turns text round marked."""
    if isinstance(value, Markup):
        return value
    told = str(value)
    if not told.isprintable():
        told = "".join(each if each.isprintable() else "\ufffd" for each in told)
    return Markup(escape(told, quote=True))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Attributes: `class_` for class, `_` for `-`; None and False leave one out, True has no value."""
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{join(*children)}</{name}>")


def join(*parts: object) -> Markup:
    """One after the other; None is nothing, lists and tuples are their members."""
    return Markup("".join(_flat(part) for part in parts))


def trusted(written: str) -> Markup:
    """Text of this package that is HTML, such as its style sheet. Never what came from elsewhere."""
    return Markup(written)


def shortened(name: str) -> Markup:
    """A name of somebody else's choice, cut where it is very long."""
    if len(name) <= _LONG:
        return text(name)
    return tag("span", name[: _LONG - 1] + "…", title=name)


def _flat(part: Any) -> str:
    if part is None:
        return ""
    if isinstance(part, list | tuple):
        return "".join(_flat(each) for each in part)
    return text(part)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return f" {_name(key)}" if value is True else f' {_name(key)}="{text(value)}"'


@cache
def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
