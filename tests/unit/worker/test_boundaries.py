"""One boundary for each request: whatever a disk or a mistake raises, it is answered, released and told of.

A real store, real services and a real socket; disks fail through the fault port, and where a read has to fail the
descriptor under it is put in place of one that cannot be read.
"""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, MapAbort, MapSeal, Role
from holdfast.common.formats.reduce_messages import ChunksOpen, PushCredit, Seal, SealAnswer
from holdfast.common.ids import Epoch, PartitionId, RaftIndex, ShuffleKey
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, MIB
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.statuses import Status
from holdfast.worker.core.write.map_files import ORPHAN_GRACE_NS
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.storage.env.interfaces import Handle
from holdfast.worker.storage.env.system import system
from tests.support.descriptors import no_descriptors
from tests.support.frame_world import run as run_frames
from tests.support.frame_world import world as frame_world
from tests.support.map_data import file_key, make_content, open_file, push_all, shuffle_key
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.storage_env import Disk, env_of
from tests.support.waiting import wait_until_async
from tests.unit.worker.data_world import CLUSTER, INDEX, DataWorld, data_world


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


async def refused(answer: Coroutine[Any, Any, Any]) -> HoldfastError:
    """What a request is refused with."""
    try:
        await answer
    except HoldfastError as error:
        return error
    raise AssertionError("it was not refused")


class _Nobody:
    """A reader that wants nothing."""

    def data(self, data: object, body: Body | None) -> None:
        if body is not None:
            body.release()

    def failed(self, error: HoldfastError) -> None:
        pass


async def sealed_epochs(world: DataWorld, shuffle: ShuffleKey, size: int) -> None:
    """Two partitions of one epoch each, of two maps."""
    async with world.client() as client:
        await client.request(FrameType.PUSH_CREDIT, PushCredit(8 * MIB).encode())
        for map_id in range(2):
            writer = Writer(shuffle, map_id)
            made = [writer.batch(partition, bytes(size)) for partition in range(2)]
            await client.request(FrameType.PUSH, *writer.push(made, world.standing.incarnation))
    async with world.client(Role.MASTER) as client:
        seal = Seal(shuffle=shuffle, flags=0, raft_index=INDEX, epochs=[(0, 0), (1, 0)])
        await client.request(FrameType.SEAL, seal.encode())


def make_unreadable(world: DataWorld, path: str) -> None:
    """From now on every read of a file that readers have open fails in the kernel."""
    handle = world.store.open_files.open(path)
    blind = os.open(path, os.O_WRONLY)
    os.dup2(blind, handle.fd)
    os.close(blind)


def test_a36_a_read_that_fails_while_a_stream_is_opened_is_answered(tmp_path: Path) -> None:
    """A range of maps of two epochs, of which the second cannot be read: the request is refused with DISK_FAILED and
    names the file, and its connection goes on. It was never answered, and nothing more was read of the connection."""

    async def story() -> None:
        shuffle = shuffle_of()
        async with data_world(tmp_path) as world:
            await sealed_epochs(world, shuffle, MIB)
            make_unreadable(world, world.store.reduce.chunks(shuffle, PartitionId(1), Epoch(0)).path)
            async with world.client() as client:
                request = ChunksOpen(
                    shuffle=shuffle, map_begin=0, map_end=1, credit_bytes=8 * MIB, files=[(0, 0, 0), (1, 0, 0)]
                )
                error = await refused(client.open_chunks(request, _Nobody()))
                assert (error.status, "partition 1 epoch 0" in str(error)) == (Status.DISK_FAILED, True), error
                await client.request(FrameType.PING)

    run(story())


class _Reader:
    """Keeps what came of a stream, and what ended it."""

    def __init__(self) -> None:
        self.size = 0
        self.error: HoldfastError | None = None

    def data(self, data: object, body: Body | None) -> None:
        if body is not None:
            self.size += len(body.view)
            body.release()

    def failed(self, error: HoldfastError) -> None:
        self.error = error


async def fails(client: FrameClient, request: ChunksOpen) -> HoldfastError:
    """What a stream that is opened well ends with."""
    reader = _Reader()
    await client.open_chunks(request, reader)
    await wait_until_async(lambda: reader.error is not None, "the stream to fail")
    assert reader.error is not None
    return reader.error


def partition_of(shuffle: ShuffleKey, partition: int) -> ChunksOpen:
    """All of a partition's first epoch."""
    return ChunksOpen(shuffle=shuffle, credit_bytes=8 * MIB, files=[(partition, 0, 0)])


@pytest.mark.parametrize("size", [1_000, MIB])
def test_a42_a_read_that_fails_is_the_answer_of_its_stream_alone(tmp_path: Path, size: int) -> None:
    """Small pieces and large ones that cannot be read: their stream ends with DISK_FAILED, once the disk is known to
    fail without the connection, on which other streams and pushes go on; and the directory has heard of the error."""

    async def story() -> None:
        shuffle, other = shuffle_of(), shuffle_of(2)
        async with data_world(tmp_path) as world:
            await sealed_epochs(world, shuffle, size)
            await sealed_epochs(world, other, size)  # in files of its own
            (directory,) = world.store._directories
            make_unreadable(world, world.store.reduce.chunks(shuffle, PartitionId(1), Epoch(0)).path)
            async with world.client() as client:
                error = await fails(client, partition_of(shuffle, 1))
                assert error.status in (Status.DISK_FAILED, Status.UNAVAILABLE), error
            assert directory.condition.problem.startswith("reading failed: "), "the disk's health heard of it"
            directory.condition.tell()
            assert directory.condition.health.errors(time.monotonic_ns()) == 1
            async with world.client() as client:
                for _ in range(3):
                    error = await fails(client, partition_of(shuffle, 1))
                    assert error.status is Status.DISK_FAILED, error
                whole = _Reader()
                await client.open_chunks(partition_of(other, 0), whole)
                await wait_until_async(lambda: whole.size > 2 * size, "another stream of this connection")
                await client.request(FrameType.PUSH_CREDIT, PushCredit(MIB).encode())

    run(story())


def test_a42_a_read_that_fails_for_want_of_descriptors_is_not_held_against_the_disk(tmp_path: Path) -> None:
    """DISK_FAILED is what the reader is told, since it may come again; the directory takes new data all the same."""

    async def story() -> None:
        shuffle = shuffle_of()
        async with data_world(tmp_path) as world, world.client() as client:
            await sealed_epochs(world, shuffle, 1_000)
            (directory,) = world.store._directories
            with no_descriptors():
                error = await refused(client.open_chunks(partition_of(shuffle, 0), _Nobody()))
            assert error.status is Status.DISK_FAILED, error
            assert not directory.condition.problem

    run(story())


def test_a36_a_worker_without_descriptors_has_lost_nothing(tmp_path: Path) -> None:
    """A file that cannot be opened though it is there (no descriptors are left): DISK_FAILED, which is tried again. It
    was answered as lost, so that maps ran again for it; one that is gone still is."""

    async def story() -> None:
        shuffle = shuffle_of()
        request = ChunksOpen(shuffle=shuffle, credit_bytes=8 * MIB, files=[(0, 0, 0)])
        async with data_world(tmp_path) as world, world.client() as client:
            await sealed_epochs(world, shuffle, 1_000)
            path = world.store.reduce.chunks(shuffle, PartitionId(0), Epoch(0)).path
            with no_descriptors():
                error = await refused(client.open_chunks(request, _Nobody()))
            assert error.status is Status.DISK_FAILED, error
            os.unlink(path)
            error = await refused(client.open_chunks(request, _Nobody()))
            assert error.status is Status.DATA_LOST, error

    run(story())


@asynccontextmanager
async def read_only(root: Path) -> AsyncIterator[tuple[DataWorld, FrameClient]]:
    """A worker with an open map file, whose disk turned read-only since."""
    faults = Faults(error_rate=1.0, error=30, error_after=1 << 40)  # EROFS, from nowhere on
    async with data_world(root, env=faults.door(system())) as world, world.client() as client:
        yield world, client
        faults.error_rate = 0.0


def turn_read_only(world: DataWorld) -> None:
    """Nothing can be changed on the disk any more."""
    files = world.store._env.files
    files._faults.error_after = -1  # type: ignore[attr-defined]


def test_a36_a_file_that_cannot_be_removed_ends_no_worker(tmp_path: Path) -> None:
    """An unsealed map file whose writer is gone, on a disk that turned read-only: it stays, and the worker goes on. The
    error ended the task that ticks, and the process with it."""

    async def story() -> None:
        async with read_only(tmp_path) as (world, _):
            content = make_content(file_key(shuffle_key()))
            async with world.client() as writer:
                await push_all(writer, content, await open_file(writer, content))
            turn_read_only(world)
            await wait_until_async(lambda: len(world.frames.connections) == 1, "the writer to be gone")
            world.server.maps.drop(world.server.maps.files.tick(time.monotonic_ns() + 2 * ORPHAN_GRACE_NS))
            assert world.server.maps.files.count == 0

    run(story())


@pytest.mark.parametrize("ends", ["abort", "seal"])
def test_a36_what_meets_a_read_only_disk_is_answered(tmp_path: Path, ends: str) -> None:
    """MAP_ABORT, and MAP_SEAL with totals that are not the file's, both of which remove it: on a read-only disk they
    are answered, their connection goes on, and no seal is on its way, for which a worker that drains would wait."""

    async def story() -> None:
        async with read_only(tmp_path) as (world, client):
            content = make_content(file_key(shuffle_key()))
            await push_all(client, content, await open_file(client, content))
            turn_read_only(world)
            if ends == "abort":
                await client.request(FrameType.MAP_ABORT, MapAbort(content.key).encode())
            else:
                wrong = make_content(file_key(shuffle_key(), 1), regions=1)
                request = MapSeal(file=content.key, totals=wrong.totals).encode()
                await refused(client.request(FrameType.MAP_SEAL, request))
            assert world.server.writing == 0
            await client.request(FrameType.PING)

    run(story())


class HeldSyncs(Disk):
    """A disk on which the syncs of data wait until they are let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def sync(self, handle: Handle) -> None:
        self.entered.set()
        assert self.go_on.wait(60), "nobody let it go on"
        super().sync(handle)


@pytest.mark.parametrize("kind", ["MAP", "REDUCE"])
def test_a_seal_of_what_was_dropped_meanwhile_is_not_called_sealed(tmp_path: Path, kind: str) -> None:
    """The masters drop a shuffle while a file of it is sealed: whoever asked for the seal does not hear that there is
    something, since its files go."""

    async def story() -> None:
        disk = HeldSyncs()
        async with data_world(tmp_path, env=env_of(disk)) as world, world.client(Role.MASTER, index=INDEX) as client:
            content = make_content(file_key(shuffle_key()))
            shuffle = content.key.shuffle
            if kind == "MAP":
                await push_all(client, content, await open_file(client, content))
                request = MapSeal(file=content.key, totals=content.totals).encode()
            else:
                shuffle = shuffle_of(1)
                writer = Writer(shuffle)
                meta, body = writer.push([writer.batch(0, b"x")], client.hello.incarnation)
                await client.request(FrameType.PUSH_CREDIT, PushCredit(2 * MIB).encode())
                await client.request(FrameType.PUSH, meta, body)
                request = Seal(shuffle=shuffle, flags=0, raft_index=RaftIndex(0), epochs=[(0, 0)]).encode()
            disk.entered.clear()
            disk.go_on.clear()
            asked = asyncio.ensure_future(
                client.request(FrameType.MAP_SEAL if kind == "MAP" else FrameType.SEAL, request)
            )
            assert await asyncio.to_thread(disk.entered.wait, 30), "the seal does not sync"
            world.server.forget(shuffle)
            disk.go_on.set()
            if kind == "MAP":
                with pytest.raises(HoldfastError) as caught:
                    await asked
                assert caught.value.status is Status.UNKNOWN_SHUFFLE
            else:
                assert [each.status for each in SealAnswer.decode((await asked).meta).epochs] == [Status.UNKNOWN_FILE]

    run(story())


@contextmanager
def barred(directory: Path) -> Iterator[None]:
    """Nobody may look into a directory, not even this process."""
    before = os.geteuid()
    os.chmod(directory, 0)
    if not before:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)
        os.chmod(directory, 0o700)


def test_a36_a_directory_that_cannot_be_looked_at_ends_no_worker(tmp_path: Path) -> None:
    """A stat in a directory fails with what is not "it is not there", as on a file system that shut itself down or lost
    its server: that directory is isolated, with the reason, and the worker goes on with the others. The error left the
    task that ticks, and the process ended."""

    async def story() -> None:
        async with data_world(tmp_path) as world:
            with barred(tmp_path / "data"):
                world.server.tick()
                (reported,) = world.store.directories()
                assert not reported.healthy
                assert "cannot be read" in reported.problem
                assert "Permission denied" in reported.problem
            async with world.client() as client:
                await client.request(FrameType.PING)

    run(story())


@pytest.mark.parametrize(("host", "port"), [("no..name", 1), ("127.0.0.1", 99_999), ("a\0b", 1)])
def test_a36_an_address_that_cannot_be_is_out_of_reach(host: str, port: int) -> None:
    """An address that no system call takes, as a worker may be configured with: RetryError, so that a reader goes to
    the other copy; it met UnicodeError, OverflowError or ValueError, and ended."""

    async def story() -> None:
        hello = Hello(role=Role.CLIENT, cluster_id=CLUSTER)
        with pytest.raises(RetryError, match="cannot connect"):
            await FrameClient.connect(host, port, hello, BufferPool(64 * MIB))

    run(story())


def test_a36_a_mistake_in_a_frame_that_waited_for_memory_ends_its_connection() -> None:
    """A handler that raises what is none of ours, for a body that had to wait for memory: the connection ends at once,
    as it does for a body that had not, and nobody waits for an answer that never comes."""

    async def story() -> None:
        async with frame_world(budget=FRAME_BODY_BYTES_MAX) as it:
            it.echo.keep = True
            body = bytes(FRAME_BODY_BYTES_MAX)
            first, second = await it.client(), await it.client()
            before = asyncio.create_task(first.request(FrameType.MAP_PUSH, b"", body))
            await wait_until_async(lambda: bool(it.echo.kept), "the first body")
            answer = asyncio.create_task(second.request(FrameType.MAP_PUSH, b"", b"a few bytes"))
            await wait_until_async(lambda: it.pool.waiting == 1, "the second one to wait for memory")

            def mistake(connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
                if body is not None:
                    body.release()
                raise IndexError("a mistake of ours")

            it.echo.frame = mistake  # type: ignore[method-assign]
            it.echo.release_one()
            with pytest.raises(RetryError):
                await asyncio.wait_for(answer, 60)
            await before
            first.abort()

    run_frames(story)
