"""Copies of what another worker has sealed: two workers with real stores and sockets, asked as the leader asks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.common.errors import CorruptError, HoldfastError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Ack, Role
from holdfast.common.formats.reduce_messages import (
    ChunkFlag,
    ChunksData,
    ChunksOpen,
    PushCredit,
    Restore,
    Seal,
    SealAnswer,
    SealedEpoch,
    SealFlag,
)
from holdfast.common.ids import Epoch, Incarnation, PartitionId, RaftIndex
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from holdfast.worker.server.services.restore_service import RestorePace, RestoreService
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.offline.verify import verify_directory
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.waiting import wait_until_async
from tests.unit.worker.data_world import DataWorld, data_world

SHUFFLE = shuffle_of()
FAST = 1 << 40


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


@contextlib.asynccontextmanager
async def two(root: Path) -> AsyncIterator[tuple[DataWorld, DataWorld, list[SealedEpoch]]]:
    """A worker that has sealed a small partition and one of several chunks, one that has nothing, and the seals."""
    async with data_world(root / "source") as source, data_world(root / "target") as target:
        writer = Writer(SHUFFLE)
        async with source.client() as client, source.client(Role.MASTER) as master:
            await client.request(FrameType.PUSH_CREDIT, PushCredit(32 * MIB).encode())
            for partition, count in ((0, 3), (1, 40)):
                batches = [writer.batch(partition, bytes([each]) * 256 * KIB) for each in range(count)]
                for batch in batches if partition else [batches[0]]:
                    meta, body = writer.push([batch], source.standing.incarnation)
                    await client.request(FrameType.PUSH, meta, body)
            seal = Seal(shuffle=SHUFFLE, flags=SealFlag.FINAL, raft_index=RaftIndex(0), epochs=[(0, 0), (1, 0)])
            reply = await master.request(FrameType.SEAL, seal.encode())
        yield source, target, SealAnswer.decode(reply.meta).epochs


def order(source: DataWorld, sealed: Sequence[SealedEpoch], rate: int = FAST) -> Restore:
    """What a leader asks for."""
    return Restore(
        shuffle=SHUFFLE,
        ack=Ack.WRITTEN,
        raft_index=RaftIndex(0),
        bytes_per_second=rate,
        source=source.place,
        epochs=[(each.partition, each.epoch, each.size_bytes) for each in sealed],
    )


async def ask(target: DataWorld, restore: Restore) -> list[SealedEpoch]:
    async with target.client(Role.MASTER) as master:
        return SealAnswer.decode((await master.request(FrameType.RESTORE, restore.encode())).meta).epochs


def stored(world: DataWorld, partition: int) -> bytes:
    """The bytes of a sealed epoch, as they lie there."""
    place = world.store.reduce.chunks(SHUFFLE, partition, 0)
    data = Path(place.path).read_bytes()
    return b"".join([data[row.offset : row.offset + row.length] for row in place.record.chunks])


def turn_a_bit(world: DataWorld, partition: int) -> None:
    """Change a sealed epoch on its disk."""
    place = world.store.reduce.chunks(SHUFFLE, partition, 0)
    data = bytearray(Path(place.path).read_bytes())
    data[place.record.chunks[-1].offset + 100] ^= 1
    Path(place.path).write_bytes(data)


def files(world: DataWorld) -> list[str]:
    """Names of all files of the shuffle."""
    root = world.store.lanes()[0][0]
    return sorted(each.name for each in (root / "data").rglob("*") if each.is_file())


def test_a_copy_is_what_was_sealed_also_after_a_restart(tmp_path: Path) -> None:
    """Epochs of every size are copied byte by byte, checked as any sealed file, and answered as they were sealed; asked
    again, the answer is the same, also of the next start, which has them all."""

    async def story() -> None:
        async with two(tmp_path) as (source, target, sealed):
            answers = await ask(target, order(source, sealed))
            assert [each[:5] for each in answers] == [each[:5] for each in sealed]
            assert [each.crc_sum for each in answers] == [each.crc_sum for each in sealed]
            assert [stored(target, each) for each in (0, 1)] == [stored(source, each) for each in (0, 1)]
            assert await ask(target, order(source, sealed)) == answers, "what is here is not copied again"
            assert target.context.counters.epochs_restored == 2
            assert len(files(target)) == 1, "what comes together is one file"
        async with data_world(tmp_path / "target") as again, again.client(Role.MASTER) as master:
            seal = Seal(shuffle=SHUFFLE, flags=SealFlag.FINAL, raft_index=RaftIndex(0), epochs=[(0, 0), (1, 0)])
            reply = await master.request(FrameType.SEAL, seal.encode())
            assert SealAnswer.decode(reply.meta).epochs == answers

    run(story())
    report = verify_directory(str(tmp_path / "target" / "data"))
    assert not report.damaged
    assert report.batches == 41


@pytest.mark.parametrize("wrong", ["start", "size", "epoch"])
def test_what_cannot_be_copied_leaves_nothing(tmp_path: Path, wrong: str) -> None:
    """Another start of the source, another size than was sealed, or an epoch that is not there: the request is refused,
    no file and no record stays, and the right request succeeds."""

    async def story() -> None:
        async with two(tmp_path) as (source, target, sealed):
            right = order(source, sealed)
            place = replace(right.source, incarnation=Incarnation(9))
            mistaken = {
                "start": replace(right, source=place),
                "size": replace(right, epochs=[(one, epoch, size + 1) for one, epoch, size in right.epochs]),
                "epoch": replace(right, epochs=[*right.epochs, (7, 0, 10)]),
            }
            with pytest.raises(HoldfastError):
                await ask(target, mistaken[wrong])
            assert files(target) == []
            assert target.store.reduce.kept(EpochKey(SHUFFLE, PartitionId(1), Epoch(0))) is None
            assert len(await ask(target, right)) == 2

    run(story())


def test_a_damaged_source_is_not_copied(tmp_path: Path) -> None:
    """A bit that turned on the disk of the source is found before the copy counts: a copy is never of worse data."""

    async def story() -> None:
        async with two(tmp_path) as (source, target, sealed):
            turn_a_bit(source, 1)
            with pytest.raises(HoldfastError) as caught:
                await ask(target, order(source, sealed))
            assert caught.value.status is Status.CORRUPT
            assert files(target) == []

    run(story())


class Strange:
    """A source, and its stream, that sends the same frame as often as it gets credit, and at first so many."""

    def __init__(self, data: ChunksData, piece: bytes, first: int = 1) -> None:
        self._data, self._piece, self._first = data, piece, first
        self._sink: Any = None

    async def open_chunks(self, request: ChunksOpen, sink: Any) -> "Strange":
        self._sink = sink
        for _ in range(self._first):
            self._send()
        return self

    def _send(self) -> None:
        view = memoryview(self._piece)
        self._sink.data(self._data, SimpleNamespace(view=view, release=lambda: None))

    def credit(self, _: int) -> None:
        self._send()

    def abort(self) -> None:
        """It has no connection."""


def frame(flags: int) -> ChunksData:
    return ChunksData(stream=1, sequence=0, file=0, chunk=0, flags=flags)


@pytest.mark.parametrize(
    ("strange", "words"),
    [
        (Strange(frame(0), bytes(MIB)), "a chunk of more"),
        (Strange(frame(0), bytes(MIB), first=5), "more than it may"),
        (Strange(frame(0), b"", first=200_000), "more than it may"),
        (Strange(frame(ChunkFlag.END_OF_CHUNK), b""), "an empty chunk"),
    ],
    ids=["a chunk without an end", "more than was allowed", "frames without bodies", "nothing at all"],
)
def test_a_source_that_goes_wrong_takes_no_memory_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strange: Strange, words: str
) -> None:
    """Whatever a source sends the copying ends with an error and leaves nothing, and the right source is read then."""

    async def story() -> None:
        async with two(tmp_path) as (source, target, sealed):

            async def connected(*_: object) -> Strange:
                return strange

            with monkeypatch.context() as patch:
                patch.setattr(RestoreService, "_connect", connected)
                with pytest.raises(HoldfastError, match=words):
                    await ask(target, order(source, sealed))
            assert files(target) == []
            assert len(await ask(target, order(source, sealed))) == 2

    run(story())


def test_no_more_is_kept_of_an_epoch_than_was_sealed(tmp_path: Path) -> None:
    """A source that sends good batches without an end fills no disk."""

    async def story() -> None:
        async with two(tmp_path) as (source, target, sealed):
            first = source.store.reduce.chunks(SHUFFLE, 1, 0).record.chunks[0]
            chunk = memoryview(stored(source, 1))[: first.length]
            key = EpochKey(SHUFFLE, PartitionId(1), Epoch(0))
            arrival = target.store.reduce.arrive(0, Ack.WRITTEN, [(key, len(chunk) + 1)])
            await asyncio.wrap_future(arrival.take(key, chunk))
            with pytest.raises(CorruptError) as caught:
                await asyncio.wrap_future(arrival.take(key, chunk))
            await asyncio.wrap_future(arrival.remove())
            assert arrival.end(caught.value) == {}
            assert len(await ask(target, order(source, sealed))) == 2

    run(story())


def test_a_shuffle_that_is_dropped_is_not_copied_on(tmp_path: Path) -> None:
    """A shuffle is deleted while it is copied, slowly: the copying ends, nothing of it stays, and the worker can be
    asked for other copies."""

    async def story() -> None:
        async with two(tmp_path) as (source, target, sealed):
            slow = asyncio.create_task(ask(target, order(source, sealed, rate=MIB)))
            await wait_until_async(lambda: bool(files(target)), "the copy begins")
            with pytest.raises(HoldfastError) as caught:
                await ask(target, order(source, sealed))
            assert caught.value.status is Status.BUSY, "one thing at a time"
            target.server.forget(SHUFFLE)
            gone = asyncio.wrap_future(target.store.forget([SHUFFLE]))
            with pytest.raises(HoldfastError):
                await slow
            await gone
            assert files(target) == []
            assert target.store.shuffles() == []

    run(story())


def test_only_masters_ask_for_copies(tmp_path: Path) -> None:
    """A client that asks for a copy loses its connection, and nothing is copied."""

    async def story() -> None:
        async with two(tmp_path) as (source, target, sealed), target.client() as client:
            with pytest.raises(HoldfastError):
                await client.request(FrameType.RESTORE, order(source, sealed).encode())
            assert files(target) == []

    run(story())


def test_the_pace_is_what_was_asked_for() -> None:
    """Whatever comes at a time, no more than the rate is asked for; a pause of the source is not caught up on."""
    pace = RestorePace(100, 10.0)
    assert pace.wait(50, 10.0) == 0.5
    assert pace.wait(50, 10.2) == pytest.approx(0.8)
    assert pace.wait(100, 20.0) == 1.0
