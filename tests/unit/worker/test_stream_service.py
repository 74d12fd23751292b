"""The stream service over sealed epochs that are on the DFS: what is fetched is bounded, and nobody waits for ever."""

import asyncio
import dataclasses
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.common.config.config import DfsSection
from holdfast.common.config.settings import Duration
from holdfast.common.dfs.store import DfsStore
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import StreamCredit
from holdfast.common.formats.reduce_messages import ChunkFlag, ChunksData, ChunksOpen, ChunksOpened
from holdfast.common.ids import WorkerId
from holdfast.common.limits import MIB
from holdfast.common.net.frames.wire import FileRange
from holdfast.common.statuses import Status
from holdfast.worker.core.read.fetch_leases import FetchLease
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.services.request import Request
from holdfast.worker.server.services.stream_service import StreamService
from holdfast.worker.storage.dfs.away import FETCH_THREADS, Away
from tests.support.reduce_data import Writer
from tests.support.storage_env import carry_out
from tests.support.waiting import wait_until_async
from tests.unit.worker.storage.reduce_world import SHUFFLE
from tests.unit.worker.storage.reduce_world import World as StoreWorld

#: Of the files of the two partitions: one more than a small frame, one less.
LARGE, SMALL = 200_000, 3_000
EVERYTHING = (0, 0xFFFF_FFFF)


class Connection:
    """Stands for a connection: keeps what it is sent."""

    closed = crowded = False
    held_bytes = 0
    peer = "a test"

    def __init__(self, number: int) -> None:
        self.number = number
        self.opened: list[ChunksOpened] = []
        #: (status, meta, body)
        self.frames: list[tuple[int, bytes, bytes]] = []
        #: nothing is read meanwhile
        self.held = False
        #: frames that were sent by sendfile
        self.ranges = 0

    def owner_of(self, instance: bytes) -> tuple[bytes, ...]:
        return (instance,)

    def cork(self) -> None:
        pass

    uncork = cork

    def hold(self) -> None:
        self.held = True

    def unhold(self) -> None:
        self.held = False

    def reply(self, header: FrameHeader, meta: bytes) -> None:
        self.opened.append(ChunksOpened.decode(meta))

    def refuse(self, header: FrameHeader, error: HoldfastError) -> None:
        raise error

    def send(
        self, kind: FrameType, request: int, meta: bytes, body: bytes = b"", *, response: bool, status: int = 0
    ) -> None:
        assert response
        self.frames.append((status, meta, body))

    def send_range(self, kind: FrameType, request: int, meta: bytes, part: FileRange) -> None:
        self.ranges += 1
        self.frames.append((0, meta, os.pread(part.fileno, part.count, part.offset)))

    @property
    def ended(self) -> bool:
        """Whether the last frame has come."""
        return self.ends > 0

    @property
    def ends(self) -> int:
        """How many streams have ended."""
        return sum(bool(status or ChunksData.decode(meta).flags & ChunkFlag.END) for status, meta, _ in self.frames)

    def contents(self) -> dict[int, bytes]:
        """What came of each file."""
        assert self.ended
        found: dict[int, bytes] = {}
        for number, (status, meta, body) in enumerate(self.frames):
            data = ChunksData.decode(meta)
            assert (status, data.sequence) == (0, number)
            if body:
                found[data.file] = found.get(data.file, b"") + body
        return found


class World:
    """A service; two partitions of three maps are sealed, and on the DFS: the large one and the small one."""

    def __init__(self, root: Path) -> None:
        (root / "dfs").mkdir()
        section = DfsSection(url=str(root / "dfs"), retry_window=Duration(0))
        world = StoreWorld(root)
        world.settings = dataclasses.replace(
            world.settings, open_away=lambda uid, env: Away(env, lambda: DfsStore(section, "c"), "c", uid)
        )
        world.restart()
        self.data = {0: b"", 1: b""}
        #: of one map alone
        self.mine = {0: b"", 1: b""}
        for map_id in (0, 2, 4):
            writer = Writer(SHUFFLE, map=map_id, attempt=map_id)
            for partition, size in ((0, LARGE), (1, SMALL)):
                made = writer.batch(partition, os.urandom(size // 3))
                assert world.push(writer, [made]) == {}
                self.data[partition] += made.data
                self.mine[partition] += made.data if map_id == 2 else b""
        for partition in (0, 1):  # one after the other, so that each has a file of its own
            assert [one.status for one in world.seal([(partition, 0)], final=False)] == [Status.OK]
        (directory,) = world.store._directories
        with directory.index.reading() as reader:
            files = list(reader.data_files(SHUFFLE))
        for key, size in files:
            carry_out(world.store.mover, world.store.mover.move(key, size, directory, None, directory))
        world.restart()  # so that no file there is open
        self.store = world.store
        standing = WorkerIdentity("c", "w", self.store.incarnation, WorkerId(1))
        self.context = WorkerContext(self.store, standing)
        self.service = StreamService(self.context)
        self.connections = 0
        #: seconds for who has a lease
        self.now = 0.0
        self.away.leases.clock = lambda: int(self.now * 1e9)

    @property
    def away(self) -> Away:
        """The part of the DFS."""
        assert self.store.away is not None
        return self.store.away

    def take_room(self) -> FetchLease:
        """Somebody else has a lease, and there is room for no other."""
        lease = FetchLease(self.away.leases, lambda: None, LARGE)
        assert lease.take()
        return lease

    def open(
        self, maps: tuple[int, int] = EVERYTHING, credit: int = 64 * MIB, on: Connection | None = None
    ) -> Connection:
        """Open a stream of both partitions, on a connection of its own if none is given."""
        self.connections += on is None
        connection = on or Connection(self.connections)
        request = ChunksOpen(
            shuffle=SHUFFLE, map_begin=maps[0], map_end=maps[1], credit_bytes=credit, files=[(0, 0, 0), (1, 0, 0)]
        )
        header = FrameHeader(FrameType.CHUNKS_OPEN, 0, 7, 0, 0, 0, 0)
        self.service.open_chunks(self.request(connection, header, request.encode()))
        return connection

    async def nothing_is_held(self, streams: int = 0) -> None:
        """Wait until all that was fetched is let go of; so many streams are still open."""
        await wait_until_async(lambda: not self.away.fetched_bytes, "the memory of what was fetched")
        assert (self.away.leases.held_bytes, len(self.service.streams)) == (0, streams)
        self.away.leases.check()

    def credit(self, connection: Connection, size: int) -> None:
        """The reader gives credit."""
        request = StreamCredit(stream=connection.opened[0].stream, credit_bytes=size)
        header = FrameHeader(FrameType.STREAM_CREDIT, 0, 8, 0, 0, 0, 0)
        self.service.credit(self.request(connection, header, request.encode()))

    def close(self, connection: Connection) -> None:
        """The reader closes its stream."""
        request = StreamCredit(stream=connection.opened[0].stream, credit_bytes=0)
        header = FrameHeader(FrameType.STREAM_CLOSE, 0, 9, 0, 0, 0, 0)
        self.service.close(self.request(connection, header, request.encode()))

    def request(self, connection: Connection, header: FrameHeader, meta: bytes) -> Request:
        """What came on a connection."""
        return Request(cast("Any", connection), header, meta, self.context.counters)


@pytest.fixture(autouse=True)
def room_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The large partition fits alone."""
    monkeypatch.setattr("holdfast.worker.storage.dfs.away.FETCHED_BYTES_MAX", LARGE)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


@pytest.mark.parametrize("maps", [EVERYTHING, (2, 3)])
def test_opening_never_waits_for_room(tmp_path: Path, maps: tuple[int, int]) -> None:
    """While there is no room to fetch, a stream is opened at once and its connection is read: the credit that those
    with the room wait for may come there. When there is room, all comes, and what was fetched is let go of."""

    async def story() -> None:
        world = World(tmp_path)
        other = world.take_room()
        connection = world.open(maps)
        assert connection.opened
        assert not connection.held
        await wait_until_async(lambda: world.away.leases.crowded, "a look for room")
        assert not connection.frames
        other.leave()
        await wait_until_async(lambda: connection.ended, "the end of the stream")
        assert connection.contents() == (world.data if maps == EVERYTHING else world.mine)
        await world.nothing_is_held()
        world.store.close()

    run(story())


@pytest.mark.parametrize("maps", [EVERYTHING, (2, 3)])
@pytest.mark.parametrize("shared", [False, True])
def test_many_that_read_at_once_all_end(tmp_path: Path, maps: tuple[int, int], shared: bool) -> None:
    """With room for one at a time, on one connection or on many: nobody holds room while it waits for more."""

    async def story() -> None:
        world = World(tmp_path)
        first = world.open(maps)
        connections = [first] + [world.open(maps, on=first if shared else None) for _ in range(39)]
        ends = {id(connection): connection for connection in connections}.values()
        await wait_until_async(lambda: sum(one.ends for one in ends) == 40, "the ends of all streams")
        sent = sum(len(body) for one in ends for _, _, body in one.frames)
        wanted = world.data if maps == EVERYTHING else world.mine
        assert sent == 40 * sum(map(len, wanted.values()))
        await world.nothing_is_held()
        world.store.close()

    run(story())


def test_a_stream_of_nothing_ends(tmp_path: Path) -> None:
    """Maps that pushed nothing, between others that did: the only frame says that this is the end."""

    async def story() -> None:
        world = World(tmp_path)
        connection = world.open((3, 4))
        await wait_until_async(lambda: connection.ended, "the end of the stream")
        assert connection.contents() == {}
        await world.nothing_is_held()
        world.store.close()

    run(story())


@pytest.mark.parametrize("maps", [EVERYTHING, (2, 3)])
def test_a_reader_that_gives_no_credit_keeps_nobody_waiting(tmp_path: Path, maps: tuple[int, int]) -> None:
    """What was fetched for it goes when others find no room, and is fetched again when it goes on where it was."""

    async def story() -> None:
        world = World(tmp_path)
        first = world.open(maps, credit=1_000)
        await wait_until_async(lambda: first.frames, "the first frame")
        second = world.open(maps)
        await wait_until_async(lambda: world.away.leases.crowded, "a look for room")
        assert not second.frames
        world.now += 1
        await wait_until_async(lambda: second.ended, "the end of the second stream")
        wanted = world.data if maps == EVERYTHING else world.mine
        assert second.contents() == wanted
        world.credit(first, 64 * MIB)
        await wait_until_async(lambda: first.ended, "the end of the first stream")
        assert first.contents() == wanted
        await world.nothing_is_held()
        world.store.close()

    run(story())


def test_a_reader_that_takes_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It has given credit and does not read: frames that wait to be sent hold nothing of what was fetched."""

    async def story() -> None:
        world = World(tmp_path)
        first = world.open(credit=1_000)
        await wait_until_async(lambda: first.frames, "the first frame")
        first.crowded = True
        world.credit(first, 64 * MIB)
        second = world.open()
        await wait_until_async(lambda: world.away.leases.crowded, "a look for room")
        world.now += 1
        await wait_until_async(lambda: second.ended, "the end of the second stream")
        assert not first.ranges
        await world.nothing_is_held(streams=1)
        world.store.close()

    run(story())


def test_a_stream_that_is_closed_gives_its_lease_back(tmp_path: Path) -> None:
    """Its reader closes it, or its connection is lost: who waits goes on at once."""

    async def story() -> None:
        world = World(tmp_path)
        first, second = world.open(credit=1_000), world.open(credit=1_000)
        await wait_until_async(lambda: first.frames, "the first frame")
        world.close(first)
        await wait_until_async(lambda: second.frames, "a frame of the second")
        third = world.open()
        world.service.lost(cast("Any", second))
        await wait_until_async(lambda: third.ended, "the end of the third")
        await world.nothing_is_held()
        world.store.close()

    run(story())


def test_a_connection_that_closes_is_not_served_any_more(tmp_path: Path) -> None:
    """For a second it tells its peer why it closes; meanwhile nothing is tried for its streams, again and again."""

    async def story() -> None:
        world = World(tmp_path)
        lease, connection = world.take_room(), world.open()
        connection.closed = True
        await wait_until_async(lambda: cast("Any", connection) not in world.service._scheduled, "the last try")
        lease.leave()
        world.service.lost(cast("Any", connection))
        await world.nothing_is_held()
        world.store.close()

    run(story())


def test_what_the_dfs_has_lost_is_lost(tmp_path: Path) -> None:
    """A file that is gone from a DFS that is well is DATA_LOST; from a DFS that does not answer, DISK_FAILED."""

    async def story() -> None:
        world = World(tmp_path)
        (tmp_path / "dfs").rename(tmp_path / "gone")
        connection = world.open()
        await wait_until_async(lambda: connection.ended, "the end of the stream")
        assert [status for status, _, _ in connection.frames] == [Status.DISK_FAILED]
        (tmp_path / "gone").rename(tmp_path / "dfs")
        (tmp_path / "dfs" / world.store.reduce.chunks(SHUFFLE, 0, 0).path).unlink()
        connection = world.open()
        await wait_until_async(lambda: connection.ended, "the end of the stream")
        assert [status for status, _, _ in connection.frames] == [Status.DATA_LOST]
        await world.nothing_is_held()
        world.store.close()

    run(story())


def test_readers_of_a_dfs_that_hangs_do_not_wait_for_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetches that have begun wait for it; once a look has failed those that have not are DISK_FAILED at once, with a
    lease or without, however many there are. After a look that ended well all is read."""
    monkeypatch.setattr("holdfast.worker.storage.dfs.away.FETCHED_BYTES_MAX", 2 * FETCH_THREADS * 2 * LARGE)

    async def story() -> None:
        world, entered, go_on = World(tmp_path), threading.Semaphore(0), threading.Event()
        read = DfsStore.read

        def hang(*args: Any) -> bytes:
            entered.release()
            go_on.wait()
            return read(*args)

        monkeypatch.setattr(DfsStore, "read", hang)
        first = world.open()
        await asyncio.to_thread(entered.acquire)
        waiting = [world.open() for _ in range(FETCH_THREADS)]  # some of these have begun, too
        for _ in range(FETCH_THREADS - 1):
            await asyncio.to_thread(entered.acquire)
        others = [world.open() for _ in range(40)]
        world.away.health.looked("no answer", 0.0)
        late = world.open()
        await wait_until_async(
            lambda: all(one.ended for one in (*others, late)), "the ends of those that have not begun"
        )
        assert {one.frames[-1][0] for one in (*others, late)} == {Status.DISK_FAILED}
        assert not first.ended
        world.away.health.looked("", 0.0)
        go_on.set()
        await wait_until_async(lambda: all(one.ended for one in (first, *waiting)), "the ends of the first")
        again = world.open()
        await wait_until_async(lambda: again.ended, "the end of one that asks again")
        assert (first.contents(), again.contents()) == (world.data, world.data)
        await world.nothing_is_held()
        world.store.close()

    run(story())
