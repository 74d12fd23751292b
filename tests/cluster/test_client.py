"""The client against real masters and workers: what is written is read, whoever is killed in between."""

import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Ack, Codec, MapShuffle, MapStatus, Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.write.writer import MapWriter
from holdfast.common.errors import (
    ApplicationGoneError,
    ConfigError,
    ConflictError,
    CorruptError,
    DataLostError,
    GiveUpError,
    RetryError,
)
from holdfast.common.ids import BROADCAST_PARTITION
from holdfast.common.limits import COPIES_MAX, MIB
from holdfast.common.log_events import LogEvent
from tests.support.logged import logged
from tests.support.waiting import wait_until

PARTITIONS = 10
#: Per partition, how often each (map, payload) is there.
Contents = dict[int, Counter[tuple[int, bytes]]]


def random_regions(seed: int, regions: int = 3, size_max: int = 200_000) -> list[list[tuple[int, bytes]]]:
    """Regions of random partitions with payloads from one byte to `size_max`."""
    rng = random.Random(seed)
    sizes = [1, 100, 5_000, size_max]
    return [
        sorted((rng.randrange(PARTITIONS), rng.randbytes(rng.choice(sizes))) for _ in range(rng.randrange(1, 12)))
        for _ in range(regions)
    ]


def write(shuffle: MapShuffle, map_id: int, attempt: int, regions: Sequence[list[tuple[int, bytes]]]) -> MapStatus:
    with shuffle.writer(map_id, attempt) as writer:
        for region in regions[:-1]:
            writer.write_region(region)
        return writer.close(regions[-1])


def contents(maps: Mapping[int, Sequence[list[tuple[int, bytes]]]]) -> Contents:
    """What a reader must get, as a multiset per partition."""
    found: Contents = defaultdict(Counter)
    for map_id, regions in maps.items():
        for partition, payload in (part for region in regions for part in region):
            found[partition][map_id, payload] += 1
    return found


def read(shuffle: MapShuffle, partitions: Iterable[int] = range(PARTITIONS)) -> Contents:
    found: Contents = defaultdict(Counter)
    for record in shuffle.reader(partitions):
        found[record.partition][record.map, bytes(record.payload)] += 1
    return found


def fill(session: Session, maps: int = 4, **options: Any) -> tuple[MapShuffle, Contents]:
    """A committed shuffle with random contents."""
    shuffle = session.register_map_shuffle(PARTITIONS, **options)
    data = {map_id: random_regions(map_id) for map_id in range(maps)}
    shuffle.commit([write(shuffle, map_id, 100 + map_id, regions) for map_id, regions in data.items()])
    return shuffle, contents(data)


def restart(cluster: LocalCluster, *workers: int) -> None:
    for index in workers:
        cluster.workers[index].kill()
    for index in workers:
        cluster.workers[index].start()


def test_what_is_written_is_read(session: Session) -> None:
    """All partitions at once, one by one and in odd ranges: the same multiset, from both workers."""
    shuffle, wanted = fill(session)
    assert read(shuffle) == wanted
    one_by_one: Contents = defaultdict(Counter)
    for partition in range(PARTITIONS):
        one_by_one.update(read(shuffle, [partition]))
    assert one_by_one == wanted
    assert read(shuffle, [7, 2, 3, 4]) == {
        partition: wanted[partition] for partition in (2, 3, 4, 7) if partition in wanted
    }
    winners = shuffle.manifest().winners.maps
    assert {worker for winner in winners for worker in winner.workers} == {1, 2}, "maps are spread over the ring"


def test_empty_maps_and_empty_shuffles(session: Session) -> None:
    """A map without output, a shuffle of such maps and one without maps read as nothing."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    shuffle.commit([write(shuffle, 0, 1, [[]]), write(shuffle, 1, 2, [[(3, b"x")]])])
    assert read(shuffle) == {3: Counter({(1, b"x"): 1})}
    nothing = session.register_map_shuffle(PARTITIONS)
    nothing.commit([])
    assert read(nothing) == {}


def test_large_payloads_and_compression(session: Session) -> None:
    """Payloads above a batch, compressible and not, come back as they were written, broadcast ones too."""
    shuffle = session.register_map_shuffle(2)
    noise, text = random.Random(1).randbytes(20 * MIB), b"holdfast " * 3_000_000
    everybody = [b"for everybody", text[:1000]]
    with shuffle.writer(0, 1, codec=Codec.LZ4) as writer:
        writer.write_broadcast(everybody)
        writer.write_region([(0, text), (1, noise)])
        status = writer.close([(0, b"end")])
    assert status.winner.size_bytes < 25 * MIB
    shuffle.commit([status])
    records = [(record.partition, bytes(record.payload)) for record in shuffle.reader([0, 1])]
    wanted = [(BROADCAST_PARTITION, payload) for payload in everybody] + [(0, text), (0, b"end"), (1, noise)]
    assert sorted(records) == sorted(wanted)
    assert [bytes(payload) for payload in shuffle.read_broadcast(0)] == everybody


def test_a_loser_is_never_read(session: Session) -> None:
    """Two attempts of one map are sealed; only the one in the commit is ever delivered."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    loser = write(shuffle, 0, 1, [[(p, b"loser") for p in range(PARTITIONS)]])
    winner = write(shuffle, 0, 2, [[(p, b"winner") for p in range(0, PARTITIONS, 2)]])
    with pytest.raises(ConflictError, match="two attempts"):
        shuffle.commit([loser, winner])
    shuffle.commit([winner])
    assert read(shuffle) == {p: Counter({(0, b"winner"): 1}) for p in range(0, PARTITIONS, 2)}
    shuffle.commit([winner])
    with pytest.raises(ConflictError):
        shuffle.commit([loser])


def test_an_aborted_attempt_leaves_nothing(session: Session) -> None:
    """An exception inside the writer's block aborts; another attempt of the map can follow at once."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    with pytest.raises(ZeroDivisionError), shuffle.writer(0, 1) as writer:  # noqa: PT012 - the block is the matter
        writer.write_region([(0, b"half")])
        _ = 1 // 0
    shuffle.commit([write(shuffle, 0, 2, [[(0, b"whole")]])])
    assert read(shuffle) == {0: Counter({(0, b"whole"): 1})}


def test_kill_between_write_and_read(shared: LocalCluster, session: Session) -> None:
    """Both workers are killed with -9 after the commit and restarted: nothing is lost, no map runs again."""
    shuffle, wanted = fill(session)
    restart(shared, 0, 1)
    assert read(shuffle) == wanted


def test_reader_waits_for_a_restarting_worker(shared: LocalCluster, session: Session) -> None:
    """A reader that starts while a worker is down gets its data once the worker is back."""
    shuffle, wanted = fill(session)
    for worker in shared.workers:
        worker.kill()
    found: list[Contents] = []
    reading = threading.Thread(target=lambda: found.append(read(shuffle)), daemon=True)
    reading.start()
    for worker in shared.workers:
        worker.start()
    reading.join(60)
    assert found == [wanted]


def test_kill_in_the_middle_of_a_write(shared: LocalCluster, session: Session) -> None:
    """The worker of a half-written map is killed and restarted; the writer sends all again and the task never knows."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    regions = random_regions(5, regions=6, size_max=3_000_000)
    with shuffle.writer(0, 1, spool_bytes=4 * MIB) as writer:
        for index, region in enumerate(regions[:-1]):
            writer.write_region(region)
            if index == 2:
                restart(shared, 0, 1)
        status = writer.close(regions[-1])
    assert status.winner.epoch > 0
    shuffle.commit([status])
    assert read(shuffle) == contents({0: regions})


def test_kill_in_the_middle_of_a_read(shared: LocalCluster, session: Session) -> None:
    """After the first record both workers are killed and restarted; the rest comes, nothing twice."""
    shuffle = session.register_map_shuffle(2)
    data = {m: [[(0, random.Random(m).randbytes(3 * MIB)) for _ in range(8)]] for m in range(2)}
    shuffle.commit([write(shuffle, m, m, regions) for m, regions in data.items()])
    found: Counter[tuple[int, bytes]] = Counter()
    for record in shuffle.reader([0]):
        if not found:
            restart(shared, 0, 1)
        found[record.map, bytes(record.payload)] += 1
    assert found == contents(data)[0]


def test_two_copies_survive_a_worker(tmp_path: Path) -> None:
    """With two copies one worker can be killed for good: readers use the other copy."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="copies") as session,
    ):
        shuffle, wanted = fill(session, replication=2)
        assert all(len(set(winner.workers)) == 2 for winner in shuffle.manifest().winners.maps)
        cluster.workers[0].kill()
        assert read(shuffle) == wanted


def test_flipped_bytes_never_become_rows(
    shared: LocalCluster, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """A byte flipped in a data file is a CorruptError that names shuffle, partition, map, attempt, epoch and worker,
    and a warning in the log."""
    marker = random.Random(9).randbytes(5000)
    shuffle = session.register_map_shuffle(PARTITIONS)
    shuffle.commit([write(shuffle, 0, 77, [[(2, b"good"), (4, marker), (6, b"good too")]])])
    _flip(*_find(shared.directory, marker[1000:1100]))
    with pytest.raises(CorruptError) as caught:
        read(shuffle, [4])
    (told,) = logged(caplog, LogEvent.READ_CORRUPT)
    assert told["shuffle"] == shuffle.key
    for word in (str(shuffle.key), "partition 4", "map 0", "attempt 77", "epoch 0", f"worker {told['worker']}"):
        assert word in str(caught.value)
    assert "checksum" in str(told["reason"])


def test_a_damaged_copy_shows_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A byte flipped in the only copy in reach: the log names its worker and the place at once, and the read goes on
    with the other copy when that is back."""
    marker = random.Random(9).randbytes(5000)
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="flip") as session,
        ThreadPoolExecutor(1) as pool,
    ):
        shuffle = session.register_map_shuffle(PARTITIONS, replication=2)
        shuffle.commit([write(shuffle, 0, 77, [[(4, marker)]])])
        cluster.workers[1].kill()
        _flip(*_find(cluster.directory / "w1", marker[1000:1100]))
        reading = pool.submit(read, shuffle, [4])
        wait_until(lambda: logged(caplog, LogEvent.READ_CORRUPT), "the log tells of it")
        cluster.workers[1].start()
        assert reading.result() == {4: Counter({(0, marker): 1})}
    (told,) = logged(caplog, LogEvent.READ_CORRUPT)
    assert told["address"] == cluster.workers[0].address
    assert "partition 4" in str(told["reason"])


def test_a_shuffle_that_is_dropped_while_it_is_read_is_not_called_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a dropped shuffle's stream lacks is no damage: the read ends with the word that it was dropped, and nobody
    is sent to check a disk."""
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        Session(cluster.endpoints, app="dropped") as session,
    ):
        shuffle = session.register_map_shuffle(20_000)
        noise = random.Random(3).randbytes(600)
        region = [(partition, noise) for partition in range(20_000)]
        shuffle.commit([write(shuffle, 0, 77, [region] * 9)])
        records = iter(shuffle.reader(range(20_000)))
        next(records)
        (folder,) = (cluster.directory / "w1" / "data").glob("*/*")
        shuffle.unregister()
        wait_until(lambda: not folder.exists(), "its files are gone")
        with pytest.raises(GiveUpError, match="was dropped"):
            for _ in records:
                pass
    assert logged(caplog, LogEvent.READ_CORRUPT) == []


def _flip(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def _find(directory: Path, needle: bytes) -> tuple[Path, int]:
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix != ".mdb":
            offset = path.read_bytes().find(needle)
            if offset >= 0:
                return path, offset
    raise AssertionError("the payload is in no file")


def test_another_session_attaches(shared: LocalCluster) -> None:
    """A second session reads by the shuffle's number, with a lease of its own that outlives the first session."""
    with Session(shared.endpoints, app="attached") as first:
        shuffle, wanted = fill(first)
        second = Session(shared.endpoints, app="attached", attach=True)
    with second:
        assert second.instance == first.instance
        assert second.cluster_id == first.cluster_id != ""
        assert read(second.open_shuffle(shuffle.key.shuffle)) == wanted
        own, more = fill(second)
        assert read(own) == more


def test_nothing_is_left_to_attach_to(shared: LocalCluster) -> None:
    """An unknown application and a closed one are APPLICATION_GONE, with a hint."""
    with pytest.raises(ApplicationGoneError):
        Session(shared.endpoints, app="never heard of", attach=True)
    with Session(shared.endpoints, app="closed") as session:
        shuffle = session.register_map_shuffle(1)
    with pytest.raises(ApplicationGoneError):
        shuffle.commit([])


def test_an_unregistered_shuffle_is_gone(session: Session) -> None:
    """After unregister the masters know nothing of the shuffle."""
    shuffle, _ = fill(session, maps=1)
    shuffle.unregister()
    with pytest.raises(GiveUpError, match="dropped"):
        session.open_shuffle(shuffle.key.shuffle)


def test_a_shuffle_travels(session: Session) -> None:
    """A pickled MapShuffle writes and reads in a forked child and in a fresh process; the parent goes on meanwhile."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    parent = write(shuffle, 0, 1, [[(0, b"parent")]])
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_write_in_child, args=(shuffle, sender))
    child.start()
    status = MapStatus.from_bytes(receiver.recv_bytes())
    child.join(30)
    assert child.exitcode == 0
    shuffle.commit([parent, status])
    code = (
        "import pickle, sys\n"
        "shuffle = pickle.load(sys.stdin.buffer)\n"
        "print(sorted((r.map, bytes(r.payload)) for r in shuffle.reader([0])))\n"
        "print('grpc' in sys.modules)\n"
    )
    fresh = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(shuffle), capture_output=True, check=True)
    assert fresh.stdout.decode().splitlines() == ["[(0, b'parent'), (1, b'child')]", "False"]


def _write_in_child(shuffle: MapShuffle, sender: "multiprocessing.connection.Connection") -> None:
    with shuffle.writer(1, 2) as writer:
        sender.send_bytes(writer.close([(0, b"child")]).to_bytes())


def test_a_session_stays_in_its_process(session: Session) -> None:
    """A forked child neither uses nor ends its parent's session."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_use_session, args=(session,))
    child.start()
    child.join(30)
    assert child.exitcode == 7
    assert session.register_map_shuffle(1).partitions == 1


def _use_session(session: Session) -> None:
    session.close()
    try:
        session.register_map_shuffle(1)
    except ConfigError:
        os._exit(7)


def test_wrong_arguments_say_what_is_right(shared: LocalCluster, session: Session) -> None:
    """Mistakes are ConfigErrors before anything is sent."""
    for wrong in (0, -1, 10**7):
        with pytest.raises(ConfigError, match="partitions"):
            session.register_map_shuffle(wrong)
    with pytest.raises(ConfigError, match="replication"):
        session.register_map_shuffle(1, replication=COPIES_MAX + 1)
    with pytest.raises(ConfigError, match="'memory', 'written', 'synced'"):
        session.register_map_shuffle(1, ack="fsynced")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="app"):
        Session(shared.endpoints)
    with pytest.raises(ConfigError, match="endpoint"):
        Session("no port", app="x")
    shuffle, _ = fill(session, maps=1)
    with pytest.raises(ValueError, match="partitions"):
        list(shuffle.reader([PARTITIONS]))


def test_masters_and_levels_are_named_as_people_have_them(
    shared: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masters come as a text, as a list, or from HOLDFAST_MASTERS; a level by its name. Without masters the error names
    the variable."""
    for endpoints in (shared.endpoints, shared.endpoints.split(",")):
        with Session(endpoints, app="named") as session:
            assert session.register_reduce_shuffle(1, ack="synced").ack is Ack.SYNCED
    monkeypatch.setenv("HOLDFAST_MASTERS", shared.endpoints)
    with Session(app="named") as session:
        assert session.register_map_shuffle(1, ack="Memory").ack is Ack.MEMORY  # type: ignore[arg-type]
    monkeypatch.delenv("HOLDFAST_MASTERS")
    with pytest.raises(ConfigError, match="HOLDFAST_MASTERS"):
        Session(app="named")


def test_wrong_numbers_say_what_is_right(shared: LocalCluster, session: Session) -> None:
    """What no server would take is a ConfigError here, whatever the wire could carry; nothing waits for an answer."""
    for lease in (-5.0, 0.0, 1e18, float("nan")):
        with pytest.raises(ConfigError, match="lease_seconds"):
            Session(shared.endpoints, app="x", lease_seconds=lease)
    for number in (-1, 1 << 32):
        with pytest.raises(ConfigError, match="shuffle_id"):
            session.open_shuffle(number)
        with pytest.raises(ConfigError, match="generation"):
            session.register_map_shuffle(1, shuffle_id=7, generation=number)
    shuffle, _ = fill(session, maps=1)
    wrong: Any
    for wrong in (-1, 1 << 40, "x"):
        with pytest.raises(ConfigError, match="map_id"):
            shuffle.writer(wrong, 1)
    for wrong in (-1, 1 << 64, None):
        with pytest.raises(ConfigError, match="attempt"):
            shuffle.writer(0, wrong)
    with pytest.raises(ConfigError, match="spool_bytes"):
        shuffle.writer(0, 1, spool_bytes=-1)
    with pytest.raises(ConflictError, match="no map 7"):
        shuffle.read_broadcast(7)


def test_counting_passes_chosen_numbers_by(session: Session) -> None:
    """A shuffle without a number never becomes one whose number the caller chose."""
    chosen = session.register_map_shuffle(PARTITIONS, shuffle_id=1)
    counted = [session.register_map_shuffle(PARTITIONS) for _ in range(3)]
    assert len({chosen.key, *(shuffle.key for shuffle in counted)}) == 4


def _use_reader(reading: Iterator[Any]) -> None:
    try:
        list(reading)
    except ConfigError:
        os._exit(7)


def test_a_reader_stays_in_its_process(session: Session) -> None:
    """A forked child is told so instead of waiting for a loop that it has not got; the parent reads on."""
    shuffle, wanted = fill(session, maps=2)
    reading = iter(shuffle.reader(range(PARTITIONS)))
    first = next(reading)
    child = multiprocessing.get_context("fork").Process(target=_use_reader, args=(reading,))
    child.start()
    child.join(30)
    assert child.exitcode == 7
    assert len([first, *reading]) == sum(counts.total() for counts in wanted.values())


def test_what_was_dropped_on_purpose_is_not_called_lost(session: Session) -> None:
    """A reader whose files are gone asks the masters why, and says what they say."""
    shuffle, _ = fill(session, maps=1)
    shuffle.manifest()
    shuffle.unregister()

    def gone() -> bool:
        try:
            list(shuffle.reader(range(PARTITIONS)))
        except GiveUpError as error:
            return "dropped" in str(error)
        return False  # the worker has not deleted it yet

    wait_until(gone, "the worker to delete it")


def test_a_closed_session_says_so(shared: LocalCluster) -> None:
    """Also while another one keeps the application alive; a commit of something else than statuses does, too."""
    with Session(shared.endpoints, app="closed") as session:
        other = Session(shared.endpoints, app="closed", attach=True)
        other.close()
        with pytest.raises(ConfigError, match="closed"):
            other.register_map_shuffle(1)
        shuffle: Any = session.register_map_shuffle(1)
        for wrong in (None, ["x"]):
            with pytest.raises(ConfigError, match="statuses"):
                shuffle.commit(wrong)


def test_a_region_that_fails_ends_the_attempt(session: Session) -> None:
    """A part of it may be at the worker already, so nothing more is taken, and nothing is left open."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    writer = shuffle.writer(0, 1)
    with pytest.raises(ValueError, match="ascend"):
        writer.write_region([(5, b"a"), (3, b"b")])
    with pytest.raises(GiveUpError, match="aborted"):
        writer.write_region([(5, b"a")])


def test_a_writer_stays_in_its_process(session: Session) -> None:
    """A forked child is told so instead of waiting for a loop that it has not got; the parent goes on."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    writer = shuffle.writer(0, 1)
    writer.write_region([(1, b"x")])
    child = multiprocessing.get_context("fork").Process(target=_use_writer, args=(writer,))
    child.start()
    child.join(30)
    assert child.exitcode == 7
    shuffle.commit([writer.close()])
    assert read(shuffle) == {1: Counter({(0, b"x"): 1})}


def _use_writer(writer: MapWriter) -> None:
    try:
        writer.close()
    except ConfigError:
        os._exit(7)


def test_many_partitions_of_many_files_leave_the_connection_usable(session: Session) -> None:
    """Frames whose heads alone are beyond the bound of held answers: the worker goes on reading requests."""
    shuffle = session.register_map_shuffle(40_000)
    regions = [[(number, b"%d" % number) for number in range(40_000)]]
    shuffle.commit([write(shuffle, number, number, regions) for number in range(2)])
    assert sum(int(bytes(record.payload)) == record.partition for record in shuffle.reader(range(40_000))) == 80_000
    assert list(write(shuffle, 2, 2, regions).winner.workers) != []


def test_the_leader_may_die_at_any_time(shared: LocalCluster, session: Session) -> None:
    """Register, commit and a first read of the manifest go on over a leader killed with -9."""
    shuffle = session.register_map_shuffle(PARTITIONS)
    status = write(shuffle, 0, 1, [[(1, b"x")]])
    leader = shared.leader()
    leader.kill()
    shuffle.commit([status])
    again = session.open_shuffle(shuffle.key.shuffle)
    assert read(again) == {1: Counter({(0, b"x"): 1})}
    leader.start()


def test_a_stopped_worker_is_left(tmp_path: Path) -> None:
    """A worker that is gone for good fails the read as DataLost after the grace, naming what to do."""
    quick = {"lease": {"worker": "1s", "heartbeat": "200ms"}}
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", settings=quick) as cluster,
        Session(cluster.endpoints, app="lost") as session,
    ):
        shuffle, _ = fill(session, maps=1)
        cluster.workers[0].kill()
        with pytest.raises(DataLostError, match="Start worker 1 again"):
            list(shuffle.reader(range(PARTITIONS), return_grace=0.1))


def test_a14_who_waits_for_masters_says_why_before_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A session that cannot be opened has said in the log why no master was found before it raises that."""
    monkeypatch.setattr("holdfast.client.session.OPEN_SECONDS", 2.0)
    monkeypatch.setattr("holdfast.common.net.control._SAY_S", 0.2)
    with caplog.at_level("WARNING"), pytest.raises(RetryError, match="there is no leader"):
        Session("127.0.0.1:1,127.0.0.1:2", app="nobody")
    reasons = [str(each["reason"]) for each in logged(caplog, LogEvent.LEADER_MISSING)]
    (own,) = [each for each in reasons if "127.0.0.1:2: " in each]
    assert "127.0.0.1:1: " in own


def test_no_master_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints where nobody listens: RetryError that names them and a command."""
    monkeypatch.setattr("holdfast.client.session.OPEN_SECONDS", 1.0)
    with pytest.raises(RetryError, match="holdfast status"):
        Session("127.0.0.1:1", app="nobody")
