"""Readers choose between copies on real workers: those that failed or are lost are asked last, late ones get rivals."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.client import FetchOptions, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.cluster.server import Server, wait_until
from holdfast.client.connection.direct import worker_status
from holdfast.client.connection.runtime import runtime
from holdfast.client.read.shared_read_state import read_state_of
from holdfast.common.ids import PartitionId, WorkerId
from holdfast.common.limits import MIB
from tests.cluster.shapes import Shape
from tests.support.reduce_client import PARTITIONS, Contents, contents, fill, push, read, records_of

#: Long enough for a worker that runs, much shorter than what ends a stream that stands still (3 s).
LATE = FetchOptions(speculative=True, speculative_delay=0.3)
BOTH = [WorkerId(1), WorkerId(2)]
SHARED = Shape(masters=1, workers=2)


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    """Every test begins with empty books."""
    runtime().kept.clear()


def streams_opened(worker: Server) -> int:
    """How many streams a worker has served since it was started."""
    return int(worker_status(worker.http, 10.0)["counters"]["streams_opened"])


def asked_first(shuffle: ReduceShuffle, partition: int) -> WorkerId:
    """Who is asked for a partition of one epoch where nothing is known of the workers."""
    (epoch,) = [each for each in shuffle.manifest().epochs.epochs if each.partition == partition]
    return max(epoch.readable, key=lambda copy: copy.size_bytes).worker


@contextmanager
def stopped(worker: Server) -> Iterator[None]:
    """It stands still, and goes on afterwards."""
    worker.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        worker.kill(signal.SIGCONT)


def server_of(cluster: LocalCluster, session: Session, worker: WorkerId) -> Server:
    """The process of a worker, which the masters number as they come."""
    (name,) = [each.name for each in session.workers() if each.worker == worker]
    return next(each for each in cluster.workers if each.name == name)


def test_a_late_worker_loses_to_the_other_copy(shared: LocalCluster) -> None:
    """A worker stands still: its copies are read from the other one, each record once, and it counts as slow, not as
    failed. The next readers ask the other one first, also when it is well again, until that is forgotten."""
    with Session(shared.endpoints, app="late", fetch=LATE) as session:
        shuffle, expected = fill(session, replication=2)
        reads = read_state_of(shuffle.ticket)
        slow = asked_first(shuffle, 0)
        (other,) = set(BOTH) - {slow}
        server = server_of(shared, session, slow)
        assert read(shuffle) == expected
        assert not reads.is_slow(slow)
        with stopped(server):
            assert read(shuffle) == expected
            assert reads.is_slow(slow)
            assert not reads.is_slow(other)
            assert reads._book.health.failure_ns(slow) == 0
        assert wait_until(lambda: server.running, 5.0)
        before = streams_opened(server)
        for partition in range(PARTITIONS):
            assert read(shuffle, [partition]) == {partition: expected[partition]}
        assert streams_opened(server) == before, "the slow one was asked first"
        reads._book.health.slow_expire_ns = 0
        assert read(shuffle) == expected
        assert streams_opened(server) > before, "and is still when its slowness is forgotten"


def test_a_late_worker_of_map_files(shared: LocalCluster) -> None:
    """The same for MAP partitions: the other copy is read from its beginning, in order."""
    with Session(shared.endpoints, app="late maps", fetch=LATE) as session:
        shuffle = session.register_map_shuffle(PARTITIONS, 1, replication=2)
        records = [(partition, bytes([partition]) * 50_000) for partition in range(PARTITIONS) for _ in range(20)]
        with shuffle.writer(0, 1) as writer:
            shuffle.commit([writer.close(records)])
        slow = shuffle.manifest().winners.maps[0].workers[0]
        with stopped(server_of(shared, session, slow)):
            found = [(record.partition, bytes(record.payload)) for record in shuffle.reader(range(PARTITIONS))]
        assert found == records
        assert read_state_of(shuffle.ticket).is_slow(slow)


def test_large_partitions_of_which_one_worker_is_late(shared: LocalCluster) -> None:
    """Many times the credit, two maps, every partition in files of their own: nothing twice, nothing missing."""
    with Session(shared.endpoints, app="large", fetch=LATE) as session:
        shuffle = session.register_reduce_shuffle(PARTITIONS, 2, replication=2)
        data = {map_id: records_of(map_id, 60, size_max=MIB) for map_id in range(2)}
        shuffle.commit([push(shuffle, map_id, 7 + map_id, records) for map_id, records in data.items()])
        for index in (0, 1):
            read_state_of(shuffle.ticket)._book.health.slow_expire_ns = 0
            with stopped(shared.workers[index]):
                assert read(shuffle) == contents(data)


def test_a_worker_that_failed_is_asked_last(tmp_path: Path) -> None:
    """It was out of reach once: as soon as it is back the other copy is read all the same, while that is remembered."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="failed") as session,
    ):
        shuffle, expected = fill(session, replication=2)
        failing = asked_first(shuffle, 0)
        server = server_of(cluster, session, failing)
        server.kill()
        assert read(shuffle) == expected
        assert read_state_of(shuffle.ticket)._book.health.failure_ns(failing) > 0
        server.start()
        cluster.wait_ready()
        assert read(shuffle) == expected
        assert streams_opened(server) == 0


def test_a_worker_that_the_masters_call_lost_is_not_asked(tmp_path: Path) -> None:
    """The manifest says who is lost: that copy comes last, and the read meets nobody who fails."""
    with (
        local_cluster(
            masters=1, workers=2, dir=tmp_path / "cluster", settings={"lease": {"worker": "1s", "heartbeat": "200ms"}}
        ) as cluster,
        Session(cluster.endpoints, app="lost") as session,
    ):
        shuffle, expected = fill(session, replication=2)
        lost = asked_first(shuffle, 0)
        server_of(cluster, session, lost).kill()
        assert wait_until(lambda: any(each.state == "lost" for each in session.workers()), 20.0)
        ReduceShuffle._manifests.clear()
        again = session.open_reduce_shuffle(shuffle.key.shuffle)
        assert read(again) == expected
        reads = read_state_of(again.ticket)
        assert reads.ordered([lost, *(each for each in BOTH if each != lost)])[-1] == lost
        assert reads._book.health.failure_ns(lost) == 0, "it was asked"


@pytest.mark.parametrize("order", ["given", "health"])
def test_a_loaded_worker_gives_way(shared: LocalCluster, order: str) -> None:
    """A reader that holds streams of a worker open makes the next one ask the other; as given nothing changes that."""
    options = FetchOptions(order=order, pending_threshold=1)
    with Session(shared.endpoints, app="load", fetch=options) as session:
        shuffle = session.register_reduce_shuffle(PARTITIONS, 1, replication=2)
        data: dict[int, list[tuple[int, bytes]]] = {0: [(0, bytes([number]) * MIB) for number in range(40)]}
        shuffle.commit([push(shuffle, 0, 7, data[0])])
        expected: Contents = contents(data)
        loaded = asked_first(shuffle, 0)
        server = server_of(shared, session, loaded)
        before = streams_opened(server)
        first = shuffle.reader([PartitionId(0)])
        next(first)
        assert streams_opened(server) == before + 1
        assert read(shuffle, [0]) == expected
        assert streams_opened(server) == before + (1 if order == "health" else 2)
        assert 1 + sum(1 for _ in first) == len(data[0])
        assert not read_state_of(shuffle.ticket)._book._pending, "streams that are over count no more"
