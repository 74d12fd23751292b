"""The push service over a real store whose disk fails: promises made from memory, and bodies on their way."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from holdfast.common.errors import HoldfastError, NoRoomError, RetryError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Ack, Role
from holdfast.common.formats.reduce_messages import PushAnswer, PushCredit, Seal, SealAnswer, SealedEpoch, SealFlag
from holdfast.common.ids import Incarnation, RaftIndex, ShuffleKey, WorkerId
from holdfast.common.limits import KIB, MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.statuses import Status
from holdfast.common.system import waiting
from holdfast.worker.server.context import ServerBounds, WorkerContext
from holdfast.worker.server.membership.worker_identity import KeptIdentity, WorkerIdentity
from holdfast.worker.server.services import seal_service
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.server.services.push_service import PushService
from holdfast.worker.server.services.request import Request
from holdfast.worker.server.services.seal_service import SealService
from holdfast.worker.storage.env.interfaces import Handle
from holdfast.worker.storage.names import MOVING_SUFFIX
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import open_store, prepare
from tests.support.changing import files_below
from tests.support.logged import logged
from tests.support.reduce_data import Made, Writer, shuffle_of
from tests.support.registered import EverythingRegistered
from tests.support.storage_env import Disk, env_of
from tests.support.waiting import wait_until_async
from tests.unit.worker.data_world import INDEX, data_world

SHUFFLE = shuffle_of()


class Connection:
    """Stands for a connection: keeps what it is answered."""

    number = 1
    owner: tuple[bytes, ...] = ()
    closed = False

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.refusals: list[HoldfastError] = []

    def reply(self, header: FrameHeader, meta: bytes = b"") -> None:
        self.answers.append(meta)

    def refuse(self, header: FrameHeader, error: HoldfastError) -> None:
        self.refusals.append(error)


class World:
    """A service, one connection with a window, and a disk that is full or broken when told so."""

    def __init__(self, root: Path, capacity: int = 0, disk: Disk | None = None) -> None:
        self.faults = Faults()
        self.faults.error_after = 1 << 40
        self.faults.error_rate = 1.0
        settings = StoreSettings(
            cluster_id="c", worker_name="w", directories=(DirectorySettings(path=str(root), capacity_bytes=capacity),)
        )
        self.store = open_store(prepare(settings, env_of(disk) if disk is not None else self.faults.door(env_of())))
        standing = WorkerIdentity("c", "w", self.store.incarnation, WorkerId(1))
        standing.registered = True
        self.context = WorkerContext(self.store, standing, ServerBounds(64 * MIB), asking=EverythingRegistered())
        self.seals = SealService(self.context)
        self.service = PushService(self.context, self.seals)
        self.service.reduce.closed_because = ""
        self.connection = cast("Any", Connection())
        self.pool = BufferPool(64 * MIB)
        self.ask_window()

    def ask_window(self) -> None:
        """Want 1 MiB."""
        header = self.header(FrameType.PUSH_CREDIT, 0)
        self.service.credit(Request(self.connection, header, PushCredit(MIB).encode(), self.context.counters))

    def header(self, kind: FrameType, size: int) -> FrameHeader:
        """The head of a request."""
        return FrameHeader(kind, 0, 7, 0, size, 0, 0)

    def send(self, writer: Writer, batches: list[Made], ack: Ack) -> None:
        """Push; the answer may come later."""
        self.hand_over(writer, batches, ack)
        assert not self.connection.refusals

    def hand_over(self, writer: Writer, batches: list[Made], ack: Ack) -> None:
        """Push, whatever comes of it."""
        meta, data = writer.push(batches, self.store.incarnation, ack)
        header = self.header(FrameType.PUSH, len(data))
        assert self.service.admit(self.connection, header, Role.CLIENT)
        body = self.pool.take(len(data))
        assert body is not None
        body.view[:] = data
        self.service.push(Request(self.connection, header, meta, self.context.counters, body=body))

    def push(self, writer: Writer, batches: list[Made], ack: Ack) -> dict[int, int]:
        """Push what is answered at once; the statuses that are not OK, by index."""
        self.send(writer, batches, ack)
        assert self.pool.used_bytes == 0
        return self.answered()

    def answered(self) -> dict[int, int]:
        """The statuses of the last push that are not OK, by index."""
        return dict(PushAnswer.decode(self.connection.answers.pop()).statuses)

    def sealed(self, shuffle: ShuffleKey, epochs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Seal epochs for good; (status, number of batches) of each."""
        self.service.reduce.seal(shuffle, True, epochs)
        promised = self.store.reduce.seal(shuffle, True, epochs)
        found = [one if isinstance(one, SealedEpoch) else one.result(60)[key] for key, one in promised]
        return [(one.status, one.batches) for one in found]

    def fail(self, error: int) -> None:
        """From now on nothing more can be written."""
        self.faults.error, self.faults.error_after = error, 0


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_what_was_promised_from_memory_gives_its_copy_up(tmp_path: Path, error: int) -> None:
    """A batch acknowledged at MEMORY meets a disk that takes nothing: it was OK before it was written, so its copy is
    FAILED for good instead of being taken for whole, unless the disk is only full; WRITTEN is refused instead, and what
    it has stays good if the disk is only full."""

    async def story() -> None:
        world = World(tmp_path / "data")
        memory, written = Writer(SHUFFLE), Writer(shuffle_of(2))
        assert world.push(memory, [memory.batch(0, b"a"), memory.batch(1, b"b")], Ack.MEMORY) == {}
        assert world.push(written, [written.batch(0, b"c")], Ack.WRITTEN) == {}
        world.fail(error)
        full = error == errno.ENOSPC
        world.send(memory, [memory.batch(0, b"promised")], Ack.MEMORY)
        assert world.answered() == {}
        world.send(memory, [memory.batch(0, b"no more")], Ack.MEMORY)
        assert world.answered() == {0: Status.HARD_SPLIT if full else Status.FAILED_COPY}
        world.send(written, [written.batch(0, b"d")], Ack.WRITTEN)
        assert world.answered() == {0: Status.NO_ROOM if full else Status.FAILED_COPY}
        world.service.reduce.check()
        world.faults.error_after = 1 << 40
        world.service.tick(0)
        good = Status.OK if full else Status.FAILED_COPY
        assert world.sealed(SHUFFLE, [(0, 0), (1, 0)]) == [(good, 2 * full), (Status.OK, 1)]
        assert world.sealed(shuffle_of(2), [(0, 0)]) == [(good, full)]
        world.store.close()

    run(story())


@pytest.mark.parametrize("size", [10, 200 * KIB])
def test_a07_what_memory_promised_waits_for_room(tmp_path: Path, size: int) -> None:
    """Others fill a disk while batches come at MEMORY. What was acknowledged before it was written is kept: one push of
    a worker at most, and behind it each is written before it is acknowledged. Its epochs take nothing more, their seal
    says that the disk is full, and once there is room it is sealed with every batch. It was called LOST, though nobody
    had died."""

    async def story() -> None:
        world = World(tmp_path / "data")
        first, second = Writer(SHUFFLE), Writer(shuffle_of(2))
        for writer in (first, second):
            world.send(writer, [writer.batch(partition, b"x" * size) for partition in (0, 0, 1)], Ack.MEMORY)
            assert world.answered() == {}
        world.fail(errno.ENOSPC)
        world.send(first, [first.batch(partition, b"y" * size) for partition in (0, 0, 1)], Ack.MEMORY)
        assert world.answered() == {}, "it was acknowledged, or this test shows nothing"
        world.send(second, [second.batch(0, b"z" * size)], Ack.MEMORY)
        assert world.answered() == {0: Status.NO_ROOM}
        world.service.tick(0)
        with pytest.raises(NoRoomError) as full:
            world.service.reduce.seal(SHUFFLE, True, [(0, 0), (1, 0)])
        assert full.value.status is Status.DISK_FULL
        world.faults.error_after = 1 << 40
        world.service.tick(0)
        assert world.pool.used_bytes == 0
        assert world.sealed(SHUFFLE, [(0, 0), (1, 0)]) == [(Status.OK, 4), (Status.OK, 2)]
        world.store.close()

    run(story())


@pytest.mark.parametrize("waits", [False, True])
def test_a07_an_orderly_end_seals_all_that_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """A worker that ends seals every epoch in memory: of a shuffle with more than one seal may name, and beside one
    that waits for room, which takes no other with it."""
    monkeypatch.setattr(seal_service, "SEAL_EPOCHS_MAX", 3)

    async def story() -> None:
        world = World(tmp_path / "data")
        writer = Writer(SHUFFLE)
        world.send(writer, [writer.batch(partition, b"x") for partition in range(10)], Ack.MEMORY)
        if waits:
            world.fail(errno.ENOSPC)
            world.send(writer, [writer.batch(0, b"y")], Ack.MEMORY)
            world.service.tick(0)
            world.faults.error_after = 1 << 40
            world.service._write_owed = lambda: None  # type: ignore[method-assign] # there is no room for it alone
        world.service.end()
        await world.context.running.wait()
        left = [state.partition for state in world.service.reduce.shuffles[SHUFFLE].epochs.values()] if waits else []
        assert left == [0] * waits
        assert waits or not world.service.reduce.shares.total
        world.store.close()

    run(story())


def test_a07_what_memory_promised_goes_with_its_shuffle(tmp_path: Path) -> None:
    """The shuffle of what waits for room is dropped: what waits goes, with its memory, and the worker goes on."""

    async def story() -> None:
        world = World(tmp_path / "data")
        first, second = Writer(SHUFFLE), Writer(shuffle_of(2))
        for writer in (first, second):
            world.send(writer, [writer.batch(0, b"x")], Ack.MEMORY)
        world.fail(errno.ENOSPC)
        world.send(first, [first.batch(0, b"y")], Ack.MEMORY)
        world.service.reduce.forget(SHUFFLE)
        world.faults.error_after = 1 << 40
        world.service.tick(0)
        assert world.pool.used_bytes == 0
        world.send(second, [second.batch(0, b"z")], Ack.MEMORY)
        assert world.answered() == {}
        assert world.sealed(shuffle_of(2), [(0, 0)]) == [(Status.OK, 2)]
        world.store.close()

    run(story())


@pytest.mark.parametrize("size", [100, 200 * KIB])
def test_a_directory_never_holds_more_than_its_capacity(tmp_path: Path, size: int) -> None:
    """Between two looks at the room far more is pushed than there is: what no longer fits is refused as on a full disk,
    what was taken is sealed, and at no time is there more than the configured capacity."""

    async def story() -> None:
        capacity = 4 * MIB
        world = World(tmp_path / "data", capacity)
        world.service.tick(0)
        count = MIB // 4 // size + 1
        taken = split = 0
        for number in range(64):
            writer = Writer(shuffle_of(number + 1))
            found = world.push(writer, [writer.batch(0, b"x" * size) for _ in range(count)], Ack.WRITTEN)
            assert set(found.values()) <= {Status.HARD_SPLIT, Status.NO_ROOM}
            taken, split = taken + (not found), split + bool(found)
            assert bytes_in(tmp_path / "data") <= capacity
        assert taken
        assert split
        world.store.close()

    run(story())


def bytes_in(root: Path) -> int:
    """Of the data files and the log, not of the index."""
    return sum(path.stat().st_size for path in files_below(root) if path.suffix != ".mdb")


def test_a_window_outlives_what_was_never_received(tmp_path: Path) -> None:
    """A connection that goes while an admitted body is on its way gives its window back; beyond it none is admitted."""

    async def story() -> None:
        world = World(tmp_path / "data")
        service, connection = world.service, world.connection
        assert service.credits.held_bytes == MIB
        assert not service.admit(connection, world.header(FrameType.PUSH, MIB + 1), Role.CLIENT)
        assert [error.status for error in connection.refusals] == [Status.BUSY]
        assert service.admit(connection, world.header(FrameType.PUSH, MIB), Role.CLIENT)
        service.lost(connection)
        assert service.credits.held_bytes == 0
        service.credits.check()
        world.store.close()

    run(story())


class LateDisk(Disk):
    """A disk on which the sync of one file ends late, and fails."""

    def __init__(self, *, fails: bool = True) -> None:
        self.late = ""
        self._fails = fails
        self.entered, self.go_on = threading.Event(), threading.Event()

    def sync(self, handle: Handle) -> None:
        if self.late and os.readlink(f"/proc/self/fd/{handle.fd}").endswith(self.late):
            self.entered.set()
            assert self.go_on.wait(30)
            if self._fails:
                raise OSError(errno.EIO, "asked for by the test")
        super().sync(handle)


@pytest.mark.parametrize(
    ("late", "size", "status"), [(".push", 1, Status.OK), (".open", 300 * KIB, Status.FAILED_COPY)]
)
def test_a35_a_sync_that_fails_while_a_seal_waits_for_it(tmp_path: Path, late: str, size: int, status: Status) -> None:
    """The sync for a push at SYNCED fails while the seal of its epoch waits for it: the push is not acknowledged, and
    gives back what it holds. What was in the log is written anew and sealed; a file whose sync failed is given up: the
    next sync of it would tell that all is well."""

    async def story() -> None:
        disk = LateDisk()
        world = World(tmp_path / "data", disk=disk)
        world.store.run_on(asyncio.get_running_loop().call_soon_threadsafe)
        writer = Writer(SHUFFLE)
        disk.late = late
        world.send(writer, [writer.batch(0, bytes(size))], Ack.SYNCED)
        await asyncio.to_thread(disk.entered.wait, 30)
        seal = Seal(shuffle=SHUFFLE, flags=SealFlag.FINAL, raft_index=RaftIndex(0), epochs=[(0, 0)])
        sealing = asyncio.ensure_future(world.seals._seal(seal))
        await wait_until_async(lambda: bool(world.store.reduce._directories[0].unsealed._held_up), "the seal to wait")
        before = len(world.connection.answers)
        disk.late = ""
        disk.go_on.set()
        (answer,) = await sealing
        assert (answer.status, answer.batches) == (status, 1 if status is Status.OK else 0)
        await wait_until_async(lambda: len(world.connection.answers) > before, "the answer to the push")
        assert world.answered() == {0: Status.FAILED_COPY}
        assert world.pool.used_bytes == 0
        world.service.reduce.check()
        world.store.run_on(lambda act: act())
        world.store.close()
        assert bool(list((tmp_path / "data").rglob("*.failed"))) == (status is Status.FAILED_COPY)

    run(story())


def test_a47_a_push_that_its_disk_does_not_sync_is_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk hangs in a sync while a push at SYNCED that fills its window waits for it. After 10 s the log says so.
    After 20 s the push is answered DISK_FAILED, and its memory and its window are free for pushes to other disks; its
    epoch takes nothing more. When the disk goes on the epoch is sealed with the batch, and nobody is answered twice."""

    async def story() -> None:
        disk = LateDisk(fails=False)
        world = World(tmp_path / "data", disk=disk)
        world.store.run_on(asyncio.get_running_loop().call_soon_threadsafe)
        writer = Writer(SHUFFLE)
        disk.late = ".push"
        world.send(writer, [writer.batch(partition, bytes(30 * KIB)) for partition in range(33)], Ack.SYNCED)
        await asyncio.to_thread(disk.entered.wait, 30)
        before, now_ns = len(world.connection.answers), time.monotonic_ns()
        said = []
        for seconds in (9, 11, 12, 21):
            world.service.tick(now_ns + seconds * 10**9)
            said.append(len(logged(caplog, LogEvent.PUSH_SYNC_SLOW)))
            assert world.pool.used_bytes > 0 or seconds == 21
        assert len(world.connection.answers) == before + 1, "nobody answers this push"
        assert world.answered() == dict.fromkeys(range(33), Status.DISK_FAILED)
        assert said == [0, 1, 1, 1]
        assert world.pool.used_bytes == world.service.credits.held_bytes == 0
        world.ask_window()
        world.connection.answers.pop()
        world.send(writer, [writer.batch(0, b"more")], Ack.SYNCED)
        assert world.answered() == {0: Status.HARD_SPLIT}
        disk.go_on.set()
        await wait_until_async(
            lambda: world.store.reduce._directories[0].unsealed.syncing._running == {}, "the sync to end"
        )
        assert len(world.connection.answers) == before
        seals = world.seals
        seal = Seal(shuffle=SHUFFLE, flags=SealFlag.FINAL, raft_index=RaftIndex(0), epochs=[(0, 0)])
        (answer,) = await seals._seal(seal)
        assert (answer.status, answer.batches) == (Status.OK, 1)
        world.service.reduce.check()
        world.service.credits.check()
        world.store.run_on(lambda act: act())
        world.store.close()

    run(story())


def test_a47_a_seal_on_a_disk_that_hangs_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk hangs while a master has an epoch sealed there. It hears BUSY, as soon as that is known of the disk, so
    that its commit ends one day with the reason, and the log says that a seal waits. When the disk goes on, who asks
    again hears that the epoch is sealed, and nothing counts as being written any more."""
    monkeypatch.setattr(waiting, "SAY_SECONDS", 0.0)

    async def story() -> None:
        disk = LateDisk(fails=False)
        async with (
            data_world(tmp_path, env=env_of(disk)) as world,
            world.client() as client,
            world.client(Role.MASTER) as asker,
        ):
            writer = Writer(SHUFFLE)
            await client.request(FrameType.PUSH_CREDIT, PushCredit(MIB).encode())
            await client.request(FrameType.PUSH, *writer.push([writer.batch(0, b"a")], world.standing.incarnation))
            disk.late = MOVING_SUFFIX
            seal = Seal(shuffle=SHUFFLE, flags=SealFlag.FINAL, raft_index=INDEX, epochs=[(0, 0)]).encode()
            asked = await asker.start(FrameType.SEAL, seal)
            await asyncio.to_thread(disk.entered.wait, 30)
            condition = world.store._directories[0].condition
            condition.hanging, condition.problem = True, "hangs: a check of its device took more than 30 s"
            for answer in (asked, await asker.start(FrameType.SEAL, seal)):
                with pytest.raises(RetryError, match="hangs: a check of its device") as busy:
                    await asyncio.wait_for(answer, 60)
                assert busy.value.status is Status.BUSY
            assert f"a disk to seal {SHUFFLE}" in {each["what"] for each in logged(caplog, LogEvent.WAIT_LONG)}
            assert world.server.writing == 1
            condition.hanging, condition.problem = False, ""
            disk.go_on.set()
            reply = await asyncio.wait_for(asker.request(FrameType.SEAL, seal), 60)
            assert [one.status for one in SealAnswer.decode(reply.meta).epochs] == [Status.OK]
            assert world.server.writing == 0
            world.server.pushes.reduce.check()

    run(story())


def wrong(*_: Any) -> Any:
    """What the service meets where it expects none of it."""
    raise OSError(errno.EIO, "the disk is gone")


@pytest.mark.parametrize("where", ["_look_at_space", "reduce.decide", "reduce.landed", "_store.reduce.give_up"])
def test_a47_an_unforeseen_error_gives_the_body_of_a_push_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whatever a push meets, at whatever step, what it held is free again: its body and its part of the window."""

    async def story() -> None:
        world = World(tmp_path)
        writer = Writer(SHUFFLE, 0)
        world.service._until_look = 0
        target: Any = world.service
        *path, name = where.split(".")
        for step in path:
            target = getattr(target, step)
        monkeypatch.setattr(type(target), name, wrong)
        if name == "give_up":
            monkeypatch.setattr(type(target), "append", wrong)
        try:
            world.hand_over(writer, [writer.batch(0, b"x" * 1_000)], Ack.WRITTEN)
        except OSError:
            pass  # answered by the data server
        else:
            answered = len(world.connection.answers) + len(world.connection.refusals)
            assert answered == 2, "the request for credit, and the push"
        assert world.pool.used_bytes == 0, "the body"
        assert world.service.credits._windows[1].unanswered == 0, "its part of the window"

    asyncio.run(story())


@pytest.mark.parametrize("ack", list(Ack))
def test_a07_a_mistake_of_ours_costs_the_copies_that_it_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ack: Ack
) -> None:
    """Something that nobody foresaw is raised while a push is written: it is answered, gives its window and body back,
    its copies are given up, and what another shuffle pushes and has pushed is as good as before."""

    async def story() -> None:
        world = World(tmp_path / "data")
        world.store.run_on(asyncio.get_running_loop().call_soon_threadsafe)
        mine, others = Writer(SHUFFLE), Writer(shuffle_of(2))
        for writer in (mine, others):
            assert world.push(writer, [writer.batch(0, b"a")], Ack.WRITTEN if writer is others else Ack.MEMORY) == {}
        mine = Writer(shuffle_of(3))
        append = world.store.reduce.append
        monkeypatch.setattr(world.store.reduce, "append", Mock(side_effect=AssertionError("planted")))
        assert world.push(mine, [mine.batch(0, b"b")], ack) == {0: Status.FAILED_COPY}
        monkeypatch.setattr(world.store.reduce, "append", append)
        assert world.push(mine, [mine.batch(0, b"c")], ack) == {0: Status.FAILED_COPY}
        assert world.push(others, [others.batch(0, b"d")], Ack.WRITTEN) == {}
        world.service.reduce.check()
        world.store.run_on(lambda act: act())
        world.store.close()

    run(story())


def test_a_raft_index_that_cannot_be_is_passed_over() -> None:
    """Nobody ends deletion for good by a number: not on the wire, and not where one was kept already."""
    standing = WorkerIdentity("c", "w", Incarnation(1))
    standing.saw(RaftIndex(7))
    standing.saw(RaftIndex(2**62))
    assert standing.raft_index == 7
    kept = KeptIdentity.decode(KeptIdentity(WorkerId(3), RaftIndex(2**62)).encode())
    assert kept == KeptIdentity(WorkerId(3), RaftIndex(0))
