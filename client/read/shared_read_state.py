"""The read state of this process, shared by its readers: adds the clock and a lock to read/read_book.py.

Rules: one per process, cluster and settings; of several threads one is inside at a time, and for microseconds. Called
by the readers and the shuffles, in the caller's thread and on the loop.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.client.connection.runtime import runtime
from holdfast.client.core.read.read_book import OrderBy, ReadBook, Sight
from holdfast.client.core.read.read_order import Interleave, ReadHealth
from holdfast.client.read.fetch_options import REGION_VARIABLE, FetchOptions, check_region
from holdfast.common.ids import WorkerId

if TYPE_CHECKING:
    from holdfast.client.connection.ticket import Ticket

#: Clusters and settings of which a process keeps a read state.
_BOOKS_MAX = 16
#: What a worker sent wrong is logged once in so long.
_SAY_CORRUPT_SECONDS = 60.0


class SharedReadState:
    """Thread-safe."""

    def __init__(self, options: FetchOptions) -> None:
        """Raises ConfigError if HOLDFAST_REGION is asked for and names none."""
        region = options.region or check_region(REGION_VARIABLE, os.environ.get(REGION_VARIABLE, "").strip())
        delay = options.speculative_delay
        self.speculative = options.speculative
        self._lock = threading.Lock()
        #: when it was last logged that a worker sent something wrong
        self._corrupt: dict[WorkerId, float] = {}
        self._book = ReadBook(
            OrderBy(options.order),
            ReadHealth(int(options.failure_expire * 1e9), int(options.slow_expire * 1e9)),
            region=region,
            pending_threshold=options.pending_threshold,
            interleave=Interleave(options.remote_interleave),
            delay_fixed_ns=None if delay is None else int(delay * 1e9),
        )

    def learn(self, seen: Mapping[WorkerId, Sight]) -> None:
        """The masters said this of workers, just now."""
        with self._lock:
            self._book.learn(seen, time.monotonic_ns())

    def ordered(self, copies: Sequence[WorkerId]) -> tuple[WorkerId, ...]:
        """Return all copies, the one to ask first first."""
        with self._lock:
            return self._book.ordered(copies, time.monotonic_ns())

    def failed(self, worker: WorkerId) -> None:
        """A read from it failed."""
        with self._lock:
            self._book.health.failed(worker, time.monotonic_ns())

    def may_log_corrupt(self, worker: WorkerId) -> bool:
        """It sent something wrong: whether that is logged, once a minute. Each range has a reader that may see it."""
        with self._lock:
            now = time.monotonic()
            if now - self._corrupt.get(worker, -_SAY_CORRUPT_SECONDS) < _SAY_CORRUPT_SECONDS:
                return False
            self._corrupt[worker] = now
            return True

    def slow(self, worker: WorkerId) -> None:
        """It lost to a speculative read."""
        with self._lock:
            self._book.health.slow(worker, time.monotonic_ns())

    def is_slow(self, worker: WorkerId) -> bool:
        """Whether it lost to a speculative read lately."""
        with self._lock:
            self._book.health.look(time.monotonic_ns())
            return self._book.health.is_slow(worker)

    def opened(self, worker: WorkerId) -> None:
        """A stream of it was asked for."""
        with self._lock:
            self._book.opened(worker)

    def closed(self, worker: WorkerId) -> None:
        """A stream of it is over."""
        with self._lock:
            self._book.closed(worker)

    def took(self, ns: int) -> None:
        """The first data of a stream came after so long."""
        with self._lock:
            self._book.latencies.took(ns)

    def delay_ns(self) -> int:
        """Return after how long without its first data a stream is late; ask only where reads are speculative."""
        with self._lock:
            return self._book.delay_ns()


class OneReadState:
    """The order of one read: it does not change between its files but by what the read itself meets."""

    def __init__(self, read_state: SharedReadState) -> None:
        self._read_state = read_state
        self.failed, self.slow = read_state.failed, read_state.slow
        #: there are few pairs of workers, and many files
        self._ordered: dict[tuple[WorkerId, ...], tuple[WorkerId, ...]] = {}

    def ordered(self, copies: Sequence[WorkerId]) -> tuple[WorkerId, ...]:
        """As SharedReadState.ordered."""
        key = tuple(copies)
        found = self._ordered.get(key)
        if found is None:
            found = self._ordered[key] = self._read_state.ordered(key)
        return found


def read_state_of(ticket: Ticket) -> SharedReadState:
    """Return the read state of the ticket's cluster and settings in this process."""
    books: dict[tuple[str, FetchOptions], SharedReadState] = runtime().kept.setdefault(SharedReadState, {})
    key = (ticket.cluster_id, ticket.fetch)
    found = books.get(key)
    if found is None:
        found = books.setdefault(key, SharedReadState(ticket.fetch))  # of several threads that come at once one wins
        while len(books) > _BOOKS_MAX:
            books.pop(next(iter(tuple(books))), None)  # others may come meanwhile
    return found
