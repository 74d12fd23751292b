"""Reads and writes strict TOML settings for any tree of frozen dataclasses; config.py declares that tree.

Rules: text in, dataclasses out; nothing here opens a file or looks at the environment. Every problem of a text is
reported in one ConfigError, each with its line (or the name of the environment variable) and, for a name that is not
known, the nearest one that is. A key is one annotated dataclass field made by `setting`, `size` or `duration`; its
annotation decides what is accepted:

    bool, str, int (not negative)        Size "256KiB"     Duration "5s"     SignedDuration "-5s"
    float (finite, not negative)
    Ratio 0.0 to 1.0                     Port 0 to 65535   Address "host:port"
    Host "host"                          Name
    Literal["a", "b"]                    tuple[kind, ...] a list             a dataclass: a table

Called by config.py only.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import sys
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NewType, TypeVar, cast

from holdfast.common.addresses import is_address, is_host
from holdfast.common.errors import ConfigError
from holdfast.common.limits import NAME_BYTES_MAX
from holdfast.common.tags import tags_problem
from holdfast.common.visible import visible

#: Bytes, never negative; "0" means "no bound" if the key allows it.
Size = NewType("Size", int)
#: A share from 0.0 to 1.0.
Ratio = NewType("Ratio", float)
#: A TCP port; 0 lets the system choose.
Port = NewType("Port", int)
#: "host:port", the host an IPv4 address, a name, or an IPv6 address in brackets.
Address = NewType("Address", str)
#: A host, as in Address but without brackets; may be empty.
Host = NewType("Host", str)
#: What people call something, short and without control characters; may be empty.
Name = NewType("Name", str)
Tag = NewType("Tag", str)

T = TypeVar("T")
Path = tuple[str | int, ...]

SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
DURATION_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
#: Of any number here: bytes, nanoseconds, counts.
_MOST = (1 << 63) - 1
_QUANTITY = re.compile(r"(-?)(\d{1,19})\s*([A-Za-z]*)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time. Kept in whole nanoseconds, the unit of the cores; the other units are for edges and wires."""

    ns: int

    @property
    def ms(self) -> int:
        """The span in milliseconds, rounded down."""
        return self.ns // 10**6

    @property
    def seconds(self) -> float:
        """The span in seconds, as asyncio wants it."""
        return self.ns / 10**9

    def __str__(self) -> str:
        return _render_quantity(self.ns, DURATION_UNITS, "ms")


#: A span that may be negative: "-5s".
SignedDuration = NewType("SignedDuration", Duration)


#: What of a key is secret: nothing, its value, or what is in the file that it names.
SecretPart = Literal["", "value", "file"]


def setting(default: T, reason: str, secret: SecretPart = "") -> T:
    """Declare a key with its default; `reason` explains the key and its default."""
    return field(default=default, metadata={"reason": reason, "secret": secret})


def size(default: str, reason: str) -> Size:
    """Declare a key of kind Size with its default as text, such as "64MiB"."""
    return setting(_read_size(default), reason)


def duration(default: str, reason: str) -> Duration:
    """Declare a key of kind Duration with its default as text, such as "400ms"."""
    return setting(_read_duration(default), reason)


def required(reason: str) -> Any:
    """Declare a key that has no default; only for tables inside a list."""
    return field(metadata={"reason": reason})


def parse(kind: type[T], text: str, environ: Mapping[str, str], prefix: str, source: str) -> T:
    """Read TOML `text` into the dataclass `kind`, whose fields are the sections; `source` names the text in errors.

    Variables PREFIX_SECTION_KEY of `environ` win over the text; others are left alone unless they name a section.
    Raises ConfigError with all problems found.
    """
    try:
        tables = read_toml(text)
    except ValueError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from error
    problems: list[tuple[Path, str]] = []
    variables = _override(kind, tables, environ, prefix, problems)
    lines = _lines_of(text)
    value = _read_table(kind, tables, (), problems)
    if problems or value is None:
        rows = sorted({(_line(path, lines), _place(path, lines, variables, source), what) for path, what in problems})
        raise ConfigError("\n".join(f"{place}: {what}" for _, place, what in rows))
    return value


def read_toml(text: str) -> dict[str, Any]:
    """Return what the TOML holds. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def place(kind: type[object], text: str, environ: Mapping[str, str], prefix: str, source: str, path: Path) -> str:
    """Where a key of a text for `parse` is written, as in its errors."""
    variables = _override(kind, read_toml(text), environ, prefix, [])
    return _place(path, _lines_of(text), variables, source)


def from_tables(kind: type[T], tables: Mapping[str, object], source: str) -> T:
    """Read sections given as mappings, each value as in TOML. Raises ConfigError like `parse`."""
    problems: list[tuple[Path, str]] = []
    value = _read_table(kind, tables, (), problems)
    if problems or value is None:
        raise ConfigError("\n".join(f"{source}: {what}" for _, what in problems))
    return value


@dataclass(frozen=True, slots=True)
class MarkedKey:
    """A key whose value, or the file that it names, is secret, and that value as text."""

    key: str
    part: SecretPart
    text: str = field(repr=False)


def marked_in(kind: type[object], tables: Mapping[str, Any]) -> list[MarkedKey]:
    """The keys of sections given as mappings that are marked secret and not empty. Bad values are taken as text, so
    that secrets are found in a configuration that is refused."""
    found = []
    for section, section_kind in typing.get_type_hints(kind).items():
        table = tables.get(section)
        if not isinstance(table, Mapping):
            continue
        for key in dataclasses.fields(section_kind):
            part, value = key.metadata.get("secret", ""), table.get(key.name)
            if part and value not in ("", None):
                found.append(MarkedKey(f"{section}.{key.name}", part, str(value)))
    return found


def marked_in_text(kind: type[object], text: str, environ: Mapping[str, str], prefix: str) -> list[MarkedKey]:
    """The same of a text for `parse`, also of one that is not valid TOML: there the lines of marked names count."""
    try:
        tables = read_toml(text)
    except ValueError:
        tables = {}
        for section, section_kind in typing.get_type_hints(kind).items():
            for key in dataclasses.fields(section_kind):
                if key.metadata.get("secret") and (found := re.search(rf"\b{key.name}\s*=\s*(.+)", text)):
                    tables.setdefault(section, {})[key.name] = found[1].strip().strip("\"'")
    _override(kind, tables, environ, prefix, [])
    return marked_in(kind, tables)


def shown_tables(value: object, removed: str) -> dict[str, dict[str, object]]:
    """Every key of every section as JSON has it, also those at their defaults; a secret value is replaced by `removed`,
    unless it is empty. Paths of secret files are shown."""
    return {
        section.name: {
            key.name: removed if key.metadata.get("secret") == "value" and text else _plain(text)
            for key, text in _keys_with_texts(getattr(value, section.name))
        }
        for section in dataclasses.fields(cast(Any, value))
    }


def _plain(value: object) -> object:
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {key.name: _plain(text) for key, text in _keys_with_texts(value)}
    return value


def render(value: object) -> str:
    """TOML that `parse` reads back into an equal value: every key that differs from its default."""
    out: list[str] = []
    for section in dataclasses.fields(cast(Any, value)):
        keys = getattr(value, section.name)
        lines = [
            f"{key.name} = {render_value(text)}\n"
            for key, text in _keys_with_texts(keys)
            if getattr(keys, key.name) != key.default
        ]
        if lines:
            out.append(f"[{section.name}]\n{''.join(lines)}")
    return "\n".join(out)


def render_value(value: object) -> str:
    """One value as TOML; tables inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Duration):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + ", ".join(render_value(item) for item in value) + "]"
    if dataclasses.is_dataclass(value):
        pairs = (f"{key.name} = {render_value(text)}" for key, text in _keys_with_texts(value))
        return "{ " + ", ".join(pairs) + " }"
    return repr(value)


def _keys_with_texts(value: object) -> Iterator[tuple[dataclasses.Field[object], object]]:
    for key in dataclasses.fields(cast(Any, value)):
        yield key, text_of(key, type(value), getattr(value, key.name))


def text_of(key: dataclasses.Field[object], owner: type[object], value: object) -> object:
    """A size is an int at run time and only its annotation shows that it is written as text."""
    if typing.get_type_hints(owner)[key.name] is Size:
        return _render_quantity(cast(int, value), SIZE_UNITS, "B")
    return value


def _render_quantity(value: int, units: Mapping[str, int], smallest: str) -> str:
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value // units[smallest]}{smallest}"


# Reading: every reader takes one TOML value and returns the typed one, or raises ConfigError with what is wanted.


def _read_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"must be true or false, not {shown(value)}")
    return value


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"must be text in quotes, not {shown(value)}")
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
        raise ConfigError(f"must be text in UTF-8 without a zero byte, not {shown(value)!a}")
    return value


def _read_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"must be a whole number that is not negative, not {shown(value)}")
    if value > _MOST:
        raise ConfigError(f"must be a whole number below 2^63, not {shown(value)}")
    return value


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise ConfigError(f"must be a number that is not negative, not {shown(value)}")
    return float(value)


def _read_size(value: object) -> Size:
    number = _quantity(value, SIZE_UNITS, 'a size with a unit in quotes, such as "256KiB"')
    if number < 0:
        raise ConfigError(f"must be a size that is not negative, not {shown(value)}")
    return Size(number)


def _read_duration(value: object) -> Duration:
    span = _read_signed_duration(value)
    if span.ns < 0:
        raise ConfigError(f"must be a duration that is not negative, not {shown(value)}")
    return span


def _read_signed_duration(value: object) -> SignedDuration:
    number = _quantity(value, DURATION_UNITS, 'a duration with a unit in quotes, such as "5s"')
    return SignedDuration(Duration(number))


def _read_ratio(value: object) -> Ratio:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"must be a number from 0.0 to 1.0, not {shown(value)}")
    return Ratio(float(value))


def _read_port(value: object) -> Port:
    number = value if isinstance(value, int) and not isinstance(value, bool) else -1
    if not 0 <= number <= 65_535:
        raise ConfigError(f"must be a port from 0 to 65535, not {shown(value)}")
    return Port(number)


def _read_address(value: object) -> Address:
    if not isinstance(value, str) or not is_address(value):
        raise ConfigError(f'must be "host:port", not {shown(value)}')
    return Address(value)


def _read_host(value: object) -> Host:
    if not isinstance(value, str) or (value and not is_host(value)):
        raise ConfigError(f"must be the name or address of a host, not {shown(value)}")
    return Host(value)


def _read_name(value: object) -> Name:
    text = _read_text(value)
    if len(text.encode()) > NAME_BYTES_MAX or visible(text) != text:
        raise ConfigError(f"must be a name of at most {NAME_BYTES_MAX} bytes that can be seen, not {shown(value)}")
    return Name(text)


def _read_tag(value: object) -> Tag:
    text = _read_text(value)
    if problem := tags_problem([text]):
        raise ConfigError(problem)
    return Tag(text)


def is_endpoint(text: str) -> bool:
    """Whether the text is http:// or https:// and an address."""
    return "://" in text and is_address(re.sub(r"^https?://", "", text, count=1))


def _quantity(value: object, units: Mapping[str, int], wanted: str) -> int:
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(f"must be {wanted}, not {shown(value)}")
    sign, digits, unit = found.groups()
    if not unit and int(digits) == 0:
        return 0
    if unit not in units:
        raise ConfigError(f"must be {wanted}, not {shown(value)}; the units are {', '.join(units)}")
    number = int(digits) * units[unit]
    if number > _MOST:
        raise ConfigError(f"must be {wanted}, not {shown(value)}, which is more than can be counted")
    return -number if sign else number


def shown(value: object) -> str:
    """A value as an error repeats it: as TOML, and not too long."""
    try:
        text = repr(value) if not isinstance(value, str | bool) else render_value(value)
    except (ValueError, RecursionError):  # thousands of digits, or of levels
        return "what is too long to be shown"
    return text if len(text) <= 60 else text[:57] + "..."


_READERS: dict[object, Callable[[object], object]] = {
    bool: _read_bool,
    str: _read_text,
    int: _read_count,
    float: _read_number,
    Size: _read_size,
    Duration: _read_duration,
    SignedDuration: _read_signed_duration,
    Ratio: _read_ratio,
    Port: _read_port,
    Address: _read_address,
    Host: _read_host,
    Name: _read_name,
    Tag: _read_tag,
}
#: Kinds that a variable gives as plain text; all others it gives as TOML.
_TEXT_KINDS = (str, Size, Duration, SignedDuration, Address, Host, Name, Tag)


def _read(hint: Any, value: object, path: Path, problems: list[tuple[Path, str]]) -> Any:
    """Convert one TOML value to the type of the annotation; a problem is recorded and gives None."""
    if dataclasses.is_dataclass(hint) and hint is not Duration:
        return _read_table(cast(type[Any], hint), value, path, problems)
    origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            problems.append((path, f"{_name(path)} must be a list in brackets, not {shown(value)}"))
            return None
        item = typing.get_args(hint)[0]
        return tuple(_read(item, one, (*path, number), problems) for number, one in enumerate(value))
    try:
        if origin is Literal:
            return _read_choice(typing.get_args(hint), value)
        return _READERS[hint](value)
    except ConfigError as error:
        problems.append((path, f"{_name(path)} {error}"))
        return None


def _read_choice(choices: tuple[str, ...], value: object) -> str:
    if value not in choices:
        raise ConfigError(f"must be one of {', '.join(map(render_value, choices))}, not {shown(value)}")
    return str(value)


def _read_table(kind: type[T], value: object, path: Path, problems: list[tuple[Path, str]]) -> T | None:
    if not isinstance(value, Mapping):
        problems.append((path, f"{_name(path)} must be a table, not {shown(value)}"))
        return None
    before = len(problems)
    keys = {key.name: key for key in dataclasses.fields(cast(Any, kind))}
    hints = typing.get_type_hints(kind)
    problems += [((*path, str(name)), _unknown(str(name), path, keys)) for name in value if name not in keys]
    values = {name: _read(hints[name], value[name], (*path, name), problems) for name in keys if name in value}
    for name, key in keys.items():
        if name not in values and key.default is key.default_factory is dataclasses.MISSING:
            problems.append((path, f'{_name(path)} needs the key "{name}"'))
    if len(problems) > before:
        return None
    try:
        return kind(**values)
    except ConfigError as error:  # the section's own __post_init__ found a contradiction
        problems.append((path, f"{_name(path)} {error}"))
        return None


def _unknown(name: str, path: Path, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}"
    return f'{_name(path)} has no {"key" if path else "section"} "{name}"{hint}'


def _name(path: Path) -> str:
    """How a place is called in a message: [worker], worker.rack, worker.directories[0].tier."""
    if not path:
        return "the configuration"
    if len(path) == 1:
        return f"[{path[0]}]"
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]


def _override(
    kind: type[object],
    tables: dict[str, Any],
    environ: Mapping[str, str],
    prefix: str,
    problems: list[tuple[Path, str]],
) -> dict[Path, str]:
    """Put the values of variables into `tables`; return the variable that each path came from."""
    variables: dict[Path, str] = {}
    for section, section_kind in typing.get_type_hints(kind).items():
        start = f"{prefix}_{section.upper()}_"
        hints = typing.get_type_hints(section_kind)
        for variable in sorted(name for name in environ if name.startswith(start)):
            key = variable.removeprefix(start).lower()
            path = (section, key)
            variables[path] = variable
            table = tables.setdefault(section, {})
            if key not in hints:
                problems.append((path, _unknown(key, (section,), hints)))
            elif isinstance(table, dict):
                before = len(problems)
                value = _from_variable(hints[key], environ[variable], path, problems)
                if len(problems) == before:
                    table[key] = value
    return variables


def _from_variable(hint: Any, text: str, path: Path, problems: list[tuple[Path, str]]) -> object:
    if hint in _TEXT_KINDS or typing.get_origin(hint) is Literal:
        return text
    if typing.get_origin(hint) is tuple and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return read_toml(f"value = {text}")["value"]
    except ValueError:
        problems.append((path, f"{_name(path)} cannot be read from {shown(text)}; write it as in the file"))
        return text


# Line numbers: tomllib gives none, so the text is scanned for headers and keys. Keys inside inline tables are found
# by the line of the key that holds them.

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


def _lines_of(text: str) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    prefix: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            prefix = _split(header[2])
            if header[1] == "[[":
                counts[prefix] = counts.get(prefix, -1) + 1
                lines.setdefault(prefix, number)
                prefix = (*prefix, counts[prefix])
            lines.setdefault(prefix, number)
        elif key := _KEY.match(line):
            lines.setdefault((*prefix, *_split(key[1])), number)
    return lines


def _split(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _line(path: Path, lines: Mapping[Path, int]) -> int:
    """The line of the longest part of the path that has one; 0 if none has."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 0)


def _place(path: Path, lines: Mapping[Path, int], variables: Mapping[Path, str], source: str) -> str:
    if path[:2] in variables:
        return f"environment variable {variables[path[:2]]}"
    number = _line(path, lines)
    return f"{source} line {number}" if number else source
