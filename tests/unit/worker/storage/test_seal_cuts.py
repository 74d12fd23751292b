"""A power cut beside a seal that leaves nothing of what was not synced: nothing acknowledged SYNCED is missing."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.limits import KIB
from holdfast.common.statuses import Status
from holdfast.worker.core.write.seen_batches import PushDecision
from holdfast.worker.storage.env.interfaces import Handle
from tests.support.power_disk import PowerDisk
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.storage_faults import Later
from tests.unit.worker.storage.reduce_world import SHUFFLE, FaultyDisk, World
from tests.unit.worker.storage.test_power_cuts import boot as boot  # noqa: PLC0414


class Nothing(Random):
    """Of what was not synced nothing is there."""

    def random(self) -> float:
        return 1.0

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return a


class SealDisk(PowerDisk):
    """One that a test stops at a step of a seal."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        #: done before the next sync of a partition file
        self.before_sync: Callable[[], object] = lambda: None
        #: how many pack files find no room
        self.full_packs = 0

    def sync(self, handle: Handle) -> None:
        if os.readlink(f"/proc/self/fd/{handle.fd}").endswith(".open"):
            act, self.before_sync = self.before_sync, lambda: None
            act()
        super().sync(handle)

    def write_parts(self, handle: Handle, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        if self.full_packs and ".pack" in os.readlink(f"/proc/self/fd/{handle.fd}"):
            self.full_packs -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_parts(handle, parts, size, offset)


@pytest.fixture
def world(tmp_path: Path, boot: Path) -> World:
    """Two epochs, one SYNCED batch in each, of which the first is in its file, too, and that was not synced."""
    boot.write_text("00000000-0000-0000-0000-000000000001\n")
    (tmp_path / "before" / "0").mkdir(parents=True)
    world = World(tmp_path / "before", segment_bytes=4 * KIB, disk=SealDisk(tmp_path / "before"))
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, os.urandom(3_000))], Ack.SYNCED) == {}
    unsealed = world.store.reduce._directories[0].unsealed
    (copy,) = unsealed.copy_of.values()
    assert unsealed.flush(copy)
    assert world.push(writer, [writer.batch(1, os.urandom(3_000))], Ack.SYNCED) == {}
    return world


def after_power_cut(world: World, boot: Path) -> Callable[[], list[tuple[Status, int]]]:
    """Cut the power now; what is called tells what a start says of both epochs then."""
    target = world.root.with_name("after")
    disk = world._other_disk
    assert isinstance(disk, SealDisk)
    disk.cut(target, Nothing())

    def told() -> list[tuple[Status, int]]:
        boot.write_text("00000000-0000-0000-0000-000000000002\n")
        other = World(target, segment_bytes=4 * KIB, disk=PowerDisk(target))
        return [(Status(one.status), one.batches) for one in other.seal([(0, 0), (1, 0)])]

    return told


def test_the_log_stays_until_a_seal_has_synced(world: World, boot: Path) -> None:
    """What was flushed from the log and not synced is on the disk in the log alone, until its seal has synced it."""
    disk, told = world._other_disk, []
    assert isinstance(disk, SealDisk)

    def tick_and_cut() -> None:
        world.store.reduce.tick()
        told.append(after_power_cut(world, boot))

    disk.before_sync = tick_and_cut
    (answer,) = world.seal([(0, 0)], final=False)
    assert answer.status == Status.OK
    world.store.close()
    assert told[0]() == [(Status.OK, 1)] * 2


def test_the_log_stays_until_the_names_of_sealed_files_are_synced(world: World, boot: Path) -> None:
    """A seal finishes one file and finds no room for another: the name of the first is not on the disk yet."""
    disk = world._other_disk
    assert isinstance(disk, SealDisk)
    disk.full_packs = 1
    with pytest.raises(HoldfastError):
        world.seal([(0, 0), (1, 0)], final=False)
    world.store.reduce.tick()
    told = after_power_cut(world, boot)
    assert [one.status for one in world.seal([(0, 0), (1, 0)])] == [Status.OK] * 2
    world.store.close()
    assert told() == [(Status.OK, 1)] * 2


class LossyDisk(FaultyDisk):
    """A disk that remembers which files lost what was written to them, since their sync failed."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[int] = set()

    def sync(self, handle: Handle) -> None:
        if self.sync_error:
            self.lost.add(os.fstat(handle.fd).st_ino)
        super().sync(handle)


class PushWorld(World):
    """One whose pushes do not wait for their syncs."""

    def _after(self, decision: PushDecision, failures: list[tuple[int, Status]], ack: Ack) -> None:
        if ack is Ack.SYNCED:
            (self.synced,) = self.store.reduce.sync(decision)


def test_a_segment_is_not_used_again_while_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells an error once for a file: a sync of a segment that nobody needs any more must not take the error
    of what is written into that file next."""
    later, disk = Later(), LossyDisk()
    monkeypatch.setattr("holdfast.worker.storage.env.system.SystemThreads.pool", lambda *_: later)
    world = PushWorld(tmp_path, segment_bytes=4 * KIB, disk=disk)
    unsealed = world.store.reduce._directories[0].unsealed
    writer, other = Writer(SHUFFLE), Writer(shuffle_of(2))
    world.push(writer, [writer.batch(0, os.urandom(40_000))], Ack.SYNCED)
    for partition in range(2):
        world.push(other, [other.batch(partition, os.urandom(3_000))])
    for copy in list(unsealed.copy_of.values()):
        unsealed.flush(copy)
    unsealed.release()  # the first segment, after the next round
    later.run_one()
    world.push(writer, [writer.batch(1, os.urandom(40_000))], Ack.SYNCED)
    later.run_one()
    unsealed.release()
    world.push(writer, [writer.batch(2, os.urandom(3_000))], Ack.SYNCED)
    disk.sync_error = errno.EIO
    later.run_one()
    disk.sync_error = 0
    while not world.synced.done():
        later.run_one()
    assert disk.lost
    assert not world.synced.result()
    newest = unsealed.log.segments[unsealed.log.newest].path
    assert newest.stat().st_ino not in disk.lost
    while later.run_one():
        pass
    unsealed.release()
    assert [*unsealed.log.segments] == [3]


class ForgetfulDisk(FaultyDisk):
    """A disk that has what was written to a segment from here on no more, in the cache neither, when a sync fails."""

    lost_from = 0

    def sync(self, handle: Handle) -> None:
        if self.sync_error and os.readlink(f"/proc/self/fd/{handle.fd}").endswith(".push"):
            os.pwrite(handle.fd, bytes(4 * KIB), self.lost_from)
        super().sync(handle)


@pytest.mark.parametrize("forgets", [False, True])
def test_a_seal_that_waited_for_a_failed_sync_looks_at_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """A seal waits for the sync of a segment, which fails: what the log still has is sealed, and nothing else is."""
    later, disk = Later(), ForgetfulDisk()
    monkeypatch.setattr("holdfast.worker.storage.env.system.SystemThreads.pool", lambda *_: later)
    world = PushWorld(tmp_path, disk=disk)
    unsealed = world.store.reduce._directories[0].unsealed
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(0, os.urandom(1_000))], Ack.SYNCED)
    later.run_one()
    disk.lost_from = unsealed.log.segments[1].end if forgets else 16 * KIB
    world.push(writer, [writer.batch(0, os.urandom(1_000))], Ack.SYNCED)
    world.core.seal(SHUFFLE, False, [(0, 0)])
    ((key, sealed),) = world.store.reduce.seal(SHUFFLE, False, [(0, 0)])
    assert not isinstance(sealed, SealedEpoch)
    disk.sync_error = errno.EIO
    later.run_one()
    disk.sync_error = 0
    while later.run_one():
        pass
    assert sealed.result()[key].status == (Status.FAILED_COPY if forgets else Status.OK)
    assert forgets or len(world.read(0)) == 2


def test_what_was_flushed_beside_a_failed_sync_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is flushed from a segment while that is synced, which fails, and the cache may have lost it before: the
    batch is not acknowledged, though the sync of its file is good, nor sealed."""
    later, disk = Later(), ForgetfulDisk()
    monkeypatch.setattr("holdfast.worker.storage.env.system.SystemThreads.pool", lambda *_: later)
    world = PushWorld(tmp_path, disk=disk)
    unsealed = world.store.reduce._directories[0].unsealed
    writer = Writer(SHUFFLE)
    disk.lost_from = unsealed.log.size_bytes
    world.push(writer, [writer.batch(0, os.urandom(1_000))], Ack.SYNCED)
    (copy,) = unsealed.copy_of.values()
    (waiting,) = unsealed.syncing._running[None].waiting
    unsealed.flush(copy)
    disk.sync_error = errno.EIO
    later.run_one()
    disk.sync_error = 0
    while later.run_one():
        pass
    assert copy.key in waiting.future.result()
    assert copy.key in unsealed.failed
