"""What clients do while no worker has room: they wait for it, and say in the end which limit was met. Real workers."""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.client import NoRoomError, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.write.status import PushStatus
from holdfast.common.limits import KIB, MIB
from tests.cluster.reduce_peers import metric
from tests.support.waiting import wait_until

PARTITIONS = 4
CAPACITY_MIB = 72
WITHOUT_ROOM = "holdfast_master_revives_without_room"
Record = tuple[int, bytes]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LocalCluster]:
    """One master, and one worker that may use 72 MiB."""
    root = tmp_path / "cluster"
    directory = {"path": str(root / "w1"), "capacity": f"{CAPACITY_MIB}MiB"}
    # Heartbeats tell masters which limit was met; they have to come within a writer's grace.
    settings: dict[str, dict[str, object]] = {
        "worker": {"disk_reserve": "1MiB", "directories": [directory]},
        "lease": {"heartbeat": "200ms"},
    }
    with local_cluster(masters=1, workers=1, dir=root, settings=settings) as started:
        yield started


def records(seed: int, size_mib: int) -> Iterator[Record]:
    """Records of 100 KiB for all partitions, the same for the same seed."""
    rng = random.Random(seed)
    for number in range(size_mib * MIB // (100 * KIB)):
        yield number % PARTITIONS, rng.randbytes(100 * KIB)


def push(shuffle: ReduceShuffle, seed: int, size_mib: int) -> PushStatus:
    """Push the output of map 0 to its end."""
    with shuffle.writer(0) as writer:
        for partition, payload in records(seed, size_mib):
            writer.write(partition, payload)
        return writer.close()


def test_room_that_comes_back_within_the_grace_is_used(small: LocalCluster) -> None:
    """Two shuffles are more than the worker may hold: the second one waits without failing, goes on when the first one
    is unregistered, and everything that it pushed is read once."""
    with Session(small.endpoints, app="waits") as session, ThreadPoolExecutor(1) as threads:
        first = session.register_reduce_shuffle(PARTITIONS)
        first.commit([push(first, 1, 40)])
        second = session.register_reduce_shuffle(PARTITIONS)
        pushing = threads.submit(push, second, 2, 50)
        wait_until(lambda: pushing.done() or metric(small, WITHOUT_ROOM) > 2, "the wait for room")
        assert not pushing.done(), pushing
        first.unregister()
        second.commit([pushing.result()])
        found = Counter((record.partition, bytes(record.payload)) for record in second.reader(range(PARTITIONS)))
        assert found == Counter(records(2, 50))


def test_without_room_the_limit_that_was_met_is_named(small: LocalCluster) -> None:
    """When the grace is over the map fails with NO_ROOM, the worker, its directory and the limit; registering another
    shuffle fails with the same, after the same time."""
    with Session(small.endpoints, app="fails", no_room_grace=2) as session:
        shuffle = session.register_reduce_shuffle(PARTITIONS)
        met = rf"worker w1: .*/w1 \(SSD\) .* MiB used of {CAPACITY_MIB}\.0 MiB, the capacity in worker\.directories"
        with pytest.raises(NoRoomError, match=rf"map 0 .*waited \d s for room for \d partitions\. .*{met}"):
            push(shuffle, 1, 200)
        with pytest.raises(NoRoomError, match=met):
            session.register_reduce_shuffle(PARTITIONS)
