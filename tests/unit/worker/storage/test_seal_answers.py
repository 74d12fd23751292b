"""A seal is answered the same for ever: what was given up or lost stays that, whatever a sick disk has kept of it."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.statuses import Status
from tests.support.reduce_data import Writer
from tests.support.waiting import wait_until
from tests.unit.worker.storage.reduce_world import SHUFFLE, World
from tests.unit.worker.storage.test_seal_failures import NamedFaults, push, statuses


class DoubtfulIndex(NamedFaults):
    """An index whose transaction may be on the disk, and says that it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.doubtful = False

    def commit(self, transaction: Callable[[], None]) -> None:
        super().commit(transaction)
        if self.doubtful:
            self.unreadable = True
            raise OSError(errno.EIO, "the sync of the meta page failed")


@pytest.fixture
def disk() -> DoubtfulIndex:
    return DoubtfulIndex()


@pytest.fixture
def world(tmp_path: Path, disk: DoubtfulIndex) -> World:
    return World(tmp_path, disk=disk)


def index_lost(world: World) -> None:
    """The next start has to make the index anew, from what lies beside it."""
    world.store._directories[0].lane.submit(lambda: None).result(60)
    world.store.close()
    shutil.rmtree(world.root / "0" / "index")
    world.start()


@pytest.mark.parametrize("size", [2_000, 60_000], ids=["packed", "a file each"])
def test_a_record_of_what_was_given_up_does_not_count(world: World, disk: DoubtfulIndex, size: int) -> None:
    """The transaction of a seal failed, so its epochs were given up; the next start finds their records."""
    epochs = push(world, 2, size=size)
    disk.doubtful = True
    assert set(statuses(world, epochs, final=False)) == {Status.FAILED_COPY}
    assert len(world.files("*.failed")) == 2
    disk.doubtful = disk.unreadable = False
    world.restart()
    assert set(statuses(world, epochs, final=False)) == {Status.FAILED_COPY}


@pytest.mark.parametrize("size", [2_000, 60_000], ids=["packed", "a file each"])
def test_an_index_made_anew_does_not_revive_what_was_given_up(world: World, disk: DoubtfulIndex, size: int) -> None:
    """The index took no record, so its epochs were given up, and then it is lost: their file has a right footer."""
    epochs = push(world, 2, size=size)
    disk.commit_error = errno.EIO
    assert set(statuses(world, epochs, final=False)) == {Status.FAILED_COPY}
    disk.commit_error = 0
    index_lost(world)
    assert set(statuses(world, epochs, final=False)) == {Status.FAILED_COPY}


def test_who_asks_again_before_the_mark_waits_for_it(world: World, disk: DoubtfulIndex, tmp_path: Path) -> None:
    """A copy was given up, and its mark waits for its turn: a second one who asks hears nothing that a kill could
    change."""
    epochs, go = push(world, 1, batches=30, size=60_000), threading.Event()
    directory = world.store._directories[0]
    directory.lane.submit(go.wait, 60)
    try:
        disk.folder_errors = 1
        ((_, first),) = world.store.reduce.seal(SHUFFLE, False, epochs)
        assert wait_until(lambda: directory.unsealed.marks.due, "a mark is due")
        ((_, again),) = world.store.reduce.seal(SHUFFLE, False, epochs)
        assert again is first
        assert not isinstance(again, SealedEpoch)
        assert not again.done()
    finally:
        go.set()
    (answer,) = again.result(60).values()
    assert answer.status == Status.FAILED_COPY
    shutil.copytree(world.root / "0", tmp_path / "killed" / "0")
    assert statuses(World(tmp_path / "killed"), epochs, final=False) == [Status.FAILED_COPY]


def test_the_finished_file_of_a_copy_that_is_given_up_goes(world: World, disk: DoubtfulIndex) -> None:
    """A seal gave a file its name and found no room for the record; then a sync of it failed."""
    epochs = push(world, 1, batches=30, size=60_000)
    disk.commit_error = errno.ENOSPC
    with pytest.raises(HoldfastError, match="no room in"):
        world.seal(epochs, final=False)
    disk.commit_error = 0
    unsealed = world.store._directories[0].unsealed
    unsealed.give_up(next(iter(unsealed.copies)), OSError(errno.EIO, "a sync failed"))
    assert statuses(world, epochs, final=False) == [Status.FAILED_COPY]
    # That of the seal waits for the first mark, and is begun when the owner hears of it: the lane alone does not say.
    assert wait_until(lambda: not unsealed.marks.due, "all marks are there")
    assert world.files("*.part") == []
    index_lost(world)
    assert statuses(world, epochs, final=False) == [Status.FAILED_COPY]


def test_lost_stays_lost(world: World, disk: DoubtfulIndex) -> None:
    """DATA_LOST was answered, the index is lost, and what the next seal of it says cannot be recorded."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, os.urandom(60_000)) for _ in range(30)], Ack.MEMORY) == {}
    world.restart()
    assert statuses(world, [(0, 0)], final=False) == [Status.DATA_LOST]
    index_lost(world)
    disk.commit_error = errno.EIO
    assert statuses(world, [(0, 0)], final=False) == [Status.DATA_LOST]
