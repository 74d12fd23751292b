"""The worker's part of the DFS: sealed files go there whole, and come back in chunks, for readers.

Rules: only the thread of the mover writes. Chunks are fetched in threads of their own into memory without a name, and
read as any file; read/fetch_leases.py says who may fetch, so that all of it together is bounded. What is in a file that
comes back is checked by its reader, batch by batch, like everything else. Called by moving.py, store.py, sources.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.common.dfs.names import (
    TOKEN_DIGITS,
    cluster_folder,
    file_name,
    parse,
    parse_instance,
    parse_shuffle,
    shuffle_folder,
    stored_name,
    worker_folder,
)
from holdfast.common.dfs.store import Counts, DfsStore
from holdfast.common.errors import ConfigError, CorruptError, DfsError, HoldfastError
from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.common.limits import CHUNK_BYTES
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.core.health import SECOND_NS
from holdfast.worker.core.read.fetch_leases import FetchLeases
from holdfast.worker.storage.dfs.away_health import DfsHealth, DfsWatch
from holdfast.worker.storage.dfs.away_note import DfsNotes
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Env, Handle
from holdfast.worker.storage.index.footers import read_stored_footer
from holdfast.worker.storage.index.records import DataRecord
from holdfast.worker.storage.layout import DataKey, FileKind, parse_file, sealed_name
from holdfast.worker.storage.read.loans import Loans

#: Chunks of all readers that are in memory or on their way, but for what a fetch is just at that nobody wants now.
FETCHED_BYTES_MAX = 16 * CHUNK_BYTES
FETCH_THREADS = 4


class Fetched:
    """A part of a file on its way into memory, or there: `future` gives a descriptor whose offset 0 is `offset`."""

    __slots__ = ("__weakref__", "future")

    def __init__(self, future: Future[Handle]) -> None:
        self.future = future


class Away:
    """The files of one worker on the DFS."""

    def __init__(
        self,
        env: Env,
        open_store: Callable[[], DfsStore],
        cluster_id: str,
        worker_uid: bytes,
        *,
        url: str = "",
        average_ns: int = 10 * SECOND_NS,
    ) -> None:
        """`open_store` is called, in a thread, when the store is needed for the first time. `url` is for people."""
        self._files = env.files
        self._now_ns = env.clock.now_ns
        self._threads = env.threads
        self._open_store = open_store
        #: opened, perhaps not seen to be this cluster's yet
        self._opened: DfsStore | None = None
        self._claimed = False
        #: whether it can be used now
        self.health = DfsHealth(env, url, average_ns)
        self._watch: DfsWatch | None = None
        self._closed = False
        #: files are known to be there: a store without them is another one
        self.has_files = False
        #: what the directories say of it; set when they are open
        self.notes = DfsNotes(env.files, ())
        #: shuffles of which something may be there that no index knows: a file whose move was cut short
        self._touched: set[ShuffleKey] = set()
        #: files that were stored and are in no index yet, as far as anybody knows (one whose transaction failed may
        #: have them all the same), so that the next try has no need to store them again
        self._unrecorded: dict[DataKey, bytes] = {}
        #: deleted shuffles whose files are still to be removed, oldest first, with the number of the call that said so
        self._dropped: dict[ShuffleKey, int] = {}
        self._drops = 0
        #: one thread removes them, one shuffle after the other
        self._lane = env.threads.pool(1, "holdfast-remove")
        self._removing = False
        self._cluster_id = cluster_id
        self._worker_uid = worker_uid
        self._pool = env.threads.pool(FETCH_THREADS, "holdfast-fetch")
        self._opening = env.threads.lock()
        self._claiming = env.threads.lock()
        self._guard = env.threads.lock()
        #: which streams may fetch; loop thread only
        self.leases = FetchLeases(FETCHED_BYTES_MAX, env.clock.now_ns)
        self._loans = Loans()

    # files

    def touched(self, shuffles: Iterable[ShuffleKey]) -> None:
        """Earlier starts had these shuffles, and a file of them may be there whose move was cut short."""
        with self._guard:
            self._touched.update(shuffles)

    @property
    def store(self) -> DfsStore:
        """The store, opened and seen to be this cluster's. Raises ConfigError or DfsError; blocks."""
        store = self._open()
        with self._claiming:
            first = not self._claimed
            if first:
                store.claim(may_create=not self._known(store))
                self._claimed = True
        if first:
            self._saw(store)  # readers need not wait for a disk
        return store

    def _saw(self, store: DfsStore) -> None:
        """It has its marker. Where that cannot be noted now it is noted before the first file goes there."""
        self._claimed = True
        with suppress(OSError):
            self.notes.saw(store.shown, store.ident or "")

    def _open(self) -> DfsStore:
        with self._opening:
            if self._opened is None:
                store = self._open_store()
                try:
                    self._check_url(store.shown)
                except ConfigError:
                    store.close()
                    raise
                if self._closed:
                    store.close()
                store.ident = self.notes.ident(store.shown)
                self._opened = store
            return self._opened

    def _known(self, store: DfsStore) -> bool:
        """This worker has files there, or has seen its marker: one without it is another store, or not mounted."""
        return bool(self.has_files or self.notes.to_search or store.shown in self.notes.urls)

    def look(self) -> str:
        """Ask the store once; return why it cannot be used, "" if it can. One that has no marker yet gets it, unless
        this worker knows better, or has seen one there. Raises ConfigError; blocks."""
        store = self._open()
        why = store.look(may_create=not self._claimed and not self._known(store))
        if not why:
            self._saw(store)
        return why

    def watch(self, interval_seconds: float) -> None:
        """Look at the store now, and then again and again, in a thread of its own."""
        self._watch = DfsWatch(self._threads, self.health, self.look, interval_seconds)

    def _check_url(self, url: str) -> None:
        """Raise ConfigError if files were left on another DFS: this one not having them would mean nothing."""
        urls = self.notes.urls
        if (self.has_files or self.notes.to_search) and urls and url not in urls:
            were = " and ".join(sorted(urls))
            raise ConfigError(
                f"[dfs] url is {url}, and this worker has files on {were}: set it as it was. If those files were"
                " brought there, stop the worker and remove the file `dfs` from each of its storage directories"
            )

    def name_of(self, key: DataKey, token: bytes) -> str:
        """The name of a file in the store."""
        folder = worker_folder(self._cluster_id, key.shuffle, self._worker_uid)
        return stored_name(folder, sealed_name(key), token)

    def put(self, record: DataRecord, path: Path) -> bytes:
        """Bring a sealed file there, complete and checked when this returns; return the token that its name ends in.
        The one of an earlier try that was not `recorded` is taken if it is still there. Raises OSError or
        HoldfastError."""
        with self._guard:
            self._touched.add(record.key.shuffle)
            earlier = self._unrecorded.get(record.key)
        if earlier is not None and self.store.size(self.name_of(record.key, earlier)) == record.file_bytes:
            return earlier
        name = file_name(self._cluster_id, record.key.shuffle, self._worker_uid, path.name)
        try:
            store = self.store
            self.notes.use(store.shown, store.ident or "")
            began_ns = self._now_ns()
            stored = store.put(name, path)
        except (ConfigError, DfsError) as error:
            if not self._closed:
                self.health.put_failed(str(error))
            raise
        self.health.stored(self._now_ns() - began_ns)
        if stored.size_bytes != record.file_bytes:
            raise CorruptError(f"{path} has {record.file_bytes} bytes, {stored.size_bytes} were stored")
        token = bytes.fromhex(stored.name[-TOKEN_DIGITS:])
        with self._guard:
            self._unrecorded[record.key] = token
        return token

    def recorded(self, key: DataKey) -> None:
        """An index has the file that was stored last, for certain."""
        with self._guard:
            self._unrecorded.pop(key, None)

    def discard(self, key: DataKey, token: bytes) -> None:
        """Remove a file that no index can have, if that can be done; else it goes with its shuffle."""
        self.recorded(key)
        with suppress(OSError, HoldfastError):
            self.store.remove(self.name_of(key, token))

    def drop(self, shuffle: ShuffleKey, *, sure: bool) -> None:
        """A shuffle is being deleted, of which files are here (`sure`), or may be: `remove_dropped` removes them."""
        with self._guard:
            if sure or shuffle in self._touched:
                self._drops += 1
                self._dropped[shuffle] = self._drops
            for key in [key for key in self._unrecorded if key.shuffle == shuffle]:
                del self._unrecorded[key]
        if self._opened is not None:  # whoever removes the files, be it the leading master: their space is to be free
            self._opened.forget(worker_folder(self._cluster_id, shuffle, self._worker_uid))

    def remove_dropped(self, _: object = None) -> None:
        """Have the files of dropped shuffles removed; waits for nothing."""
        with self._guard:
            if self._removing or not self._dropped or self._closed:
                return
            self._removing = True
        self._lane.submit(self._remove_dropped)

    def _remove_dropped(self) -> None:
        """If the store fails, the rest is tried again the next time; what a start comes between is removed by the
        leading master, with all of its application."""
        while True:
            with self._guard:
                shuffle, number = next(iter(self._dropped.items()), (None, 0))
                if shuffle is None or self._closed:
                    self._removing = False
                    return
            try:
                self.store.remove_folder(worker_folder(self._cluster_id, shuffle, self._worker_uid))
                self.store.remove_if_empty(shuffle_folder(self._cluster_id, shuffle))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told of, and tried again
                log_event(LogEvent.DFS_FILES_LEFT, shuffle=shuffle, reason=error)
                with self._guard:
                    self._removing = False
                return
            with self._guard:
                if self._dropped.get(shuffle) == number:  # else a file came meanwhile
                    self._touched.discard(shuffle)
                    del self._dropped[shuffle]

    def files(self) -> Iterator[tuple[DataKey, bytes, int]]:
        """Every file of this worker: key, token and length. Raises OSError or HoldfastError."""
        cluster = cluster_folder(self._cluster_id)
        for folder in self.store.folders(cluster):
            instance = parse_instance(folder)
            for below in self.store.folders(f"{cluster}/{folder}") if instance is not None else ():
                shuffle = parse_shuffle(instance, below) if instance is not None else None
                if shuffle is not None:
                    yield from self._files_of(shuffle)

    def _files_of(self, shuffle: ShuffleKey) -> Iterator[tuple[DataKey, bytes, int]]:
        for name, size in self.store.list(worker_folder(self._cluster_id, shuffle, self._worker_uid)):
            found = parse(name)
            parsed = parse_file(shuffle, found.file) if found is not None else None
            if found is None or parsed is None or parsed.kind is not FileKind.SEALED:
                continue
            if not isinstance(parsed.key, MapFileKey):
                yield parsed.key, bytes.fromhex(found.token), size

    def footer(self, key: DataKey, token: bytes, size: int) -> DataRecord:
        """The record that a file of this length carries of itself. Raises CorruptError, FileNotFoundError, DfsError."""
        name = self.name_of(key, token)
        try:
            return read_stored_footer(self.store, name, key, size)
        except CorruptError as error:
            raise CorruptError(f"{name}: {error}") from None

    # reading

    def fetch(self, name: str, offset: int, length: int) -> Fetched:
        """Begin to fetch a part of a file; for who has a seat. Let go of before its turn it is not fetched. While looks
        fail it ends with DfsError at once: each wait for a store that hangs would come on top of all before it."""
        future = self._pool.submit(self._fetch, name, offset, length)
        fetched = Fetched(future)
        weakref.finalize(fetched, future.cancel).atexit = False
        return fetched

    def given_up(self, fetched: Fetched | None) -> str:
        """Why a fetch that has not begun, or was not asked for yet, will not: the last look failed. "": it goes on."""
        problem = self.health.look_problem
        return problem if problem and (fetched is None or fetched.future.cancel()) else ""

    def _fetch(self, name: str, offset: int, length: int) -> Handle:
        problem = self.health.look_problem
        if problem:
            raise DfsError(problem, passing=True)
        began_ns = self._now_ns()
        data = self.store.read(name, offset, length)
        self.health.was_read(self._now_ns() - began_ns)
        handle = self._files.create_in_memory("holdfast-chunk")
        handle.kept = self._loans.take(length)
        self._files.write(handle, data, 0)
        return handle

    def counts(self) -> dict[str, int]:
        """What the store did so far, by name."""
        counts = self._opened.counts if self._opened is not None else Counts()
        return {
            "dfs_put_bytes": counts.put_bytes,
            "dfs_read_bytes": counts.read_bytes,
            "dfs_retries": counts.retries,
            "dfs_failures": counts.failures,
        }

    @property
    def fetched_bytes(self) -> int:
        """What is held for readers."""
        return self._loans.bytes

    @property
    def hanging(self) -> bool:
        """The store does not answer: whoever ends this process must not wait for its client."""
        return self._opened is not None and self._opened.hanging

    def close(self) -> None:
        """Let go of everything; what waits for the store ends with DfsError."""
        self._closed = True
        if self._watch is not None:
            self._watch.stop()
        if self._opened is not None:
            self._opened.close()
        if self._watch is not None:
            self._watch.close()
        self._pool.shutdown(cancel_futures=True)
        self._lane.shutdown(cancel_futures=True)
