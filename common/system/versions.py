"""Which releases this process runs with, and which formats it speaks. Told by servers, compared by the doctor."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from holdfast.common.formats import batch, frame, layouts
from holdfast.common.formats.messages import PROTOCOL_VERSION
from holdfast.common.version import EXTRAS, VERSION

#: Libraries that read or write what others see.
LIBRARIES = ("lmdb", "protobuf", "grpcio", "aiohttp", "crc32c", "pyarrow")
#: Versions of formats: what differs here, both cannot talk about.
FORMATS = ("protocol", "frames", "batches", "arrays")


@cache
def versions() -> dict[str, str]:
    """Releases and format versions by name; a library that is not installed is missing."""
    found = {"holdfast": VERSION, "python": platform.python_version()}
    found |= dict(
        zip(FORMATS, map(str, (PROTOCOL_VERSION, frame.VERSION, batch.VERSION, layouts.VERSION)), strict=True)
    )
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # an extra that was not asked for
    return found


def lacking(extra: str) -> str:
    """Return the first package of an extra that is not installed, "" if all are."""
    return next((name for name, brought in EXTRAS.items() if brought == extra and find_spec(name) is None), "")
