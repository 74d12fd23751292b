"""Where workers are: regions, racks, and the paths that name them.

Rules: pure. A place is an absolute path of parts, `/region/rack` with us; a rack is the whole path, so `/a/r1` and
`/b/r1` are two racks. All places have the same number of parts, or racks of different height would be compared.

Source: the network topology of Hadoop, as Apache BookKeeper has it.
"""

from __future__ import annotations

from holdfast.common.errors import ConfigError

DEFAULT_PLACE = "/default-region/default-rack"
#: Of a path; it comes from scripts and tables.
PLACE_BYTES_MAX = 255


def check_place(path: str) -> str:
    """Return the path without a slash at its end. Raises ConfigError if it is no absolute path."""
    trimmed = path.removesuffix("/")
    parts = trimmed.split("/")
    size = len(path.encode("utf-8", "replace"))
    if len(parts) < 2 or parts[0] or not all(parts[1:]) or size > PLACE_BYTES_MAX or not path.isprintable():
        raise ConfigError(f"{path[:PLACE_BYTES_MAX]!r} is no place: write it as /region/rack, such as {DEFAULT_PLACE}")
    return trimmed


def region_of(place: str) -> str:
    """The first part of a place."""
    return place.split("/", 2)[1]
