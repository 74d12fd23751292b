"""Java reads what Python pushed: the same multiset exactly once, or an error that names what is wrong and where."""

import random
import signal
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.client import ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.write.push_writer import PushWriter
from holdfast.common.formats.batch import BatchWriter, Codec
from holdfast.common.limits import MAPS_MAX, MIB
from holdfast.common.log_events import LogEvent
from tests.cluster.reduce_peers import metric
from tests.jvm.test_buffers import opened
from tests.jvm.test_push import Pushing
from tests.support.deaths import GRACE_SECONDS, die_again, restart
from tests.support.jvm import Jvm, Program, Programs
from tests.support.logged import lines_of
from tests.support.reduce_client import PARTITIONS, Contents, Records, contents, fill, push, records_of
from tests.support.waiting import wait_until

U64 = (1 << 64) - 1
#: The least that a reader may have on its way: one frame, so that a pause stops the worker soon.
NARROW = MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and two workers for the tests that leave them running."""
    with local_cluster(masters=3, workers=2, dir=tmp_path_factory.mktemp("fetch") / "cluster") as started:
        yield started


@pytest.fixture
def session(cluster: LocalCluster) -> Iterator[Session]:
    """A session of the shared cluster."""
    with Session(cluster.endpoints, app="fetch") as opened:
        yield opened


@pytest.fixture
def reader(programs: Programs) -> "Reader":
    """Java, ready to read."""
    return Reader(programs.start("fetch.FetchMain"))


class Reader:
    """Tells the Java program what to read and compares what came."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def ask(
        self,
        shuffle: ReduceShuffle,
        partitions: range = range(PARTITIONS),
        maps: range = range(MAPS_MAX),
        *,
        who: str = "winners",
        pause: int | str = 0,
        grace_ms: int = 30_000,
        credit: int = 48 * MIB,
        tasks: int = 1,
        order: str = "health::0:0",
    ) -> None:
        """Begin to read; `answer` has what came of it. `order`: by what, region, when late in ms, pending threshold."""
        endpoints, key = shuffle.ticket.endpoints, shuffle.key
        what = (partitions.start, partitions.stop, maps.start, maps.stop)
        self.program.say(
            *("read", endpoints, key.instance.hex(), key.shuffle, key.generation, *what),
            *(who, pause, grace_ms, credit, tasks, order),
        )

    def answer(self) -> dict[str, str]:
        """What was read: `sum` and the counters by name. Nothing may be left out anywhere."""
        words = self.program.hear("ok ").split()
        counts = dict(word.split("=") for word in words[5:])
        assert counts["taken"] == counts["borrowed"] == counts["threads"] == counts["open"] == "0", f"leaks: {counts}"
        return {"sum": " ".join(words[:4]), "duplicates": words[4], **counts}

    def error(self) -> str:
        """The status and text of the error that the read ended with."""
        return self.program.hear("error ")

    def paused(self) -> None:
        """Wait until it stands still in the middle of the read."""
        self.program.hear("paused")

    def go_on(self) -> None:
        """Let a paused read go on."""
        self.program.say("go on")


def sum_of(expected: Contents, partitions: Iterable[int] = range(PARTITIONS), maps: range = range(MAPS_MAX)) -> str:
    """What FetchMain says of these records: count, bytes, sum of their checksums and of the squares."""
    count = size = total = squares = 0
    for partition in partitions:
        for (map_id, payload), times in expected.get(partition, {}).items():
            if map_id in maps:
                crc = zlib.crc32(payload, zlib.crc32(struct.pack(">II", partition, map_id)))
                count += times
                size += times * len(payload)
                total += times * crc
                squares += times * crc * crc
    return f"{count} {size} {total & U64} {squares & U64}"


def large(cluster_session: Session, copies: int, megabytes: int = 24) -> tuple[ReduceShuffle, Contents]:
    """A committed shuffle whose partitions lie in files of their own."""
    shuffle = cluster_session.register_reduce_shuffle(PARTITIONS, 2, replication=copies)
    data = {map_id: records_of(map_id, megabytes * 2, size_max=MIB) for map_id in range(2)}
    shuffle.commit([push(shuffle, map_id, 7 + map_id, records) for map_id, records in data.items()])
    return shuffle, contents(data)


def flip(directory: Path, begin: bytes = b"HB\x01") -> int:
    """Flip a byte in the middle of every data file of a worker; returns how many there were."""
    flipped = 0
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix != ".mdb" and path.stat().st_size > 100_000:
            with path.open("r+b") as file:
                head = file.read(1 << 16)
                if begin not in head:
                    continue
                file.seek(path.stat().st_size // 2)
                old = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([old[0] ^ 0x10]))
                flipped += 1
    return flipped


def test_the_cores_decide_as_the_python_ones(jvm: Jvm) -> None:
    """The stories of the Python cores' tests, the seeded worlds among them, end the same way in Java."""
    assert "ok worlds" in jvm.run("fetch.FetchCoreMain")


def test_connections_and_buffers(jvm: Jvm) -> None:
    """Frames of any size in any slices arrive; every end of a connection names the worker; the pool passes on what is
    good; and no buffer is left."""
    assert jvm.run("data.DataMain").strip() == "ok"


def test_a47_a_closed_connection_says_so(jvm: Jvm) -> None:
    """A connection that was closed while frames that had come were not looked at is UNAVAILABLE to whoever still asks;
    it was a NullPointerException, or a frame whose memory was given back."""
    assert jvm.run("data.EndsMain").strip() == "ok"


def test_a47_a_read_without_direct_memory_gives_its_connection_back(jvm: Jvm) -> None:
    """Where the JVM has no direct memory left as a reader asks, or as an idle connection is looked at, the connection
    is closed and no longer counted as borrowed."""
    options = ("-XX:MaxDirectMemorySize=8m", *opened())
    assert jvm.run("fetch.NoMemoryReadMain", options=options).strip() == "ok"


def test_a47_an_interrupt_while_connecting_blames_no_worker(tmp_path: Path, programs: Programs) -> None:
    """A task that is killed while it connects to a worker that is busy ends as interrupted, and the worker does not
    count as failed in this JVM. Connecting takes 5 s at most, and who hears before that the worker is away does not
    try: where the interrupt comes too late, another JVM tries it again."""
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="interrupt") as session,
    ):
        shuffle, _ = fill(session)
        ends = [_interrupted_while_connecting(cluster, programs, shuffle)]
        while not ends[-1].endswith("failed=") and len(ends) < 5:
            ends.append(_interrupted_while_connecting(cluster, programs, shuffle))
        assert ends[-1].startswith("INTERRUPTED"), ends
        assert ends[-1].endswith("failed="), ends


def _interrupted_while_connecting(cluster: LocalCluster, programs: Programs, shuffle: ReduceShuffle) -> str:
    """How the read ended, or that it did not even connect."""
    reader, worker = Reader(programs.start("fetch.FetchMain")), cluster.workers[0]
    java, port = psutil.Process(reader.program.process.pid), int(worker.address.rpartition(":")[2])
    cluster.wait_ready()
    worker.kill(signal.SIGSTOP)
    try:
        reader.ask(shuffle)
        wait_until(lambda: port in connected(java), "the reader to connect", 30)
        reader.program.say("interrupt")
        return reader.error()
    except AssertionError as late:
        return str(late)
    finally:
        worker.kill(signal.SIGCONT)


def connected(process: psutil.Process) -> set[int]:
    """The ports that a process is connected to."""
    return {each.raddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("copies", [1, 2])
def test_what_python_pushes_java_reads(session: Session, reader: Reader, copies: int, codec: Codec) -> None:
    """Every codec, one copy and two: all partitions at once, each alone, none, ranges of maps; winners or statuses tell
    who wrote where."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, 4, replication=copies)
    data: dict[int, Records] = {
        map_id: [(partition, payload[: len(payload) // 2] * 2) for partition, payload in records_of(map_id)]
        for map_id in range(4)
    }
    shuffle.commit([push(shuffle, map_id, 50 + map_id, records, codec=codec) for map_id, records in data.items()])
    expected = contents({map_id: [each for each in records if each[1]] for map_id, records in data.items()})
    reads = [(range(PARTITIONS), range(MAPS_MAX)), (range(2, 2), range(MAPS_MAX)), (range(1, 4), range(4))]
    reads += [(range(each, each + 1), range(MAPS_MAX)) for each in range(PARTITIONS)]
    reads += [(range(PARTITIONS), maps) for maps in (range(1), range(1, 3), range(3, 4), range(2, 99))]
    for who in ("winners", "statuses"):
        for partitions, maps in reads:
            reader.ask(shuffle, partitions, maps, who=who)
            assert reader.answer()["sum"] == sum_of(expected, partitions, maps), (who, partitions, maps)


def test_one_connection_to_each_worker(session: Session, reader: Reader) -> None:
    """64 partitions of many small records, of two workers, cost two connections; read by eight tasks at once they cost
    one manifest."""
    shuffle = session.register_reduce_shuffle(64, 8)
    data = {map_id: records_of(map_id, 2_000, partitions=64, size_max=300) for map_id in range(8)}
    shuffle.commit([push(shuffle, map_id, 1 + map_id, records) for map_id, records in data.items()])
    reader.ask(shuffle, range(64))
    answer = reader.answer()
    assert answer["sum"] == sum_of(contents(data), range(64))
    assert answer["idle"] == "2"
    reader.ask(shuffle, range(64), tasks=8)
    answer = reader.answer()
    assert answer["sum"] == sum_of(contents(data), range(64))
    assert answer["manifests"] == "1"


def test_whoever_reads_first_commits(session: Session, reader: Reader) -> None:
    """Nobody has said who won: of eight tasks that know, one says so, and all read."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, 2)
    data = {map_id: records_of(map_id) for map_id in range(2)}
    loser = push(shuffle, 0, 99, records_of(5))
    statuses = [push(shuffle, map_id, 10 + map_id, records) for map_id, records in data.items()]
    assert loser.attempt not in [status.attempt for status in statuses]
    winners = shuffle._winners_of(statuses)
    reader.ask(shuffle, who=f"offer:{winners.hex()}", tasks=8)
    assert reader.answer()["sum"] == sum_of(contents(data))


def test_long_records_over_many_frames(session: Session, reader: Reader) -> None:
    """Batches of up to 15 MiB, cut over frames and over credit, come whole through the least credit."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    rng = random.Random(9)
    data = {0: [(1, rng.randbytes(15 * MIB)), (2, rng.randbytes(5 * MIB)), (1, b"x")], 1: records_of(1, 3_000)}
    shuffle.commit([push(shuffle, map_id, 1 + map_id, records) for map_id, records in data.items()])
    for credit in (NARROW, 3 * MIB, 48 * MIB):
        reader.ask(shuffle, credit=credit)
        assert reader.answer()["sum"] == sum_of(contents(data))


def test_what_was_unregistered_is_not_called_lost(session: Session, reader: Reader) -> None:
    """The masters' word that a shuffle is gone is what the reader says."""
    shuffle, _ = fill(session)
    shuffle.unregister()
    reader.ask(shuffle)
    assert reader.error().startswith(("UNKNOWN_", "APPLICATION_GONE"))


def test_a_copy_lost_after_the_commit(tmp_path: Path, reader: Reader) -> None:
    """With two copies either worker may be gone for good, before the read or in the middle of it."""
    with (
        local_cluster(masters=3, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="kill") as session,
    ):
        shuffle, expected = large(session, copies=2)
        for index in (0, 1):
            reader.ask(shuffle, pause=10, credit=2 * NARROW)
            reader.paused()
            cluster.workers[index].kill()
            reader.go_on()
            assert reader.answer()["sum"] == sum_of(expected)
            reader.ask(shuffle)
            assert reader.answer()["sum"] == sum_of(expected)
            cluster.workers[index].start()
            cluster.wait_ready()


def test_a_worker_that_restarts_in_the_middle(tmp_path: Path, reader: Reader) -> None:
    """The only copies are on a worker that is killed during a read and comes back, maybe elsewhere: the read goes on
    from the chunk where it was. Also with all masters killed and started again meanwhile."""
    with (
        local_cluster(masters=3, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="again") as session,
    ):
        shuffle, expected = large(session, copies=1)
        for servers in (cluster.workers[:1], cluster.workers, [*cluster.masters, *cluster.workers]):
            reader.ask(shuffle, pause=10, credit=2 * NARROW)
            reader.paused()
            for server in servers:
                server.kill()
            reader.go_on()
            for server in servers:
                server.start()
            assert reader.answer()["sum"] == sum_of(expected)
            cluster.wait_ready()


def test_a08_a_worker_that_dies_twice_in_one_read(tmp_path: Path, reader: Reader) -> None:
    """The only copy is on a worker that dies twice while one long partition is read, longer apart than a worker may be
    gone, and comes back each time: data that came in between starts the grace anew, and the read ends with the rows."""
    quick = {"lease": {"worker": "1s", "heartbeat": "200ms"}}
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=quick) as cluster,
        Session(cluster.endpoints, app="twice") as session,
    ):
        shuffle, expected = large(session, copies=1, megabytes=100)
        reader.ask(shuffle, range(1), pause="5,30", credit=NARROW, grace_ms=int(GRACE_SECONDS * 1000))
        reader.paused()
        restart(cluster)
        reader.go_on()
        reader.paused()
        die_again(cluster)
        reader.go_on()
        cluster.workers[0].start()
        assert reader.answer()["sum"] == sum_of(expected, [0])


def test_a_worker_that_stays_away_is_lost_by_name(tmp_path: Path, reader: Reader) -> None:
    """The only copy is on a worker that is gone for longer than the grace: DATA_LOST, which names it; what others have
    is read all the same."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="gone") as session,
    ):
        shuffle, expected = fill(session)
        rows = shuffle.manifest().epochs.epochs
        cluster.workers[0].kill()
        lost = {row.partition for row in rows if row.copies[0].worker == rows[0].copies[0].worker}
        seen = set()
        for partition in range(PARTITIONS):
            reader.ask(shuffle, range(partition, partition + 1), grace_ms=500)
            answer = reader.program.hear("")
            if answer.startswith("error"):
                seen.add(partition)
                assert answer.startswith(
                    f"error DATA_LOST shuffle {shuffle.key}: partition {partition} epoch 0 is lost"
                )
                assert "again on its directories" in answer
            else:
                assert answer.startswith(f"ok {sum_of(expected, [partition])} ")
        assert seen in (lost, set(range(PARTITIONS)) - lost)
        assert seen


def test_a06_a_copy_that_was_sealed_after_the_manifest_was_read(tmp_path: Path, reader: Reader) -> None:
    """Two copies, one worker away at the commit; Java reads the manifest then. The worker comes back and seals what it
    missed, the other one is killed: the next read of the same JVM finds the late copies."""
    settings = {"worker": {"copy_grace": "0s"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="late") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS, 2, replication=2)
        data = {map_id: records_of(map_id, 10) for map_id in range(2)}
        statuses = [push(shuffle, map_id, 7 + map_id, records) for map_id, records in data.items()]
        cluster.workers[0].kill()
        shuffle.commit(statuses)
        assert shuffle.under_replicated
        reader.ask(shuffle, pause=-1)
        reader.paused()
        cluster.workers[0].start()
        wait_until(lambda: metric(cluster, "holdfast_master_under_replicated_epochs") == 0, "the late copies")
        cluster.workers[1].kill()
        reader.go_on()
        assert reader.answer()["sum"] == sum_of(contents(data))


def test_copies_that_were_made_again_after_the_manifest_was_read(tmp_path: Path, reader: Reader) -> None:
    """Java reads the manifest of a shuffle with two copies on three hosts. One after the other two hosts are killed for
    good, the second when the copies of the first have been made again: the next read of the same JVM has everything."""
    settings = {"lease": {"worker": "2s", "heartbeat": "500ms"}, "worker": {"restore_after": "1s"}}
    with (
        local_cluster(masters=1, workers=3, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="restored") as session,
    ):
        shuffle = session.register_reduce_shuffle(PARTITIONS, 2, replication=2)
        data = {map_id: records_of(map_id, 10) for map_id in range(2)}
        shuffle.commit([push(shuffle, map_id, 7 + map_id, records) for map_id, records in data.items()])
        reader.ask(shuffle, pause=-1)
        reader.paused()
        cluster.workers[0].kill()
        wait_until(lambda: metric(cluster, "holdfast_master_epochs_short") > 0, "the host is missed")
        wait_until(lambda: metric(cluster, "holdfast_master_epochs_short") == 0, "the copies are made again")
        cluster.workers[1].kill()
        reader.go_on()
        assert reader.answer()["sum"] == sum_of(contents(data))


@pytest.mark.parametrize("copies", [1, 2])
def test_a_flipped_byte_is_never_a_record(tmp_path: Path, programs: Programs, copies: int) -> None:
    """A byte flipped in the sealed files of a worker: with another copy only a warning in the log and the number of
    damaged chunks show it, without one it is CORRUPT, by name. The warning comes once for a worker, not per try."""
    reader = Reader(programs.start("fetch.FetchMain", options=("-Dorg.apache.logging.log4j.level=WARN",)))
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="flip") as session,
    ):
        shuffle, expected = large(session, copies)
        reader.ask(shuffle)
        answer = reader.answer()
        assert (answer["sum"], answer["damaged"]) == (sum_of(expected), "0")
        assert flip(cluster.directory / "w1")
        reader.ask(shuffle)
        if copies == 2:
            answer = reader.answer()
            assert answer["sum"] == sum_of(expected)
            assert int(answer["duplicates"]) > 0, "the damaged copy was not begun with"
            assert int(answer["damaged"]) > 0
        else:
            counts = reader.error()
            assert counts.startswith(f"CORRUPT shuffle {shuffle.key}: partition ")
            for word in ("epoch 0", "chunk", "checksum mismatch", "map ", "worker", "3 times"):
                assert word in counts
        (line,) = lines_of(reader.program.output(), LogEvent.READ_CORRUPT)
        for word in (
            f"shuffle={shuffle.key}",
            f"address={cluster.workers[0].address}",
            "epoch 0",
            "chunk",
            "checksum mismatch",
        ):
            assert word in line


def test_records_of_several_batches(programs: Programs, tmp_path: Path, reader: Reader) -> None:
    """What Java cuts into pieces, over several epochs of two workers, Java puts together; ranges of maps too."""
    small = {"worker": {"soft_split": "4MiB", "hard_split": "8MiB"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=small) as cluster,
        Session(cluster.endpoints, app="long") as session,
    ):
        pushing = Pushing(programs, cluster, session, maps=2)
        sizes = [100, 20 * MIB, 4 * MIB + 1, 3 * MIB, 9 * MIB, 70_000]
        pushing.push(records=len(sizes), sizes=sizes, codec="NONE")
        pushing.commit()
        expected: Contents = {partition: Counter() for partition in range(PARTITIONS)}
        for (partition, map_id, payload), times in pushing.expected().items():
            expected[partition][map_id, payload] += times
        assert max(epoch.epoch for epoch in pushing.shuffle.manifest().epochs.epochs) > 1, "nothing was split"
        for maps in (range(MAPS_MAX), range(1), range(1, 2)):
            reader.ask(pushing.shuffle, maps=maps)
            assert reader.answer()["sum"] == sum_of(expected, maps=maps)


def test_a_piece_that_was_counted_and_cannot_be_placed_is_an_error(
    session: Session, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is none of ours continues a record in a batch too short for a piece, and that one comes first. Read
    again the piece would be a duplicate, and the read would look whole without it: it ends at once, by name."""
    header, hand_over = BatchWriter.header, PushWriter._hand_over

    def continued(writer: BatchWriter, payload: bytes, **options: Any) -> bytes:
        return header(writer, payload, **options | {"more": writer.batches == 0})

    def backwards(writer: PushWriter) -> None:
        writer._fresh.reverse()
        hand_over(writer)

    shuffle = session.register_reduce_shuffle(1)
    with monkeypatch.context() as now:
        now.setattr(BatchWriter, "header", continued)
        now.setattr(PushWriter, "_hand_over", backwards)
        shuffle.commit([push(shuffle, 0, 7, [(0, b"begins"), (0, b"ends")])])
    reader.ask(shuffle, range(1))
    told = reader.error()
    assert told.startswith(f"BAD_VERSION shuffle {shuffle.key}: chunk 0 from worker "), told
    assert "too short for a piece of a record" in told


def test_partitions_of_many_epochs(tmp_path: Path, reader: Reader) -> None:
    """Partitions that outgrew their places are read whole, from all of them, also by ranges of maps."""
    small = {"worker": {"soft_split": "256KiB", "hard_split": "512KiB"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=small) as cluster,
        Session(cluster.endpoints, app="splits") as session,
    ):
        shuffle, expected = fill(session, replication=2)
        assert max(epoch.epoch for epoch in shuffle.manifest().epochs.epochs) > 1, "nothing was split"
        for maps in (range(MAPS_MAX), range(1, 3)):
            reader.ask(shuffle, maps=maps, who="statuses")
            assert reader.answer()["sum"] == sum_of(expected, maps=maps)


@pytest.mark.long
def test_a_silent_worker_is_left_for_the_other_copy(tmp_path: Path, reader: Reader) -> None:
    """A worker that is stopped, not dead, holds nobody up where the other copy can be read."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="stop") as session,
    ):
        shuffle, expected = large(session, copies=2)
        cluster.workers[0].kill(signal.SIGSTOP)
        try:
            reader.ask(shuffle)
            assert reader.answer()["sum"] == sum_of(expected)
        finally:
            cluster.workers[0].kill(signal.SIGCONT)
        assert wait_until(lambda: cluster.workers[0].running, "worker 1 runs again", 60.0)


@pytest.mark.long
def test_an_idle_connection_to_a_worker_that_restarted(tmp_path: Path, reader: Reader) -> None:
    """Between two reads of a JVM all workers are killed and started again: the second one opens new connections."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="idle") as session,
    ):
        shuffle, expected = fill(session)
        reader.ask(shuffle, pause=-1)
        reader.paused()
        for worker in cluster.workers:
            worker.kill()
            worker.start()
        cluster.wait_ready()
        reader.go_on()
        assert reader.answer()["sum"] == sum_of(expected)


def test_an_interrupt_ends_a_read(tmp_path: Path, reader: Reader) -> None:
    """A task that is killed while it waits for a worker that says nothing ends at once, and not as lost data."""
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="interrupt") as session,
    ):
        shuffle, expected = large(session, copies=1)
        reader.ask(shuffle, pause=5, credit=NARROW)
        reader.paused()
        cluster.workers[0].kill(signal.SIGSTOP)
        try:
            reader.go_on()
            reader.program.say("interrupt")
            assert reader.error().startswith("INTERRUPTED")
        finally:
            cluster.workers[0].kill(signal.SIGCONT)
        reader.ask(shuffle)
        assert reader.answer()["sum"] == sum_of(expected)
