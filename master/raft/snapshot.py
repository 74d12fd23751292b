"""Snapshot files: the state machine's bytes at one applied index, written, verified, sent and received.

Rules: a file is written beside, synced, renamed over the current one and its directory synced, before anybody may
drop log entries that it covers; a file that fails any check is never used. Nothing here runs on the Raft thread
except `part` and `receive`, which move one bounded part. Layout (little endian):

    magic 8 bytes "HFRSNAP1", version u16, cluster id (u16 length, bytes, at most 256), index u64, term u64,
    body length u64, body CRC-32C u32, CRC-32C u32 of the header so far, then the body

Called by `member` and `node`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from crc32c import crc32c

from holdfast.common.system.files import make_folders, sync_directory
from holdfast.common.system.links import make_anew
from holdfast.master.raft.codec import SnapshotPart
from holdfast.master.raft.errors import WAY_OUT, StorageDamaged
from holdfast.master.raft.journal_store import writing

MAGIC = b"HFRSNAP1"
FORMAT_VERSION = 1
PART_BYTES = 256 << 10
_READ_BYTES = 64 << 10
_SHORT = struct.Struct("<H")
_NUMBERS = struct.Struct("<QQQI")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """The last entry a snapshot covers."""

    index: int
    term: int


@dataclass(slots=True)
class Transfer:
    """A snapshot on its way to one peer: what to read next. The file stays readable while a newer one replaces it."""

    id: SnapshotId
    total: int
    read: Callable[[int, int], bytes]
    close: Callable[[], None]
    offset: int = 0


class Snapshots(Protocol):
    """Home of the current snapshot and of the one being received."""

    @property
    def current(self) -> SnapshotId | None:
        """The snapshot a restart would use."""

    @property
    def length(self) -> int:
        """Its bytes; 0 without one."""

    def write(self, last: SnapshotId, chunks: Iterable[bytes]) -> int:
        """Make a new current snapshot; the body's length. May run on any thread."""

    def chunks(self) -> Iterator[bytes]:
        """Verified body of the current snapshot."""

    def transfer(self) -> Transfer | None:
        """Begin to send the current snapshot."""

    def receive(self, part: SnapshotPart) -> bool:
        """Keep a part; True when it was the last one of a whole file, which `adopt` then verifies."""

    def adopt(self) -> SnapshotId:
        """Verify the received file and make it current. May run on any thread."""


def header(cluster_id: str, last: SnapshotId, length: int, crc: int) -> bytes:
    """The bytes before the body."""
    raw = cluster_id.encode()
    fixed = MAGIC + _SHORT.pack(FORMAT_VERSION) + _SHORT.pack(len(raw)) + raw
    fixed += _NUMBERS.pack(last.index, last.term, length, crc)
    return fixed + _CRC.pack(crc32c(fixed))


class FileSnapshots:
    """Snapshots in a directory. `pause` is called between pieces of a write so that encoding never starves the node.

    Raises:
        StorageDamaged: there is a snapshot and it fails its checks.
    """

    def __init__(self, directory: Path, cluster_id: str, pause: Callable[[], None] = lambda: None) -> None:
        self._directory, self._cluster_id = directory, cluster_id
        self._pause: Callable[[], None] = lambda: None
        self._file = directory / "snapshot"
        self._new = directory / "snapshot.new"
        self._incoming = directory / "snapshot.incoming"
        with writing(directory):
            make_folders(directory)
        self._receiving: tuple[SnapshotId, int, BinaryIO] | None = None
        self.current = self.verify(self._file) if self._file.exists() else None
        self.length = self._file.stat().st_size if self.current else 0
        self._pause = pause

    def _damaged(self, path: Path, what: str) -> StorageDamaged:
        return StorageDamaged(f"Raft snapshot {path} {what}. {WAY_OUT}")

    def _read_header(self, path: Path, file: BinaryIO) -> tuple[SnapshotId, int, int]:
        start = file.read(len(MAGIC) + 4)
        if len(start) < len(MAGIC) + 4 or start[: len(MAGIC)] != MAGIC:
            raise self._damaged(path, "does not start as one")
        (version,) = _SHORT.unpack_from(start, len(MAGIC))
        (length,) = _SHORT.unpack_from(start, len(MAGIC) + 2)
        if version != FORMAT_VERSION or length > 256:
            raise self._damaged(path, f"has format version {version}; this build reads {FORMAT_VERSION}")
        rest = file.read(length + _NUMBERS.size + _CRC.size)
        if len(rest) != length + _NUMBERS.size + _CRC.size:
            raise self._damaged(path, "ends inside its header")
        if _CRC.unpack_from(rest, len(rest) - _CRC.size)[0] != crc32c(start + rest[: -_CRC.size]):
            raise self._damaged(path, "has a damaged header (checksum)")
        if rest[:length] != self._cluster_id.encode():
            raise self._damaged(path, f"belongs to cluster {rest[:length].decode(errors='replace')!r}")
        index, term, body, crc = _NUMBERS.unpack_from(rest, length)
        return SnapshotId(index, term), body, crc

    def verify(self, path: Path) -> SnapshotId:
        """Read the whole file and check every byte of it."""
        with path.open("rb") as file:
            last, body, want = self._read_header(path, file)
            crc, left = 0, body
            while piece := file.read(_READ_BYTES):
                crc, left = crc32c(piece, crc), left - len(piece)
                self._pause()
        if left or crc != want:
            raise self._damaged(path, "is damaged (length or checksum of its body)")
        return last

    def write(self, last: SnapshotId, chunks: Iterable[bytes]) -> int:
        """See `Snapshots`."""
        length = crc = 0
        with writing(self._directory), os.fdopen(make_anew(self._new), "wb") as file:
            file.write(header(self._cluster_id, last, 0, 0))
            for chunk in chunks:
                file.write(chunk)
                crc, length = crc32c(chunk, crc), length + len(chunk)
                self._pause()
            file.seek(0)
            file.write(header(self._cluster_id, last, length, crc))
            file.flush()
            os.fsync(file.fileno())
        self._make_current(self._new, last)
        return length

    def _make_current(self, path: Path, last: SnapshotId) -> None:
        with writing(self._directory):
            path.replace(self._file)
            sync_directory(self._directory)
        self.current, self.length = last, self._file.stat().st_size

    def chunks(self) -> Iterator[bytes]:
        """See `Snapshots`."""
        with self._file.open("rb") as file:
            self._read_header(self._file, file)
            while piece := file.read(_READ_BYTES):
                yield piece

    def transfer(self) -> Transfer | None:
        """See `Snapshots`."""
        if self.current is None:
            return None
        file = self._file.open("rb")
        last, _, _ = self._read_header(self._file, file)
        total = os.fstat(file.fileno()).st_size
        return Transfer(last, total, lambda offset, size: os.pread(file.fileno(), size, offset), file.close)

    def receive(self, part: SnapshotPart) -> bool:
        """See `Snapshots`. A part out of order is dropped: the sender begins again when it sees no success."""
        last = SnapshotId(part.index, part.last_term)
        if part.offset == 0 and part.data:
            self._forget_incoming()
            with writing(self._directory):
                self._receiving = last, 0, os.fdopen(make_anew(self._incoming), "wb")
        if self._receiving is None:
            return False
        receiving, have, file = self._receiving
        if receiving != last or part.offset != have or not part.data:
            return False
        with writing(self._directory):
            file.write(part.data)
        have += len(part.data)
        self._receiving = receiving, have, file
        return have == part.total

    def _forget_incoming(self) -> None:
        if self._receiving is not None:
            self._receiving[2].close()
            self._receiving = None

    def adopt(self) -> SnapshotId:
        """See `Snapshots`."""
        if self._receiving is None:
            raise AssertionError("no snapshot was received")
        file = self._receiving[2]
        with writing(self._directory):
            file.flush()
            os.fsync(file.fileno())
            self._forget_incoming()
        last = self.verify(self._incoming)
        self._make_current(self._incoming, last)
        return last
