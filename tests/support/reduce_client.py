"""Pushes random records through the Python client and reads them back as a multiset, for tests of whole clusters."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from holdfast.client import PushStatus, ReduceShuffle, Session

PARTITIONS = 4
MAPS = 4
#: Per partition, how often each (map, payload) is there.
Contents = dict[int, Counter[tuple[int, bytes]]]
Records = list[tuple[int, bytes]]


def records_of(seed: int, count: int = 40, partitions: int = PARTITIONS, size_max: int = 100_000) -> Records:
    """Payloads from one byte to `size_max`, for random partitions."""
    rng = random.Random(seed)
    sizes = [1, 100, 3_000, size_max]
    return [(rng.randrange(partitions), rng.randbytes(rng.choice(sizes))) for _ in range(count)]


def push(shuffle: ReduceShuffle, map_id: int, attempt: int, records: Records, **options: Any) -> PushStatus:
    """Push the records of one attempt to its end."""
    with shuffle.writer(map_id, attempt, **options) as writer:
        for record in records:
            writer.write(record[0], record[1])
        return writer.close()


def contents(maps: dict[int, Records]) -> Contents:
    """What a reader must get, as a multiset per partition."""
    found: Contents = defaultdict(Counter)
    for map_id, records in maps.items():
        for partition, payload in records:
            found[partition][map_id, payload] += 1
    return found


def read(shuffle: ReduceShuffle, partitions: Iterable[int] = range(PARTITIONS), **options: Any) -> Contents:
    """What a reader of these partitions gets, as a multiset per partition."""
    found: Contents = defaultdict(Counter)
    for record in shuffle.reader(partitions, **options):
        found[record.partition][record.map, bytes(record.payload)] += 1
    return found


def fill(session: Session, maps: int = MAPS, **options: Any) -> tuple[ReduceShuffle, Contents]:
    """A committed shuffle with random contents."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, maps, **options)
    data = {map_id: records_of(map_id) for map_id in range(maps)}
    shuffle.commit([push(shuffle, map_id, 100 + map_id, records) for map_id, records in data.items()])
    return shuffle, contents(data)
