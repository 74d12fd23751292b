"""Workers that drain, and workers that are asked to end, in real processes: nothing is lost, nobody waits in vain."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.client import MapShuffle, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, Server, local_cluster
from holdfast.client.connection.direct import ask, worker_status
from holdfast.client.write.push_writer import PushWriter
from holdfast.common.errors import ConflictError, HoldfastError, NoRoomError
from holdfast.common.limits import MIB
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.masters import SHORT, post
from tests.cluster.shapes import Shape
from tests.cluster.test_client import contents as map_contents
from tests.cluster.test_client import random_regions
from tests.cluster.test_client import read as read_maps
from tests.cluster.test_client import write as write_map
from tests.support.reduce_client import MAPS, PARTITIONS, Contents, contents, read, records_of
from tests.support.waiting import wait_until

#: Workers hear at once what masters want of them.
QUICK = {"lease": {"heartbeat": "100ms"}}
#: What `shared` is here.
SHARED = Shape(masters=3, workers=3, settings=QUICK)
HALF = 150


@pytest.fixture
def trio(shared: LocalCluster) -> Iterator[LocalCluster]:
    """The shared cluster; all workers take data again behind a test."""
    yield shared
    for server in shared.servers:
        if not server.running:
            server.start()
    shared.wait_ready()
    draining = [each.name for each in listed(shared).values() if each.state == "draining"]
    if draining:
        drain(shared, *draining, cancel=True)


@pytest.fixture
def driver(trio: LocalCluster) -> Iterator[Session]:
    """A session of the trio."""
    with Session(trio.endpoints, app="drains") as opened:
        yield opened


def listed(cluster: LocalCluster) -> dict[str, pb.WorkerInfo]:
    """The workers by name, as the leader tells them."""
    address = cluster.leader().address
    reply = ask(address, "Admin/ListWorkers", pb.ListWorkersRequest(), pb.ListWorkersReply)
    return {each.name: each for each in reply.workers}


def drain(cluster: LocalCluster, *names: str, cancel: bool = False, within_ms: int = 0) -> list[pb.WorkerInfo]:
    """Begin or cancel; what the leader says of them."""
    request = pb.DrainWorkersRequest(workers=names, cancel=cancel, within_ms=within_ms)
    return list(ask(cluster.leader().address, "Admin/DrainWorkers", request, pb.DrainWorkersReply).workers)


def may_restart(cluster: LocalCluster, name: str) -> pb.WorkerInfo:
    """Wait until the leader says that it may be restarted."""
    wait_until(lambda: listed(cluster)[name].drain.restart, f"{name} to be drained")
    return listed(cluster)[name]


def gauge(worker: Server, name: str) -> int:
    """A gauge or counter of its /status."""
    status = worker_status(worker.http)
    return int(status["counters"][name] if name in status["counters"] else status[name])


class Writing:
    """Four maps that have pushed the first half of their records and go on when they are told to."""

    def __init__(self, session: Session, copies: int) -> None:
        self.shuffle: ReduceShuffle = session.register_reduce_shuffle(2 * PARTITIONS, MAPS, replication=copies)
        self._data = {map_id: records_of(map_id, 2 * HALF, 2 * PARTITIONS) for map_id in range(MAPS)}
        self._writers: dict[int, PushWriter] = {
            map_id: self.shuffle.writer(map_id, map_id, buffer_bytes=2 * MIB) for map_id in self._data
        }
        self._write(0)

    def _write(self, begin: int) -> None:
        for map_id, writer in self._writers.items():
            for record in self._data[map_id][begin : begin + HALF]:
                writer.write(*record)
            writer.flush()

    def end(self) -> Contents:
        """Write the rest, end all attempts and commit; what readers must get."""
        self._write(HALF)
        statuses = [writer.close() for writer in self._writers.values()]
        self.shuffle.commit(statuses)
        assert self.shuffle.lost() == []
        winners = self.shuffle.manifest().winners.attempts
        assert tuple(winners) == tuple(range(MAPS)), "a map ran again"
        return contents(self._data)


@pytest.mark.parametrize("copies", [1, 2])
def test_row_36_what_is_open_moves_and_is_sealed_and_nothing_is_lost(
    trio: LocalCluster, driver: Session, copies: int
) -> None:
    """A worker drains while four maps push: its open partitions move, what it has is sealed early, nothing is opened
    there any more; restarted, it serves what it had, every record is read once, and it takes data again."""
    worker = trio.workers[0]
    writing = Writing(driver, copies)
    wait_until(lambda: gauge(worker, "epochs_open") > 0, "epochs to be open there")
    assert drain(trio, worker.name)[0].state == "draining"
    reported = may_restart(trio, worker.name)
    assert (reported.state, reported.drain.epochs, reported.drain.writing) == ("draining", 0, 0)
    assert reported.drain.shuffles >= 1
    assert not reported.drain.removal
    assert gauge(worker, "epochs_open") == 0
    assert gauge(worker, "epochs_sealed") > 0, "what it had is sealed early"
    opened = gauge(worker, "epochs_opened")
    expected = writing.end()
    assert gauge(worker, "epochs_opened") == opened, "nothing new goes there"
    assert read(writing.shuffle, range(2 * PARTITIONS)) == expected, "it serves while it drains"
    assert worker.stop() == 0
    worker.start()
    assert read(writing.shuffle, range(2 * PARTITIONS)) == expected
    trio.wait_ready()
    assert listed(trio)[worker.name].state == "alive", "a new start drains no more"


@pytest.mark.parametrize("copies", [1, 2])
def test_row_36_an_end_waits_until_others_have_what_was_open(trio: LocalCluster, driver: Session, copies: int) -> None:
    """SIGTERM while four maps push, one worker after the other, each started again: the worker hands on what is open,
    then ends with 0; nothing runs again and every record is read once."""
    writing = Writing(driver, copies)
    for worker in trio.workers:
        assert worker.stop(60) == 0
        assert "nothing is open here any more" in worker.log_tail()
        worker.start()
        trio.wait_ready()
    expected = writing.end()
    assert read(writing.shuffle, range(2 * PARTITIONS)) == expected


def test_row_36_maps_end_where_they_began_and_new_ones_go_on(trio: LocalCluster, driver: Session) -> None:
    """A map that writes to a draining worker ends there, and the worker waits for it; the others of the shuffle go to
    the next worker of the ring; all is read, also while the worker is away and comes back."""
    worker, other = trio.workers[0], trio.workers[1:]
    shuffle: MapShuffle = driver.register_map_shuffle(10, 8)
    assert shuffle.assignment is not None
    number = listed(trio)[worker.name].worker
    data = {map_id: random_regions(map_id) for map_id in range(8)}
    first = next(map_id for map_id in data if shuffle.assignment.worker_for(map_id, 0) == number)
    with shuffle.writer(first, 0) as writer:
        for region in data[first][:-1]:
            writer.write_region(region)
        wait_until(lambda: gauge(worker, "files_open") == 1, "the file to be open")
        drain(trio, worker.name)
        wait_until(lambda: gauge(worker, "draining") == 1, "the worker to hear of it")
        rest = {map_id: write_map(shuffle, map_id, 0, regions) for map_id, regions in data.items() if map_id != first}
        wait_until(lambda: listed(trio)[worker.name].drain.writing == 1, "the masters to hear of the file")
        assert "not sealed" in listed(trio)[worker.name].drain.waits
        rest[first] = writer.close(data[first][-1])
    reported = {map_id: status.winner.workers for map_id, status in rest.items()}
    assert {map_id for map_id, workers in reported.items() if number in workers} == {first}
    assert may_restart(trio, worker.name).drain.shuffles >= 1
    shuffle.commit(rest.values())
    assert read_maps(shuffle) == map_contents(data)
    assert worker.stop(60) == 0
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_maps, shuffle)
        worker.start()
        assert reading.result() == map_contents(data)
    assert all(each.running for each in other)


@pytest.mark.parametrize("copies", [1, 2])
def test_what_a_host_has_that_goes_away_is_copied_before(trio: LocalCluster, driver: Session, copies: int) -> None:
    """A worker drains since its host goes away: what is sealed there is copied to others, also where it is the only
    copy. Once it may be removed it is killed, and everything is read, also by who knows the places of before."""
    worker = trio.workers[0]
    writing = Writing(driver, copies)
    expected = writing.end()
    assert read(writing.shuffle, range(2 * PARTITIONS)) == expected
    drain(trio, worker.name, within_ms=3_600_000)
    wait_until(lambda: listed(trio)[worker.name].drain.removal, "the worker to be needed by nobody")
    assert listed(trio)[worker.name].drain.reach == "reached"
    worker.kill()
    assert read(writing.shuffle, range(2 * PARTITIONS)) == expected
    with Session(trio.endpoints, app="drains", attach=True) as other:
        assert read(other.open_reduce_shuffle(writing.shuffle.key.shuffle), range(2 * PARTITIONS)) == expected


def test_row_36_a_drain_is_cancelled(trio: LocalCluster, driver: Session) -> None:
    """Cancelled, a worker is alive again, and new partitions and maps go there."""
    worker = trio.workers[2]
    drain(trio, worker.name)
    wait_until(lambda: gauge(worker, "draining") == 1, "the worker to hear of it")
    placed = driver.register_reduce_shuffle(24, 1)
    number = listed(trio)[worker.name].worker
    assert number not in placed.workers, "a draining worker is given nothing"
    assert [each.state for each in drain(trio, worker.name, cancel=True)] == ["alive"]
    wait_until(lambda: gauge(worker, "draining") == 0, "the worker to hear of that")
    assert number in driver.register_reduce_shuffle(24, 1).workers
    assert not listed(trio)[worker.name].HasField("drain")


def test_row_36_the_next_leader_goes_on_with_a_drain(trio: LocalCluster, driver: Session) -> None:
    """The leader is killed as a drain begins: the next one knows it, moves what is open, and says when it is done."""
    worker = trio.workers[1]
    writing = Writing(driver, 1)
    leader = trio.leader()
    drain(trio, worker.name)
    leader.kill()
    assert may_restart(trio, worker.name).state == "draining"
    expected = writing.end()
    assert read(writing.shuffle, range(2 * PARTITIONS)) == expected


def test_who_cannot_be_drained_is_reported(trio: LocalCluster) -> None:
    """An unknown name, a lost worker, and the last ones that take data are refused, with what to do; nothing changes.
    Names and numbers mean the same, over JSON too."""
    with pytest.raises(HoldfastError, match="there are w1, w2, w3") as unknown:
        drain(trio, "w1", "w9")
    assert unknown.value.status is Status.UNKNOWN_WORKER
    with pytest.raises(NoRoomError, match="no other worker would take data"):
        drain(trio, "w1", "w2", "w3")
    with pytest.raises(HoldfastError, match="name 1 to"):
        drain(trio)
    assert {each.state for each in listed(trio).values()} == {"alive"}
    number = listed(trio)["w2"].worker
    body = json.dumps({"workers": [str(number), "w2"]}).encode()
    status, _, answer = post(trio.leader().address, "Admin/DrainWorkers", body)
    assert status == 200, answer
    reported = json.loads(answer)["workers"]
    assert [(each["name"], each["state"]) for each in reported] == [("w2", "draining")]
    assert [each.state for each in drain(trio, "w2")] == ["draining"], "asked again, it is as it was"
    with pytest.raises(NoRoomError, match="no other worker would take data"):
        drain(trio, "w1", "w3")


def test_a_worker_that_is_alone_ends_at_once(tmp_path: Path) -> None:
    """With open partitions and nobody to take them, SIGTERM ends the worker as it is; what it acknowledged is there
    when it is back, and the same attempts go on."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "c", settings=QUICK) as cluster:
        (worker,) = cluster.workers
        with Session(cluster.endpoints, app="alone") as session:
            writing = Writing(session, 1)
            wait_until(lambda: gauge(worker, "epochs_open") > 0, "epochs to be open there")
            with pytest.raises(NoRoomError, match="no other worker"):
                drain(cluster, worker.name)
            assert worker.stop() == 0
            assert "no other worker takes data" in worker.log_tail()
            worker.start()
            expected = writing.end()
            assert read(writing.shuffle, range(2 * PARTITIONS)) == expected


def test_all_workers_may_be_asked_at_once(tmp_path: Path) -> None:
    """SIGTERM for every worker while maps push: each ends with 0, the last one because it is alone; started again they
    have everything."""
    with (
        local_cluster(masters=1, workers=3, dir=tmp_path / "c", settings=QUICK) as cluster,
        Session(cluster.endpoints, app="all") as session,
    ):
        writing = Writing(session, 2)
        for worker in cluster.workers:
            worker.kill(signal.SIGTERM)
        assert [worker.wait(60) for worker in cluster.workers] == [0, 0, 0]
        for worker in cluster.workers:
            worker.start()
        expected = writing.end()
        assert read(writing.shuffle, range(2 * PARTITIONS)) == expected


@pytest.mark.parametrize(
    ("timeout", "signals", "reason"),
    [
        ("10m", [signal.SIGTERM, signal.SIGTERM], "it was asked twice"),
        ("10m", [signal.SIGINT], "at once"),
        ("500ms", [signal.SIGTERM], "worker.drain_timeout is over"),
        ("0", [signal.SIGTERM], "it was asked to"),
    ],
)
def test_row_36_an_end_does_not_wait_longer_than_it_may(
    tmp_path: Path, timeout: str, signals: list[signal.Signals], reason: str
) -> None:
    """While a map is being written the worker waits, until it is asked again or its time is over; SIGINT and a time-out
    of 0 do not wait at all. The map goes on elsewhere."""
    settings = {**QUICK, "worker": {"drain_timeout": timeout}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "c", settings=settings) as cluster,
        Session(cluster.endpoints, app="late") as session,
    ):
        shuffle = session.register_map_shuffle(10, 1)
        regions = random_regions(1)
        with shuffle.writer(0, 0) as writer:
            writer.write_region(regions[0])
            (worker,) = wait_until(
                lambda: [each for each in cluster.workers if gauge(each, "files_open")], "the file to be open"
            )
            for before, number in enumerate(signals):
                if before:  # signals that come together are one
                    wait_until(lambda: gauge(worker, "draining") == 1, "the worker to drain")
                worker.kill(number)
            assert worker.wait(60) == 0
            assert reason in worker.log_tail()
            for region in regions[1:-1]:
                writer.write_region(region)
            status = writer.close(regions[-1])
        shuffle.commit([status])
        assert read_maps(shuffle) == map_contents({0: regions})


def test_a_draining_worker_that_is_left_alone_takes_pushes_again(tmp_path: Path) -> None:
    """The only other worker is lost: the drain says that it waits for another one, the worker takes pushes to what is
    placed there, and gives it on when there is somebody again."""
    with local_cluster(masters=1, workers=2, dir=tmp_path / "c", settings=SHORT) as cluster:
        stays, goes = cluster.workers
        with Session(cluster.endpoints, app="left") as session:
            drain(cluster, stays.name)
            wait_until(lambda: gauge(stays, "draining") == 1, "the worker to hear of it")
            goes.kill()
            wait_until(lambda: listed(cluster)[goes.name].state == "lost", "the loss")
            assert "no other worker takes its data" in listed(cluster)[stays.name].drain.waits
            with pytest.raises(ConflictError, match="w2: lost"):
                drain(cluster, goes.name)
            wait_until(lambda: gauge(stays, "draining") == 0, "the worker to hear that it is alone")
            goes.start()
            may_restart(cluster, stays.name)
            assert session.register_reduce_shuffle(4, 1).workers.keys() == {listed(cluster)[goes.name].worker}
