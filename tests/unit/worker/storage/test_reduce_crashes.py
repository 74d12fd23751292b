"""A seal that is killed between any two steps leaves every acknowledged batch, and the next start seals them all."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.common.ids import PartitionId
from holdfast.common.limits import KIB
from holdfast.common.statuses import Status
from holdfast.worker.storage.engine.unsealed import UnsealedEpochs
from holdfast.worker.storage.env.interfaces import Handle, Name
from tests.support.reduce_data import Writer, names
from tests.support.storage_env import CheckHere, Disk
from tests.support.storage_faults import Inline
from tests.unit.worker.storage.reduce_world import SHUFFLE, World

EPOCHS = [(partition, 0) for partition in range(5)]


class KilledError(BaseException):
    """The process is gone."""


class KillingDisk(Disk):
    """Ends everything at one step, or in the middle of a write."""

    def __init__(self) -> None:
        #: steps that are left; None: it is not armed
        self.left: int | None = None

    def _step(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            raise KilledError

    def write_parts(self, handle: Handle, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        if self.left == 0:
            os.pwrite(handle.fd, b"".join(parts)[: size // 2], offset)
        self._step()
        super().write_parts(handle, parts, size, offset)

    def write(self, handle: Handle, data: bytes | memoryview, offset: int) -> None:
        self._step()
        super().write(handle, data, offset)

    def create(self, path: Name) -> Handle:
        self._step()
        return super().create(path)

    def sync(self, handle: Handle) -> None:
        self._step()
        super().sync(handle)

    def sync_folder(self, path: Name) -> None:
        self._step()
        super().sync_folder(path)

    def rename(self, source: Name, target: Name) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Name) -> None:
        self._step()
        super().remove(path)

    def commit(self, transaction: Callable[[], None]) -> None:
        self._step()
        super().commit(transaction)


def disk_of(world: World) -> KillingDisk:
    """The disk of a world, which is one that kills."""
    disk = world._other_disk
    assert isinstance(disk, KillingDisk)
    return disk


def filled(root: Path) -> World:
    """Five epochs: two with files, one of them with batches in the log too, three in the log only."""
    world = World(root, disk=KillingDisk())
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(partition, os.urandom(900)) for partition in range(5)])
    world.push(writer, [writer.batch(0, os.urandom(40_000)), writer.batch(1, os.urandom(50_000))])
    world.push(writer, [writer.batch(partition, os.urandom(700)) for partition in range(4)])
    return world


def in_this_thread(reduce: UnsealedEpochs) -> None:
    """What waits for the disk is done where it is asked for, so that what kills a step ends the caller."""
    reduce._pool = Inline()  # type: ignore[assignment]
    reduce._sealer._threads = reduce._sealer._threads._replace(pool=Inline())  # type: ignore[arg-type]


def seal_killed(world: World, step: int) -> bool:
    """Seal with a kill at a step; False if there is no such step."""
    directory = world.store._directories[0]
    in_this_thread(directory.unsealed)
    disk_of(world).left = step
    try:
        world.seal(EPOCHS)
    except KilledError:
        return True
    return False


def push_killed(world: World, step: int, told: dict[int, int]) -> bool:
    """Push, seal and rest until the kill at a step; False if there is no such step. `told` counts what was
    acknowledged of each partition."""
    directory = world.store._directories[0]
    reduce = directory.unsealed
    in_this_thread(reduce)
    disk_of(world).left = step
    writer = Writer(SHUFFLE)
    try:
        for turn in range(9):
            assert world.push(writer, [writer.batch(turn % 3, os.urandom(1_500))]) == {}
            told[turn % 3] = told.get(turn % 3, 0) + 1
        world.seal([(partition, 0) for partition in range(3)], final=False)
        world.store.reduce.tick()
        assert world.push(writer, [writer.batch(3, os.urandom(1_500))]) == {}
        told[3] = 1
        world.store.reduce.tick()
    except KilledError:
        return True
    return False


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_a_log_that_is_killed_at_any_step_is_never_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Segments begin, fill, are used again and go: wherever a kill falls, the next start finds all that was
    acknowledged and takes nothing for damage. The default run tries every fourth step."""
    monkeypatch.setattr("holdfast.worker.storage.env.system.SystemChecks.start", staticmethod(CheckHere))
    step, killed = 0, True
    while killed:
        world = World(tmp_path / f"{step}", segment_bytes=2 * KIB, disk=KillingDisk())
        told: dict[int, int] = {}
        killed = push_killed(world, step, told)
        after = tmp_path / f"{step}-after"
        shutil.copytree(world.root, after)
        (after / "0" / "lock").unlink()
        world.store.close()
        again = World(after)
        answers = {answer.partition: answer for answer in again.seal([(p, 0) for p in range(5)])}
        for partition in range(5):
            answer = answers[PartitionId(partition)]
            if partition in told:
                assert (answer.status, answer.batches >= told[partition]) == (Status.OK, True), (step, told)
            else:
                assert answer.status in (Status.OK, Status.UNKNOWN_FILE), (step, told)
        again.store.close()
        shutil.rmtree(world.root)
        shutil.rmtree(after)
        step += every
    assert step > 40


@pytest.mark.parametrize("earlier", [False, True], ids=["own", "left behind"])
def test_killed_at_any_step(tmp_path: Path, earlier: bool) -> None:
    """Whatever step a seal was killed at, the next start answers OK with every batch once, and keeps to its answer."""
    step, killed = 0, True
    while killed:
        world = filled(tmp_path / f"{step}")
        if earlier:
            world.restart()
        killed = seal_killed(world, step)
        after = tmp_path / f"{step}-after"
        shutil.copytree(world.root, after)
        (after / "0" / "lock").unlink()
        world.store.close()
        again = World(after)
        answers = again.seal(EPOCHS)
        assert [answer.status for answer in answers] == [Status.OK] * 5, step
        assert [answer.batches for answer in answers] == [3, 3, 2, 2, 1], step
        assert sorted(names(again.read(0))) == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
        again.restart()
        assert again.seal(EPOCHS) == answers
        again.store.close()
        step += 1
    assert step > 8
