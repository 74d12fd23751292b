"""Gives commands and records their bytes: protobuf messages of master/proto/commands.proto with the same field names.

Rules: a dataclass of the core and its message have the same name and fields, so one generic mapping serves all; what
does not map is found when this module is imported. Bytes of another version are refused with VersionError.
Called by the machine (commands), the snapshot (records) and master/leader (entries to propose).
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from holdfast.common.ids import ShuffleKey
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state import records as rec
from holdfast.master.proto import commands_pb2 as pb

#: Version of the log's entries and of the snapshot's records.
VERSION = 10

#: Field `commands` of Entry, length-delimited.
_COMMANDS_TAG = bytes([pb.Entry.COMMANDS_FIELD_NUMBER << 3 | 2])

#: Of a command, beside its body.
_CALL = ("client", "number", "drawn_index", "digest", "open_from")

T = TypeVar("T")


class VersionError(Exception):
    """The bytes are not an entry that this version of Holdfast understands."""


def encode_command(command: cmd.Command) -> bytes:
    """Return the bytes of one command, for `join_entry`."""
    return _command_message(command).SerializeToString()


def join_entry(time_ms: int, commands: Sequence[bytes]) -> bytes:
    """Return the bytes of an entry made of encoded commands.

    Protobuf messages may be joined: the commands, written one by one with their lengths, are the repeated field.
    """
    pieces = [pb.Entry(version=VERSION, time_ms=time_ms).SerializeToString()]
    for command in commands:
        pieces += (_COMMANDS_TAG, _varint(len(command)), command)
    return b"".join(pieces)


def decode_entry(data: bytes) -> cmd.LogEntry:
    """Return the commands in `data`; raises VersionError if they are of another version or not commands at all."""
    message = pb.Entry()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise VersionError(f"a log entry of {len(data)} bytes is not a Holdfast entry: {error}") from error
    if message.version != VERSION:
        raise VersionError(
            f"a log entry has version {message.version}, this master understands {VERSION}; "
            "start the version of Holdfast that wrote it"
        )
    return cmd.LogEntry(message.time_ms, tuple([_command(each) for each in message.commands]))


def to_message(record: Any, without: Collection[str] = ()) -> Any:
    """Return the message of a record; fields in `without` are left out."""
    message_class, fields = _WRITERS[type(record)]
    return message_class(**{name: write(getattr(record, name)) for name, write in fields if name not in without})


def from_message(kind: type[T], message: Message, **given: Any) -> T:
    """Return the record of a message; `given` are the fields that the message does not have."""
    values = {name: read(getattr(message, name)) for name, read in _READERS[kind] if name not in given}
    return kind(**values, **given)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _command_message(command: cmd.Command) -> pb.Command:
    message = pb.Command(**{name: getattr(command, name) for name in _CALL})
    getattr(message, _FIELD_OF[type(command.body)]).CopyFrom(to_message(command.body))
    return message


def _command(message: pb.Command) -> cmd.Command:
    field = message.WhichOneof("body")
    if field is None:
        raise VersionError("a log entry holds an unknown command for this version of Holdfast")
    body = from_message(_BODY_OF[field], getattr(message, field))
    return cmd.Command(body, **{name: getattr(message, name) for name in _CALL})


# The mapping, made once from the annotations of the records.


def _same(value: Any) -> Any:
    return value


def _mapped(hint: Any, one: Callable[[Any], Callable[[Any], Any]], many: type[Any]) -> Callable[[Any], Any]:
    """How a field is mapped: a record as `one` says of its kind, several values to `many`."""
    several = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if several else hint
    if kind not in _KINDS:
        return many if several else _same
    convert = one(kind)
    return (lambda values: many([convert(each) for each in values])) if several else convert


_COMMANDS: tuple[type[Any], ...] = typing.get_args(cmd.Body)
_RECORDS: tuple[type[Any], ...] = (
    rec.Directory, rec.Worker, rec.Lease, rec.Application, rec.Shuffle, rec.Upload,
    cmd.WorkerRef, cmd.WorkerPlace, cmd.LeaseRef, ShuffleKey,
)  # fmt: skip
_KINDS = (*_COMMANDS, *_RECORDS)
_WRITERS: dict[type[Any], tuple[type[Any], tuple[tuple[str, Callable[[Any], Any]], ...]]] = {}
_READERS: dict[type[Any], tuple[tuple[str, Callable[[Any], Any]], ...]] = {}
for _kind in _KINDS:
    _hints = typing.get_type_hints(_kind)
    _WRITERS[_kind] = (
        getattr(pb, _kind.__name__),
        tuple((name, _mapped(_hints[name], lambda _: to_message, list)) for name in _hints),
    )
    _READERS[_kind] = tuple(
        (name, _mapped(_hints[name], lambda kind: partial(from_message, kind), tuple)) for name in _hints
    )

_BY_NAME = {kind.__name__: kind for kind in _COMMANDS}
_BODY_OF: dict[str, type[Any]] = {
    field.name: _BY_NAME[field.message_type.name]  # type: ignore[union-attr]
    for field in pb.Command.DESCRIPTOR.oneofs_by_name["body"].fields
}
_FIELD_OF = {kind: name for name, kind in _BODY_OF.items()}
assert set(_FIELD_OF) == set(_COMMANDS), "every command has its place in the entry"
