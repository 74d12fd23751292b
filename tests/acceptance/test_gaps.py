"""What no test of Apache Celeborn covers and promises.md lists as gaps: kills and restarts at every point."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.client import Ack, ReduceShuffle, Session
from holdfast.client.cluster.local import LocalCluster
from holdfast.client.cluster.server import Server
from holdfast.client.connection.direct import worker_status
from holdfast.client.connection.ticket import Ticket
from holdfast.client.read.manifests import PushManifest
from holdfast.common.errors import DataLostError, GiveUpError, UnknownStreamError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Role, StreamCredit
from holdfast.common.formats.reduce_layouts import CopyResult, EpochResult, ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import ChunksOpen, ChunksOpened, SealedEpoch
from holdfast.common.ids import AttemptId, Epoch, PartitionId, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.statuses import Status
from tests.acceptance.test_fetch_rows import files_of
from tests.support.reduce_client import MAPS, PARTITIONS, Contents, Records, contents, fill, push, read, records_of
from tests.support.reduce_data import CLUSTER, WorkerProcess, Writer, shuffle_of
from tests.support.waiting import wait_until

#: A reader waits as long for a worker that is silent, and a commit for one that is gone.
GRACE_SECONDS = 30.0


def large(shuffle: ReduceShuffle, records: int = 50, size: int = 200_000) -> Contents:
    """Commit three maps with several chunks in every partition."""
    rng = random.Random(4)
    data: dict[int, Records] = {
        map_id: [(number % PARTITIONS, rng.randbytes(size)) for number in range(records * PARTITIONS)]
        for map_id in range(3)
    }
    with ThreadPoolExecutor(3) as pool:
        statuses = pool.map(lambda map_id: push(shuffle, map_id, map_id, data[map_id]), data)
        shuffle.commit(statuses)
    return contents(data)


def restart(workers: Sequence[Server]) -> None:
    """Kill them with -9, and start them beside one another."""
    for worker in workers:
        worker.kill()
        worker.start(wait=False)
    for worker in workers:
        worker.wait_ready()


def add(found: Contents, reader: Iterator) -> Contents:
    """Read on to the end."""
    for record in reader:
        found[record.partition][record.map, bytes(record.payload)] += 1
    return found


def written_around(shuffle: ReduceShuffle, trouble: Callable[[], None], size: int) -> tuple[list, Contents]:
    """Four maps push two halves of their records at the same time, with trouble in between; nothing is pushed again."""
    data = {map_id: records_of(map_id, count=300, size_max=size) for map_id in range(MAPS)}
    writers = {map_id: shuffle.writer(map_id, 100 + map_id, buffer_bytes=2 * MIB) for map_id in data}
    for half in (0, 1):
        for map_id, writer in writers.items():
            for record in data[map_id][150 * half : 150 * (half + 1)]:
                writer.write(*record)
            writer.flush()
        if not half:
            trouble()
    return [writer.close() for writer in writers.values()], contents(data)


@pytest.mark.parametrize("size", [100_000, 500], ids=["push", "merged-push"])
def test_g2_kill_9_of_a_worker_mid_push_with_two_copies(cluster: LocalCluster, session: Session, size: int) -> None:
    """Batches alone in frames, and many small ones merged, are on their way when a worker dies for good: the same
    attempts go on, and every record is read once."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=2)
    statuses, expected = written_around(shuffle, cluster.workers[0].kill, size)
    begin = time.monotonic()
    shuffle.commit(statuses)
    assert read(shuffle) == expected
    assert time.monotonic() - begin < GRACE_SECONDS / 2, "a worker was waited for whose epochs all have another copy"
    assert any(epoch.epoch for epoch in shuffle.manifest().epochs.epochs), "nothing had to move"


def test_g2_kill_9_of_a_worker_mid_commit_with_two_copies(cluster: LocalCluster, session: Session) -> None:
    """One worker does not answer its seal and dies while the others have answered: the commit ends, all is read."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, replication=2)
    data = {map_id: records_of(map_id) for map_id in range(MAPS)}
    statuses = [push(shuffle, map_id, map_id, records) for map_id, records in data.items()]
    victim, *others = cluster.workers

    def seals() -> int:
        return sum(worker_status(worker.http)["counters"]["epoch_seals"] for worker in others)

    before = seals()
    victim.kill(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(shuffle.commit, statuses)
        wait_until(lambda: seals() >= before + 2, "the other seals")
        victim.kill()
        commit.result()
    assert read(shuffle) == contents(data)


def test_g2_kill_9_of_a_worker_mid_fetch_with_two_copies(cluster: LocalCluster, session: Session) -> None:
    """Workers die one after the other while a reader has part of their data: it ends with every record, each once."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, replication=2)
    expected = large(shuffle)
    for victim in cluster.workers[:2]:
        reader = shuffle.reader(range(PARTITIONS))
        first = next(reader)
        victim.kill()
        found = contents({first.map: [(first.partition, bytes(first.payload))]})
        assert add(found, reader) == expected
        victim.start()


@pytest.mark.parametrize("ack", [Ack.MEMORY, Ack.WRITTEN])
def test_g3_kill_9_and_restart_before_the_commit_without_replication(
    cluster: LocalCluster, session: Session, ack: Ack
) -> None:
    """The only copy dies with what it acknowledged and comes back at once: WRITTEN has kept it; from MEMORY each
    partition that had something there is refused by name, and the others are exact."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS, ack=ack)
    data = {map_id: records_of(map_id) for map_id in range(MAPS)}
    statuses = [push(shuffle, map_id, map_id, records) for map_id, records in data.items()]
    cluster.workers[1].kill()
    cluster.workers[1].start()
    shuffle.commit(statuses)
    lost = {epoch.partition for epoch in shuffle.manifest().epochs.epochs if epoch.lost}
    assert bool(lost) == (ack is Ack.MEMORY)
    for partition in range(PARTITIONS):
        if partition in lost:
            with pytest.raises(DataLostError, match=f"partition {partition} epoch 0"):
                read(shuffle, [partition])
        else:
            assert read(shuffle, [partition]) == {partition: contents(data)[partition]}


def test_g3_an_orderly_restart_loses_no_epoch_in_memory_without_a_batch(
    cluster: LocalCluster, session: Session
) -> None:
    """What was placed on a worker, at level MEMORY, and had no batch when that was restarted in order, is not called
    lost: nobody runs maps again for it."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, 1, ack=Ack.MEMORY)
    for worker in cluster.workers:
        worker.stop()
        worker.start()
    shuffle.commit([push(shuffle, 0, 0, records_of(0))])
    assert [epoch for epoch in shuffle.manifest().epochs.epochs if epoch.lost] == []
    assert read(shuffle) == contents({0: records_of(0)})


def test_g3_kill_9_loses_exactly_the_epochs_in_memory_that_had_a_batch(cluster: LocalCluster, session: Session) -> None:
    """One acknowledged batch in memory and kill -9: its epoch is lost by name, and no other one of that worker."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, 1, ack=Ack.MEMORY)
    status = push(shuffle, 0, 0, [(3, b"a record")])
    for worker in cluster.workers:
        worker.kill()
        worker.start()
    shuffle.commit([status])
    assert {epoch.partition for epoch in shuffle.manifest().epochs.epochs if epoch.lost} == {3}
    with pytest.raises(DataLostError, match="partition 3 epoch 0"):
        read(shuffle, [3])


def test_g3_kill_9_mid_push_without_replication_keeps_what_was_written(cluster: LocalCluster, session: Session) -> None:
    """WRITTEN, one copy, kill -9 while four maps push, and a restart before the commit: the same attempts go on
    elsewhere, and every record is read once."""
    shuffle = session.register_reduce_shuffle(PARTITIONS, MAPS)
    statuses, expected = written_around(shuffle, cluster.workers[0].kill, 100_000)
    cluster.workers[0].start()
    shuffle.commit(statuses)
    assert read(shuffle) == expected
    assert any(epoch.epoch for epoch in shuffle.manifest().epochs.epochs), "nothing had to move"


def in_the_middle(work: Sequence[Callable[[], object]], trouble: Callable[[], None]) -> None:
    """Do the work in a thread; the trouble comes when the first piece of it is done."""
    first = threading.Event()

    def run() -> None:
        for each in work:
            each()
            first.set()

    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(run)
        wait_until(lambda: first.is_set() or whole.done(), "the first piece")
        trouble()
        whole.result()


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_g4_the_leader_goes_in_every_phase(cluster: LocalCluster, session: Session, blow: signal.Signals) -> None:
    """The leader is killed, or stands still, while shuffles are registered, pushed to, committed and unregistered: all
    of it is carried out, and nothing that was not unregistered is gone."""
    shuffles: list[ReduceShuffle] = []
    data = {map_id: records_of(map_id) for map_id in range(6)}
    hit: list[Server] = []

    def trouble() -> None:
        while hit:
            master = hit.pop()
            master.kill(signal.SIGCONT) if blow is signal.SIGSTOP else master.start()
        hit.append(cluster.leader())
        hit[0].kill(blow)

    def pushed(number: int) -> None:
        statuses.append(push(shuffles[number], 0, number, data[number]))

    in_the_middle([lambda: shuffles.append(session.register_reduce_shuffle(PARTITIONS))] * 6, trouble)
    statuses: list = []
    in_the_middle([lambda number=number: pushed(number) for number in range(6)], trouble)  # type: ignore[misc]
    in_the_middle([lambda n=n: shuffles[n].commit([statuses[n]]) for n in range(6)], trouble)  # type: ignore[misc]
    in_the_middle([shuffle.unregister for shuffle in shuffles[:3]], trouble)
    for number in range(3, 6):
        assert read(shuffles[number]) == contents({0: data[number]})
    for shuffle in shuffles[:3]:
        with pytest.raises(GiveUpError) as gone:
            session.open_reduce_shuffle(shuffle.key.shuffle)
        assert gone.value.status in (Status.UNKNOWN_GENERATION, Status.UNKNOWN_SHUFFLE)


def test_g6_two_restarts_one_after_the_other(cluster: LocalCluster, session: Session) -> None:
    """Workers killed twice in a row, and then ended in order: what was sealed is read, and what was only acknowledged
    before the first kill is sealed and read, too."""
    sealed, expected = fill(session)
    left = session.register_reduce_shuffle(PARTITIONS, MAPS)
    data = {map_id: records_of(10 + map_id) for map_id in range(MAPS)}
    statuses = [push(left, map_id, map_id, records) for map_id, records in data.items()]
    for _ in range(2):
        restart(cluster.workers)
    left.commit(statuses)
    assert read(left) == contents(data)
    for worker in cluster.workers:
        assert worker.stop() == 0
        worker.start(wait=False)
    for worker in cluster.workers:
        worker.wait_ready()
    assert read(sealed) == expected
    assert read(left) == contents(data)


def test_g7_killed_while_ranges_are_read_and_sorted(cluster: LocalCluster, session: Session) -> None:
    """Two readers take ranges of maps out of many short runs, which has the workers sort them, and all workers are
    killed and restarted: both readers end right, so do others by range and whole, and the files are what they were."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    expected = large(shuffle, records=300, size=10_000)
    before = files_of(cluster, shuffle)
    ranges = (range(1, 3), range(2, 3))
    wanted = [
        {p: {key: n for key, n in each.items() if key[0] in maps} for p, each in expected.items()} for maps in ranges
    ]
    readers = [shuffle.reader(range(PARTITIONS), maps=maps) for maps in ranges]
    firsts = [next(reader) for reader in readers]
    restart(cluster.workers)
    for first, reader, whole in zip(firsts, readers, wanted, strict=True):
        assert add(contents({first.map: [(first.partition, bytes(first.payload))]}), reader) == whole
    for _ in range(2):
        assert [read(shuffle, maps=maps) for maps in ranges] == wanted
    assert read(shuffle) == expected
    assert files_of(cluster, shuffle) == before


def test_g8_a_chunk_is_tried_again_on_a_copy_with_other_boundaries(tmp_path: Path) -> None:
    """Two workers hold the same batches in another order, so chunk 1 of one is not chunk 1 of the other. The one that a
    reader began with dies in the middle: the rest comes from the other one, and every batch comes once."""
    copies = [WorkerProcess(tmp_path / f"w{number}", number) for number in (1, 2)]
    shuffle, rng = shuffle_of(), random.Random(8)
    writers = [Writer(shuffle, map=number, attempt=number) for number in range(5)]
    data = {writer.map: [(0, rng.randbytes(rng.randrange(100_000, 1_500_000))) for _ in range(8)] for writer in writers}
    made = {
        writer.map: [writer.batch(0, payload) for _, payload in data[writer.map]] + [writer.batch(0, b"", last=True)]
        for writer in writers
    }

    async def fill_one(worker: WorkerProcess, order: Sequence[Writer]) -> tuple[SealedEpoch, list[int]]:
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            for writer in order:
                for batch in made[writer.map]:
                    assert await client.push(writer, [batch]) == {}
            (answer,) = await master.seal(shuffle, [(0, 0)])
            read = await client.read(shuffle, [(0, 0, 0)])
            return answer, [len(chunk) for _, chunk in sorted(read.chunks.items())]

    try:
        for worker in copies:
            worker.start()
        first, sizes = asyncio.run(fill_one(copies[0], writers))
        second, others = asyncio.run(fill_one(copies[1], writers[::-1]))
        assert min(len(sizes), len(others)) > 2
        assert sizes != others, "both copies have the same chunks"
        results = [CopyResult(WorkerId(n), one.status, one.size_bytes) for n, one in ((1, first), (2, second))]
        reduce = ReduceShuffle(
            Ticket("127.0.0.1:1", CLUSTER, shuffle.instance, bytes(16)),
            shuffle,
            1,
            b"",
            {},
            _manifest=PushManifest(
                ReduceWinners(1, tuple(AttemptId(writer.attempt) for writer in writers)).encode(),
                ReduceManifest(1, (EpochResult(PartitionId(0), Epoch(0), tuple(results)),)).encode(),
                {WorkerId(number): worker.ready["data"] for number, worker in enumerate(copies, 1)},
            ),
        )
        reader, found, taken = reduce.reader([0]), contents({}), 0
        while taken < sizes[0] + MIB:
            record = next(reader)
            found[0][record.map, bytes(record.payload)] += 1
            taken += len(record.payload)
        copies[0].kill()
        assert add(found, reader) == contents(data)
    finally:
        for worker in copies:
            worker.kill()


def test_g13_restarts_between_open_and_first_fetch(cluster: LocalCluster, session: Session) -> None:
    """Streams to all workers are open and hardly begun when every worker is restarted: the reader opens them again at
    once instead of waiting for an answer that will not come."""
    shuffle = session.register_reduce_shuffle(PARTITIONS)
    expected = large(shuffle)
    reader = shuffle.reader(range(PARTITIONS))
    first = next(reader)
    restart(cluster.workers)
    begin = time.monotonic()
    assert add(contents({first.map: [(first.partition, bytes(first.payload))]}), reader) == expected
    assert time.monotonic() - begin < GRACE_SECONDS / 2, "a stream of an earlier start was waited for"


def test_g13_a_stream_of_an_earlier_start_is_unknown_at_once(tmp_path: Path) -> None:
    """A stream of chunks is opened without credit, the worker restarted: credit for it is refused as UNKNOWN_STREAM,
    and opened again it brings everything."""
    worker = WorkerProcess(tmp_path / "worker")
    worker.start()

    async def story() -> None:
        writer = Writer(shuffle_of())
        files = [(0, 0, 0)]
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            assert await client.push(writer, [writer.batch(0, b"x" * 10_000)]) == {}
            await master.seal(writer.shuffle, [(0, 0)])
            request = ChunksOpen(shuffle=writer.shuffle, credit_bytes=0, files=files)
            answer = await client.ask(FrameType.CHUNKS_OPEN, request.encode())
            stream = ChunksOpened.decode(answer.meta).stream
        worker.kill()
        worker.start()
        async with worker.client() as client:
            with pytest.raises(UnknownStreamError):
                await client.ask(FrameType.STREAM_CREDIT, StreamCredit(stream=stream, credit_bytes=1 * MIB).encode())
            batches = (await client.read(writer.shuffle, files)).batches(writer.shuffle, files)
            assert [bytes(batch.payload) for batch in batches[0]] == [b"x" * 10_000]

    try:
        asyncio.run(asyncio.wait_for(story(), 60))
    finally:
        worker.kill()
