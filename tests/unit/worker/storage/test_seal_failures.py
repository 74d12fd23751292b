"""Seals that meet an error: what they leave, what they answer, and what the next start makes of it."""

import errno
import gc
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, NoRoomError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.statuses import Status
from holdfast.worker.storage.env.interfaces import Handle, Name
from holdfast.worker.storage.recovery.reconcile import Reconciler
from tests.support.reduce_data import Writer
from tests.support.waiting import wait_until
from tests.unit.worker.storage.reduce_world import SHUFFLE, FaultyDisk, World


class NamedFaults(FaultyDisk):
    """A disk on which some files cannot be opened, or some folders not be synced."""

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.open_error = (), errno.EIO
        self.folder_errors = 0
        #: no file can be cut, or renamed
        self.no_cut = self.no_rename = False

    closed: tuple[str, ...]

    def truncate(self, path: Name, size: int) -> None:
        if self.no_cut:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        super().truncate(path, size)

    def rename(self, path: Name, target: Name) -> None:
        if self.no_rename:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().rename(path, target)

    def open(self, path: Name, *, write: bool = False) -> Handle:
        if str(path).endswith(self.closed or ("/",)):
            raise OSError(self.open_error, os.strerror(self.open_error), str(path))
        return super().open(path, write=write)

    def create(self, path: Name) -> Handle:
        if str(path).endswith(self.closed or ("/",)):
            raise OSError(self.open_error, os.strerror(self.open_error), str(path))
        return super().create(path)

    def sync_folder(self, path: Name) -> None:
        if self.folder_errors and Path(path).name.startswith("1-0-"):
            self.folder_errors -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().sync_folder(path)


@pytest.fixture
def disk() -> NamedFaults:
    return NamedFaults()


@pytest.fixture
def world(tmp_path: Path, disk: NamedFaults) -> World:
    return World(tmp_path, disk=disk)


def push(world: World, partitions: int, batches: int = 1, size: int = 2_000) -> list[tuple[int, int]]:
    """Push so many batches to each; return the epochs."""
    writer = Writer(SHUFFLE)
    for partition in range(partitions):
        assert world.push(writer, [writer.batch(partition, os.urandom(size)) for _ in range(batches)]) == {}
    return [(partition, 0) for partition in range(partitions)]


def statuses(world: World, epochs: list[tuple[int, int]], *, final: bool = True) -> list[int]:
    return [answer.status for answer in world.seal(epochs, final=final)]


def test_what_cannot_be_read_again_holds_up_no_other(world: World, disk: NamedFaults) -> None:
    """An earlier start left three epochs, and the disk cannot read one: that is given up, and the others are sealed."""
    epochs = push(world, 3, batches=10, size=60_000)
    world.restart()
    disk.closed = ("1-0.open",)
    for _ in range(2):
        assert statuses(world, epochs) == [Status.OK, Status.FAILED_COPY, Status.OK]
    assert world.store._directories[0].problem


def test_a_seal_without_room_for_its_record_leaves_nothing(world: World, disk: NamedFaults) -> None:
    """However often it is tried: one pack file is there in the end, and nothing else takes room."""
    epochs = push(world, 20)
    disk.commit_error = errno.ENOSPC
    for _ in range(3):
        with pytest.raises(HoldfastError, match="no room in"):
            world.seal(epochs)
        assert not world.files("*.pack")
    disk.commit_error = 0
    assert set(statuses(world, epochs)) == {Status.OK}
    (pack,) = world.files("*.pack")
    held = pack.stat().st_size
    world.restart()
    assert not world.store.report
    world.store.reduce.tick()
    assert world.store._directories[0].used_bytes == held


@pytest.mark.parametrize("batches", [1, 30])
def test_what_was_given_up_stays_so_whatever_has_its_sealed_name(world: World, disk: NamedFaults, batches: int) -> None:
    """The disk took files and no record, so they are given up: the next start does not take them for sealed."""
    epochs = push(world, 2, batches, size=60_000)
    disk.commit_error = errno.EIO
    for _ in range(2):
        assert set(statuses(world, epochs, final=False)) == {Status.FAILED_COPY}
        disk.commit_error = 0
        world.restart()
    assert not world.files("*.pack") + world.files("*.part")


def test_the_answer_waits_for_the_mark(world: World, disk: NamedFaults) -> None:
    """When FAILED_COPY is answered, the disk says so, too."""
    epochs = push(world, 2)
    disk.commit_error = errno.EIO
    assert set(statuses(world, epochs, final=False)) == {Status.FAILED_COPY}
    assert len(world.files("*.failed")) == 2


def test_for_want_of_descriptors_nothing_is_given_up(world: World, disk: NamedFaults) -> None:
    """Neither by a seal nor by what empties the log: all is there when there are descriptors again."""
    epochs = push(world, 5)
    disk.closed, disk.open_error = (".open", ".moving"), errno.EMFILE
    world.store.reduce.tick([0])
    with pytest.raises(HoldfastError, match="Too many open files"):
        world.seal(epochs)
    assert not world.store._directories[0].problem
    disk.closed = ()
    assert set(statuses(world, epochs)) == {Status.OK}


def test_a_folder_that_cannot_be_synced_is_not_believed_the_next_time(world: World, disk: NamedFaults) -> None:
    """Of a sync "no room" is an error like any other: the next one would be called good without the names."""
    epochs = push(world, 1, batches=30, size=60_000)
    disk.folder_errors = 1
    for _ in range(2):
        assert statuses(world, epochs) == [Status.FAILED_COPY]


def test_a_mark_that_found_no_room_is_made_as_soon_as_there_is(world: World, disk: NamedFaults) -> None:
    """Nobody waits for a check of the disk, which a full one is not due."""
    epochs = push(world, 1)
    disk.sync_error, disk.mark_error = errno.EIO, errno.ENOSPC
    assert statuses(world, epochs, final=False) == [Status.FAILED_COPY]
    disk.sync_error = 0
    directory = world.store._directories[0]
    directory.condition.tell()
    assert directory.come_back()
    for error, marks in ((errno.ENOSPC, 0), (0, 1)):
        disk.mark_error = error
        world.store.reduce.tick()
        directory.lane.submit(lambda: None).result(60)
        assert len(world.files("*.failed")) == marks


@pytest.mark.parametrize("ack", [Ack.MEMORY, Ack.WRITTEN])
def test_what_is_answered_lost_takes_no_room(world: World, disk: NamedFaults, ack: Ack) -> None:
    """An epoch that an earlier start left and that cannot be vouched for, or a copy that was given up: once it has its
    answer its file goes, and the answer stays, also after a restart and if the index is lost."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, os.urandom(60_000)) for _ in range(30)], ack) == {}
    world.restart()
    disk.closed = (".open",) if ack is Ack.WRITTEN else ()
    (lost,) = statuses(world, [(0, 0)], final=False)
    assert lost == (Status.FAILED_COPY if ack is Ack.WRITTEN else Status.DATA_LOST)
    disk.closed = ()
    directory = world.store._directories[0]
    directory.lane.submit(lambda: None).result(60)
    assert directory.used_bytes == 0
    assert not world.files("*.open")
    world.restart()
    assert statuses(world, [(0, 0)], final=False) == [lost]
    world.store.close()
    shutil.rmtree(world.root / "0" / "index")
    world.start()
    assert statuses(world, [(0, 0)], final=False) == [lost]


def test_an_index_at_its_bound_leaves_no_packs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a want of room like any other: who asks hears NO_ROOM, and nothing is left of the try."""
    epochs = push(world, 3)
    index = world.store._directories[0].index

    def full(_: object) -> None:
        raise NoRoomError("the index has reached its bound")

    with monkeypatch.context() as patched:
        patched.setattr(index, "put_items", full)
        for _ in range(3):
            with pytest.raises(NoRoomError, match="reached its bound"):
                world.seal(epochs)
    assert not world.files("*.pack")
    assert set(statuses(world, epochs)) == {Status.OK}


def test_a_seal_whose_mark_hangs_is_known_to_hang(world: World, disk: NamedFaults) -> None:
    """The disk refuses a record, and then hangs: whoever waits for the answer is told that the disk does."""
    epochs, go = push(world, 2), threading.Event()
    directory = world.store._directories[0]
    directory.lane.submit(go.wait, 60)
    disk.commit_error = errno.EIO
    ((_, sealed), _) = world.store.reduce.seal(SHUFFLE, False, epochs)
    assert not isinstance(sealed, SealedEpoch)
    assert wait_until(lambda: directory.unsealed.marks.due, "a mark is due")
    directory.condition.hanging = True
    assert not sealed.done()
    assert world.store.reduce.hangs(SHUFFLE)
    directory.condition.hanging = False
    go.set()
    assert {answer.status for answer in sealed.result(60).values()} == {Status.FAILED_COPY}


def test_no_answer_comes_with_the_mark_of_another(world: World, disk: NamedFaults) -> None:
    """A mark is being made, and fails, when a seal is given up: its answer waits for its own mark."""
    epochs, go = push(world, 2), threading.Event()
    directory = world.store._directories[0]
    unsealed = directory.unsealed
    directory.lane.submit(go.wait, 60)
    disk.mark_error = errno.ENOSPC
    unsealed.give_up(next(key for key in unsealed.copies), OSError(errno.EIO, "a write failed"))
    disk.commit_error = errno.EIO
    ((_, sealed),) = world.store.reduce.seal(SHUFFLE, False, epochs[1:])
    assert not isinstance(sealed, SealedEpoch)
    assert wait_until(lambda: len(unsealed.marks.due) == 2, "two marks are due")
    tried: list[int] = []
    create = disk.create

    def counted(path: Name) -> Handle:
        tried.append(str(path).endswith("p-1-0.failed"))
        return create(path)

    disk.create = counted  # type: ignore[method-assign]
    go.set()
    assert {answer.status for answer in sealed.result(60).values()} == {Status.FAILED_COPY}
    assert any(tried)


def test_a_rebuild_that_was_killed_is_begun_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index was lost, and the worker killed while it was made again: the next start takes nothing in it for all."""
    epochs = push(world, 3)
    assert set(statuses(world, epochs)) == {Status.OK}
    world.store.close()
    shutil.rmtree(world.root / "0" / "index")
    with monkeypatch.context() as patched:
        patched.setattr(Reconciler, "run", lambda _: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            world.start()
    gc.collect()
    looked = []
    facts = Reconciler._sealed_facts

    def seen(self: Reconciler, *given: Any) -> Any:
        looked.append(self._report.identity)
        return facts(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Reconciler, "_sealed_facts", seen)
        world.start()
    assert looked == [b""]
    assert set(statuses(world, epochs)) == {Status.OK}


def test_a_torn_write_that_cannot_be_cut_gives_the_copy_up(world: World, disk: NamedFaults) -> None:
    """Half a write stays in the file for want of room, and there is no descriptor to cut it off: what is written next
    may be shorter."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, os.urandom(60_000)) for _ in range(3)]) == {}
    disk.write_error, disk.torn, disk.no_cut = errno.ENOSPC, True, True
    failures = world.push(writer, [writer.batch(0, os.urandom(60_000)) for _ in range(3)])
    assert set(failures.values()) == {Status.FAILED_COPY}


def test_what_is_to_become_a_mark_counts_until_its_shuffle_is_gone(world: World, disk: NamedFaults) -> None:
    """A dropped shuffle of which a file waits for its mark takes the room of that until it is removed."""
    push(world, 1, batches=30, size=60_000)
    world.restart()
    disk.closed, disk.no_rename = (".open",), True
    assert statuses(world, [(0, 0)]) == [Status.FAILED_COPY]
    directory = world.store._directories[0]
    held = directory.used_bytes
    assert held > 1_700_000
    directory.unsealed.drop(SHUFFLE)
    assert directory.used_bytes == held
