"""A real worker process and raw frames: what was acknowledged is read back, whatever dies in between."""

import asyncio
import os
import random
import signal
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Ack, Role
from holdfast.common.formats.reduce_messages import ChunksOpen, PushAnswer, PushCredit
from holdfast.common.ids import ShuffleKey
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from tests.support.logged import lines_of
from tests.support.reduce_data import Made, WorkerProcess, Writer, names, refused, shuffle_of
from tests.support.waiting import wait_until


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    """A worker of its own."""
    process = WorkerProcess(tmp_path / "worker")
    process.start()
    yield process
    process.kill()


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a story to its end, or fail it after a minute."""

    async def bounded() -> None:
        await asyncio.wait_for(story, 60)

    asyncio.run(bounded())


def mixed(writer: Writer, partitions: int, rounds: int, sizes: tuple[int, ...]) -> list[list[Made]]:
    """Frames with batches of many sizes, some alone, some in runs."""
    rng = random.Random(7)
    frames = []
    for _ in range(rounds):
        frame = []
        for partition in range(partitions):
            count = rng.choice((1, 1, 1, 3))
            frame += [writer.batch(partition, os.urandom(rng.choice(sizes))) for _ in range(count)]
        frames.append(frame)
    return frames


def expected(frames: list[list[Made]], writer: Writer) -> dict[int, set[tuple[int, int, int]]]:
    """By partition, the names of all batches pushed."""
    found: dict[int, set[tuple[int, int, int]]] = {}
    for made in [made for frame in frames for made in frame]:
        found.setdefault(made.partition, set()).add((writer.map, writer.attempt, made.number))
    return found


@pytest.mark.parametrize("ack", list(Ack))
@pytest.mark.parametrize("sizes", [(100, 2_000), (3_000, 70_000, 400_000)])
def test_what_was_pushed_is_read_back(worker: WorkerProcess, ack: Ack, sizes: tuple[int, ...]) -> None:
    """Batches of any size and level come back whole, once each, and the seal counts them right."""

    async def story() -> None:
        writer = Writer(shuffle_of())
        frames = mixed(writer, 12, 8, sizes)
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            for frame in frames:
                assert await client.push(writer, frame, ack) == {}
            answers = await master.seal(writer.shuffle, [(partition, 0) for partition in range(13)])
            assert answers[12].status == Status.UNKNOWN_FILE
            files = [(partition, 0, 0) for partition in range(12)]
            read = await client.read(writer.shuffle, files)
            batches = read.batches(writer.shuffle, files)
            assert {p: set(names(found)) for p, found in batches.items()} == expected(frames, writer)
            for answer in answers[:12]:
                found = batches[answer.partition]
                assert answer.status == Status.OK
                assert answer.batches == len(found) == len(set(names(found)))
                assert answer.crc_sum == sum(one.crc for one in found) % 2**64
                assert read.opened.chunks[answer.partition] == answer.chunks
            assert read.opened.total_bytes == sum(answer.size_bytes for answer in answers)

    run(story())


@pytest.mark.parametrize("ack", [Ack.WRITTEN, Ack.SYNCED])
def test_what_was_acknowledged_survives_kill_9_mid_push(worker: WorkerProcess, ack: Ack) -> None:
    """After kill -9 with pushes on their way, the seal keeps every acknowledged batch, and replays its answer."""

    async def story() -> None:
        writer = Writer(shuffle_of())
        frames = mixed(writer, 40, 30, (100, 2_000, 20_000))
        acknowledged = []
        async with worker.client() as client:
            sent = []
            for frame in frames:
                meta, body = writer.push(frame, client.hello.incarnation, ack)
                sent.append(await client.send(FrameType.PUSH, meta, body))
            for frame in frames[:20]:
                answer = await client.receive()
                assert PushAnswer.decode(answer.meta).statuses == []
                acknowledged.append(frame)
            worker.kill()
        worker.start()
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            assert (await client.push(writer, frames[0], ack))[0] == Status.SEALED
            epochs = [(partition, 0) for partition in range(40)]
            answers = await master.seal(writer.shuffle, epochs)
            assert {answer.status for answer in answers} == {Status.OK}
            files = [(partition, 0, 0) for partition in range(40)]
            found = (await client.read(writer.shuffle, files)).batches(writer.shuffle, files)
            for partition, wanted in expected(acknowledged, writer).items():
                kept = names(found[partition])
                assert len(kept) == len(set(kept)), "recovery keeps each batch once"
                assert wanted <= set(kept)
        worker.kill()
        worker.start()
        async with worker.client(Role.MASTER) as master:
            assert await master.seal(writer.shuffle, epochs) == answers

    run(story())


def test_a47_a_disk_that_nobody_knows_to_hang_holds_up_no_end(
    worker: WorkerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    """A worker is told to end while a sync hangs on its disk, which no check has found out: after 10 s its log says
    what it waits for, and it ends soon after that, as if it were killed."""
    worker.kill()

    async def story() -> None:
        writer = Writer(shuffle_of())
        async with worker.client() as client:
            meta, body = writer.push([writer.batch(0, b"a")], client.hello.incarnation, Ack.SYNCED)
            await client.send(FrameType.PUSH, meta, body)
            pushed = partial(wait_until, lambda: worker.status()["counters"]["push_frames"] == 1, "the push to come")
            await asyncio.to_thread(pushed)
            assert worker.process is not None
            worker.process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(worker.process.wait, 50) == 0

    faults = {"HOLDFAST_FAULTS_ENABLED": "true", "HOLDFAST_FAULTS_DISK_DELAY": "1h"}
    worker.start(**faults, HOLDFAST_DISK_CHECK_INTERVAL="1h", HOLDFAST_LOG_LEVEL="WARNING")
    run(story())
    said = capfd.readouterr().err
    assert lines_of(said, LogEvent.WORKER_STOP_SLOW)
    assert 'what="a disk or a DFS that hangs"' in lines_of(said, LogEvent.WORKER_STOP_INCOMPLETE)[0]


def test_memory_is_lost_by_name_after_kill_9(worker: WorkerProcess) -> None:
    """What was acknowledged from memory is DATA_LOST after kill -9, never an empty answer."""

    async def story() -> None:
        writer = Writer(shuffle_of())
        async with worker.client() as client:
            assert await client.push(writer, [writer.batch(3, b"x" * 1_000)], Ack.MEMORY) == {}
        worker.kill()
        worker.start()
        async with worker.client(Role.MASTER) as master:
            answers = await master.seal(writer.shuffle, [(3, 0), (4, 0)])
            assert [answer.status for answer in answers] == [Status.DATA_LOST, Status.UNKNOWN_FILE]

    run(story())


def test_a07_memory_is_kept_by_a_worker_that_ends_in_order(worker: WorkerProcess) -> None:
    """A worker is stopped in order while no master answers, so that nothing was handed on: its next start has what it
    acknowledged from memory. It was called LOST, though nobody was killed."""

    async def story() -> None:
        writer = Writer(shuffle_of())
        async with worker.client() as client:
            for _ in range(3):
                batches = [writer.batch(partition, b"x" * 1_000) for partition in (3, 4)]
                assert await client.push(writer, batches, Ack.MEMORY) == {}
        worker.stop()
        worker.start()
        async with worker.client(Role.MASTER) as master:
            answers = await master.seal(writer.shuffle, [(3, 0), (4, 0)])
            assert [(answer.status, answer.batches) for answer in answers] == [(Status.OK, 3)] * 2

    run(story())


def test_each_status_has_its_reason(worker: WorkerProcess) -> None:
    """Stale incarnation, sealed epoch, committed generation and damaged body are refused, each by its number."""

    async def story() -> None:
        writer = Writer(shuffle_of())
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            stale = client.hello.incarnation + 1
            first = [writer.batch(0, b"a" * 50)]
            assert await refused(client.push(writer, first, incarnation=stale)) == Status.STALE_INCARNATION
            assert await client.push(writer, first) == {}
            assert await refused(client.push(writer, first, Ack.SYNCED)) == Status.CONFLICT
            meta, body = writer.push([writer.batch(1, b"b" * 50)], client.hello.incarnation)
            assert await refused(client.ask(FrameType.PUSH, meta, b"\x00" + body[1:])) == Status.CORRUPT
            await master.seal(writer.shuffle, [(0, 0)], final=False)
            both = [writer.batch(0, b"c"), writer.batch(5, b"d"), writer.batch(0, b"e")._replace(epoch=1)]
            assert await client.push(writer, both) == {0: Status.SEALED}
            await master.seal(writer.shuffle, [(0, 0), (0, 1), (5, 0)])
            assert await refused(client.push(writer, [writer.batch(9, b"f")])) == Status.COMMITTED

    run(story())


def test_a_batch_sent_twice_is_kept_once(worker: WorkerProcess) -> None:
    """Duplicates get the outcome of their first arrival and are not written again."""

    async def story() -> None:
        writer = Writer(shuffle_of())
        frames = [[writer.batch(partition, bytes([n]) * 500) for partition in range(6)] for n in range(5)]
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            for frame in [*frames, *frames, frames[2] + [writer.batch(0, b"new")]]:
                assert await client.push(writer, frame) == {}
            answers = await master.seal(writer.shuffle, [(partition, 0) for partition in range(6)])
            assert [answer.batches for answer in answers] == [6, 5, 5, 5, 5, 5]

    run(story())


def test_credit_is_respected(tmp_path: Path) -> None:
    """A push beyond its window is BUSY; windows are granted first come, first served, as others answer."""
    worker = WorkerProcess(tmp_path / "worker", memory="64MiB")
    worker.start()

    async def story() -> None:
        writer = Writer(shuffle_of())
        async with (
            worker.client(credit=0) as first,
            worker.client(credit=0) as second,
            worker.client(credit=0) as third,
        ):
            frame = [writer.batch(0, b"x" * 100_000)]
            assert await refused(first.push(writer, frame)) == Status.BUSY
            granted = await first.credit(1 << 30)
            assert 16 << 20 <= granted <= 52 << 20
            taken = [granted]
            async with worker.client(credit=0) as fourth:
                while sum(taken) + granted <= (64 << 20) * 4 // 5:
                    taken.append(await fourth.credit(granted))
                    break
                await second.send(FrameType.PUSH_CREDIT, PushCredit(50 << 20).encode())
                await third.send(FrameType.PUSH_CREDIT, PushCredit(1 << 20).encode())
                assert await first.push(writer, frame) == {}
            await first.credit(0)
            assert PushCredit.decode((await second.receive()).meta).size_bytes > 0
            assert PushCredit.decode((await third.receive()).meta).size_bytes > 0

    try:
        run(story())
    finally:
        worker.kill()


def test_a_narrow_disk_starves_nobody(tmp_path: Path) -> None:
    """Many clients at full speed and a disk of 20 MB/s: all are served, and bodies stay inside the budget."""
    worker = WorkerProcess(tmp_path / "worker", memory="64MiB")
    worker.start(HOLDFAST_FAULTS_ENABLED="true", HOLDFAST_FAULTS_DISK_RATE="20MiB")

    async def one(number: int) -> None:
        writer = Writer(shuffle_of(), map=number, attempt=number)
        async with worker.client(credit=0) as client:
            window, left = 0, 12
            batches = [writer.batch(number, b"x" * 262_144) for _ in range(left)]
            while batches:
                while window < 262_172:
                    window = await client.credit(1 << 20)
                meta, body = writer.push(batches[:1], client.hello.incarnation)
                await client.send(FrameType.PUSH, meta, body)
                answer = await client.receive()
                assert answer.header.status in (Status.OK, Status.BUSY)
                window = 0
                if answer.header.status == Status.OK:
                    window = PushAnswer.decode(answer.meta).credit_bytes
                    del batches[0]

    async def story() -> None:
        await asyncio.gather(*[one(number) for number in range(16)])
        async with worker.client(Role.MASTER) as master:
            answers = await master.seal(shuffle_of(), [(number, 0) for number in range(16)])
            assert {answer.batches for answer in answers} == {12}
        assert (await asyncio.to_thread(worker.status))["body_bytes_peak"] <= 64 << 20

    try:
        run(story())
    finally:
        worker.kill()


def test_splits_at_their_sizes(tmp_path: Path) -> None:
    """Past the soft limit batches are kept and told so; past the hard limit they are refused."""
    worker = WorkerProcess(tmp_path / "worker", soft_split="1MiB", hard_split="2MiB")
    worker.start()

    async def story() -> None:
        writer = Writer(shuffle_of())
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            statuses = [await client.push(writer, [writer.batch(0, b"x" * 99_972)]) for _ in range(25)]
            reported = [status.get(0, Status.OK) for status in statuses]
            assert reported == [Status.OK] * 11 + [Status.SOFT_SPLIT] * 10 + [Status.HARD_SPLIT] * 4
            (answer,) = await master.seal(writer.shuffle, [(0, 0)])
            assert (answer.status, answer.batches) == (Status.OK, 21)

    try:
        run(story())
    finally:
        worker.kill()


def test_row_15_ranges_of_maps_before_and_after_an_orderly_restart(worker: WorkerProcess) -> None:
    """CHUNKS_OPEN with a range of maps brings those batches and no others, of a large partition and of a small one that
    was packed with others; a worker that was ended in order and started again does the same."""

    async def ranges(shuffle: ShuffleKey) -> None:
        files = [(2, 0, 0), (3, 0, 0), (0, 0, 0)]
        async with worker.client() as client:
            for begin, end in [(0, 10), (3, 5), (9, 100), (20, 30)]:
                found = (await client.read(shuffle, files, (begin, end))).batches(shuffle, files)
                for partition in (0, 2, 3):
                    wanted = {(m, m, n) for m in range(begin, min(end, 10)) for n in range(6)}
                    assert set(names(found.get(partition, []))) == wanted

    async def story() -> None:
        shuffle = shuffle_of()
        writers = [Writer(shuffle, map=number, attempt=number) for number in range(10)]
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            for turn in range(6):
                for writer in writers:
                    batches = [writer.batch(p, os.urandom(3_000 + 40_000 * (turn % 2))) for p in range(3)]
                    batches += [writer.batch(p, os.urandom(100)) for p in (3, 4)]
                    assert await client.push(writer, batches) == {}
            await master.seal(shuffle, [(p, 0) for p in range(5)])
        kinds = {path.suffix for path in worker.data.rglob("*")}
        assert {".part", ".pack"} <= kinds, "one partition has a file of its own, another has not"
        await ranges(shuffle)
        await asyncio.to_thread(worker.stop)
        await asyncio.to_thread(worker.start)
        await ranges(shuffle)

    run(story())


def test_slices_of_a_skewed_partition_come_from_a_sorted_copy(worker: WorkerProcess) -> None:
    """A long epoch of short batches read slice by slice: every slice is exact, before and after there is a view by
    maps, and reading whole chunks and resuming in the middle bring what they brought before."""

    async def story() -> None:
        shuffle = shuffle_of()
        writers = [Writer(shuffle, map=number, attempt=number) for number in range(8)]
        async with worker.client() as client, worker.client(Role.MASTER) as master:
            for _ in range(36):
                for writer in writers:
                    assert await client.push(writer, [writer.batch(0, os.urandom(3_000)) for _ in range(20)]) == {}
            await master.seal(shuffle, [(0, 0)])

            async def read(begin: int, end: int, first: int = 0) -> list[tuple[int, int, int]]:
                found = await client.read(shuffle, [(0, 0, first)], (begin, end))
                return sorted(names(found.batches(shuffle, [(0, 0, first)]).get(0, [])))

            before = [await read(number, number + 2) for number in range(0, 8, 2)]
            assert before == [[(m, m, n) for m in (one, one + 1) for n in range(720)] for one in range(0, 8, 2)]
            rest = await read(2, 4, first=1)
            await asyncio.to_thread(wait_until, lambda: worker.status()["map_views"], "the view")
            assert [await read(number, number + 2) for number in range(0, 8, 2)] == before
            assert await read(0, 8) == sorted(name for each in before for name in each)
            assert await read(2, 4, first=1) == rest

    run(story())


def test_a_range_that_takes_long_to_find_keeps_nobody_waiting(worker: WorkerProcess) -> None:
    """A range of maps in the middle of an epoch of tiny batches: while it is looked for, the loop takes other requests.
    The range is exact, also where nothing is in it, and an epoch named twice is refused."""

    async def story() -> None:
        shuffle = shuffle_of()
        writers = [Writer(shuffle, map=number, attempt=number) for number in (0, 5, 9)]
        async with worker.client() as client, worker.client(Role.MASTER) as master, worker.client() as other:
            for turn in range(20):
                for writer in writers[:: 1 if turn == 10 else 2]:
                    batches = [writer.batch(0, b"z" * 12) for _ in range(8_000)]
                    assert await client.push(writer, batches) == {}
            await master.seal(shuffle, [(0, 0)])
            for maps, found in [((5, 6), 8_000), ((6, 9), 0)]:
                reading = asyncio.create_task(client.read(shuffle, [(0, 0, 0)], maps))
                pings = 0
                while not reading.done():
                    await other.ask(FrameType.PING)
                    pings += 1
                read = (await reading).batches(shuffle, [(0, 0, 0)])
                assert names(read.get(0, [])) == [(5, 5, number) for number in range(found)]
                assert pings > 10, "steps of 512 KiB in 13 MB"
            request = ChunksOpen(shuffle=shuffle, credit_bytes=0, files=[(0, 0, 0), (0, 0, 1)])
            await client.send(FrameType.CHUNKS_OPEN, request.encode())
            raw = await client.reader.read()
            assert b"named twice" in raw

    run(story())


def test_both_copies_hold_what_was_acknowledged(tmp_path: Path) -> None:
    """A push with a replica is on both workers; with the replica gone it is REPLICA_FAILED, and never acknowledged."""
    primary, replica = WorkerProcess(tmp_path / "a", 1), WorkerProcess(tmp_path / "b", 2)
    primary.start()
    replica.start()

    async def story() -> None:
        writer = Writer(shuffle_of())
        frames = mixed(writer, 8, 6, (200, 5_000, 50_000))
        async with primary.client() as client:
            for frame in frames:
                assert await client.push(writer, frame, replicas=(replica.place,)) == {}
            for process in (primary, replica):
                async with process.client() as reader, process.client(Role.MASTER) as master:
                    if process is replica:
                        answers = await master.seal(writer.shuffle, [(p, 0) for p in range(8)])
                        assert {answer.status for answer in answers} == {Status.OK}
                        files = [(p, 0, 0) for p in range(8)]
                        found = (await reader.read(writer.shuffle, files)).batches(writer.shuffle, files)
                        assert {p: set(names(one)) for p, one in found.items()} == expected(frames, writer)
            one = [writer.batch(0, b"sealed there")]
            assert await refused(client.push(writer, one, incarnation=99)) == Status.STALE_INCARNATION
            assert await client.push(writer, one, replicas=(replica.place,)) == {0: Status.REPLICA_FAILED}
            replica.kill()
            assert await client.push(writer, one, replicas=(replica.place,)) == {0: Status.REPLICA_FAILED}
            assert await client.push(writer, one, replicas=(replica.place,)) == {0: Status.REPLICA_FAILED}

    try:
        run(story())
    finally:
        primary.kill()
        replica.kill()


def test_three_copies_hold_what_was_acknowledged_and_the_failed_one_is_named(tmp_path: Path) -> None:
    """A push with two replicas is on all three workers when it is acknowledged; with the second replica gone the answer
    is REPLICA_FAILED and names that one, though the first has the batch."""
    workers = [WorkerProcess(tmp_path / name, number) for number, name in enumerate("abc", 1)]
    for each in workers:
        each.start()

    async def story() -> None:
        writer, places = Writer(shuffle_of()), (workers[1].place, workers[2].place)
        frames = mixed(writer, 4, 3, (200, 50_000))
        async with workers[0].client() as client:
            for frame in frames:
                assert await client.push(writer, frame, replicas=places) == {}
            workers[2].kill()
            meta, body = writer.push([writer.batch(0, b"late")], client.hello.incarnation, replicas=places)
            answer = PushAnswer.decode((await client.ask(FrameType.PUSH, meta, body)).meta)
            assert (answer.failed, answer.statuses) == (2, [(0, Status.REPLICA_FAILED)])
        workers[2].start()
        for each in workers:
            async with each.client() as reader, each.client(Role.MASTER) as master:
                await master.seal(writer.shuffle, [(p, 0) for p in range(4)])
                files = [(p, 0, 0) for p in range(4)]
                found = (await reader.read(writer.shuffle, files)).batches(writer.shuffle, files)
                wanted = expected(frames, writer)
                assert all(set(names(found[p])) >= wanted[p] for p in wanted)

    try:
        run(story())
    finally:
        for each in workers:
            each.kill()
