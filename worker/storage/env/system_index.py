"""LMDB; see interfaces.py for what each call promises."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import lmdb

from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.common.system.modes import FILE_MODE
from holdfast.worker.storage.env.interfaces import IndexChange, IndexFailedError, IndexFullError, Name, Snapshot

_READERS_MAX = 64


def _unreadable(error: lmdb.Error) -> LmdbDamagedError:
    return LmdbDamagedError(f"the index cannot be read: {error}")


class SystemSnapshot:
    """A read transaction."""

    def __init__(self, transaction: lmdb.Transaction) -> None:
        self._transaction = transaction
        self._cursor: lmdb.Cursor | None = None

    def get(self, key: bytes) -> bytes | None:
        try:
            value = self._transaction.get(key)
        except lmdb.Error as error:
            raise _unreadable(error) from error
        return None if value is None else bytes(value)

    def first(self, start: bytes) -> tuple[bytes, bytes] | None:
        try:
            if self._cursor is None:
                self._cursor = self._transaction.cursor()
            return _item(self._cursor) if self._cursor.set_range(start) else None
        except lmdb.Error as error:
            raise _unreadable(error) from error

    def below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            cursor = self._transaction.cursor()
            found = cursor.set_range(prefix)
            while found:
                key, value = _item(cursor)
                if not key.startswith(prefix):
                    return
                yield key, value
                found = cursor.next()
        except lmdb.Error as error:
            raise _unreadable(error) from error


def _item(cursor: lmdb.Cursor) -> tuple[bytes, bytes]:
    """Key and value where the cursor stands; they are bytes already, since no transaction here asks for buffers."""
    key, value = cursor.item()
    return bytes(key), bytes(value)


class SystemIndex:
    """An LMDB environment. Transactions are synced (never NOSYNC or WRITEMAP)."""

    def __init__(self, environment: lmdb.Environment, indexes: SystemIndexes, path: Name) -> None:
        self._environment = environment
        self._indexes = indexes
        self._path = path
        #: held by readers, because the map may not grow under one
        self._readers = threading.Lock()
        self._writer = threading.Lock()

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        with self._readers:
            try:
                with self._environment.begin() as transaction:
                    yield SystemSnapshot(transaction)
            except lmdb.Error as error:
                raise _unreadable(error) from error

    def commit(self, change: IndexChange) -> None:
        with self._writer:
            self._indexes.before_commit(self._path)
            try:
                transaction = self._environment.begin(write=True)
                try:
                    _carry_out(transaction, change)
                    self._indexes.syncs += 1
                    transaction.commit()
                except BaseException:
                    transaction.abort()
                    raise
            except lmdb.MapFullError as error:
                raise IndexFullError(str(error)) from error
            except lmdb.DiskError as error:  # that is how LMDB says ENOSPC
                if not self._takes_changes():  # it was writing what makes them count
                    raise IndexFailedError(error) from error
                raise OSError(errno.ENOSPC, f"the index: {error}") from error
            except lmdb.Error as error:
                raise IndexFailedError(error) from error

    def _takes_changes(self) -> bool:
        """Whether the environment goes on: a fatal error ends it."""
        try:
            self._environment.begin(write=True).abort()
        except lmdb.Error:
            return False
        return True

    def enlarge(self, map_bytes: int) -> None:
        with self._writer, self._readers:
            self._environment.set_mapsize(map_bytes)

    def close(self) -> None:
        with self._writer, self._readers:
            self._environment.close()


def _carry_out(transaction: lmdb.Transaction, change: IndexChange) -> None:
    if change.removes_below:
        cursor = transaction.cursor()
        for start in change.removes_below:
            found = cursor.set_range(start)
            while found and _item(cursor)[0].startswith(start):
                found = cursor.delete()
    for key in change.removes:
        transaction.delete(key)
    for key, value in change.puts:
        transaction.put(key, value)


class SystemIndexes:
    """LMDB."""

    def __init__(self) -> None:
        self.syncs = 0

    def before_commit(self, path: Name) -> None:
        """The index at `path` is about to change; may raise OSError."""

    def open(self, path: Name, map_bytes: int) -> SystemIndex:
        try:
            environment = lmdb.open(
                str(path), map_size=map_bytes, mode=FILE_MODE, readahead=False, max_readers=_READERS_MAX
            )
            environment.reader_check()
        except lmdb.Error as error:
            raise IndexFailedError(error) from error
        return SystemIndex(environment, self, path)

    def open_read_only(self, path: Name) -> SystemIndex:
        try:
            return SystemIndex(lmdb.open(str(path), readonly=True, lock=False, create=False), self, path)
        except lmdb.Error as error:
            raise LmdbDamagedError(f"the index cannot be opened: {error}") from error

    def size(self, path: Name) -> int:
        try:
            return os.stat(f"{path}/data.mdb").st_size
        except FileNotFoundError:
            return 0
