"""The worker's part of the DFS: sealed files go there whole, and come back in chunks, for readers.

Rules: only the thread of the mover writes. Chunks are fetched in threads of their own into memory without a name, so
that they are sent as from any file; together they are bounded, and whoever finds no room waits. What is in a file that
comes back is checked by its reader, batch by batch, like everything else. Called by moving.py, store.py and
server/sources.py.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from holdfast.common.dfs.names import TOKEN_DIGITS, file_name, parse, worker_folder
from holdfast.common.dfs.store import Counts, DfsStore
from holdfast.common.errors import CorruptError
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import CHUNK_BYTES
from holdfast.worker.storage.handles import Handle
from holdfast.worker.storage.reduce_layout import DataKey, parse_name, sealed_name
from holdfast.worker.storage.reduce_records import DataRecord

#: Chunks of all readers that are in memory or on their way.
FETCHED_BYTES_MAX = 16 * CHUNK_BYTES
FETCH_THREADS = 4


class Fetched:
    """A part of a file on its way into memory, or there: `future` gives a descriptor whose offset 0 is `offset`."""

    __slots__ = ("__weakref__", "future")

    def __init__(self, future: Future[Handle]) -> None:
        self.future = future


class Away:
    """The files of one worker on the DFS."""

    def __init__(self, open_store: Callable[[], DfsStore], cluster_id: str, worker_uid: bytes) -> None:
        """`open_store` is called, in a thread, when the store is needed for the first time."""
        self._open_store = open_store
        self._store: DfsStore | None = None
        #: files are known to be there: a store without them is another one
        self.has_files = False
        self._cluster_id = cluster_id
        self._worker_uid = worker_uid
        self._pool = ThreadPoolExecutor(FETCH_THREADS, "holdfast-fetch")
        self._opening = threading.Lock()
        self._guard = threading.Lock()
        self._fetched_bytes = 0

    # files

    @property
    def store(self) -> DfsStore:
        """The store, opened and seen to be this cluster's. Raises ConfigError or DfsError; blocks."""
        with self._opening:
            if self._store is None:
                store = self._open_store()
                store.claim(may_create=not self.has_files)
                self._store = store
        return self._store

    def name_of(self, key: DataKey, token: bytes) -> str:
        """The name of a file in the store."""
        return f"{file_name(self._cluster_id, key.shuffle, self._worker_uid, sealed_name(key))}.{token.hex()}"

    def put(self, record: DataRecord, path: Path) -> bytes:
        """Bring a sealed file there, complete and checked when this returns; return the token that its name ends in.
        Raises OSError or HoldfastError."""
        stored = self.store.put(file_name(self._cluster_id, record.key.shuffle, self._worker_uid, path.name), path)
        if stored.size_bytes != record.file_bytes:
            raise CorruptError(f"{path} has {record.file_bytes} bytes, {stored.size_bytes} were stored")
        return bytes.fromhex(stored.name[-TOKEN_DIGITS:])

    def remove(self, shuffle: ShuffleKey) -> None:
        """Remove all files of a shuffle. Raises OSError or HoldfastError."""
        self.store.remove_folder(worker_folder(self._cluster_id, shuffle, self._worker_uid))

    def files(self) -> Iterator[tuple[DataKey, bytes, int]]:
        """Every file of this worker: key, token and length. Raises OSError or HoldfastError."""
        for name, size in self.store.list(self._cluster_id):
            found = parse(name)
            parsed = parse_name(found.shuffle, found.file) if found and found.worker == self._worker_uid else None
            if found is not None and parsed is not None:
                yield parsed.key, bytes.fromhex(found.token), size

    # reading

    def fetch(self, name: str, offset: int, length: int) -> Fetched | None:
        """Begin to fetch a part of a file; None if too much is held already: try again later."""
        with self._guard:
            if self._fetched_bytes and self._fetched_bytes + length > FETCHED_BYTES_MAX:
                return None
            self._fetched_bytes += length
        fetched = Fetched(self._pool.submit(self._fetch, name, offset, length))
        weakref.finalize(fetched, self._let_go, length).atexit = False
        return fetched

    def _fetch(self, name: str, offset: int, length: int) -> Handle:
        handle = Handle(os.memfd_create("holdfast-chunk", os.MFD_CLOEXEC))
        data = memoryview(self.store.read(name, offset, length))
        while data:
            data = data[os.write(handle.fd, data) :]
        return handle

    def _let_go(self, length: int) -> None:
        with self._guard:
            self._fetched_bytes -= length

    def counts(self) -> dict[str, int]:
        """What the store did so far, by name."""
        counts = self._store.counts if self._store is not None else Counts()
        return {
            "dfs_put_bytes": counts.put_bytes,
            "dfs_read_bytes": counts.read_bytes,
            "dfs_retries": counts.retries,
            "dfs_failures": counts.failures,
        }

    @property
    def fetched_bytes(self) -> int:
        """What is held for readers."""
        return self._fetched_bytes

    def close(self) -> None:
        """Let go of everything."""
        if self._store is not None:
            self._store.close()
        self._pool.shutdown(cancel_futures=True)
