"""Streams of a range of maps: what comes of them is all of it, or an error, wherever the file is meanwhile."""

import asyncio
import dataclasses
import os
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.common.config.config import DfsSection
from holdfast.common.config.settings import Duration
from holdfast.common.dfs.store import DfsStore
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import StreamCredit
from holdfast.common.formats.reduce_messages import ChunkFlag, ChunksData, ChunksOpen
from holdfast.common.ids import WorkerId
from holdfast.common.limits import KIB, MIB, U32_MAX
from holdfast.common.statuses import Status
from holdfast.common.steady import Steady
from holdfast.worker.core.read.fetch_leases import FetchLease
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.services.read_ahead import _kernel_bytes
from holdfast.worker.server.services.request import Request
from holdfast.worker.server.services.stream_service import StreamService
from holdfast.worker.server.services.stream_sources import ChunkSearch, ChunkSource
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.read.map_range_index import MapRangeIndex
from tests.support.reduce_data import Writer
from tests.support.storage_env import carry_out
from tests.support.waiting import wait_until, wait_until_async
from tests.unit.worker.storage.reduce_world import SHUFFLE
from tests.unit.worker.storage.reduce_world import World as StoreWorld
from tests.unit.worker.test_stream_service import Connection

#: A batch of each of three maps makes a chunk.
BATCH, CHUNKS = 20_000, 5
MAPS = (1, 2, 3)


class World:
    """A service; a partition of three maps is sealed in a file of its own, on a disk, in five chunks. The last of them
    has batches of the first map alone."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("holdfast.worker.storage.engine.partition.CHUNK_BYTES", 64 * KIB)
        (root / "dfs").mkdir()
        section = DfsSection(url=str(root / "dfs"), retry_window=Duration(0))
        world = StoreWorld(root)
        world.settings = dataclasses.replace(
            world.settings, open_away=lambda uid, env: Away(env, lambda: DfsStore(section, "c"), "c", uid)
        )
        world.restart()
        writers = {number: Writer(SHUFFLE, map=number, attempt=number) for number in MAPS}
        self.data = dict.fromkeys(MAPS, b"")
        for turn in range(CHUNKS):
            for number in MAPS if turn < CHUNKS - 1 else (1, 1, 1):
                made = writers[number].batch(0, os.urandom(BATCH))
                assert world.push(writers[number], [made]) == {}
                self.data[number] += made.data
        assert [one.status for one in world.seal([(0, 0)], final=False)] == [Status.OK]
        self.store = world.store
        self.place = self.store.reduce.chunks(SHUFFLE, 0, 0)
        assert len(self.place.record.chunks) == CHUNKS
        self.context = WorkerContext(self.store, WorkerIdentity("c", "w", self.store.incarnation, WorkerId(1)))
        self.service = StreamService(self.context)

    def make_view(self) -> MapRangeIndex:
        """Ask for the view of the epoch until it is there."""
        find = self.store.views.find
        wait_until(lambda: find(self.place.path, self.place.record.chunks) is not None, "the view")
        view = find(self.place.path, self.place.record.chunks)
        assert view is not None
        return view

    def move_away(self) -> None:
        """Bring the file to the DFS."""
        (directory,) = self.store._directories
        with directory.index.reading() as reader:
            ((key, size),) = list(reader.data_files(SHUFFLE))
        carry_out(self.store.mover, self.store.mover.move(key, size, directory, None, directory))
        assert self.place.away

    def open(self, maps: tuple[int, int], credit: int = 64 * MIB, first: int = 0) -> Connection:
        """Open a stream."""
        connection = Connection(1)
        request = ChunksOpen(
            shuffle=SHUFFLE, map_begin=maps[0], map_end=maps[1], credit_bytes=credit, files=[(0, 0, first)]
        )
        header = FrameHeader(FrameType.CHUNKS_OPEN, 0, 7, 0, 0, 0, 0)
        self.service.open_chunks(Request(cast("Any", connection), header, request.encode(), self.context.counters))
        return connection

    def credit(self, connection: Connection, size: int) -> None:
        """The reader gives credit."""
        request = StreamCredit(stream=connection.opened[0].stream, credit_bytes=size)
        header = FrameHeader(FrameType.STREAM_CREDIT, 0, 8, 0, 0, 0, 0)
        self.service.credit(Request(cast("Any", connection), header, request.encode(), self.context.counters))


def reported(connection: Connection) -> list[int]:
    """The chunks whose end came."""
    frames = [ChunksData.decode(meta) for _, meta, _ in connection.frames]
    return [data.chunk for data in frames if data.flags & ChunkFlag.END_OF_CHUNK]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


@pytest.mark.parametrize("kernel", [0, MIB])
@pytest.mark.parametrize("credit", [700, 9_000, 16 * KIB])
def test_what_is_sent_next_is_asked_of_the_disk_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credit: int, kernel: int
) -> None:
    """A disk has the next frame to fetch before this one is sent, in requests of READ_AHEAD_BYTES, however little a
    reader takes at a time. Where the kernel reads ahead further by itself it is asked for the beginning of a file."""
    ahead = 16 * KIB
    monkeypatch.setattr("holdfast.worker.server.services.read_ahead.READ_AHEAD_BYTES", ahead)
    monkeypatch.setattr("holdfast.worker.server.services.read_ahead._kernel_bytes", lambda _device: kernel)
    asked: list[tuple[int, int]] = []
    seen: list[int] = []
    advise = os.posix_fadvise

    def listen(fd: int, offset: int, length: int, advice: int) -> None:
        if advice == os.POSIX_FADV_WILLNEED:
            asked.append((offset, offset + length))
        advise(fd, offset, length, advice)

    async def story() -> None:
        world = World(tmp_path, monkeypatch)
        rows = world.place.record.chunks
        monkeypatch.setattr(os, "posix_fadvise", listen)
        connection = world.open((0, U32_MAX), credit=credit)
        while not connection.ended:
            sent = sum(len(body) for _, _, body in connection.frames)
            if not kernel:
                assert sum(end - at for at, end in asked) >= min(sent + ahead // 2, sum(row.length for row in rows))
            seen.append(len(connection.frames))
            world.credit(connection, credit)
            await wait_until_async(lambda: len(connection.frames) > seen[-1], "a frame")
        world.store.close()
        wanted = [
            (at, min(at + ahead, row.offset + row.length))
            for row in rows
            for at in range(row.offset, row.offset + row.length, ahead)
        ]
        assert sorted(asked) == (wanted[:1] if kernel else wanted), (
            "each byte once, and no request smaller than it can be"
        )

    run(story())


def test_how_far_the_kernel_reads_ahead_by_itself() -> None:
    """It is asked for each device; 128 KiB, as on most, where it does not say."""
    assert _kernel_bytes(os.makedev(4_000, 7)) == 128 * KIB
    for path in Path("/sys/class/bdi").glob("*:*/read_ahead_kb"):
        major, _, minor = path.parent.name.partition(":")
        assert _kernel_bytes(os.makedev(int(major), int(minor))) == int(path.read_text()) * KIB


@pytest.mark.parametrize("run_bytes", [1, MIB], ids=["index of the file", "sorted copy"])
def test_a46_a_file_that_moves_while_a_range_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    """A stream reads by a view of a local file, and the file moves to the DFS: all that was wanted comes."""
    monkeypatch.setattr("holdfast.worker.storage.read.map_range_index.RUN_BYTES_MIN", run_bytes)

    async def story() -> None:
        world = World(tmp_path, monkeypatch)
        assert (world.make_view().copy is None) == (run_bytes == 1)
        connection = world.open((2, 3), credit=1_000)
        await wait_until_async(lambda: connection.frames, "the first frame")
        world.move_away()
        world.credit(connection, 64 * MIB)
        await wait_until_async(lambda: connection.ended, "the end of the stream")
        assert connection.contents() == {0: world.data[2]}
        assert reported(connection)[-1] == CHUNKS - 1
        world.store.close()

    run(story())


@pytest.mark.parametrize("held_bytes", [0, MIB])
@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("first", [0, 3, CHUNKS])
def test_a46_a_range_says_the_end_of_its_last_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, away: bool, held_bytes: int
) -> None:
    """Whatever a range has in an epoch, also nothing: the last chunk comes with its end, within the bytes that were
    announced, so that a reader knows a stream that was cut short. Who has all chunks already hears the end alone."""

    async def story() -> None:
        world = World(tmp_path, monkeypatch)
        if away:
            world.move_away()
        monkeypatch.setattr(Connection, "held_bytes", held_bytes)
        for maps, chunks in (((2, 3), 4), ((1, 2), 5), ((3, 9), 4), ((7, 9), 0), ((0, 9), 5)):
            connection = world.open(maps, first=first)
            await wait_until_async(lambda one=connection: one.ended, "the end of the stream")  # type: ignore[misc]
            frames = reported(connection)
            assert frames == sorted({*range(first, chunks), *([CHUNKS - 1] if first < CHUNKS else [])})
            sent = sum(len(body) for _, _, body in connection.frames)
            assert sent < connection.opened[0].total_bytes or not frames or maps == (0, 9)
        world.store.close()

    run(story())


@pytest.mark.parametrize("maps", [(0, 9), (2, 3)], ids=["whole", "a range"])
@pytest.mark.parametrize("waits_for", ["room", "the DFS"])
def test_a47_a_stream_that_waits_says_that_its_worker_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maps: tuple[int, int], waits_for: str
) -> None:
    """A stream waits for the DFS, or for its turn to read there, for longer than its reader takes silence for a lost
    worker: it hears empty frames in between, and then all that it wanted."""

    async def story() -> None:
        world = World(tmp_path, monkeypatch)
        world.move_away()
        away, go_on = world.store.away, threading.Event()
        assert away is not None
        read = away.store.read

        def late(name: str, offset: int, length: int) -> bytes:
            assert go_on.wait(30)
            return read(name, offset, length)

        monkeypatch.setattr(away.store, "read", late)
        other = FetchLease(away.leases, lambda: None, away.leases.bytes_max)

        def wait() -> bool:
            """Another stream goes on with the room that there is."""
            if waits_for == "room":
                assert other.take()
                other.renew()
            return len(connection.frames) > 1

        monkeypatch.setattr("holdfast.worker.server.services.stream_sources.ALIVE_SECONDS", 0.05, raising=False)
        # Nobody takes the other one's room in between, however seldom it is heard of.
        monkeypatch.setattr("holdfast.worker.core.read.fetch_leases.IDLE_NS", 60 * 10**9)
        monkeypatch.setattr("holdfast.worker.core.read.fetch_leases.HOLD_NS", 60 * 10**9)
        assert waits_for != "room" or other.take()
        connection = world.open(maps)
        await wait_until_async(wait, "a sign of life", 60)
        for _, meta, body in connection.frames:
            assert (ChunksData.decode(meta).flags, body) == (0, b"")
        go_on.set()
        other.leave()
        await wait_until_async(lambda: connection.ended, "the end of the stream")
        wanted = world.data[2] if maps == (2, 3) else None
        assert wanted is None or connection.contents() == {0: wanted}
        assert sum(len(body) for _, _, body in connection.frames) == len(wanted or b"".join(world.data.values()))
        world.store.close()

    run(story())


def test_a46_what_failed_once_does_not_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search of a stream meets a mistake of ours, and is asked again: it says the same, and never that it is at its
    end."""

    async def story() -> None:
        world = World(tmp_path, monkeypatch)
        request = ChunksOpen(shuffle=SHUFFLE, map_begin=2, map_end=3, credit_bytes=MIB, files=[(0, 0, 0)])
        search = ChunkSearch(request, [world.place], world.store.open_files, world.store.views)
        monkeypatch.setattr("holdfast.worker.server.services.stream_sources.select", lambda *_: 1 // 0)
        source = ChunkSource(FrameHeader(FrameType.CHUNKS_OPEN, 0, 7, 0, 0, 0, 0), search)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                source.take(1, MIB)
            assert not source.done
        world.store.close()

    run(story())


def test_a46_an_iteration_that_failed_stays_failed() -> None:
    """A generator says at the call after its error that it is at its end; what reads data never does."""

    def generated() -> Iterator[int]:
        yield 1
        raise OSError("the disk")

    items = Steady(generated())
    assert next(items) == 1
    for _ in range(2):
        with pytest.raises(OSError, match="the disk"):
            next(items)
    assert list(Steady(iter([1, 2]))) == [1, 2]
