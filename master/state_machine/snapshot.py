"""The snapshot of the replicated state: a stream of length-prefixed protobuf records (docs/internals/control_plane.md).

Layout: "HFSTATE" and a version byte; then u32 little-endian length and a `Record` each, followed by the arrays that the
record names, as they are; an `End` record with the number of records closes it. Raft's own file around it has the
checksum. Rules: yields small pieces, so that the thread that encodes never holds the interpreter for long; a stream
that is too short, too long, or holds something unknown is refused with SnapshotError and nothing of it is used.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from holdfast.master.core.state.answers import Client
from holdfast.master.core.state.highest_generations import HighestGenerations, Run
from holdfast.master.core.state.incomplete import unpack_incomplete
from holdfast.master.core.state.moves import moved_bytes
from holdfast.master.core.state.records import Application, Shuffle, Upload, Worker
from holdfast.master.core.state.state import Below, StateTables
from holdfast.master.proto import commands_pb2 as pb
from holdfast.master.state_machine.codec import VERSION, from_message, to_message

_MAGIC = b"HFSTATE" + bytes([VERSION])
_U32 = struct.Struct("<I")
_RECORD_BYTES_MAX = 16 << 20
_ARRAY_BYTES_MAX = 1 << 30
_PIECE_BYTES = 64 << 10
#: Of a shuffle, before its moves.
_ARRAYS = ("assignment", "winners", "manifest", "incomplete")
_HEADER = ("time_ms", "index", "state_id", "state_index", "workers_made", "applications_made", "forgotten_index")


class SnapshotError(Exception):
    """The bytes are not a whole snapshot of this version."""


def encode(tables: StateTables) -> Iterator[bytes]:
    """Yield the snapshot in pieces of at most 64 KiB and a record."""
    yield _MAGIC
    count = 0
    for record, arrays in _records(tables):
        count += 1
        record.arrays.extend(map(len, arrays))
        data = record.SerializeToString(deterministic=True)
        yield _U32.pack(len(data)) + data
        for array in arrays:
            for start in range(0, len(array), _PIECE_BYTES):
                yield array[start : start + _PIECE_BYTES]
    end = pb.Record(end=pb.End(records=count)).SerializeToString()
    yield _U32.pack(len(end)) + end


def state_hash(tables: StateTables) -> bytes:
    """Return 16 bytes that are equal exactly where the tables are."""
    digest = hashlib.blake2b(digest_size=16)
    for piece in encode(tables):
        digest.update(piece)
    return digest.digest()


def decode(chunks: Iterable[bytes]) -> StateTables:
    """Return the tables of a snapshot, wherever it was cut into chunks. Raises SnapshotError."""
    source = _Source(chunks)
    magic = source.take(len(_MAGIC))
    if magic != _MAGIC and magic[:-1] == _MAGIC[:-1]:
        raise SnapshotError(
            f"this is a snapshot of version {magic[-1]}, and this master reads version {VERSION}: start the release "
            "that wrote it (docs/operate/upgrade.md)"
        )
    if magic != _MAGIC:
        raise SnapshotError("this is no snapshot of Holdfast's masters")
    tables = StateTables()
    count = 0
    while True:
        record = pb.Record()
        try:
            record.ParseFromString(source.take(source.length(_RECORD_BYTES_MAX)))
        except DecodeError as error:
            raise SnapshotError(f"record {count} of the snapshot is damaged: {error}") from error
        if any(size > _ARRAY_BYTES_MAX for size in record.arrays):
            raise SnapshotError(f"record {count} of the snapshot names an array that is too long")
        arrays = [source.take(size) for size in record.arrays]
        kind = record.WhichOneof("record")
        if kind == "end":
            if record.end.records != count or not source.finished():
                raise SnapshotError(f"the snapshot ends at record {count}, not where it says")
            return tables
        if kind is None:
            raise SnapshotError(f"record {count} of the snapshot is of an unknown kind for this version")
        try:
            _load(tables, kind, getattr(record, kind), arrays)
        except (ValueError, struct.error) as error:
            raise SnapshotError(f"record {count} of the snapshot, {kind}, is damaged: {error}") from error
        count += 1


def _records(tables: StateTables) -> Iterator[tuple[pb.Record, tuple[bytes, ...]]]:
    """Yield every record with its arrays: tables without an order of their own by key, the others in their order."""
    yield pb.Record(header=pb.Header(**{name: getattr(tables, name) for name in _HEADER})), ()
    for number in sorted(tables.workers):
        yield pb.Record(worker=to_message(tables.workers[number])), ()
    for instance in sorted(tables.applications):
        yield pb.Record(application=to_message(tables.applications[instance])), ()
        yield from _records_below(instance, tables.below[instance])
    for instance, moment in tables.gone.items():
        yield pb.Record(gone=pb.Gone(instance=instance, time_ms=moment)), ()
    for name in sorted(tables.uploads):
        upload = tables.uploads[name]
        yield pb.Record(upload=pb.Upload(name=name, started_ms=upload.started_ms)), upload.parts
    for name, client in tables.clients.items():
        yield pb.Record(client=pb.Client(id=name, packed=client)), ()


def _records_below(instance: bytes, below: Below) -> Iterator[tuple[pb.Record, tuple[bytes, ...]]]:
    for number in sorted(below.shuffles):
        shuffle = below.shuffles[number]
        message = to_message(shuffle, without=(*_ARRAYS, "moves"))
        yield pb.Record(shuffle=message), (*[getattr(shuffle, name) for name in _ARRAYS], *shuffle.moves)
    for state in sorted(below.highest):
        for begin, end, generation in below.highest[state]:
            head = pb.Head(instance=instance, shuffle=begin, generation=generation, shuffles=end - begin, state=state)
            yield pb.Record(head=head), ()


def _load(tables: StateTables, kind: str, message: Any, arrays: list[bytes]) -> None:
    """Put a record into the tables. Raises ValueError and struct.error if it is damaged."""
    match kind:
        case "header":
            for name in _HEADER:
                setattr(tables, name, getattr(message, name))
        case "worker":
            tables.workers[message.id] = from_message(Worker, message)
        case "application":
            tables.applications[message.instance] = from_message(Application, message)
            tables.below[message.instance] = Below()
        case "shuffle":
            _load_shuffle(tables, message, arrays)
        case "head":
            run = Run(message.shuffle, message.shuffle + message.shuffles, message.generation)
            _below(tables, message.instance).highest.setdefault(message.state, HighestGenerations()).append(run)
        case "gone":
            tables.gone[message.instance] = message.time_ms
        case "upload":
            tables.uploads[message.name] = Upload(tuple(arrays), message.started_ms)
        case "client":
            Client.unpack(message.packed)
            tables.clients[message.id] = message.packed
        case _:
            raise AssertionError(f"records of kind {kind} are in the schema, and nobody reads them")


def _load_shuffle(tables: StateTables, message: Any, arrays: list[bytes]) -> None:
    if len(arrays) < len(_ARRAYS):
        raise ValueError("it lacks an array")
    moves = arrays[len(_ARRAYS) :]
    shuffle = from_message(Shuffle, message, **dict(zip(_ARRAYS, arrays, strict=False)), moves=tuple(moves))
    unpack_incomplete(shuffle.incomplete)
    if any(not each or len(each) % moved_bytes(shuffle.copies_wanted) for each in moves):
        raise ValueError("its moves are cut")
    _below(tables, shuffle.key.instance).shuffles[shuffle.key.number] = shuffle


def _below(tables: StateTables, instance: bytes) -> Below:
    below = tables.below.get(instance)
    if below is None:
        raise ValueError("its application is missing")
    return below


class _Source:
    """Takes exact lengths from chunks of any size."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer = bytearray()
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        while len(self._buffer) - self._at < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise SnapshotError("the snapshot ends in the middle of a record")
            if self._at:
                del self._buffer[: self._at]
                self._at = 0
            self._buffer += chunk
        taken = bytes(memoryview(self._buffer)[self._at : self._at + size])
        self._at += size
        return taken

    def length(self, most: int) -> int:
        """Return the length that comes next, if it is sane."""
        size = int(_U32.unpack(self.take(_U32.size))[0])
        if size > most:
            raise SnapshotError(f"the snapshot names a record of {size} bytes")
        return size

    def finished(self) -> bool:
        """Whether nothing is left."""
        return self._at == len(self._buffer) and not any(len(chunk) for chunk in self._chunks)
