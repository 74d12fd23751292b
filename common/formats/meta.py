"""Building blocks of meta sections: fixed structs, strings, arrays and keys, checked against what is there.

Little endian; a string is u16 length and UTF-8; an array is u32 count and its items. Lengths are checked before
anything is allocated, trailing bytes are refused; everything raises ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from holdfast.common.errors import ProtocolError
from holdfast.common.ids import (
    INSTANCE_BYTES,
    AttemptId,
    Epoch,
    Generation,
    Instance,
    MapFileKey,
    MapId,
    ShuffleId,
    ShuffleKey,
    StateId,
)
from holdfast.common.limits import NAME_BYTES_MAX

_U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
#: shuffle, generation u32, state u64: what follows the instance in a shuffle key.
_NUMBERS = struct.Struct("<IIQ")
#: map u32, attempt u64, epoch u32: one file of MAP partitions below its shuffle key.
MAP_FILE = struct.Struct("<IQI")


class MetaReader:
    """Takes fixed structs, strings and arrays off a meta section, checking lengths first."""

    __slots__ = ("data", "offset", "what")

    def __init__(self, data: bytes | memoryview, what: str) -> None:
        self.data = data
        self.offset = 0
        self.what = what

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        end = self.offset + layout.size
        if end > len(self.data):
            raise ProtocolError(f"{self.what}: {len(self.data)} bytes are too few")
        values = layout.unpack_from(self.data, self.offset)
        self.offset = end
        return values

    def take(self, size: int) -> bytes:
        end = self.offset + size
        if end > len(self.data):
            raise ProtocolError(f"{self.what}: {len(self.data)} bytes are too few")
        value = bytes(self.data[self.offset : end])
        self.offset = end
        return value

    def blob(self, size_max: int) -> bytes:
        (size,) = self.unpack(_U16)
        if size > size_max:
            raise ProtocolError(f"{self.what}: a field of {size} bytes, at most {size_max} are allowed")
        return self.take(size)

    def text(self) -> str:
        try:
            return self.blob(NAME_BYTES_MAX).decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"{self.what}: text is not UTF-8") from None

    def array(self, layout: struct.Struct, count_max: int) -> list[tuple[int, ...]]:
        (count,) = self.unpack(U32)
        if count > count_max:
            raise ProtocolError(f"{self.what}: an array of {count}, at most {count_max} are allowed")
        return list(layout.iter_unpack(self.take(count * layout.size)))

    def shuffle(self) -> ShuffleKey:
        instance = Instance(self.take(INSTANCE_BYTES))
        shuffle, generation, state = self.unpack(_NUMBERS)
        return ShuffleKey(instance, ShuffleId(shuffle), Generation(generation), StateId(state))

    def map_file(self) -> MapFileKey:
        shuffle = self.shuffle()
        map_id, attempt, epoch = self.unpack(MAP_FILE)
        return MapFileKey(shuffle, MapId(map_id), AttemptId(attempt), Epoch(epoch))

    def end(self) -> None:
        if self.offset != len(self.data):
            raise ProtocolError(f"{self.what}: {len(self.data) - self.offset} bytes too many")


class MetaSection:
    """A message of a shuffle's key, a struct and an array of rows; it may lack the first and the last. Its fields stand
    in this order; subclasses are dataclasses with slots."""

    __slots__: tuple[str, ...] = ()
    #: what errors call it
    WHAT: ClassVar[str]
    HEAD: ClassVar[struct.Struct]
    #: whether it begins with the key of a shuffle
    KEYED: ClassVar[bool] = False
    #: layout of a row of the array at its end, and how many there may be
    ROWS: ClassVar[tuple[struct.Struct, int] | None] = None

    def encode(self) -> bytes:
        values = [getattr(self, name) for name in self.__slots__]
        key = pack_shuffle(values.pop(0)) if self.KEYED else b""
        rows = pack_rows(self.ROWS[0], values.pop()) if self.ROWS is not None else b""
        return key + self.HEAD.pack(*values) + rows

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        reader = MetaReader(data, cls.WHAT)
        values: list[Any] = [reader.shuffle()] if cls.KEYED else []
        values += reader.unpack(cls.HEAD)
        if cls.ROWS is not None:
            values.append(reader.array(*cls.ROWS))
        reader.end()
        made: Any = cls
        found: Self = made(**dict(zip(cls.__slots__, values, strict=True)))
        found.check()
        return found

    def check(self) -> None:
        """Raise ProtocolError for values that can be encoded but are not allowed."""


def pack_rows(layout: struct.Struct, rows: Iterable[tuple[Any, ...]]) -> bytes:
    """Return an array: u32 count, and its items."""
    packed = [layout.pack(*row) for row in rows]
    return U32.pack(len(packed)) + b"".join(packed)


def pack_text(value: str) -> bytes:
    """Return a string field; raises ProtocolError if it is too long."""
    return pack_blob(value.encode(), NAME_BYTES_MAX)


def pack_blob(value: bytes, size_max: int) -> bytes:
    """Return a field of u16 length and bytes; raises ProtocolError if it is too long."""
    if len(value) > size_max:
        raise ProtocolError(f"a field of {len(value)} bytes, at most {size_max} are allowed")
    return _U16.pack(len(value)) + value


def pack_shuffle(key: ShuffleKey) -> bytes:
    """Return instance 16 bytes, shuffle u32, generation u32, state u64."""
    return key.instance + _NUMBERS.pack(key.shuffle, key.generation, key.state)


def pack_map_file(key: MapFileKey) -> bytes:
    """Return the shuffle, map u32, attempt u64, epoch u32."""
    return pack_shuffle(key.shuffle) + MAP_FILE.pack(key.map, key.attempt, key.epoch)
