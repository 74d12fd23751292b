"""The room that a push log takes: it stays bounded, and is given back where it is needed."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.common.limits import KIB
from holdfast.common.statuses import Status
from holdfast.worker.storage.env.interfaces import Handle
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
