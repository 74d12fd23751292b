"""Pushing against real masters and workers: what is pushed is read, exactly once, whoever is killed in between."""

import os
import pickle
import random
import threading
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from holdfast.client import Ack, MapShuffle, PushStatus, ReduceShuffle, Session
from holdfast.client.cluster.local import local_cluster
from holdfast.client.cluster.server import wait_until
from holdfast.client.compress import Buffer, Compression, Compressor
from holdfast.client.read.manifests import PushManifest
from holdfast.client.read.push_reader import PartitionReader
from holdfast.client.write.push_writer import BUFFER_BYTES_MIN
from holdfast.common.errors import AbortedError, ConfigError, ConflictError, DataLostError, GiveUpError
from holdfast.common.formats.batch import Codec
from holdfast.common.formats.reduce_layouts import ReduceManifest
from holdfast.common.ids import PartitionId
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from tests.cluster.test_client import write
from tests.support.deaths import GRACE_SECONDS, die_again, restart
from tests.support.logged import logged
from tests.support.reduce_client import PARTITIONS, contents, fill, push, read, records_of


@pytest.mark.parametrize("ack", list(Ack))
@pytest.mark.parametrize("copies", [1, 2])
def test_what_is_pushed_is_read(session: Session, copies: int, ack: Ack) -> None:
    """Four maps, four partitions, at every level, one copy and two: the same multiset, at once and one by one."""
    shuffle, expected = fill(session, replication=copies, ack=ack)
    assert shuffle.copies == copies
    assert read(shuffle) == expected
    for partition in range(PARTITIONS):
        assert read(shuffle, [partition]) == {partition: expected[partition]}
    assert read(shuffle, []) == {}


def test_a_shuffle_without_data(session: Session) -> None:
    """Maps that wrote nothing are fine, and so is a shuffle without maps."""
    empty, _ = session.register_reduce_shuffle(PARTITIONS), None
    empty.commit([push(empty, 0, 1, [])])
    assert read(empty) == {}
    none = session.register_reduce_shuffle(PARTITIONS, maps=0)
    none.commit([])
    assert read(none) == {}


def test_large_and_many_records(session: Session) -> None:
    """Records of up to 16 MiB, and many more bytes than the buffer holds, come through a small buffer."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    rng = random.Random(9)
    large = [(1, rng.randbytes(15 * MIB)), (2, rng.randbytes(5 * MIB))]
    many = [(number % PARTITIONS, number.to_bytes(4, "big") * 500) for number in range(10_000)]
    statuses = [push(shuffle, 0, 1, large), push(shuffle, 1, 2, many, buffer_bytes=BUFFER_BYTES_MIN)]
    shuffle.commit(statuses)
    assert read(shuffle) == contents({0: large, 1: many})


class FailsOnce(Compressor):
    """There is no memory at one of its calls."""

    def __init__(self, failing: int) -> None:
        super().__init__(Compression(Codec.LZ4))
        self._failing = failing
        self.calls = 0

    def compress(self, partition: int, payload: Buffer) -> tuple[Codec, Buffer]:
        """As the real one, but for that call."""
        self.calls += 1
        if self.calls == self._failing:
            raise MemoryError("no memory for a moment")
        return super().compress(partition, payload)


@pytest.mark.parametrize("failing", [1, 7, 40])
def test_a01_a_payload_that_is_in_no_batch_is_missed(session: Session, failing: int) -> None:
    """Whoever swallows an error of a writer and goes on hears of it at every later call, and gets no status."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    writer = shuffle.writer(0, 1, codec=Codec.LZ4)
    compressor = FailsOnce(failing)
    writer._batches._compressor = compressor
    reported = []
    for partition, payload in records_of(0, count=300):
        try:
            writer.write(partition, payload)
        except (MemoryError, GiveUpError) as error:
            reported.append(error)
    with pytest.raises(GiveUpError, match="no memory for a moment"):
        writer.close()
    assert isinstance(reported[0], MemoryError)
    assert all("no memory for a moment" in str(each) for each in reported)
    assert compressor.calls == failing, "nothing is made of what comes later"


def test_the_winner_is_read_and_no_other(session: Session) -> None:
    """Of two attempts that pushed everything, only the one that was committed is delivered."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    loser, winner = records_of(1), records_of(2)
    push(shuffle, 0, 1, loser)
    shuffle.commit([push(shuffle, 0, 2, winner)])
    assert read(shuffle) == contents({0: winner})


def test_an_attempt_after_the_commit_is_aborted(session: Session) -> None:
    """A late attempt hears that a sibling won, and never gets a status."""
    shuffle, expected = fill(session)
    with pytest.raises(AbortedError):
        push(shuffle, 0, 999, records_of(1))
    assert read(shuffle) == expected


def test_an_aborted_attempt_leaves_nothing(session: Session) -> None:
    """An error in the caller's code, or no close, aborts the attempt; another one of the map is read alone."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    with pytest.raises(ConfigError, match="0 to 3, not 99"):
        push(shuffle, 0, 1, [*records_of(1, count=300), (99, b"no such partition")])
    with shuffle.writer(0, 3) as writer:
        writer.write(0, b"never closed")
    with pytest.raises(GiveUpError):
        writer.close()
    shuffle.commit([push(shuffle, 0, 2, records_of(2))])
    assert read(shuffle) == contents({0: records_of(2)})


def test_a_reader_commits_what_its_shuffle_offers(session: Session) -> None:
    """A shuffle object that knows the winners commits them when the masters say that nobody has."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    shuffle.offer([push(shuffle, 0, 1, records_of(1))])
    task = pickle.loads(pickle.dumps(shuffle))  # noqa: S301 - our own bytes
    assert read(task) == contents({0: records_of(1)})
    opened = session.open_reduce_shuffle(shuffle.key.shuffle)
    assert read(opened) == contents({0: records_of(1)})


def test_a_commit_is_final(session: Session) -> None:
    """The same winners again are fine, others are not."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    first = push(shuffle, 0, 1, records_of(1))
    other = push(shuffle, 0, 2, records_of(2))
    shuffle.commit([first])
    shuffle.commit([PushStatus.from_bytes(first.to_bytes())])
    with pytest.raises(ConflictError):
        shuffle.commit([other])


def test_maps_that_push_at_once_share_connections(session: Session) -> None:
    """Eight attempts in eight threads of one process come through whole."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, replication=2)
    data = {map_id: records_of(map_id, count=200) for map_id in range(8)}
    statuses: dict[int, PushStatus] = {}

    def run(map_id: int) -> None:
        statuses[map_id] = push(shuffle, map_id, map_id, data[map_id], buffer_bytes=2 * MIB)

    threads = [threading.Thread(target=run, args=(map_id,)) for map_id in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shuffle.commit(statuses.values())
    assert read(shuffle) == contents(data)


def test_a_copy_lost_after_the_commit(tmp_path: Path) -> None:
    """With two copies a worker killed after the commit, for good, is not noticed by any reader."""
    with (
        local_cluster(masters=3, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="kill") as session,
    ):
        shuffle, expected = fill(session, replication=2)
        for index in (0, 1):
            cluster.workers[index].kill()
            assert read(shuffle) == expected
            cluster.workers[index].start()


def test_row_26_a_volume_above_the_split_size(tmp_path: Path) -> None:
    """Partitions that outgrow a place move to the next while maps push, softly and hard, and are read whole."""
    small = {"worker": {"soft_split": "256KiB", "hard_split": "512KiB"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=small) as cluster,
        Session(cluster.endpoints, app="splits") as session,
    ):
        shuffle, expected = fill(session, replication=2)
        assert read(shuffle) == expected
        epochs = [epoch.epoch for epoch in shuffle.manifest().epochs.epochs]
        assert max(epochs) > 1, "nothing was split"


def test_a_slow_disk_slows_its_writers(tmp_path: Path) -> None:
    """Workers that may hold little and write slowly make many writers wait; every record comes through, once."""
    slow: dict[str, dict[str, object]] = {
        "worker": {"memory": "64MiB"},
        "faults": {"enabled": True, "disk_rate": "20MiB"},
    }
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=slow) as cluster,
        Session(cluster.endpoints, app="slow") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS)
        data = {map_id: records_of(map_id, count=60, size_max=300_000) for map_id in range(8)}
        statuses: list[PushStatus] = []

        def run(map_id: int) -> None:
            statuses.append(push(shuffle, map_id, map_id, data[map_id], buffer_bytes=4 * MIB))

        threads = [threading.Thread(target=run, args=(map_id,)) for map_id in data]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        shuffle.commit(statuses)
        assert read(shuffle) == contents(data)


def test_the_leader_and_a_worker_die_together(tmp_path: Path) -> None:
    """New places are asked for while there is no leader: the writers wait for the next one and go on."""
    with (
        local_cluster(masters=3, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="both") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS)
        data = {0: records_of(0, count=200)}
        with shuffle.writer(0, 1) as writer:
            for record in data[0][:100]:
                writer.write(*record)
            writer.flush()
            cluster.leader().kill()
            cluster.workers[0].kill()
            for record in data[0][100:]:
                writer.write(*record)
            status = writer.close()
        cluster.workers[0].start()
        shuffle.commit([status])
        assert read(shuffle) == contents(data)


@pytest.mark.parametrize("kind", ["reduce", "map"])
def test_a08_a_worker_that_dies_twice_in_one_read(tmp_path: Path, kind: str) -> None:
    """The only copy is on a worker that dies twice while one long partition is read, longer apart than a worker may be
    gone, and comes back each time: data that came in between starts the grace anew, and the read ends with the rows."""
    quick = {"lease": {"worker": "1s", "heartbeat": "200ms"}}
    payloads = [random.Random(number).randbytes(MIB) for number in range(80)]
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=quick) as cluster,
        Session(cluster.endpoints, app="twice") as session,
    ):
        shuffle = one_partition(session, kind, payloads)
        reading = shuffle.reader([0], return_grace=GRACE_SECONDS)
        came = [bytes(record.payload) for record in islice(reading, 5)]
        restart(cluster)
        came += [bytes(record.payload) for record in islice(reading, 35)]
        die_again(cluster)
        cluster.workers[0].start(wait=False)  # the reader finds it dead first
        came += [bytes(record.payload) for record in reading]
        assert Counter(came) == Counter(payloads)


def one_partition(session: Session, kind: str, payloads: list[bytes]) -> ReduceShuffle | MapShuffle:
    """A committed shuffle of one map with these records."""
    if kind == "reduce":
        pushed = session.register_reduce_shuffle(1, 1)
        pushed.commit([push(pushed, 0, 1, [(0, payload) for payload in payloads])])
        return pushed
    written = session.register_map_shuffle(1)
    written.commit([write(written, 0, 1, [[(0, payload)] for payload in payloads])])
    return written


def test_a_worker_that_stays_away_is_lost_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The only copy of an epoch is on a worker that does not come back: the commit goes on without it after the grace,
    readers of its partitions get DataLost, and the others read on."""
    with (
        local_cluster(
            masters=1, workers=2, dir=tmp_path / "cluster", settings={"worker": {"return_grace": "1s"}}
        ) as cluster,
        Session(cluster.endpoints, app="gone") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS)
        data = {0: records_of(0, count=100)}
        status = push(shuffle, 0, 1, data[0])
        cluster.workers[0].kill()
        shuffle.commit([status])
        lost = {partition for partition, _ in shuffle.lost()}
        assert [each["epochs"] for each in logged(caplog, LogEvent.SHUFFLE_DATA_LOST)] == [len(shuffle.lost())]
        assert 0 < len(lost) < PARTITIONS
        for partition in range(PARTITIONS):
            if partition in lost:
                where = rf"shuffle {shuffle.key}: partition {partition} epoch 0"
                with pytest.raises(DataLostError, match=rf"{where} was recorded as lost at the commit .*new gener"):
                    read(shuffle, [partition])
            else:
                assert read(shuffle, [partition]) == {partition: contents(data)[partition]}


@pytest.mark.parametrize("sizes_tell", [True, False])
def test_a_copy_that_recovery_cut_is_not_the_last_word(tmp_path: Path, sizes_tell: bool) -> None:
    """One of two copies lost the damaged ends of its files when its worker was killed; both are sealed and fine.
    Everything is read, each record once, whether or not the manifest tells which copy is the longer."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="cut") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS, replication=2)
        data = {map_id: records_of(map_id, count=120, size_max=1_000_000) for map_id in range(2)}
        statuses = [push(shuffle, map_id, map_id, records) for map_id, records in data.items()]
        cluster.workers[0].kill()
        files = [path for path in (cluster.directory / "w1").rglob("p-*.open") if path.stat().st_size > 1_000_000]
        assert files, "nothing lies in a partition file"
        for path in files:
            os.truncate(path, path.stat().st_size - 100)
        cluster.workers[0].start()
        cluster.wait_ready()  # else the commit does without its copies
        shuffle.commit(statuses)
        manifest = shuffle.manifest()
        cut = [each for each in manifest.epochs.epochs if each.copies[0].size_bytes != each.copies[1].size_bytes]
        assert cut, "the copies are equal"
        assert all(len(each.readable) == 2 for each in cut)
        if sizes_tell:
            assert read(shuffle) == contents(data)
            return
        shorter_first = tuple(
            each._replace(
                copies=tuple(
                    copy._replace(size_bytes=other.size_bytes)
                    for copy, other in zip(each.copies, each.copies[::-1], strict=True)
                )
            )
            for each in manifest.epochs.epochs
        )
        array = ReduceManifest(PARTITIONS, shorter_first).encode()
        misled = PushManifest(manifest.winners_array, array, manifest.addresses)
        reader = PartitionReader(shuffle, misled, [PartitionId(each) for each in range(PARTITIONS)], None, 30.0)
        found = Counter((record.partition, record.map, bytes(record.payload)) for record in reader)
        assert found == Counter((partition, map_id, one) for map_id in data for partition, one in data[map_id])
        assert reader.duplicates > 0, "the shorter copies were not read"


def test_unregistered_while_it_is_read(session: Session) -> None:
    """Files that are gone because the shuffle was unregistered are not called lost: GiveUp, as the masters say."""
    shuffle, expected = fill(session, replication=2)
    assert read(shuffle) == expected
    shuffle.unregister()

    def given_up() -> bool:
        try:
            read(shuffle)
        except GiveUpError as error:
            return "was dropped" in str(error)
        return False

    assert wait_until(given_up, 20.0), "the workers have not deleted it"
