"""The room that a push log takes: it stays bounded, and is given back where it is needed."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from holdfast.worker.storage.env.interfaces import Handle
from holdfast.worker.storage.layout import EpochKey
from tests.support.reduce_data import Writer, names
from tests.unit.worker.storage.reduce_world import SHUFFLE, FaultyDisk, World


def test_the_log_stays_bounded(tmp_path: Path) -> None:
    """However much is pushed to many partitions, the log has a few segments, and all is kept."""
    world = World(tmp_path, segment_bytes=256 * KIB)
    writer = Writer(SHUFFLE)
    most = 0
    for _ in range(200):
        world.push(writer, [writer.batch(p, os.urandom(500)) for p in range(50)])
        most = max(most, len(world.store._directories[0].unsealed.log.segments))
    assert most <= 5
    answers = world.seal([(p, 0) for p in range(50)])
    assert {answer.batches for answer in answers} == {200}
    assert sorted(names(world.read(49))) == [(0, 0, n) for n in range(200)]


class FileFullDisk(FaultyDisk):
    """One that may have room for the log and for nothing else."""

    full = True

    def write_parts(self, handle: Handle, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        if self.full and os.readlink(f"/proc/self/fd/{handle.fd}").endswith(".open"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_parts(handle, parts, size, offset)


def test_a_full_log_is_emptied_though_nobody_pushes(tmp_path: Path) -> None:
    """Files found no room until the log was full, and no push is taken any more: with the next look it gets room."""
    disk = FileFullDisk()
    world = World(tmp_path, segment_bytes=4 * KIB, disk=disk)
    writer, number = Writer(SHUFFLE), 0
    while not world.store.reduce.full:
        assert world.push(writer, [writer.batch(number, os.urandom(1_500))]) == {}
        number += 1
    for full in (True, False):
        disk.full = full
        world.store.reduce.tick()
        assert world.store.reduce.full is full
    assert {answer.batches for answer in world.seal([(each, 0) for each in range(number)])} == {1}


def test_a_log_is_not_emptied_into_a_disk_that_is_not_well(tmp_path: Path) -> None:
    """An isolated directory has no room either: its log stays as it is, and is sealed when all is well again."""
    disk = FileFullDisk()
    disk.full, world = False, World(tmp_path, disk=disk)
    writer = Writer(SHUFFLE)
    for partition in range(5):
        assert world.push(writer, [writer.batch(partition, os.urandom(2_000))]) == {}
    condition = world.store._directories[0].condition
    condition.isolate("a check failed")
    disk.write_error = errno.EIO
    world.store.reduce.tick([0])
    disk.write_error = 0
    condition.clear()
    answers = world.seal([(each, 0) for each in range(5)])
    assert [(answer.status, answer.batches) for answer in answers] == [(Status.OK, 1)] * 5


def test_a_log_that_keeps_its_directory_full_is_emptied(tmp_path: Path) -> None:
    """Where there is no room, what a short log takes is given back."""
    world = World(tmp_path, segment_bytes=16 * KIB)
    writer = Writer(SHUFFLE)
    for partition in range(20):
        world.push(writer, [writer.batch(partition, os.urandom(2_000))])
    unsealed = world.store.reduce._directories[0].unsealed
    assert not unsealed.log.crowded
    world.store.reduce.tick()
    before = unsealed.log.size_bytes
    assert before > 40_000
    for _ in range(3):
        world.store.reduce.tick([0])
    assert unsealed.log.size_bytes < before // 2
    assert {answer.batches for answer in world.seal([(each, 0) for each in range(20)])} == {1}


def test_a_push_that_found_too_little_room_has_the_log_emptied(tmp_path: Path) -> None:
    """A little room is left, and a frame needs more: what the log takes twice is given back, and the frame fits."""
    world = World(tmp_path, capacity_bytes=64 * MIB)
    writer, number = Writer(SHUFFLE), 0

    def push(size: int) -> set[int]:
        nonlocal number
        number += 50
        world.store.look(0.1, 1 << 40)
        return set(world.push(writer, [writer.batch(number + each, os.urandom(size)) for each in range(50)]).values())

    unsealed = world.store._directories[0].unsealed
    while unsealed.log.size_bytes < 14 * MIB:
        assert push(20_000) == set()
    while not push(2_000):
        pass
    assert push(2_000) == {Status.NO_ROOM}
    assert unsealed.room.left_bytes
    for _ in range(100):  # what is left of it goes bit by bit
        world.store.reduce.tick()
    assert push(2_000) == set()


def test_spares_go_where_there_is_no_room(tmp_path: Path) -> None:
    """What is kept for reuse takes no room that data needs, also while something in the log waits for some."""
    disk = FileFullDisk()
    disk.full = False
    world = World(tmp_path, segment_bytes=64 * KIB, disk=disk)
    writer = Writer(SHUFFLE)
    for partition in range(150):
        assert world.push(writer, [writer.batch(partition, os.urandom(2_000))]) == {}
    log = world.store._directories[0].unsealed.log
    for _ in range(2):
        world.store.reduce.tick([0])
    assert world.push(writer, [writer.batch(0, os.urandom(2_000))]) == {}
    disk.full = True
    world.store.reduce.tick([0])
    assert 2_000 < log.size_bytes <= log.held_bytes < 70 * KIB


def test_a_full_disk_is_asked_for_one_file_a_second(tmp_path: Path) -> None:
    """Emptying ends with the first file that finds no room, goes on with another one the next time, and loses none."""
    disk = FileFullDisk()
    world = World(tmp_path, disk=disk)
    writer = Writer(SHUFFLE)
    for partition in range(20):
        assert world.push(writer, [writer.batch(partition, os.urandom(2_000))]) == {}
    tried: list[str] = []
    refuse = disk.write_parts

    def counted(handle: Handle, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        tried.append(os.readlink(f"/proc/self/fd/{handle.fd}"))
        refuse(handle, parts, size, offset)

    disk.write_parts = counted  # type: ignore[method-assign]
    for _ in range(3):
        world.store.reduce.tick([0])
    assert len(tried) == len(set(tried)) == 3
    disk.full = False
    assert {answer.batches for answer in world.seal([(each, 0) for each in range(20)])} == {1}


def test_a_copy_that_is_given_up_is_left_alone(tmp_path: Path) -> None:
    """A flush that failed gives its copy up: its epoch takes nothing more, and is not flushed again each second, which
    would keep the disk from ever being well."""
    disk = FileFullDisk()
    disk.full = False
    world = World(tmp_path, disk=disk)
    writer = Writer(SHUFFLE)
    for partition in range(3):
        assert world.push(writer, [writer.batch(partition, os.urandom(2_000))]) == {}
    directory = world.store._directories[0]
    disk.write_error = errno.EIO
    world.store.reduce.tick([0])
    disk.write_error = 0
    assert directory.problem
    assert directory.unsealed.failed
    (given_up,) = [key.partition for key in directory.unsealed.failed if isinstance(key, EpochKey)]
    assert world.push(writer, [writer.batch(given_up, b"more")]) == {0: Status.FAILED_COPY}
    directory.condition.tell()
    assert directory.come_back()
    disk.write_error = errno.EIO
    world.store.reduce.tick()
    assert not directory.problem
