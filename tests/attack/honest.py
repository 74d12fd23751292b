"""An honest client: it pushes, commits and reads small shuffles of both kinds, and compares every byte."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from threading import Event

from holdfast.client import Session
from tests.support.reduce_client import PARTITIONS, contents, push, read, records_of

MAPS = 2
#: A round takes at least so long: what is deleted counts in a quota until the workers have reported it, and on a fast
#: machine more than the quota would be written meanwhile.
ROUND_SECONDS = 0.1


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
            self._reduce()
            self._map()
            done.append(time.monotonic() - began)
            Event().wait(ROUND_SECONDS - done[-1])
        return done

    def _reduce(self) -> None:
        shuffle = self._session.register_reduce_shuffle(PARTITIONS, maps=MAPS)
        data = {each: self._records() for each in range(MAPS)}
        shuffle.commit([push(shuffle, each, 1, records) for each, records in data.items()])
        if read(shuffle) != contents(data):
            raise AssertionError(f"shuffle {shuffle.key} reads back different")
        shuffle.unregister()

    def _map(self) -> None:
        shuffle = self._session.register_map_shuffle(PARTITIONS, maps=1)
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
