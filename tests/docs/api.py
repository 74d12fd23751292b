"""The text of docs/use/api.md: the face of the Python client, from its docstrings. Called by tests/write_docs.py."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin

from holdfast import connect
from tests.docs.anchors import anchor

MODULES = {
    "holdfast": "The names that most programs need, and `__version__`. They are imported at first use.",
    "holdfast.client": "Sessions, shuffles, clusters on this machine, errors.",
    "holdfast.client.arrow.tables": "Rows of committed shuffles as Arrow, without Spark. Needs the extra `arrow`.",
    "holdfast.client.spark": "PySpark. `conf`, `enable`: the plug-in; the others need no jar. Needs the extra `spark`.",
}
#: It has names of the others, too.
_TOP = "holdfast"
#: Classes without a docstring of their constructor that people make all the same; others are made for them.
_MADE_BY_USERS = ("FetchOptions",)
#: Classes with one that are made for people.
_MADE_BY_US = ("MapWriter", "PushWriter", "WorkerInfo")
#: A call that is longer has its arguments in a table.
_LINE = 100
#: Before the name of an argument.
_STARS: Mapping[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_NAMED = re.compile(r"\* ((?:`[a-z_]+`(?:, )?)+): (.*)")
_INTRODUCTION = """# Python API

Made by `python -m tests.write_docs` from the docstrings; other names are not public. [python.md](python.md) shows how
the parts work together. Times are in seconds, sizes in bytes; what has no arrow returns nothing. Arguments without a
default are required, except those with stars.
"""


def documentation() -> str:
    """The whole page."""
    return _INTRODUCTION + "".join(f"{line}\n" for name, names in MODULES.items() for line in _module(name, names))


def _module(name: str, names: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield from ("", f"## {name}", "", names)
    found = {each: getattr(module, each) for each in sorted(module.__all__) if each != "__version__"}
    if name == _TOP:
        also = {each: other for other in MODULES if other != _TOP for each in importlib.import_module(other).__all__}
        for home in dict.fromkeys(also[each] for each in found if each in also):
            names = ", ".join(f"`{each}`" for each in found if also.get(each) == home)
            yield from ("", f"{names}: [{home}](#{anchor(home)}).")
        found = {each: value for each, value in found.items() if each not in also}
    errors = {each: value for each, value in found.items() if _is_error(value)}
    shown: dict[Any, str] = {}
    for each, value in found.items():
        if each not in errors:
            yield from _class(each, value, shown) if inspect.isclass(value) else _function(each, value, f"### {each}")
    if errors:
        yield from ("", "### Errors", "")
        yield "By what they derive from; meaning and remedy: [troubleshooting.md](../operate/troubleshooting.md)."
        yield ""
        for base in dict.fromkeys(value.__bases__[0] for value in errors.values()):
            derived = ", ".join(f"`{each}`" for each, value in errors.items() if value.__bases__[0] is base)
            yield f"* `{base.__name__}`: {derived}"


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _class(name: str, value: type[Any], shown: dict[Any, str]) -> Iterator[str]:
    yield from ("", f"### {name}", "", *_text(value))
    if issubclass(value, enum.Enum):
        yield from ("", ", ".join(f"`{name}.{each.name}`" for each in value))
        return
    if (
        "__init__" in vars(value)
        and name not in _MADE_BY_US
        and (vars(value)["__init__"].__doc__ or name in _MADE_BY_USERS)
    ):
        yield from _function(name, value.__init__)
    for each, member in sorted(vars(value).items()):
        if each.startswith("_"):
            continue
        if isinstance(member, property):
            first, *more = _text(member)
            yield from ("", f"`{name}.{each}`: {first}", *more)
        elif inspect.isfunction(member):
            yield from _function(f"{name}.{each}", member)
    for written in vars(value).get("__orig_bases__", value.__bases__):
        yield from _inherited(name, vars(value), written, shown)


def _inherited(name: str, own: Mapping[str, Any], written: Any, shown: dict[Any, str]) -> Iterator[str]:
    """The methods of one base; `shown`: bases whose methods are on the page already, and the class that has them."""
    base = get_origin(written) or written
    types = dict(zip(getattr(base, "__parameters__", ()), get_args(written), strict=False))
    # Coroutines run on the client's own event loop, and are nothing for callers.
    found = {
        each: member
        for each, member in sorted(vars(base).items())
        if base.__module__.startswith("holdfast") and each not in own and each[0] != "_"
        if inspect.isfunction(member) and not inspect.iscoroutinefunction(member)
    }
    if not found:
        return
    if base in shown:
        yield from ("", f"As of {shown[base]}: {', '.join(f'`{each}`' for each in found)}.")
        return
    shown[base] = name
    for each, member in found.items():
        yield from _function(f"{name}.{each}", member, types=types)


def _function(
    name: str, value: Any, heading: str = "", types: Mapping[TypeVar, Any] = MappingProxyType({})
) -> Iterator[str]:
    """`types`: what the type variables of an inherited method's class are in the class that is shown."""
    signature = inspect.signature(value)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    shown = signature.replace(
        parameters=[_credentials(each) for each in parameters],
        return_annotation=_returned(signature.return_annotation, types),
    )
    text = [] if (inspect.getdoc(value) or "").startswith("Initialize self") else list(_text(value))
    table: list[str] = []
    if value is connect:  # its arguments are those of the class that it returns
        written = f"{name}(…) -> {shown.return_annotation!r}"
    elif len(str(shown)) <= _LINE:
        written = f"{name}{shown}"
    else:
        back = "" if shown.return_annotation is inspect.Signature.empty else f" -> {shown.return_annotation!r}"
        written, table = f"{name}(…){back}", list(_table(shown, text))
        text = "\n".join(line for line in text if not _NAMED.match(line)).strip().splitlines()
    yield from ("", *((heading, "") if heading else ()), f"`{written}`", *(("", *text) if text else ()), *table)


def _table(signature: inspect.Signature, text: list[str]) -> Iterator[str]:
    """The arguments, with what the docstring has of them."""
    meanings = {
        name.strip("`"): found[2] for line in text if (found := _NAMED.match(line)) for name in found[1].split(", ")
    }
    yield from ("", "|Argument|Type|Default|Meaning|", "|---|---|---|---|")
    keywords = False
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            yield "|*by keyword:*||||"
        kind = str(each.annotation).replace("|", "\\|")
        default = "" if each.default is inspect.Parameter.empty else f"`{each.default!r}`"
        stars = _STARS.get(each.kind, "")
        yield f"|`{stars}{each.name}`|`{kind}`|{default}|{meanings.get(each.name, '')}|"


def _returned(annotation: Any, types: Mapping[TypeVar, Any]) -> Any:
    """Without that of what returns nothing."""
    return inspect.Signature.empty if annotation in (None, "None") else _plain(annotation, types)


class _Plain:
    """A default value, or an annotation, as code writes it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _credentials(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if isinstance(default, enum.Enum):
        default = _Plain(f"{type(default).__name__}.{default.name}")
    return parameter.replace(default=default, annotation=_plain(parameter.annotation))


def _plain(annotation: Any, types: Mapping[TypeVar, Any] = MappingProxyType({})) -> Any:
    if not isinstance(annotation, str):
        return annotation
    for variable, actual in types.items():
        annotation = re.sub(rf"\b{variable.__name__}\b", getattr(actual, "__name__", str(actual)), annotation)
    return _Plain(annotation.replace(" | ", "|"))


def _text(value: Any) -> Iterator[str]:
    """The docstring, a paragraph in one line; its lines "name: what it is" become a list."""
    found: list[str] = []
    for line in (inspect.getdoc(value) or "").splitlines():
        named = re.match(r"([a-z_]+(?:, [a-z_]+)*(?: and [a-z_]+)?): (.*)", line)
        if named:
            found.append(f"* `{named[1].replace(', ', '`, `')}`: {named[2]}")
        elif line.startswith("    ") and found:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
    yield from found
