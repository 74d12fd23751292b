"""Checks the arguments of callers: a wrong one is an error at the call, which says what is allowed.

Rules: every check raises ConfigError with a sentence that names the argument, and returns what the rest works with.
Called by session.py, the shuffles, the writers and the readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import index
from typing import Any, Literal

from holdfast.client.compress import ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN, Buffer, Compression
from holdfast.common.errors import ConfigError
from holdfast.common.formats.batch import Codec
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import PartitionId
from holdfast.common.tags import tags_problem

#: A level of acknowledgements by its name.
AckName = Literal["memory", "written", "synced"]
_CODECS = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number from `least` to `most`; numbers of numpy are fine, booleans are not."""
    try:
        number = index(value)
    except TypeError:
        raise ConfigError(f"`{name}` is a whole number, not {value!r}") from None
    if isinstance(value, bool):
        raise ConfigError(f"`{name}` is a whole number, not {value!r}")
    if not least <= number <= most:
        raise ConfigError(f"`{name}` is {least} to {most}, not {number}")
    return number


def seconds(name: str, value: Any, least: float, most: float) -> float:
    """A number of seconds from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"`{name}` is a number of seconds, not {value!r}")
    if not least <= value <= most:
        raise ConfigError(f"`{name}` is {least:g} to {most:.0f}, not {value}")
    return float(value)


def grace(value: Any) -> float:
    """The `return_grace` of a reader."""
    return seconds("return_grace", value, 0, 1e9)


def checked_tags(value: Any) -> tuple[str, ...]:
    """Tags of workers; one text is a mistake for a list with it."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"`tags` are a list of texts, not {value!r}")
    tags = tuple([text("tags", each, "a tag of workers") for each in value])
    if problem := tags_problem(tags):
        raise ConfigError(problem)
    return tags


def text(name: str, value: Any, what: str) -> str:
    """A text that can be sent; `what` names the argument."""
    if not isinstance(value, str):
        raise ConfigError(f"`{name}` is a str, {what}, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"`{name}` has half a character at position {error.start}, which UTF-8 cannot write, in {value!r}: take it "
            "out, or decode the text from its bytes anew"
        ) from None
    return value


def ack_of(value: Any) -> Ack:
    """A level of acknowledgements, given as such or by its name."""
    if isinstance(value, str) and value.upper() in Ack.__members__:
        return Ack[value.upper()]
    if not isinstance(value, Ack):
        raise ConfigError(f"`ack` is {', '.join(f'{each.name.lower()!r}' for each in Ack)} or Ack.…, not {value!r}")
    return value


def partition_list(partitions: Any, count: int) -> list[PartitionId]:
    """Partitions of a shuffle that has `count`, ascending and each once."""
    if not isinstance(partitions, Iterable):
        raise ConfigError(f"`partitions` is a range or a list of numbers, as in [{partitions!r}], not {partitions!r}")
    return sorted({PartitionId(whole("partition", each, 0, count - 1)) for each in partitions})


def map_range(maps: Any, count: int | None) -> range | None:
    """A range of maps of a shuffle that has `count`, if that is known; None means all of them."""
    if maps is None:
        return None
    if not isinstance(maps, range) or maps.step != 1 or not len(maps) or maps.start < 0:
        raise ConfigError(f"`maps` is a range with step 1, and not empty, as in range(0, 4), not {maps!r}")
    if count is not None and maps.stop > count:
        raise ConfigError(f"`maps` is {maps}, and the shuffle has {count} maps, 0 to {count - 1}")
    return maps


def compression_of(name: str, given: Any) -> Compression:
    """A codec, given as such or by its name; behind zstd's there may be a level, as in "zstd:9"."""
    text = given.name if isinstance(given, Codec) else given if isinstance(given, str) else ""
    codec, said, level = text.lower().partition(":")
    if codec in _CODECS and not said:
        return Compression(_CODECS[codec])
    if codec == "zstd" and re.fullmatch(r"-?\d{1,6}", level) and ZSTD_LEVEL_MIN <= int(level) <= ZSTD_LEVEL_MAX:
        return Compression(Codec.ZSTD, int(level))
    raise ConfigError(
        f"`{name}` is {', '.join(_CODECS)}, or zstd:LEVEL with a level of {ZSTD_LEVEL_MIN} to {ZSTD_LEVEL_MAX}, "
        f"not {given!r}"
    )


def payload_view(payload: Any) -> Buffer:
    """The bytes of a payload that is not `bytes`, without a copy."""
    if isinstance(payload, str):
        raise ConfigError('`payload` is bytes, not str; encode it, as in text.encode("utf-8")')
    try:
        return memoryview(payload).cast("B")
    except TypeError as error:
        raise ConfigError(f"`payload` is bytes or a contiguous buffer, not {type(payload).__name__}: {error}") from None
