"""The journal's disk: one LMDB environment per member, every record under a CRC-32C over key and value.

Rules: one change is one synced transaction (never NOSYNC or WRITEMAP); the map grows when it is full; a record that
fails its checksum, a missing entry, or the wrong cluster or node refuses to load and names what is wrong. LMDB has
no checksums of its own, and syncs no names: those of a new journal are durable before anything is in it. Called by
`journal`; the layout is in docs/internals/disk_format.md's terms:

    key "i"            crc u32, version u16, cluster id, node id (each u16 length, bytes)
    key "m"            crc u32, version u16, term u64, commit u64, first u64, last u64, vote (u16 length, bytes)
    key "e" + index    crc u32, term u64, command        (index u64 big endian, so that keys sort)

Numbers are little endian but for the key.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
from crc32c import crc32c

from holdfast.common.lmdb_pages import LmdbDamagedError, PageCheck
from holdfast.common.sizes import in_bytes
from holdfast.common.system.files import make_folders, sync_directory
from holdfast.common.system.modes import FILE_MODE
from holdfast.master.raft.codec import Entry
from holdfast.master.raft.errors import WAY_OUT, SettingsRefused, StorageDamaged, StorageFailed
from holdfast.master.raft.journal import Change, Meta

FORMAT_VERSION = 1
FIRST_MAP_BYTES = 64 << 20
#: What LMDB makes of an errno of the system; its other classes are mistakes of ours or damage.
_OF_THE_SYSTEM = (lmdb.Error, lmdb.DiskError, lmdb.ReadonlyError)
_CRC = struct.Struct("<I")
_META = struct.Struct("<HQQQQ")
_TERM = struct.Struct("<Q")
_INDEX = struct.Struct(">Q")
_SHORT = struct.Struct("<H")


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Raise StorageFailed if the disk takes no write: it is full, read-only, missing or broken."""
    try:
        yield
    except (OSError, lmdb.Error) as error:
        if isinstance(error, lmdb.Error) and type(error) not in _OF_THE_SYSTEM:
            raise
        try:
            space = os.statvfs(directory)
            free = f"{in_bytes(space.f_bavail * space.f_frsize)} and {space.f_favail} inodes are free there"
        except OSError as gone:
            free = f"nor looked at: {gone.strerror}"
        raise StorageFailed(f"{directory} cannot be written: {error}; {free}") from error


def sealed(key: bytes, body: bytes) -> bytes:
    """The stored value: checksum over key and body, then body."""
    return _CRC.pack(crc32c(body, crc32c(key))) + body


def entry_key(index: int) -> bytes:
    """Key of an entry."""
    return b"e" + _INDEX.pack(index)


def meta_body(meta: Meta) -> bytes:
    """Body of the meta record."""
    fixed = _META.pack(FORMAT_VERSION, meta.term, meta.commit, meta.first, meta.last)
    return fixed + _text(meta.vote or "")


def _text(value: str) -> bytes:
    raw = value.encode()
    return _SHORT.pack(len(raw)) + raw


class LmdbStore:
    """Store of one member in `directory`; raises StorageDamaged, from `load` SettingsRefused as well."""

    def __init__(self, directory: Path, cluster_id: str, node_id: str, disk_delay: float = 0.0) -> None:
        self._directory = directory
        self._identity = _SHORT.pack(FORMAT_VERSION) + _text(cluster_id) + _text(node_id)
        self._who = f"node {node_id!r} of cluster {cluster_id!r}"
        self._disk_delay = disk_delay
        with writing(directory):
            make_folders(directory)
        data = directory / "data.mdb"
        self._map_bytes = max(FIRST_MAP_BYTES, 2 * data.stat().st_size if data.exists() else 0)
        self._check_pages(data)
        try:
            with writing(directory):
                self._env = lmdb.open(
                    str(directory), map_size=self._map_bytes, mode=FILE_MODE, readahead=False, max_dbs=0
                )
        except lmdb.Error as error:
            raise self._damaged(f"cannot be opened: {error}") from error
        if not self._env.stat()["entries"]:
            # Nothing was voted for yet. Not as the folder is made: the start that made it may have been killed.
            with writing(directory):
                sync_directory(directory)
                sync_directory(directory.parent)

    def _check_pages(self, data: Path) -> None:
        """Prove the file sound before LMDB maps it; without a file, or in an empty one, it makes a new journal."""
        found = data.read_bytes() if data.exists() else b""
        if not found:
            return
        try:
            PageCheck(memoryview(found), name="journal").run()
        except LmdbDamagedError as error:
            raise StorageDamaged(f"Raft journal {data} is damaged: {error}. {WAY_OUT}") from error

    def _damaged(self, what: str) -> StorageDamaged:
        return StorageDamaged(f"Raft journal in {self._directory} {what}. {WAY_OUT}")

    def load(self) -> tuple[Meta, list[Entry], int]:
        """See `journal.Store`."""
        try:
            with self._env.begin() as txn:
                if txn.stat()["entries"] == 0:
                    return Meta(), [], 1
                if self._body(b"i", txn.get(b"i"), "identity") != self._identity:
                    raise SettingsRefused(
                        f"Raft journal in {self._directory} is not that of {self._who} (or of another format version): "
                        "point the node at its own directory"
                    )
                return self._read(txn)
        except lmdb.Error as error:
            raise self._damaged(f"cannot be read: {error}") from error

    def _body(self, key: bytes, value: bytes | memoryview | None, name: str) -> bytes:
        if value is None:
            raise self._damaged(f"has no {name} record")
        value = bytes(value)
        if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != crc32c(value[_CRC.size :], crc32c(key)):
            raise self._damaged(f"holds a damaged {name} record (checksum)")
        return value[_CRC.size :]

    def _read(self, txn: lmdb.Transaction) -> tuple[Meta, list[Entry], int]:
        meta = self._meta(self._body(b"m", txn.get(b"m"), "meta"))
        entries: list[Entry] = []
        lowest = meta.first
        cursor = txn.cursor()
        found = cursor.set_range(b"e")
        while found and cursor.key()[:1] == b"e":
            key, value = (bytes(part) for part in cursor.item())
            if len(key) != 9:
                raise self._damaged("holds a key of the wrong length")
            (index,) = _INDEX.unpack_from(key, 1)
            if index < meta.first:
                lowest = min(lowest, index)
            else:
                entries.append(self._entry(key, value, index))
            found = cursor.next()
        wanted = range(meta.first, meta.last + 1)
        if [entry[1] for entry in entries] != list(wanted):
            have = {entry[1] for entry in entries}
            wrong = next((i for i in wanted if i not in have), meta.last + 1)
            raise self._damaged(f"should hold entries {meta.first} to {meta.last}; entry {wrong} is wrong or missing")
        return meta, entries, lowest

    def _meta(self, body: bytes) -> Meta:
        version, term, commit, first, last = _META.unpack_from(body)
        if version != FORMAT_VERSION:
            raise self._damaged(f"has format version {version}, this build reads {FORMAT_VERSION}")
        vote = body[_META.size + _SHORT.size :].decode()
        return Meta(term, vote or None, commit, first, last)

    def _entry(self, key: bytes, value: bytes, index: int) -> Entry:
        body = self._body(key, value, f"entry {index}")
        return body[_TERM.size :], index, _TERM.unpack_from(body)[0]

    def commit(self, change: Change) -> None:
        """See `journal.Store`. One synced LMDB transaction. Raises StorageFailed."""
        if self._disk_delay:
            time.sleep(self._disk_delay)
        while True:
            try:
                with writing(self._directory), self._env.begin(write=True) as txn:
                    self._write(txn, change)
                return
            except lmdb.MapFullError:
                self._map_bytes *= 2
                self._env.set_mapsize(self._map_bytes)

    def _write(self, txn: lmdb.Transaction, change: Change) -> None:
        txn.put(b"i", sealed(b"i", self._identity))
        txn.put(b"m", sealed(b"m", meta_body(change.meta)))
        for low, high in change.remove:
            for index in range(low, high + 1):
                txn.delete(entry_key(index))
        for command, index, term in change.put:
            key = entry_key(index)
            txn.put(key, sealed(key, _TERM.pack(term) + command))

    def close(self) -> None:
        """See `journal.Store`."""
        self._env.close()
