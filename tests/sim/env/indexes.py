"""Indexes on simulated disks, as LMDB keeps them: the last synced transaction, whole, whatever happens.

An environment is a file data.mdb in its folder. A transaction writes pages and syncs them, then a meta page and syncs
that. Who dies or loses power before the meta page finds the state before, behind it the one after; where the meta page
itself cannot be written nobody knows which it will be, and the environment refuses everything until it is opened anew.
"""

from __future__ import annotations

import errno
import random
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.worker.storage.env.interfaces import IndexChange, IndexFailedError, IndexFullError, Name, Snapshot
from tests.sim.env.disks import Disks, File, Folder, error
from tests.sim.env.process import Process

_DATA = "data.mdb"
_LOCK = "lock.mdb"
#: Versions of an index that are kept, so that an older one can come back.
VERSIONS_MAX = 8


class Table:
    """One state of an index; never changed."""

    def __init__(self, items: dict[bytes, bytes]) -> None:
        self.items = items
        self.size = sum([len(key) + len(value) + 16 for key, value in items.items()])
        self._order: list[bytes] | None = None

    @property
    def order(self) -> list[bytes]:
        if self._order is None:
            self._order = sorted(self.items)
        return self._order

    def changed(self, change: IndexChange) -> Table:
        """The state behind a transaction."""
        items = dict(self.items)
        for start in change.removes_below:
            for key in _below(self, start):
                items.pop(key, None)
        for key in change.removes:
            items.pop(key, None)
        items.update(change.puts)
        return Table(items)


def _below(table: Table, prefix: bytes) -> Iterator[bytes]:
    order = table.order
    at = bisect_left(order, prefix)
    while at < len(order) and order[at].startswith(prefix):
        yield order[at]
        at += 1


class Contents:
    """What the file of an environment holds; outlives processes."""

    def __init__(self) -> None:
        self.table = Table({})
        #: what may be found at the next opening instead
        self.doubt: Table | None = None
        #: a page is bad: what lies in it cannot be read, and no check passes
        self.bad: set[bytes] = set()
        self.versions: list[Table] = []

    def copy(self) -> Contents:
        made = Contents()
        made.table, made.doubt, made.bad = self.table, self.doubt, set(self.bad)
        return made

    def settle(self, rng: random.Random) -> None:
        """It is opened: nobody doubts any more."""
        if self.doubt is not None and rng.random() < 0.5:
            self.table = self.doubt
        self.doubt = None

    def power_loss(self, rng: random.Random) -> None:
        """What was synced is there."""
        self.settle(rng)

    def flip(self, rng: random.Random) -> bool:
        """A bit changes: some neighbours cannot be read any more."""
        if not self.table.order:
            return False
        at = rng.randrange(len(self.table.order))
        self.bad.update(self.table.order[at : at + rng.randint(1, 3)])
        return True

    def go_back(self, rng: random.Random) -> bool:
        """An older state is found; False if there is none."""
        if not self.versions:
            return False
        self.table, self.doubt = rng.choice(self.versions), None
        return True

    def commit(self, table: Table) -> None:
        self.versions = [*self.versions[-VERSIONS_MAX + 1 :], self.table]
        self.bad &= table.items.keys()
        self.table = table


class SimSnapshot:
    """One state."""

    def __init__(self, contents: Contents) -> None:
        self._table, self._bad = contents.table, contents.bad

    def _item(self, key: bytes) -> tuple[bytes, bytes]:
        if key in self._bad:
            raise LmdbDamagedError("the index cannot be read: a page is bad")
        return key, self._table.items[key]

    def get(self, key: bytes) -> bytes | None:
        return self._item(key)[1] if key in self._table.items else None

    def first(self, start: bytes) -> tuple[bytes, bytes] | None:
        order = self._table.order
        at = bisect_left(order, start)
        return self._item(order[at]) if at < len(order) else None

    def below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in _below(self._table, prefix):
            yield self._item(key)


class SimIndex:
    """One environment, opened by a process."""

    def __init__(self, process: Process, indexes: SimIndexes, file: File, path: str, map_bytes: int) -> None:
        self._process, self._indexes, self._file, self._path = process, indexes, file, path
        self._map_bytes = map_bytes
        self._broken = False
        self._writing = False

    @property
    def _contents(self) -> Contents:
        found: Contents = self._file.index
        return found

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        if not self._process.alive:
            self._process.step()
        if self._broken:
            raise LmdbDamagedError("the index cannot be read: it had a fatal error")
        device, rng = self._file.device, self._process.rng
        if device.read_errors and rng.random() < device.read_errors:
            raise LmdbDamagedError("the index cannot be read: Input/output error")
        yield SimSnapshot(self._contents)

    def commit(self, change: IndexChange) -> None:
        while self._writing and self._process.threads is not None:
            self._process.threads.let_others()
        self._writing = True
        try:
            self._commit(change)
        finally:
            self._writing = False

    def _commit(self, change: IndexChange) -> None:
        process, device, rng = self._process, self._file.device, self._process.rng
        dies = process.step(device, self._path)
        if self._broken:
            raise IndexFailedError("it had a fatal error")
        table = self._contents.table.changed(change)
        if _map_bytes(table) > self._map_bytes:
            raise IndexFullError("the map is full")
        self._indexes.syncs += 1
        if dies:
            if rng.random() < 0.5:
                self._contents.commit(table)
            process.die()
        if device.read_only:
            raise IndexFailedError(error(errno.EROFS, self._path))
        if table.size > self._contents.table.size and device.free < table.size - self._contents.table.size:
            raise OSError(errno.ENOSPC, "the index: no space")
        rate = max(device.write_errors, device.sync_errors, device.index_errors)
        if rate and rng.random() < rate:
            if rng.random() < 0.5:
                self._broken, self._contents.doubt = True, table
            raise IndexFailedError(error(errno.EIO, self._path))
        if any(key in self._contents.bad for key, _ in change.puts):
            raise IndexFailedError("a page is bad")
        self._contents.commit(table)
        self._file.now.size = self._file.stable.size = _map_bytes(table)

    def enlarge(self, map_bytes: int) -> None:
        self._map_bytes = map_bytes

    def close(self) -> None:
        """Nothing is held."""


def _map_bytes(table: Table) -> int:
    return 32_768 + 2 * table.size


class SimIndexes:
    """Of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.syncs = 0

    def _file(self, path: Name) -> File | None:
        node = self._process.disks.folder(str(path)).entries.get(_DATA)
        return node if isinstance(node, File) else None

    def open(self, path: Name, map_bytes: int) -> SimIndex:
        disks, text = self._process.disks, str(path)
        folder = disks.folder(text)
        if self._process.step(folder.device):
            self._process.die()
        device = folder.device
        if self._file(path) is None or _LOCK not in folder.entries:
            if device.read_only:
                raise IndexFailedError(error(errno.EROFS, text))
            if not device.free:
                raise OSError(errno.ENOSPC, "the index: no space")
        file = self._file(path) or _create(disks, folder, _DATA)
        if _LOCK not in folder.entries:
            _create(disks, folder, _LOCK)
        if file.index is None:
            if file.now.size:
                raise IndexFailedError("it is no index")
            file.index = Contents()
            file.now.size = file.stable.size = _map_bytes(file.index.table)
        file.index.settle(self._process.rng)
        return SimIndex(self._process, self, file, text, map_bytes)

    def open_read_only(self, path: Name) -> SimIndex:
        file = self._file(path)
        if file is None or file.index is None:
            raise LmdbDamagedError("the index cannot be opened: it is none")
        file.index.settle(self._process.rng)
        return SimIndex(self._process, self, file, str(path), 0)

    def size(self, path: Name) -> int:
        file = self._file(path)
        return 0 if file is None else file.now.size


def _create(disks: Disks, folder: Folder, name: str) -> File:
    file = File(disks.number(), folder.device)
    disks.change((folder, name, file))
    return file


def records(node: Any, rng: random.Random) -> list[tuple[bytes, bytes]]:
    """What a check of an environment's file finds, in the order of the keys, and who opens it then. Raises
    LmdbDamagedError."""
    if not isinstance(node, File) or node.index is None:
        raise LmdbDamagedError("the index is empty")
    contents: Contents = node.index
    if contents.bad:
        raise LmdbDamagedError("a page of the index is damaged")
    contents.settle(rng)
    return [(key, contents.table.items[key]) for key in contents.table.order]
