"""What Java map tasks push to real workers is what Python reads: whole, each record once, whoever dies in between."""

import itertools
import json
import os
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.client import Ack, PushStatus, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.compress import decompress
from holdfast.client.core.read.chunk_fetch import EpochKey
from holdfast.client.read.push_reader import PartitionReader
from holdfast.client.read.stream_reader import Reading, Record
from holdfast.common.formats.batch import MORE, Codec, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.ids import AttemptId, MapId
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from tests.support.jvm import Jvm, Program, Programs
from tests.support.waiting import wait_until

PARTITIONS = 4
Reported = dict[str, Any]
Reader = Callable[[ReduceShuffle, int], Iterator[Record]]


def read(shuffle: ReduceShuffle, partitions: int) -> Iterator[Record]:
    """Every record of a committed shuffle."""
    return shuffle.reader(range(partitions))


def test_the_core_decides_as_the_python_one(jvm: Jvm) -> None:
    """The stories of the Python session, and 300 random ones, hold for the Java session."""
    assert jvm.run("push.PushCoreMain", seconds=120).startswith("ok ")


def test_a_worker_that_does_not_answer_holds_up_no_other(jvm: Jvm) -> None:
    """A writer connects to all its twenty workers before anything is written. One of them answers HELLO only when all
    others have their batches; then it gets its own. No connection or buffer is left."""
    assert jvm.run("push.ConnectMain", seconds=240).startswith("ok")


class Pushing:
    """A shuffle, and a Java program that pushes to it. What it pushed is compared with what Python reads."""

    def __init__(self, programs: Programs, cluster: LocalCluster, session: Session, **shape: Any) -> None:
        self.partitions: int = shape.get("partitions", PARTITIONS)
        self.maps: int = shape.get("maps", 4)
        copies, ack = shape.get("copies", 1), shape.get("ack", Ack.WRITTEN)
        ack_copies = shape.get("ack_copies", copies)
        self.shuffle = session.register_reduce_shuffle(
            self.partitions, self.maps, replication=copies, ack=ack, ack_copies=ack_copies
        )
        key, level = self.shuffle.key, f"{int(ack)}/{ack_copies}"
        names = (cluster.endpoints, key.instance.hex(), key.shuffle, self.partitions, self.maps, copies, level)
        self.program: Program = programs.start("push.PushMain", *names, *shape.get("holds", ()))
        self.program.hear("READY")
        self._pushed: dict[int, tuple[int, list[int]]] = {}
        self._statuses: dict[int, PushStatus] = {}

    def say(self, *words: str, records: int = 100, sizes: list[int], attempt: int = 100, **more: Any) -> None:
        """Begin to push one attempt of every map."""
        self._asked = (records, sizes, attempt)
        maps = more.pop("maps", range(self.maps))
        options = " ".join(f"{name}={value}" for name, value in more.items())
        joined = ",".join(map(str, sizes))
        maps = ",".join(map(str, maps))
        self.program.say("push", *words, f"records={records} sizes={joined} attempt={attempt} maps={maps} {options}")

    def results(self, seconds: float = 120) -> dict[int, Reported]:
        """Wait for the end of all attempts; what each said."""
        reported = json.loads(self.program.hear("PUSHED", seconds))
        found = {int(each): result for each, result in reported["maps"].items()}
        records, sizes, attempt = self._asked
        for number, result in found.items():
            if result["status"] == Status.OK:
                self._pushed[number] = records, sizes
                bits = np.array([size > 0 for size in result["sizes"]], dtype=bool)
                bitmap = np.packbits(bits, bitorder="little").tobytes()
                self._statuses[number] = PushStatus(
                    self.shuffle.key, MapId(number), AttemptId(attempt + number), self.partitions, bitmap
                )
        return found

    def push(self, *words: str, **more: Any) -> dict[int, Reported]:
        """Push to the end; every attempt ends well."""
        self.say(*words, **more)
        found = self.results()
        assert {result["status"] for result in found.values()} == {0}, {
            number: result.get("error") for number, result in found.items()
        }
        return found

    def expected(self) -> Counter[tuple[int, int, bytes]]:
        """(partition, map, payload) of everything that was pushed."""
        found: Counter[tuple[int, int, bytes]] = Counter()
        for number, (records, sizes) in self._pushed.items():
            for each, size in zip(range(records), itertools.cycle(sizes), strict=False):
                partition = (7919 * number + 104_729 * each) % self.partitions
                unit = np.array([number, partition, each, size], dtype="<u4").tobytes()
                found[partition, number, (unit * (size // 16 + 1))[:size]] += 1
        return found

    def commit(self) -> None:
        self.shuffle.commit([self._statuses[each] for each in sorted(self._statuses)])

    def check(self, reader: Reader | None = None) -> None:
        """Commit and compare; then see that the program holds nothing any more."""
        self.commit()
        records = (
            self.shuffle.reader(range(self.partitions)) if reader is None else reader(self.shuffle, self.partitions)
        )
        found = Counter((record.partition, record.map, bytes(record.payload)) for record in records)
        assert found == self.expected()
        self.check_counts()

    def counts(self) -> dict[str, int]:
        """Buffers, connections and threads that are in use."""
        self.program.say("counts")
        found: dict[str, int] = json.loads(self.program.hear("COUNTS"))
        return found

    def check_counts(self) -> None:
        """No buffer, connection or thread is left, soon after the tasks have ended."""
        wait_until(lambda: not any(self.counts().values()), "buffers, connections and threads are given back", 60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster that the tests leave as it was."""
    with local_cluster(masters=1, workers=2, dir=tmp_path_factory.mktemp("shared") / "cluster") as cluster:
        yield cluster


@pytest.mark.parametrize(("codec", "copies", "ack"), [("LZ4", 1, 1), ("ZSTD", 2, 1), ("NONE", 2, 2), ("LZ4", 1, 0)])
def test_what_java_pushes_python_reads(
    programs: Programs, shared: LocalCluster, codec: str, copies: int, ack: int
) -> None:
    """Four tasks at once, records of one byte to 300 KB, with every codec, one copy and two, at every level."""
    with Session(shared.endpoints, app="push") as session:
        pushing = Pushing(programs, shared, session, copies=copies, ack=Ack(ack))
        pushing.push(records=400, sizes=[1, 20, 3_000, 100_000, 300_000], codec=codec)
        pushing.check()


def test_java_settles_what_one_copy_acknowledged(programs: Programs, shared: LocalCluster) -> None:
    """One of two copies acknowledges: each task ends when the other copy has everything as well, so nothing is short of
    a copy at the commit, and no copy is called incomplete."""
    with Session(shared.endpoints, app="push") as session:
        pushing = Pushing(programs, shared, session, copies=2, ack_copies=1)
        pushing.push(records=400, sizes=[20, 3_000, 100_000], codec="LZ4")
        pushing.check()
        assert pushing.shuffle.under_replicated == 0


def test_a25_noise_in_one_partition_costs_no_other_its_compression(programs: Programs, shared: LocalCluster) -> None:
    """Every fourth batch is noise, and all of it goes to one partition: the text of the others is compressed."""
    with Session(shared.endpoints, app="noise") as session:
        pushing = Pushing(programs, shared, session, maps=1)
        pushing.say(records=400, sizes=[4_000], noise=0)
        reported = pushing.results()[0]
        assert reported["status"] == Status.OK
        assert reported["pushed"] < 100 * 4_000 + 300 * 500


def test_writers_wait_for_direct_memory(
    programs: Programs, shared: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six maps that may hold 96 MiB each share 8 MiB: all end well, every record is there, every buffer is back."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:MaxDirectMemorySize=8m")
    with Session(shared.endpoints, app="push") as session:
        pushing = Pushing(programs, shared, session, maps=6)
        pushing.push(records=300, sizes=[20_000, 70_000, 9], codec="NONE")
        pushing.check()


def test_a_short_attempt_needs_no_thread(programs: Programs, shared: LocalCluster) -> None:
    """What fits the open frames is pushed by the task itself; LAST may ride on the final batch of a partition."""
    with Session(shared.endpoints, app="short") as session:
        pushing = Pushing(programs, shared, session)
        for turn in range(20):
            words = ("last",) if turn % 2 else ()
            pushing.push(*words, records=20, sizes=[1, 500], attempt=100 + 10 * turn)
            pushing.check_counts()
        pushing.check()


@pytest.mark.long
def test_ten_thousand_partitions(programs: Programs, shared: LocalCluster) -> None:
    """Many partitions with a little each: everything comes through, and sizes say who wrote where."""
    with Session(shared.endpoints, app="wide") as session:
        pushing = Pushing(programs, shared, session, partitions=10_000, maps=2)
        found = pushing.push(records=15_000, sizes=[40, 300])
        assert all(len(result["sizes"]) == 10_000 for result in found.values())
        pushing.check()


class Joining(PartitionReader):
    """Puts records of several batches together, and undoes the tests' encryption, as the plug-in's reader does."""

    encrypted = False

    def _records(self, reading: Reading[EpochKey], piece: Any) -> Iterator[Record]:
        key = reading.files[piece.file]
        seed = partition_seed(self._shuffle.key, key[0])
        self._chunks.chunk_came(key, reading.worker, piece.chunk)
        for batch in itertools.chain(*(parse_batches(memoryview(data), seed) for data in piece.batches)):
            if self._chunks.admit(key[0], batch):
                self.pieces[key[0], batch.map].append((batch.number, batch.flags, bytes(batch.payload)))
        self._chunks.chunk_came(key, reading.worker, piece.chunk, size=piece.chunk_bytes)
        yield from ()

    def joined(self) -> Iterator[Record]:
        """Every record, when all is read."""
        self.pieces: dict[tuple[int, int], list[tuple[int, int, bytes]]] = defaultdict(list)
        assert not list(self)
        for (partition, number), pieces in self.pieces.items():
            payload = b""
            for _, flags, piece in sorted(pieces):
                payload += piece
                if flags & MORE or not payload:
                    continue
                if self.encrypted:
                    payload = (~np.frombuffer(payload, np.uint8)).tobytes()
                yield Record(partition, number, decompress(Codec(flags >> 4 & 7), payload))  # type: ignore[arg-type]
                payload = b""


@pytest.mark.parametrize("words", [(), ("last", "encrypted")])
def test_records_longer_than_a_batch(programs: Programs, shared: LocalCluster, words: tuple[str, ...]) -> None:
    """Records of up to 40 MiB go in pieces, compressed or not, encrypted or not, and are whole when joined."""

    def reader(shuffle: ReduceShuffle, partitions: int) -> Iterator[Record]:
        found = Joining(shuffle, shuffle.manifest(), list(range(partitions)), None, 30.0)  # type: ignore[arg-type]
        found.encrypted = bool(words)
        return found.joined()

    with Session(shared.endpoints, app="long") as session:
        pushing = Pushing(programs, shared, session, maps=2)
        sizes = [100, 40 * MIB, 16 * MIB, 17 * MIB + 1]
        pushing.push(*words, records=4, sizes=sizes, codec="NONE" if not words else "ZSTD")
        pushing.check(reader)


def test_an_attempt_after_the_commit_is_reported(programs: Programs, shared: LocalCluster) -> None:
    """A late attempt ends with COMMITTED, whether short or long, and holds nothing afterwards."""
    with Session(shared.endpoints, app="late") as session:
        pushing = Pushing(programs, shared, session)
        pushing.push(records=50, sizes=[1_000])
        pushing.check()
        for records, size in ((10, 100), (200, 100_000)):
            pushing.say(records=records, sizes=[size], attempt=900)
            assert {result["status"] for result in pushing.results().values()} == {Status.COMMITTED}
            pushing.check_counts()


def test_an_interrupt_ends_a_task(programs: Programs, tmp_path: Path) -> None:
    """Tasks that wait for a worker that stands still end soon after they are interrupted, and give everything back."""
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="killed") as session,
    ):
        pushing = Pushing(programs, cluster, session)
        os.kill(cluster.workers[0].pid or 0, signal.SIGSTOP)
        try:
            for records, size in ((10, 100), (500, 300_000)):
                pushing.say(records=records, sizes=[size], codec="NONE", interrupt=500)
                reported = pushing.results(20)
                assert {result["status"] for result in reported.values()} == {Status.INTERNAL}
                assert all("interrupted" in result["error"] for result in reported.values())
                pushing.check_counts()
        finally:
            os.kill(cluster.workers[0].pid or 0, signal.SIGCONT)


def test_a40_an_aborted_attempt_leaves_its_connection_to_the_next(programs: Programs, shared: LocalCluster) -> None:
    """An attempt is aborted between an answer of the worker and what that gave room for; the next attempts of the same
    executor to that worker end as usual."""
    with Session(shared.endpoints, app="aborted") as session:
        pushing = Pushing(programs, shared, session)
        for attempt in (500, 600):
            pushing.push(records=20, sizes=[1_000], attempt=attempt)  # leaves connections in the pool
            pushing.program.say(f"abort attempt={attempt + 50}")
            pushing.program.hear("DONE")
            pushing.check_counts()
        pushing.push(records=40, sizes=[100_000, 300_000], codec="NONE", attempt=700)
        pushing.check()


def test_a40_a_long_wait_says_what_it_waits_for(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks whose worker stands still say in the log which worker they wait for, and with how many pushes; they end
    once it goes on."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dorg.apache.logging.log4j.level=WARN")
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="slow") as session,
    ):
        pushing = Pushing(programs, cluster, session)
        pushing.push(records=20, sizes=[1_000])
        os.kill(cluster.workers[0].pid or 0, signal.SIGSTOP)
        try:
            pushing.say(records=40, sizes=[100_000, 300_000], codec="NONE", attempt=200)
            reported = r'push\.slow task=".* attempt 20\d" seconds=1\d reason="worker \d+ has not answered \d+ pushes,'
            wait_until(lambda: re.search(reported, pushing.program.output()), "it is in the log")
        finally:
            os.kill(cluster.workers[0].pid or 0, signal.SIGCONT)
        assert {result["status"] for result in pushing.results().values()} == {0}
        pushing.check()


def test_a47_a_connection_waits_for_direct_memory(
    programs: Programs, shared: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that has no memory for a connection waits until there is some, as one that has none for a frame does;
    nothing of it is left behind."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:MaxDirectMemorySize=8m")
    with Session(shared.endpoints, app="starved") as session:
        pushing = Pushing(programs, shared, session)
        pushing.program.say("starve attempt=500")
        pushing.program.hear("DONE")
        pushing.check_counts()
        pushing.push(records=20, sizes=[1_000])
        pushing.check()


@pytest.mark.parametrize("copies", [1, 2])
def test_a_worker_dies_while_tasks_push(programs: Programs, tmp_path: Path, copies: int) -> None:
    """With kill -9 in the middle: what was acknowledged is read after the worker is back (one copy: it seals what it
    finds; two: from the other), and the tasks go on elsewhere without ending."""
    with (
        local_cluster(masters=1, workers=3, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="dying") as session,
    ):
        pushing = Pushing(programs, cluster, session, partitions=16, copies=copies)
        pushing.say("halt", records=600, sizes=[5_000, 60_000, 200_000], codec="NONE")
        pushing.program.hear("HALF")
        cluster.workers[0].kill()
        pushing.program.say("go")
        results = pushing.results(180)
        assert {result["status"] for result in results.values()} == {0}, results
        cluster.workers[0].start()
        pushing.check()


@pytest.mark.long
def test_a_worker_restarts_between_two_attempts(programs: Programs, tmp_path: Path) -> None:
    """Connections that lie idle are gone and places are of an earlier start: the next attempts find the new ones."""
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="restart") as session,
    ):
        pushing = Pushing(programs, cluster, session, maps=6)
        for first in (0, 2, 4):
            pushing.push(maps=[first, first + 1], records=60, sizes=[500, 50_000], codec="NONE")
            cluster.workers[0].kill()
            cluster.workers[0].start()
        pushing.check()


def test_partitions_that_outgrow_their_places(programs: Programs, tmp_path: Path) -> None:
    """Soft and hard splits move partitions while maps push; refused batches keep their numbers."""
    small = {"worker": {"soft_split": "256KiB", "hard_split": "512KiB"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=small) as cluster,
        Session(cluster.endpoints, app="splits") as session,
    ):
        pushing = Pushing(programs, cluster, session, copies=2)
        pushing.push(records=400, sizes=[100, 3_000, 100_000], codec="NONE")
        pushing.check()
        assert max(epoch.epoch for epoch in pushing.shuffle.manifest().epochs.epochs) > 1, "nothing was split"


def test_batches_that_move_are_held_for_as_well(programs: Programs, tmp_path: Path) -> None:
    """Partitions move all the time, on a slow disk, so that most batches are copied into frames for their next place:
    what a writer holds is bounded all the same, and its task waits."""
    settings: dict[str, dict[str, object]] = {
        "worker": {"soft_split": "256KiB", "hard_split": "256KiB"},
        "faults": {"enabled": True, "disk_rate": "16MiB"},
    }
    holds = 4 * MIB
    with (
        local_cluster(masters=1, workers=3, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="moves") as session,
    ):
        pushing = Pushing(programs, cluster, session, maps=1, partitions=24, copies=2, holds=(str(holds),))
        (reported,) = pushing.push(records=24_000, sizes=[4 * KIB], codec="NONE").values()
        # What is filled, what is held, and copies of it.
        assert reported["most"] <= 3 * holds
        pushing.check()


def test_java_waits_for_room_and_says_which_limit_was_met(programs: Programs, tmp_path: Path) -> None:
    """On one worker that may hold 72 MiB: a map that is more than that ends after its grace, naming the directory and
    its capacity; what it left is dropped, and a second one, which begins while there is no room, waits for that and
    is read."""
    root = tmp_path / "cluster"
    directory = {"path": str(root / "w1"), "capacity": "72MiB"}
    # The masters hear which limit was met with a heartbeat, which has to come within the hasty one's grace.
    settings: dict[str, dict[str, object]] = {
        "worker": {"disk_reserve": "1MiB", "directories": [directory]},
        "lease": {"heartbeat": "200ms"},
    }
    with (
        local_cluster(masters=1, workers=1, dir=root, settings=settings) as cluster,
        Session(cluster.endpoints, app="room") as session,
    ):
        waiting = Pushing(programs, cluster, session, maps=1)
        hasty = Pushing(programs, cluster, session, maps=1, holds=(str(8 * MIB), "1500"))
        hasty.say(records=1_000, sizes=[100 * KIB], codec="NONE")
        (failed,) = hasty.results().values()
        assert failed["status"] == Status.NO_ROOM, failed
        assert re.search(r"worker w1: .*/w1 \(SSD\) .* used of 72\.0 MiB, the capacity", failed["error"]), failed
        waiting.say(records=100, sizes=[100 * KIB], codec="NONE")
        hasty.shuffle.unregister()
        assert {result["status"] for result in waiting.results().values()} == {0}
        waiting.check()


@pytest.mark.long
def test_a_slow_disk_slows_its_writers(programs: Programs, tmp_path: Path) -> None:
    """A worker that may hold little and writes slowly makes eight tasks wait; none of them fails."""
    slow: dict[str, dict[str, object]] = {
        "worker": {"memory": "64MiB"},
        "faults": {"enabled": True, "disk_rate": "40MiB"},
    }
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=slow) as cluster,
        Session(cluster.endpoints, app="slow") as session,
    ):
        pushing = Pushing(programs, cluster, session, maps=8)
        pushing.push(records=100, sizes=[1_000, 100 * KIB, 300 * KIB], codec="NONE")
        pushing.check()


@pytest.mark.long
def test_the_leader_and_a_worker_die_together(programs: Programs, tmp_path: Path) -> None:
    """New places are asked for while there is no leader: the tasks wait for the next one and go on."""
    with (
        local_cluster(masters=3, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="both") as session,
    ):
        pushing = Pushing(programs, cluster, session, copies=1)
        pushing.say("halt", records=300, sizes=[60_000], codec="NONE")
        pushing.program.hear("HALF")
        cluster.leader().kill()
        cluster.workers[0].kill()
        pushing.program.say("go")
        results = pushing.results(180)
        assert {result["status"] for result in results.values()} == {0}, results
        cluster.workers[0].start()
        pushing.check()
