"""Want of descriptors says nothing against a disk, and costs no data: what could not be opened was not tried."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.statuses import Status
from holdfast.worker.storage.engine.rounds import Wanted
from holdfast.worker.storage.env.interfaces import Handle, Name
from tests.support.reduce_data import Writer
from tests.unit.worker.storage.reduce_world import SHUFFLE, World
from tests.unit.worker.storage.test_seal_failures import NamedFaults, statuses


class NoDescriptors(NamedFaults):
    """Nothing can be opened for a while, in whatever way."""

    def __init__(self) -> None:
        super().__init__()
        self.none_left = False

    def _check(self, path: object) -> None:
        if self.none_left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    def _open_to_change(self, path: Any) -> Any:
        self._check(path)
        return super()._open_to_change(path)

    def open(self, path: Name, *, write: bool = False) -> Handle:
        self._check(path)
        return super().open(path, write=write)

    def sync_folder(self, path: Name) -> None:
        self._check(path)
        super().sync_folder(path)


@pytest.fixture
def disk() -> NoDescriptors:
    return NoDescriptors()


@pytest.fixture
def world(tmp_path: Path, disk: NoDescriptors) -> World:
    return World(tmp_path, disk=disk)


def pushed(world: World, ack: Ack = Ack.WRITTEN) -> Writer:
    """An epoch that has a file, which was closed, and more in the log."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, os.urandom(60_000)) for _ in range(30)], ack) == {}
    assert world.push(writer, [writer.batch(0, os.urandom(2_000))], ack) == {}
    world.store._directories[0].unsealed._writers.clear()  # as where many are written: the least recent one is closed
    return writer


@pytest.mark.parametrize("by", ["a seal", "the log", "a push"])
def test_a_file_that_cannot_be_opened_is_not_given_up(world: World, disk: NoDescriptors, by: str) -> None:
    """Whoever meets that tries it again, and the directory is well."""
    writer = pushed(world)
    disk.none_left = True
    if by == "a seal":
        with pytest.raises(HoldfastError, match="Too many open files"):
            world.seal([(0, 0)])
    elif by == "the log":
        world.store.reduce.tick([0])
    else:
        failed = world.push(writer, [writer.batch(0, os.urandom(60_000)) for _ in range(3)])
        assert set(failed.values()) == {Status.NO_ROOM}
    disk.none_left = False
    assert not world.store._directories[0].problem
    assert statuses(world, [(0, 0)]) == [Status.OK]


def test_a_sync_that_was_not_tried_is_tried_again(world: World, disk: NoDescriptors) -> None:
    """Who waits for it hears that it is not on the disk; nothing is given up, and the next sync brings it there."""
    pushed(world, Ack.SYNCED)
    unsealed = world.store._directories[0].unsealed
    (copy,) = unsealed.copies.values()
    disk.none_left = True
    missing = unsealed.syncing.sync(Wanted({copy: None}, {}, {copy: None})).result(60)
    assert [error.errno for error in missing.values() if isinstance(error, OSError)] == [errno.EMFILE]
    assert copy in unsealed.syncing.unsynced
    disk.none_left = False
    assert unsealed.syncing.sync(Wanted({copy: None}, {}, {copy: None})).result(60) == {}
    assert copy not in unsealed.syncing.unsynced
    assert not world.store._directories[0].problem
    assert statuses(world, [(0, 0)]) == [Status.OK]
