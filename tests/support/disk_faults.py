"""Maps that push while something happens to a disk, and what has to be read afterwards.

What happens, happens under load: maps go on up to two thirds of their records, wait there until it is done, and push
the rest.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from holdfast.client import PushStatus, ReduceShuffle
from holdfast.client.cluster.server import wait_until
from holdfast.common.errors import DataLostError
from holdfast.common.limits import MIB

MAPS, PARTITIONS = 4, 12
_SIZES = (100, 2_000, 60_000)
_SECONDS_MAX = 120.0

#: By partition, how often each record is there: its map, how it begins, and its length (the rest is zeros, and every
#: batch has its checksum).
Contents = dict[int, Counter[tuple[int, bytes, int]]]


def records(seed: int, map_id: int, mib: int) -> Iterator[tuple[int, bytes]]:
    """What a map pushes: (partition, payload), each payload unlike any other, `mib` MiB for all maps together."""
    rng = random.Random(f"{seed}/{map_id}")
    size = index = 0
    while size < mib * MIB // MAPS:
        payload = map_id.to_bytes(4, "big") + index.to_bytes(4, "big") + bytes(rng.choice(_SIZES))
        yield rng.randrange(PARTITIONS), payload
        size += len(payload)
        index += 1


def wanted(seed: int, mib: int) -> Contents:
    """What readers must get, by partition: how often each (map, payload) is there."""
    found: Contents = {partition: Counter() for partition in range(PARTITIONS)}
    for map_id in range(MAPS):
        for partition, payload in records(seed, map_id, mib):
            found[partition][map_id, payload[:8], len(payload)] += 1
    return found


def read(shuffle: ReduceShuffle, partitions: Iterable[int]) -> Contents:
    """What readers get."""
    found: Contents = {}
    for record in shuffle.reader(partitions, return_grace=5.0):
        payload = record.payload
        found.setdefault(record.partition, Counter())[record.map, bytes(payload[:8]), len(payload)] += 1
    return found


def lost_of(shuffle: ReduceShuffle) -> set[int]:
    """Partitions of which the manifest calls an epoch LOST."""
    return {epoch.partition for epoch in shuffle.manifest().epochs.epochs if epoch.lost}


def judge(shuffle: ReduceShuffle, expected: Contents) -> set[int]:
    """Every partition is read count-exact or, if the manifest calls it LOST, refused by name; return the latter."""
    refused = refused_of(shuffle, expected)
    assert refused <= lost_of(shuffle)
    return refused


def refused_of(shuffle: ReduceShuffle, expected: Contents) -> set[int]:
    """Read every partition, count-exact; return those that are refused with an error that names them."""
    refused = set()
    for partition in range(PARTITIONS):
        name = named = f"partition {partition} epoch"
        try:
            found = read(shuffle, [partition])[partition]
        except DataLostError as error:
            refused.add(partition)
            named = str(error)
        else:
            assert found == expected[partition]
        assert name in named
    return refused


class Pushers:
    """All maps of a shuffle, each pushing in a thread."""

    def __init__(self, shuffle: ReduceShuffle, mib: int, seed: int = 1) -> None:
        self.shuffle = shuffle
        self.seed = seed
        self.mib = mib
        self.pushed_bytes = 0
        self._guard = threading.Lock()
        self._done = threading.Event()
        self._statuses: dict[int, PushStatus] = {}
        self._errors: list[Exception] = []

    def run(self, meanwhile: Callable[[], None] | None = None, after_bytes: int = 0) -> list[PushStatus]:
        """Push everything; `meanwhile` is done once so many bytes were handed over. Raises what a writer is told."""
        if meanwhile is None:
            self._done.set()
        threads = [threading.Thread(target=self._push, args=(map_id,)) for map_id in range(MAPS)]
        for thread in threads:
            thread.start()
        try:
            if meanwhile is not None:
                assert wait_until(lambda: self.pushed_bytes >= after_bytes or bool(self._errors), _SECONDS_MAX)
                meanwhile()
        finally:
            self._done.set()
            for thread in threads:
                thread.join(_SECONDS_MAX)
        if self._errors:
            raise self._errors[0]
        assert len(self._statuses) == MAPS, "a map still pushes"
        return list(self._statuses.values())

    def _push(self, map_id: int) -> None:
        try:
            left = self.mib * MIB // MAPS // 3
            with self.shuffle.writer(map_id, map_id, buffer_bytes=1 * MIB) as writer:
                for partition, payload in records(self.seed, map_id, self.mib):
                    writer.write(partition, payload)
                    left -= len(payload) // 2
                    if left < 0 and not self._done.is_set():
                        writer.flush()
                        assert self._done.wait(_SECONDS_MAX)
                    with self._guard:
                        self.pushed_bytes += len(payload)
                self._statuses[map_id] = writer.close()
        except Exception as error:  # noqa: BLE001 - raised by run()
            self._errors.append(error)
