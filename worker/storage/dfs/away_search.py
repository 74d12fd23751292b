"""Finds a worker's files on the DFS again whose records went with an index, and records them.

Rules: a start waits for this a little, and not for a DFS that is gone: then it goes on beside, and until it is over
nothing that is not known is called unknown. Only what no directory has is recorded, by its footer, and nothing of a
shuffle that is deleted meanwhile; what was deleted before, the masters say again. Runs in a thread of its own. Made by
store.py where a directory says that it is due (away_note.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.common.errors import CorruptError, HoldfastError
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.env.interfaces import Thread, Threads
from holdfast.worker.storage.index.index import file_items
from holdfast.worker.storage.layout import DataKey, EpochKey

#: How long a start waits for it.
START_SECONDS = 5.0
#: Between tries.
PAUSE_SECONDS = 5.0


class AwaySearch:
    """One search, until it has succeeded."""

    def __init__(
        self,
        threads: Threads,
        away: Away,
        directories: Sequence[StorageDirectory],
        on_loop: Callable[[Callable[[], None]], object],
    ) -> None:
        self._threads = threads
        self._away = away
        self._directories = directories
        self._on_loop = on_loop
        self._guard = threads.lock()
        self._forgotten: set[ShuffleKey] = set()
        self._over = threads.event()
        self._closing = threads.event()
        #: files that were recorded
        self.found = 0
        #: files whose footers are wrong: left where they are, never recorded
        self.damaged = 0
        #: why the last try failed
        self.problem = ""
        self._thread: Thread | None = None

    @property
    def over(self) -> bool:
        """All that is there is recorded."""
        return self._over.is_set()

    def start(self, seconds: float) -> str:
        """Begin, and wait for so long; return a sentence for people."""
        self._thread = self._threads.start(self._run, "holdfast-search")
        self._over.wait(seconds)
        if self.over:
            return f"an index was lost: {self.found} files on the DFS were found again, {self.damaged} are damaged"
        return f"an index was lost, and files on the DFS are still looked for: {self.problem or 'it takes a while'}"

    def forget(self, shuffle: ShuffleKey) -> None:
        """A shuffle is about to be deleted: from here on nothing of it is recorded."""
        if not self.over:
            with self._guard:
                self._forgotten.add(shuffle)

    def close(self) -> None:
        """Give up; the next start tries again."""
        self._closing.set()
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self.search()
            except (OSError, HoldfastError) as error:
                if not self.problem and not self._closing.is_set():
                    log_event(LogEvent.DFS_SEARCH_FAILED, reason=error)
                self.problem = str(error)
            except Exception as error:  # noqa: BLE001 - a bug must not end what a start waits for without a word
                log_event(LogEvent.DFS_SEARCH_INTERNAL_ERROR, trace=error)
                self.problem = f"{type(error).__name__}: {error}"
            else:
                self._on_loop(self._over.set)  # behind all that was found
                return
            self._closing.wait(PAUSE_SECONDS)

    def search(self) -> None:
        """Look through everything once. Raises OSError or HoldfastError."""
        self.damaged = 0
        for key, token, size in self._away.files():
            if self._closing.is_set():
                return
            if not self._is_known(key):
                self._take_in(key, token, size)
        self._away.notes.searched()

    def _is_known(self, key: DataKey) -> bool:
        return any(
            key in one.away_files(key.shuffle) or key in one.index.data_files(key.shuffle) for one in self._directories
        )

    def _take_in(self, key: DataKey, token: bytes, size: int) -> None:
        """Record a file by its footer."""
        try:
            record = self._away.footer(key, token, size)
        except (CorruptError, FileNotFoundError) as error:
            self.damaged += 1
            log_event(LogEvent.DFS_FILE_DAMAGED, file=key, reason=error)
            return
        known = {key for key, _ in record.epochs if any(one.has_epoch(key) for one in self._directories)}
        epochs = tuple([one for one in record.epochs if one[0] not in known])
        if not epochs:
            return
        home = self._home()
        with self._guard:
            if key.shuffle in self._forgotten:
                return
            try:
                home.index.put_items(file_items(replace(record, epochs=epochs), token))
            except OSError as error:
                home.condition.broke(error)  # the next try records it elsewhere
                raise
        self.found += 1
        self._on_loop(lambda: self._found(home, key, token, size, [one for one, _ in epochs]))

    def _found(self, home: StorageDirectory, key: DataKey, token: bytes, size: int, epochs: Sequence[EpochKey]) -> None:
        """On the loop, which owns the tables: a file is recorded. One that is deleted meanwhile is not noted again."""
        if key.shuffle not in self._forgotten:
            home.note_away(key, token, size)
            self._pass_over(epochs)

    def _home(self) -> StorageDirectory:
        """Where they are recorded: where something was lost, if that can be written; in memory only as the last."""
        due = set(self._away.notes.to_search)
        well = [one for one in self._directories if not one.problem] or list(self._directories)
        return min(well, key=lambda one: (one.tier == "MEMORY", one.root not in due))

    def _pass_over(self, keys: Sequence[EpochKey]) -> None:
        """What logs still have of these is sealed."""
        for directory in self._directories:
            unsealed = directory.unsealed
            unsealed.pass_over([key for key in keys if key in unsealed.left and key not in unsealed.sealing])
