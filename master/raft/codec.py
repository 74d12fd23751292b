"""Bytes of the Raft messages between masters (version 1, little endian, no pickle).

Rules: every message starts with version u8 and kind u8; a length is checked against what is left before anything is
allocated; trailing bytes are an error; entries carry raw commands whose first byte is the entry kind, and only
`COMMAND` and `NO_OP` exist (the library's membership and version entries are refused here). Called by `gate`.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import TypeAlias

from holdfast.master.raft.errors import WireError

WIRE_VERSION = 1
MAX_COMMAND_BYTES = 8 << 20
ENTRY_PREFIX_BYTES = 2
MAX_ENTRY_BYTES = MAX_COMMAND_BYTES + ENTRY_PREFIX_BYTES
MAX_BATCH_BYTES = 1 << 20  # an append stops taking entries once it holds this much, so one is at most 9 MiB
MAX_MESSAGE_BYTES = 10 << 20
MAX_PART_BYTES = 1 << 20
MAX_INDEX = 1 << 62

ENTRY_COMMAND = 0
ENTRY_NO_OP = 1
ENTRY_VERSION = 1
NO_OP = bytes([ENTRY_NO_OP])

Entry: TypeAlias = tuple[bytes, int, int]
"""(kind byte + version byte + command, index, term): the shape the library keeps in its log."""


@dataclass(frozen=True, slots=True)
class RequestVote:
    """A candidate asks for a vote in `term`."""

    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class Vote:
    """A vote granted in `term`."""

    term: int


@dataclass(frozen=True, slots=True)
class Append:
    """Entries behind (prev_index, prev_term); empty ones are heartbeats. `seq` grows with every send of a leader."""

    term: int
    seq: int
    commit_index: int
    prev_index: int
    prev_term: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """Bytes from `offset` of a snapshot file of `total` bytes whose last entry is (index, last_term)."""

    term: int
    seq: int
    index: int
    last_term: int
    total: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class AppendAnswer:
    """Answer to the append or part with the same (term, seq).

    success: the log equals the leader's up to next_index - 1. reset: send again from next_index. Neither: no news.
    """

    term: int
    seq: int
    next_index: int
    reset: bool
    success: bool


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """The leader of `term` asks its follower to start an election at once."""

    term: int


@dataclass(frozen=True, slots=True)
class PreVote:
    """Asks for a pre-vote. `number` counts the rounds of the candidate; its log ends with (last_index, last_term)."""

    number: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVoteGranted:
    """I would, and my term is `term`."""

    number: int
    term: int


Message: TypeAlias = RequestVote | Vote | Append | SnapshotPart | AppendAnswer | TimeoutNow | PreVote | PreVoteGranted

_HEAD = struct.Struct("<BB")
#: Messages that are numbers and nothing else, by kind.
_PLAIN: dict[int, tuple[type[RequestVote | Vote | TimeoutNow | PreVote | PreVoteGranted], struct.Struct]] = {
    1: (RequestVote, struct.Struct("<QQQ")),
    2: (Vote, struct.Struct("<Q")),
    6: (TimeoutNow, struct.Struct("<Q")),
    7: (PreVote, struct.Struct("<QQQ")),
    8: (PreVoteGranted, struct.Struct("<QQ")),
}
_KINDS = {made: kind for kind, (made, _) in _PLAIN.items()}
_APPEND = struct.Struct("<QQQQQI")
_ENTRY = struct.Struct("<QI")
_PART = struct.Struct("<QQQQQQI")
_ANSWER = struct.Struct("<QQQB")


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    match message:
        case Append():
            return _encode_append(message)
        case AppendAnswer(term, seq, next_index, reset, success):
            return _HEAD.pack(WIRE_VERSION, 5) + _ANSWER.pack(term, seq, next_index, reset | success << 1)
        case SnapshotPart(term, seq, index, last_term, total, offset, data):
            head = _PART.pack(term, seq, index, last_term, total, offset, len(data))
            return b"".join((_HEAD.pack(WIRE_VERSION, 4), head, data))
        case _:
            kind = _KINDS[type(message)]
            return _HEAD.pack(WIRE_VERSION, kind) + _PLAIN[kind][1].pack(*astuple(message))


def _encode_append(message: Append) -> bytes:
    pieces = [
        _HEAD.pack(WIRE_VERSION, 3),
        _APPEND.pack(
            message.term, message.seq, message.commit_index, message.prev_index, message.prev_term, len(message.entries)
        ),
    ]
    for command, _index, term in message.entries:
        pieces.append(_ENTRY.pack(term, len(command)))
        pieces.append(command)
    return b"".join(pieces)


def decode(payload: bytes) -> Message:
    """The message in `payload`.

    Raises:
        WireError: the bytes are not one whole message of this version.
    """
    if len(payload) < _HEAD.size:
        raise WireError("a Raft message needs at least 2 bytes")
    version, kind = _HEAD.unpack_from(payload)
    if version != WIRE_VERSION:
        raise WireError(f"Raft message of version {version}; this build has version {WIRE_VERSION}: run equal builds")
    if kind == 3:
        return _decode_append(payload)
    if kind == 4:
        return _decode_part(payload)
    if kind == 5:
        term, seq, next_index, flags = _fields(_ANSWER, payload)
        if flags > 3:
            raise WireError(f"an answer with unknown flags {flags:#x}")
        return AppendAnswer(term, seq, next_index, bool(flags & 1), bool(flags & 2))
    if kind in _PLAIN:
        made, layout = _PLAIN[kind]
        return made(*_fields(layout, payload))
    raise WireError(f"Raft message of unknown kind {kind}")


def _fields(layout: struct.Struct, payload: bytes, exact: bool = True) -> tuple[int, ...]:
    """The fixed fields behind the head; every number must be a plausible index, term or sequence number."""
    have, need = len(payload) - _HEAD.size, layout.size
    if have < need or (exact and have != need):
        raise WireError(f"Raft message of {len(payload)} bytes where {_HEAD.size + need} were expected")
    numbers: tuple[int, ...] = layout.unpack_from(payload, _HEAD.size)
    if max(numbers) > MAX_INDEX:
        raise WireError("a number in a Raft message is out of range")
    return numbers


def _decode_append(payload: bytes) -> Append:
    term, seq, commit_index, prev_index, prev_term, count = _fields(_APPEND, payload, exact=False)
    at = _HEAD.size + _APPEND.size
    if count * _ENTRY.size > len(payload) - at:
        raise WireError(f"an append announces {count} entries and has {len(payload) - at} bytes for them")
    entries: list[Entry] = []
    for index in range(prev_index + 1, prev_index + 1 + count):
        if len(payload) - at < _ENTRY.size:
            raise WireError("an append ends inside the head of an entry")
        entry_term, length = _ENTRY.unpack_from(payload, at)
        at += _ENTRY.size
        if not 0 < length <= MAX_ENTRY_BYTES or length > len(payload) - at:
            raise WireError(f"entry {index} announces {length} bytes")
        command = payload[at : at + length]
        if command[0] not in (ENTRY_COMMAND, ENTRY_NO_OP) or entry_term > term:
            raise WireError(f"entry {index} has kind {command[0]} and term {entry_term}: refused")
        entries.append((command, index, entry_term))
        at += length
    if at != len(payload):
        raise WireError(f"an append has {len(payload) - at} bytes too many")
    return Append(term, seq, commit_index, prev_index, prev_term, tuple(entries))


def _decode_part(payload: bytes) -> SnapshotPart:
    term, seq, index, last_term, total, offset, length = _fields(_PART, payload, exact=False)
    at = _HEAD.size + _PART.size
    if length > MAX_PART_BYTES or length != len(payload) - at or offset + length > total:
        raise WireError(f"a snapshot part announces {length} bytes at {offset} of {total}, has {len(payload) - at}")
    return SnapshotPart(term, seq, index, last_term, total, offset, payload[at:])
