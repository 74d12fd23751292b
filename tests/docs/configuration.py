"""Makes docs/configuration.md from the sections of the configuration. Called by tests/write_docs.py."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator

from holdfast.common.config.config import Config
from holdfast.common.config.settings import render_value, text_of

_INTRODUCTION = """# Configuration

Made from common/config/config.py by `python -m tests.write_docs`; change it there.

A file is TOML. Unknown keys, wrong types and wrong units are refused with the line and the nearest known key. Sizes
are text with a unit (B, KiB, MiB, GiB, TiB), durations too (ms, s, m, h, d). One file may hold the sections of every
role; each reads what it needs. The variable `HOLDFAST_SECTION_KEY` wins over the file, as in
`HOLDFAST_WORKER_DATA_PORT=7080` or `HOLDFAST_LOG_LEVEL=DEBUG`; lists are separated by commas, tables are written as
in the file. What the Spark plug-in reads, the share of an executor's memory that it may take among it, is set in Spark
and listed in [spark.md](spark.md).
"""


def documentation() -> str:
    """The whole page: every key with its default and its reason."""
    return _INTRODUCTION + "\n".join(_document(Config)) + "\n"


def _document(kind: type[object]) -> Iterator[str]:
    for section, section_kind in typing.get_type_hints(kind).items():
        yield f"\n## [{section}]\n\n{section_kind.__doc__}\n\n| Key | Default | Meaning |\n|---|---|---|"
        yield from _rows(section_kind)
        for key, hint in typing.get_type_hints(section_kind).items():
            for table in typing.get_args(hint):
                if isinstance(table, type) and hasattr(table, "__dataclass_fields__"):
                    yield f"\nEach of `{section}.{key}`:\n\n| Key | Default | Meaning |\n|---|---|---|"
                    yield from _rows(table)


def _rows(kind: type[object]) -> Iterator[str]:
    for key in dataclasses.fields(typing.cast("typing.Any", kind)):
        needed = key.default is dataclasses.MISSING
        default = "needed" if needed else f"`{render_value(text_of(key, kind, key.default))}`"
        yield f"| `{key.name}` | {default} | {key.metadata['reason']} |"
