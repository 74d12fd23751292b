"""Makes docs/operate/configuration.md from the sections of the configuration. Called by tests/write_docs.py."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator

from holdfast.common.config.config import Config
from holdfast.common.config.settings import render_value, text_of

_INTRODUCTION = """# Configuration

Made from common/config/config.py by `python -m tests.write_docs`; change it there.

A file is TOML and may hold the sections of all roles. Sizes (B, KiB, MiB, GiB, TiB) and durations (ms, s, m, h, d) are
text with a unit. Servers refuse unknown keys, wrong types and wrong units with the line and the nearest known key. A
variable `HOLDFAST_SECTION_KEY` overrides the file: `HOLDFAST_WORKER_DATA_PORT=7080`; separate lists by commas, write
tables as in the file. Spark's settings: [spark.md](../use/spark.md).
"""


def documentation() -> str:
    """The whole page: every key with its default and its reason."""
    return _INTRODUCTION + "\n".join(_document(Config)) + "\n"


def _document(kind: type[object]) -> Iterator[str]:
    for section, section_kind in typing.get_type_hints(kind).items():
        yield f"\n## [{section}]\n\n{section_kind.__doc__}\n"
        yield from _rows(section_kind)
        for key, hint in typing.get_type_hints(section_kind).items():
            for table in typing.get_args(hint):
                if isinstance(table, type) and hasattr(table, "__dataclass_fields__"):
                    yield f"\nEach of `{section}.{key}`:\n"
                    yield from _rows(table)


def _rows(kind: type[object]) -> Iterator[str]:
    yield "|Key|Default|Meaning|\n|---|---|---|"
    for key in dataclasses.fields(typing.cast("typing.Any", kind)):
        needed = key.default is dataclasses.MISSING
        default = "required" if needed else f"`{render_value(text_of(key, kind, key.default))}`"
        shown = "" if default in ('`""`', "`[]`") else default
        assert "|" not in shown + key.metadata["reason"]
        yield f"|`{key.name}`|{shown}|{key.metadata['reason']}|"
