"""An honest client: it pushes, commits and reads small shuffles of both kinds, and compares every byte.

What is refused for now, as a busy or full cluster does, is tried again and counts in the time of its round.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import TypeVar

from holdfast.client import MapShuffle, ReduceShuffle, Session
from holdfast.common.errors import HoldfastError, NoRoomError, QuotaExceededError, RetryError
from tests.support.reduce_client import PARTITIONS, contents, push, read, records_of

S = TypeVar("S", MapShuffle, ReduceShuffle)
MAPS = 2
#: A round takes at least so long: what is deleted counts in a quota until the workers have reported it, and on a fast
#: machine more than the quota would be written meanwhile.
ROUND_SECONDS = 0.1
#: For one round, however busy the machine is: met only when something is wrong.
_ROUND_SECONDS_MAX = 300.0
_FOR_NOW = (RetryError, QuotaExceededError, NoRoomError)


class Honest:
    """Does rounds, and keeps how long each took. What is wrong is raised."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seed = 0
        #: seconds of each round
        self.seconds: list[float] = []

    def rounds(self, until: Callable[[], bool]) -> list[float]:
        """Do rounds until it is time, at least one; returns how many seconds each took."""
        done: list[float] = []
        while not done or not until():
            began = time.monotonic()
            self._through(self._reduce, began)
            self._through(self._map, began)
            done.append(time.monotonic() - began)
            Event().wait(ROUND_SECONDS - done[-1])
        return done

    def _through(self, work: Callable[[], None], began: float) -> None:
        while True:
            try:
                return work()
            except _FOR_NOW as error:
                took = time.monotonic() - began
                if took > _ROUND_SECONDS_MAX:
                    raise AssertionError(f"an honest round is not through after {took:.0f} s: {error}") from error
            Event().wait(ROUND_SECONDS)

    @contextmanager
    def _dropped(self, shuffle: S) -> Iterator[S]:
        """Drop a shuffle that was not finished, so that it counts in no quota."""
        try:
            yield shuffle
        except _FOR_NOW:
            with suppress(HoldfastError):
                shuffle.unregister()
            raise

    def _reduce(self) -> None:
        with self._dropped(self._session.register_reduce_shuffle(PARTITIONS, maps=MAPS)) as shuffle:
            self._push_and_read(shuffle)

    def _push_and_read(self, shuffle: ReduceShuffle) -> None:
        data = {each: self._records() for each in range(MAPS)}
        shuffle.commit([push(shuffle, each, 1, records) for each, records in data.items()])
        if read(shuffle) != contents(data):
            raise AssertionError(f"shuffle {shuffle.key} reads back different")
        shuffle.unregister()

    def _map(self) -> None:
        with self._dropped(self._session.register_map_shuffle(PARTITIONS, maps=1)) as shuffle:
            self._write_and_read(shuffle)

    def _write_and_read(self, shuffle: MapShuffle) -> None:
        rows = sorted(self._records())
        with shuffle.writer(0, 1) as writer:
            status = writer.close(rows)
        shuffle.commit([status])
        got = Counter((each.partition, bytes(each.payload)) for each in shuffle.reader(range(PARTITIONS)))
        if got != Counter(rows):
            raise AssertionError(f"shuffle {shuffle.key} reads back different")
        shuffle.unregister()

    def _records(self) -> list[tuple[int, bytes]]:
        self._seed += 1
        return records_of(self._seed, count=20, size_max=random.Random(self._seed).choice([3_000, 100_000]))
