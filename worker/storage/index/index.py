"""The LMDB environment of one storage directory. Key spaces and bytes in disk_format.md, reasons in ADR 6.

    b"M"                                     whose directory this is: the bytes of the identity file
    b"S"                                     starts: incarnation and boot id, as in the starts file
    b"F" + file key                          a sealed file: its length, and the CRC of its name; of a map file also its
                                             epoch
    b"D" + file key                          the same of a file on the DFS, and the token of its name there
    b"E" + epoch key                         an epoch of a REDUCE partition: the answer to its seal, and its chunks
    b"C" + key + place                       chunks of an epoch or map file, if they do not fit beside the answer;
                                             `place` is the first chunk, or of a map file region and last partition, so
                                             that one cursor step finds where a partition would be
    b"G" + shuffle key                       a generation that was sealed for good
    b"L" + incarnation                       a push log that must be there: the boot that wrote it

Every value ends in a CRC-32C over key and value. Values stay below half a page, so that none gets pages of its own.
Readers are short, because the map may not grow under one. Nothing here decides; a damaged record is an
LmdbDamagedError for the caller to handle.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.common.errors import CorruptError, NoRoomError
from holdfast.common.formats.checksum import CRC_BYTES, crc32c, with_crc
from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.worker.storage.env.interfaces import Env, IndexChange, IndexFullError, Snapshot
from holdfast.worker.storage.index.records import (
    CHUNK_ROW,
    EPOCH,
    INLINE_BYTES_MAX,
    ROWS_MAX,
    DataRecord,
    EpochRecord,
    FileRecord,
    data_prefixes,
    decode_epoch,
    decode_epoch_key,
    decode_key,
    encode_key,
    encode_shuffle,
    head_counts,
)
from holdfast.worker.storage.index.region_chunks import Chunk
from holdfast.worker.storage.layout import DataKey, EpochKey, FileKey, OpenKey, sealed_name

META_KEY = b"M"
STARTS_KEY = b"S"
FILE_SPACE = b"F"
AWAY_SPACE = b"D"
EPOCH_SPACE = b"E"
CHUNK_SPACE = b"C"
FINAL_SPACE = b"G"
LOG_SPACE = b"L"
#: file bytes u64, CRC of the name in its folder u32, epochs u32
_FILE = struct.Struct("<QII")
_REGION = struct.Struct(">II")
_FIRST_ROW = struct.Struct(">I")
_LOG_KEY = struct.Struct(">cI")
#: A value with its key fits twice into a page of 4 KiB, or LMDB gives it pages of its own.
VALUE_BYTES_MAX = 1_900
#: The name of a file on the DFS ends in so many random bytes, in hex.
TOKEN_BYTES = 4
MAP_BYTES_FIRST = 64 << 20

assert INLINE_BYTES_MAX + CRC_BYTES <= VALUE_BYTES_MAX, "an inline record stays in its page"
assert EPOCH.size + ROWS_MAX * CHUNK_ROW.size <= INLINE_BYTES_MAX, "so does an epoch with its chunks"


def protect(key: bytes, value: bytes) -> bytes:
    """Return the value as stored, with its CRC."""
    return with_crc(value, crc32c(key))


def unprotect(key: bytes, stored: bytes) -> bytes:
    """Return the value; raises LmdbDamagedError unless the CRC is right."""
    value = stored[:-CRC_BYTES]
    if len(stored) < CRC_BYTES or crc32c(value, crc32c(key)) != int.from_bytes(stored[-CRC_BYTES:], "little"):
        raise LmdbDamagedError(f"the index record {key[:1].decode(errors='replace')} {key[1:].hex()} is damaged")
    return value


def protected(items: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The same as they are stored."""
    return [(key, protect(key, value)) for key, value in items]


def file_items(record: FileRecord[Any, Any], token: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """The key-value pairs that stand for a sealed file and its epochs, without CRCs; `token`: of a file on the DFS."""
    key, name_crc = encode_key(record.key), crc32c(sealed_name(record.key).encode())
    head = _FILE.pack(record.file_bytes, name_crc, len(record.epochs))
    if isinstance(record.key, MapFileKey):
        yield from _with_chunks(FILE_SPACE, key, head, record.epoch)
        return
    yield (AWAY_SPACE if token else FILE_SPACE) + key, head + token
    for epoch, each in record.epochs:
        yield from epoch_items(epoch, each)


def epoch_items(key: EpochKey, record: EpochRecord) -> Iterator[tuple[bytes, bytes]]:
    """The key-value pairs that stand for an epoch, without CRCs."""
    return _with_chunks(EPOCH_SPACE, encode_key(key), b"", record)


def _with_chunks(space: bytes, key: bytes, before: bytes, record: EpochRecord) -> Iterator[tuple[bytes, bytes]]:
    head, chunks = before + record.encode_head(), record.encode_chunks()
    if len(record.chunks) <= ROWS_MAX and len(head) + len(chunks) <= INLINE_BYTES_MAX:
        yield space + key, head + chunks
        return
    yield space + key, head
    for encoded in record.region_chunks:
        chunk, _ = Chunk.decode(encoded)
        yield CHUNK_SPACE + key + _REGION.pack(chunk.region, chunk.last), encoded
    for first in range(0, len(record.chunks), ROWS_MAX):
        part = chunks[first * CHUNK_ROW.size : (first + ROWS_MAX) * CHUNK_ROW.size]
        yield CHUNK_SPACE + key + _FIRST_ROW.pack(first), part


class Found(NamedTuple):
    """What the index, or a footer, has of a sealed map file. Only what every lookup needs is decoded."""

    regions: int
    #: the file's chunks back to back, where they were stored with its head
    chunks: bytes | None

    @classmethod
    def of(cls, record: EpochRecord) -> Found:
        """The same of a record that was read whole."""
        return cls(record.regions, record.encode_chunks())


class Index:
    """One environment; one process, any thread."""

    def __init__(self, env: Env, path: Path, map_bytes_max: int) -> None:
        """Open, or create in an empty folder. Raises OSError; run the page check first."""
        held = env.indexes.size(path)
        self._map_bytes_max = map_bytes_max
        self._map_bytes = min(max(MAP_BYTES_FIRST, 2 * held), max(map_bytes_max, held))
        self._growing = env.threads.lock()
        self._open = env.indexes.open(path, self._map_bytes)

    @classmethod
    def read_only(cls, env: Env, path: Path) -> Index:
        """Open without a lock file or any change, where no other process has it open. Raises LmdbDamagedError."""
        index = cls.__new__(cls)
        index._open = env.indexes.open_read_only(path)
        return index

    def close(self) -> None:
        self._open.close()

    # writing

    def commit(self, change: IndexChange) -> None:
        """Carry out one synced transaction; grows the map as needed.

        Raises NoRoomError if the map may not grow further, OSError if the disk fails.
        """
        while True:
            held = self._map_bytes
            try:
                self._open.commit(change)
            except IndexFullError:
                with self._growing:
                    if self._map_bytes == held:
                        self._grow()
            else:
                return

    def _grow(self) -> None:
        if self._map_bytes >= self._map_bytes_max:
            raise NoRoomError(f"the index has reached its bound of {self._map_bytes_max} bytes")
        wanted = min(2 * self._map_bytes, self._map_bytes_max)
        self._open.enlarge(wanted)
        self._map_bytes = wanted

    def put_items(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Store records, all in one transaction."""
        self.commit(IndexChange(protected(items)))

    def put(self, key: bytes, value: bytes) -> None:
        """Store a record of another space."""
        self.put_items([(key, value)])

    def put_log(self, incarnation: int, boot_id: bytes) -> None:
        """From now on the push log of this incarnation must be there."""
        self.put(_LOG_KEY.pack(LOG_SPACE, incarnation), boot_id)

    def past(self, shuffle: ShuffleKey) -> tuple[bool, list[EpochKey]]:
        """Whether a generation was sealed for good, which it counts for where that cannot be read, and its epochs that
        have a record."""
        prefix = encode_shuffle(shuffle)
        with self.reading() as reader:
            try:
                return reader.get(FINAL_SPACE + prefix) is not None, list(reader.epochs(prefix))
            except CorruptError:
                return True, []

    def remove_logs(self, incarnations: Iterable[int]) -> None:
        """The push logs of these may go."""
        self.commit(IndexChange(removes=[_LOG_KEY.pack(LOG_SPACE, incarnation) for incarnation in incarnations]))

    def remove_file(self, key: FileKey, epochs: Iterable[EpochKey] = (), *, away: bool = False) -> None:
        """A sealed file with these epochs is here no more; `away`: what this one may say of it on the DFS goes, too."""
        encoded = encode_key(key)
        spaces = (FILE_SPACE, AWAY_SPACE) if away else (FILE_SPACE,)
        starts = [space + encode_key(epoch) for epoch in epochs for space in (EPOCH_SPACE, CHUNK_SPACE)]
        if isinstance(key, MapFileKey):
            starts.append(CHUNK_SPACE + encoded)
        self.commit(IndexChange(removes_below=[*[space + encoded for space in spaces], *starts]))

    def set_away(self, record: DataRecord, token: bytes) -> None:
        """A sealed partition or pack file of this directory was moved to the DFS: its epochs stay recorded here."""
        gone = FILE_SPACE + encode_key(record.key)
        self.commit(IndexChange(protected(file_items(record, token)), removes=[gone]))

    def remove_shuffle(self, key: ShuffleKey) -> None:
        spaces = (FILE_SPACE, FINAL_SPACE, EPOCH_SPACE, CHUNK_SPACE, AWAY_SPACE)
        self.commit(IndexChange(removes_below=[space + encode_shuffle(key) for space in spaces]))

    # reading

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A snapshot for a few lookups; keep it short, never wait inside. Errors of LMDB come as LmdbDamagedError."""
        with self._open.reading() as snapshot:
            yield Reader(snapshot)

    def get(self, key: bytes) -> bytes | None:
        """A record of another space; None if there is none."""
        with self.reading() as reader:
            return reader.get(key)

    def files(self, shuffle: ShuffleKey) -> dict[FileKey, int]:
        """Every sealed file of a shuffle, with its length."""
        with self.reading() as reader:
            return dict(reader.files(encode_shuffle(shuffle)))

    def data_files(self, shuffle: ShuffleKey) -> dict[DataKey, int]:
        """Every sealed partition and pack file of a shuffle, with its length."""
        with self.reading() as reader:
            return dict(reader.data_files(shuffle))


class Reader:
    """Lookups within one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def get(self, key: bytes) -> bytes | None:
        """A record's value; raises LmdbDamagedError."""
        stored = self._snapshot.get(key)
        return None if stored is None else unprotect(key, stored)

    def file(self, key: bytes) -> Found | None:
        """A sealed map file by its encoded key."""
        value = self.get(FILE_SPACE + key)
        if value is None:
            return None
        regions, chunks = head_counts(value, _FILE.size)
        inline = value[_FILE.size + EPOCH.size :]
        return Found(regions, inline if inline or not chunks else None)

    def chunk(self, key: bytes, region: int, partition: int) -> Chunk | None:
        """The first chunk of a region that ends at or behind a partition; None if the region ends before."""
        item = self._snapshot.first(CHUNK_SPACE + key + _REGION.pack(region, partition))
        if item is None or not item[0].startswith(CHUNK_SPACE + key + _REGION.pack(region, 0)[:4]):
            return None
        found, stored = item
        return Chunk.decode(unprotect(found, stored))[0]

    def files(self, prefix: bytes = b"") -> Iterator[tuple[FileKey, int]]:
        """Every sealed file whose encoded key starts with `prefix`, with its length."""
        for found, value in self._below(FILE_SPACE + prefix):
            if len(value) < _FILE.size:
                raise LmdbDamagedError(f"the record of a file has {len(value)} bytes")
            yield decode_key(found[1:]), _FILE.unpack_from(value)[0]

    def data_files(self, shuffle: ShuffleKey) -> Iterator[tuple[DataKey, int]]:
        """Every sealed partition and pack file of a shuffle, with its length."""
        for prefix in data_prefixes(shuffle):
            for key, size in self.files(prefix):
                assert not isinstance(key, MapFileKey), "their keys begin with another kind"
                yield key, size

    def epoch(self, key: OpenKey) -> EpochRecord | None:
        """What became of an epoch; None if it is not recorded. Raises CorruptError."""
        encoded, of_map = encode_key(key), isinstance(key, MapFileKey)
        value = self.get((FILE_SPACE if of_map else EPOCH_SPACE) + encoded)
        if value is None:
            return None
        value = value[_FILE.size :] if of_map else value
        if len(value) > EPOCH.size or not head_counts(value)[1]:
            return decode_epoch(value)
        return decode_epoch(value, b"".join([chunks for _, chunks in self._below(CHUNK_SPACE + encoded)]))

    def has_epoch(self, key: EpochKey) -> bool:
        """Whether the epoch is recorded at all."""
        return self._snapshot.get(EPOCH_SPACE + encode_key(key)) is not None

    def epochs(self, prefix: bytes = b"") -> Iterator[EpochKey]:
        """Every recorded epoch whose encoded key starts with `prefix`."""
        for found, _ in self._below(EPOCH_SPACE + prefix):
            yield decode_epoch_key(found[1:])

    def logs(self) -> dict[int, bytes | None]:
        """The push logs that must be there, by incarnation, with their boot; None where the record is damaged."""
        found: dict[int, bytes | None] = {}
        for key, stored in self._snapshot.below(LOG_SPACE):
            if len(key) == _LOG_KEY.size:
                try:
                    found[_LOG_KEY.unpack(key)[1]] = unprotect(key, stored)
                except LmdbDamagedError:
                    found[_LOG_KEY.unpack(key)[1]] = None
        return found

    def away_files(self) -> Iterator[tuple[DataKey, int, bytes]]:
        """Every file on the DFS whose epochs are recorded here, with its length and token."""
        for found, value in self._below(AWAY_SPACE):
            key = decode_key(found[1:])
            if len(value) != _FILE.size + TOKEN_BYTES or isinstance(key, MapFileKey):
                raise LmdbDamagedError(f"the record of {key} on the DFS has {len(value)} bytes")
            yield key, _FILE.unpack_from(value)[0], value[_FILE.size :]

    def _below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, stored in self._snapshot.below(prefix):
            yield key, unprotect(key, stored)
