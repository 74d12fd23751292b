"""REDUCE partitions on disk, without a server: damage is found, failures poison, full disks do not, logs shrink."""

import errno
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Never

import pytest

from holdfast.common.errors import CorruptError, HoldfastError, RerouteError
from holdfast.common.formats.batch import HEADER_BYTES
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import PartitionId
from holdfast.common.limits import MIB
from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.common.statuses import Status
from holdfast.worker.storage.env.interfaces import Handle
from holdfast.worker.storage.index.records import FILE_HEAD_BYTES
from holdfast.worker.storage.layout import shuffle_folder
from holdfast.worker.storage.log.log_records import RECORD_BYTES, RECORD_MAGIC
from holdfast.worker.storage.offline.inspect import inspect_directory
from holdfast.worker.storage.offline.verify import Severity, verify_directory
from tests.support.reduce_data import Writer, names, shuffle_of
from tests.support.storage_data import free_of
from tests.support.storage_env import Disk
from tests.unit.worker.storage.reduce_world import SHUFFLE, World, fill


class ForgetfulDisk(Disk):
    """Calls a sync good, and has something else."""

    forgotten = ""

    def read_back(self, handle: Handle, size: int, offset: int) -> bytes:
        found = super().read_back(handle, size, offset)
        if self.forgotten and self.forgotten in os.readlink(f"/proc/self/fd/{handle.fd}"):
            return bytes(len(found))
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One directory."""
    return World(tmp_path)


def test_small_ones_share_a_pack_file_and_large_ones_have_their_own(world: World) -> None:
    """A seal makes one pack file for what is small, a partition file for what has one; all is read back."""
    writer = Writer(SHUFFLE)
    fill(world, writer)
    answers = world.seal([(partition, 0) for partition in range(7)])
    assert [answer.status for answer in answers] == [Status.OK] * 6 + [Status.UNKNOWN_FILE]
    assert (len(world.files("*.pack")), len(world.files("*.part")), len(world.files("*.open"))) == (1, 1, 0)
    assert sorted(names(world.read(0))) == [(0, 0, n) for n in range(8)]
    assert all(sorted(names(world.read(p))) == [(0, 0, n) for n in range(5)] for p in range(1, 6))
    assert world.seal([(partition, 0) for partition in range(7)]) == answers
    world.store.reduce.tick()
    assert world.log_is_empty(), "the log goes when nothing refers to it"


def test_several_directories_keep_each_its_own(tmp_path: Path) -> None:
    """With two directories each epoch lies in one of them, log, file and record."""
    world = World(tmp_path, directories=2)
    writer = Writer(SHUFFLE)
    fill(world, writer)
    world.restart()
    answers = world.seal([(partition, 0) for partition in range(6)])
    assert {answer.status for answer in answers} == {Status.OK}
    assert sorted(names(world.read(0))) == [(0, 0, n) for n in range(8)]
    assert [len(list((tmp_path / str(n)).rglob("*.pack"))) for n in range(2)] == [1, 1]


@pytest.mark.parametrize("pattern", ["*.pack", "*.part", "*.open", "*.push"])
def test_a_flipped_byte_is_found(world: World, pattern: str) -> None:
    """verify names a flipped byte of any data file or of the log as damage, and nothing in a good directory."""
    fill(world, Writer(SHUFFLE))
    if pattern in ("*.pack", "*.part"):
        world.seal([(partition, 0) for partition in range(6)])
    world.store.close()
    assert not verify_directory(str(world.root / "0")).damaged
    (path,) = world.files(pattern)
    data = bytearray(path.read_bytes())
    end = len(data.rstrip(b"\0")) if pattern == "*.push" else len(data)
    for share in (0.1, 0.35, 0.6, 0.99):
        at = int(end * share)
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        path.write_bytes(flipped)
        report = verify_directory(str(world.root / "0"))
        found = [one for one in report.findings if one.severity is Severity.DAMAGE]
        assert found, f"byte {at} of {path.name}"
        assert any(one.path.endswith(path.name) for one in found)
    path.write_bytes(data)


def test_the_progress_of_verify_counts_every_file(world: World) -> None:
    """Partition, pack and unsealed files are a part of what verify says it has done, which ends at all of it."""
    writer = Writer(SHUFFLE)
    fill(world, writer)
    world.seal([(partition, 0) for partition in range(6)], final=False)
    world.push(writer, [writer.batch(9, os.urandom(50_000))])
    world.store.close()
    told: list[tuple[int, int]] = []
    verify_directory(str(world.root / "0"), lambda done, total: told.append((done, total)))
    files = [path for path in (world.root / "0" / "data").rglob("*") if path.is_file()]
    assert len(told) == len(files) >= 3
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (sum(path.stat().st_size for path in files),) * 2


def test_inspect_and_verify_count_the_same(world: World) -> None:
    """Epochs by state, those in the log alone included, and sealed files; a file that is gone is a problem."""
    writer = Writer(SHUFFLE)
    fill(world, writer)
    world.seal([(partition, 0) for partition in range(6)], final=False)
    world.push(writer, [writer.batch(9, os.urandom(50_000))])
    world.push(writer, [writer.batch(10, b"small")])
    world.store.close()
    files = [path for path in (world.root / "0" / "data").rglob("*") if path.is_file()]
    report = inspect_directory(str(world.root / "0"))
    (shuffle,) = report.shuffles
    states = [(each.state, each.partition) for each in shuffle.epochs]
    assert states == [*(("sealed", partition) for partition in range(6)), ("open", 9), ("open", 10)]
    assert all(each.size_bytes for each in shuffle.epochs)
    assert report.problems == []
    verified = verify_directory(str(world.root / "0"))
    assert (verified.files, verified.sealed_files) == (len(files), len(shuffle.data_files))
    assert verified.log_segments == len(world.files("*.push"))
    assert sorted(each.kind for each in shuffle.data_files) == ["pack", "partition"]
    assert all(each.indexed and each.file_bytes for each in shuffle.data_files)
    (pack,) = world.files("*.pack")
    pack.unlink()
    assert any(pack.name in problem for problem in inspect_directory(str(world.root / "0")).problems)


@pytest.mark.parametrize("pattern", ["*.open", "*.push"])
def test_a_flipped_byte_of_an_open_epoch_is_lost_by_name(world: World, pattern: str) -> None:
    """What earlier starts left is sealed as DATA_LOST where a byte is wrong, and only there."""
    fill(world, Writer(SHUFFLE))
    world.store.close()
    (path,) = world.files(pattern)
    data = bytearray(path.read_bytes())
    data[300] ^= 1  # in the first batch
    path.write_bytes(data)
    world.start()
    answers = world.seal([(partition, 0) for partition in range(6)])
    lost = [answer.partition for answer in answers if answer.status == Status.DATA_LOST]
    assert 0 in lost
    assert len(lost) < 6 or pattern == "*.push"
    with pytest.raises(HoldfastError) as caught:
        world.read(0)
    assert caught.value.status == Status.DATA_LOST


@pytest.mark.parametrize("where", ["head", "body", "rows", "two heads"])
def test_a_bad_record_of_the_log_hurts_no_other_epoch(world: World, where: str) -> None:
    """Damage of one record of the log loses the epochs whose batches may have been in it; others stand, those of
    another shuffle and of another start among them. Where nobody knows what was in it, nothing is called empty."""
    writer, other = Writer(SHUFFLE), Writer(shuffle_of(2))
    world.push(writer, [writer.batch(9, b"of an earlier start")])
    world.restart()
    for partitions in ((0, 1), (2, 3), (4, 5), (0, 4)):
        world.push(writer, [writer.batch(partition, os.urandom(300)) for partition in partitions])
        world.push(other, [other.batch(0, os.urandom(300))])
    path = world.files("*.push")[-1]
    world.store.close()
    data = bytearray(path.read_bytes())
    starts = [index for index in range(len(data)) if data[index : index + 8] == RECORD_MAGIC]
    assert len(starts) == 8
    damaged = [starts[2], starts[3]] if where == "two heads" else [starts[2]]
    for start in damaged:
        at = {"body": RECORD_BYTES + 100, "rows": starts[3] - start - 3}.get(where, 40)
        data[start + at] ^= 1
    path.write_bytes(data)
    world.start()
    answers = {answer.partition: answer.status for answer in world.seal([(p, 0) for p in (0, 1, 2, 3, 4, 5, 9)])}
    lost = {partition for partition, status in answers.items() if status == Status.DATA_LOST}
    assert lost == ({2, 3} if where in ("head", "body") else {0, 1, 2, 3, 4, 5})
    assert answers[PartitionId(9)] == Status.OK
    ((key, future),) = world.store.reduce.seal(shuffle_of(2), True, [(0, 0)])
    assert not isinstance(future, SealedEpoch)
    expected = Status.DATA_LOST if where == "two heads" else Status.OK
    assert future.result(60)[key].status == expected


@pytest.mark.parametrize("cut", [1, 30, 2_000])
def test_an_incomplete_end_is_cut(world: World, cut: int) -> None:
    """A file that ends in the middle of a batch is sealed with all whole ones before it."""
    writer = Writer(SHUFFLE)
    for _ in range(4):
        world.push(writer, [writer.batch(0, b"x" * 40_000)])
    world.store.close()
    (path,) = world.files("*.open")
    os.truncate(path, path.stat().st_size - cut)
    world.start()
    (answer,) = world.seal([(0, 0)])
    assert (answer.status, answer.batches) == (Status.OK, 3)
    assert names(world.read(0)) == [(0, 0, n) for n in range(3)]


@pytest.mark.parametrize("batch", [0, 2])
def test_a_wrong_length_is_no_incomplete_end(world: World, batch: int) -> None:
    """A bit of a length that makes a batch end behind the file is damage where a whole batch stands behind it."""
    writer = Writer(SHUFFLE)
    for _ in range(4):
        world.push(writer, [writer.batch(0, b"x" * 40_000)])
    world.store.close()
    (path,) = world.files("*.open")
    data = bytearray(path.read_bytes())
    data[FILE_HEAD_BYTES + batch * (HEADER_BYTES + 40_000) + 22] ^= 0x10
    path.write_bytes(data)
    world.start()
    (answer,) = world.seal([(0, 0)])
    assert answer.status == Status.DATA_LOST


@pytest.mark.parametrize("footer", ["whole", "its first byte", "half of it"])
def test_a_seal_that_was_killed_before_its_file_had_a_name_is_sealed_again(world: World, footer: str) -> None:
    """A file that has its footer, or some of it, and not its last name is no damage: the next start seals it again."""
    writer = Writer(SHUFFLE)
    for _ in range(4):
        world.push(writer, [writer.batch(0, b"x" * 40_000)])
    (path,) = world.files("*.open")
    plain = path.stat().st_size
    copy = world.root / "before"
    world.store.close()
    shutil.copytree(world.root / "0", copy)
    world.start()
    (first,) = world.seal([(0, 0)])
    (sealed,) = world.files("*.part")
    data = sealed.read_bytes()
    world.store.close()
    shutil.rmtree(world.root / "0")
    copy.rename(world.root / "0")
    kept = {"whole": len(data), "its first byte": plain + 1, "half of it": (plain + len(data)) // 2}[footer]
    path.write_bytes(data[:kept])
    world.start()
    (again,) = world.seal([(0, 0)])
    assert (again.status, again.batches, again.crc_sum) == (Status.OK, first.batches, first.crc_sum)
    assert names(world.read(0)) == [(0, 0, n) for n in range(4)]


def test_what_is_in_log_and_file_is_kept_once(tmp_path: Path) -> None:
    """Batches that were flushed and are still in the log are recovered once."""
    world = World(tmp_path)
    writer = Writer(SHUFFLE)
    for _ in range(300):
        world.push(writer, [writer.batch(0, os.urandom(2_000)), writer.batch(1, b"y" * 10)])
    assert len(world.files("*.open")) == 1
    world.restart()
    answers = world.seal([(0, 0), (1, 0)])
    assert [answer.batches for answer in answers] == [300, 300]
    assert sorted(names(world.read(0))) == [(0, 0, n) for n in range(300)]


@pytest.mark.parametrize(("ack", "status"), [(Ack.WRITTEN, Status.DATA_LOST), (Ack.SYNCED, Status.OK)])
def test_after_a_reboot_only_synced_epochs_stand(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ack: Ack, status: Status
) -> None:
    """With another boot id WRITTEN epochs are DATA_LOST, SYNCED ones are sealed with all that was acknowledged."""
    writer = Writer(SHUFFLE)
    for _ in range(3):
        world.push(writer, [writer.batch(p, os.urandom(500)) for p in range(3)], ack)
    world.push(writer, [writer.batch(3, os.urandom(60_000))], ack)
    boot = tmp_path / "boot"
    boot.write_text("12345678-1234-1234-1234-123456789012\n")
    monkeypatch.setattr("holdfast.worker.storage.env.system._BOOT_ID", boot)
    world.restart()
    answers = world.seal([(p, 0) for p in range(4)])
    assert {answer.status for answer in answers} == {status}
    if status == Status.OK:
        assert [answer.batches for answer in answers] == [3, 3, 3, 1]


@pytest.mark.parametrize("size", [100, 60_000])
def test_a_failed_write_poisons_for_good(world: World, size: int) -> None:
    """After EIO the epoch is FAILED_COPY, takes nothing more, and seals as FAILED_COPY, also after a restart."""
    writer = Writer(SHUFFLE)
    first = writer.batch(0, b"a" * size)
    assert world.push(writer, [first]) == {}
    world.disk.write_error = errno.EIO
    assert world.push(writer, [writer.batch(0, b"b" * size)]) == {0: Status.FAILED_COPY}
    world.disk.write_error = 0
    assert world.push(writer, [writer.batch(0, b"c" * size)]) == {0: Status.FAILED_COPY}
    world.restart()
    for _ in range(2):
        (answer,) = world.seal([(0, 0)])
        assert answer.status == Status.FAILED_COPY
        world.restart()


def test_copies_are_given_up_in_the_order_of_their_batches(world: World) -> None:
    """A failed write gives up each copy once, in order: a simulated seed plays the same wherever objects lie."""
    given_up: list[int] = []
    world.store.reduce.on_given_up = lambda state: given_up.append(state.partition)
    world.disk.write_error = errno.EIO
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(partition, b"a" * 100) for partition in (*range(40), 0)])
    assert given_up == list(range(40))


@pytest.mark.parametrize("size", [100, 60_000])
def test_a_full_disk_splits_and_keeps_what_it_has(world: World, size: int) -> None:
    """ENOSPC refuses the batch with NO_ROOM; everything acknowledged before is sealed once there is room."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a" * size)]) == {}
    world.disk.write_error = errno.ENOSPC
    refused = writer.batch(0, b"b" * size)
    assert world.push(writer, [refused]) == {0: Status.NO_ROOM}
    if size == 100:
        with pytest.raises(HoldfastError) as caught:
            world.seal([(0, 0)], final=False)
        assert caught.value.status == Status.DISK_FULL
    world.disk.write_error = 0
    assert world.push(writer, [refused]) == {0: Status.HARD_SPLIT}
    (answer,) = world.seal([(0, 0)])
    assert (answer.status, answer.batches) == (Status.OK, 1)


def test_a_segment_that_could_not_be_begun_harms_nobody(world: World) -> None:
    """No room for the head of a new log segment: batches are refused, time and again, and nothing is given up."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(partition, b"a" * 100) for partition in range(3)]) == {}
    world.store.reduce._directories[0].unsealed.log._current = None  # the segment is used up
    world.disk.write_error = errno.ENOSPC
    for partition in range(3):
        assert world.push(writer, [writer.batch(partition, b"b" * 100)]) == {0: Status.NO_ROOM}
    world.disk.write_error = 0
    assert world.push(writer, [writer.batch(7, b"c" * 100)]) == {}
    answers = world.seal([(partition, 0) for partition in (0, 1, 2, 7)])
    assert [(answer.status, answer.batches) for answer in answers] == [(Status.OK, 1)] * 4


def test_half_a_run_on_a_full_disk_is_no_damage(world: World) -> None:
    """A run found no room in its middle, then what was pending went into the file: a later start finds no damage."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a" * 60_000)]) == {}
    assert world.push(writer, [writer.batch(0, b"b" * 100), writer.batch(1, b"-")]) == {}
    world.disk.write_error, world.disk.torn = errno.ENOSPC, True
    assert world.push(writer, [writer.batch(0, b"c" * 900_000)]) == {0: Status.NO_ROOM}
    world.disk.write_error = 0
    (copy,) = [
        one for state, one in world.store.reduce._directories[0].unsealed.copy_of.items() if state.partition == 0
    ]
    world.store.reduce._directories[0].unsealed.flush(copy)
    world.restart()
    (answer,) = world.seal([(0, 0)])
    assert (answer.status, answer.batches) == (Status.OK, 2)


def test_a_seal_that_met_a_full_disk_halfway_loses_nothing(world: World) -> None:
    """One epoch got its file, then there was no room for the others: asked again, all of them have every batch."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a" * 60_000)]) == {}
    assert world.push(writer, [writer.batch(1, b"b"), writer.batch(2, b"c")]) == {}
    world.disk.write_error = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(HoldfastError) as caught:
            world.seal([(partition, 0) for partition in range(3)], final=False)
        assert caught.value.status == Status.DISK_FULL
    world.disk.write_error = 0
    answers = world.seal([(partition, 0) for partition in range(3)])
    assert [(answer.status, answer.batches) for answer in answers] == [(Status.OK, 1)] * 3
    assert [len(world.read(partition)) for partition in range(3)] == [1, 1, 1]


def test_a_seal_that_found_no_room_for_its_folder_loses_nothing(world: World) -> None:
    """A power cut left the epochs in the log alone, and their folder could not be made on a full disk that has room a
    moment later: asked again, all of them have every batch."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(1, b"b"), writer.batch(2, b"c")]) == {}
    world.store.close()
    shutil.rmtree(world.root / "0" / shuffle_folder(SHUFFLE))
    world.start()
    world.disk.folder_error = errno.ENOSPC
    with pytest.raises(HoldfastError) as caught:
        world.seal([(1, 0), (2, 0)], final=False)
    assert caught.value.status == Status.DISK_FULL
    answers = world.seal([(1, 0), (2, 0)])
    assert [(answer.status, answer.batches) for answer in answers] == [(Status.OK, 1)] * 2


def test_a_failed_sync_is_never_tried_again(world: World) -> None:
    """A seal whose sync failed is FAILED_COPY for ever."""
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(0, b"a" * 60_000), writer.batch(1, b"b")])
    world.disk.sync_error = errno.EIO
    assert {answer.status for answer in world.seal([(0, 0), (1, 0)])} == {Status.FAILED_COPY}
    world.disk.sync_error = 0
    assert {answer.status for answer in world.seal([(0, 0), (1, 0)])} == {Status.FAILED_COPY}
    world.restart()
    assert {answer.status for answer in world.seal([(0, 0), (1, 0)])} == {Status.FAILED_COPY}


def test_what_was_given_up_is_not_found_by_its_footer(world: World) -> None:
    """A seal whose record could not be written gives its epochs up, though their files have sealed names by then: where
    the index cannot be read either, their footers are not asked."""
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(0, b"a" * 60_000), writer.batch(1, b"b")])
    world.push(writer, [writer.batch(0, os.urandom(60_000)) for _ in range(30)])
    world.disk.commit_error = errno.EIO
    assert {answer.status for answer in world.seal([(0, 0), (1, 0)])} == {Status.FAILED_COPY}
    assert world.files("*.pack")
    assert not world.files("*.part"), "that of the large one is its mark by now"
    assert len(world.files("*.failed")) == 2
    world.disk.unreadable = True
    assert {answer.status for answer in world.seal([(0, 0), (1, 0)], final=False)} == {Status.FAILED_COPY}
    for partition in (0, 1):
        with pytest.raises(RerouteError) as caught:
            world.read(partition)
        assert caught.value.status == Status.FAILED_COPY


def test_what_a_start_before_could_not_sync_is_given_up(tmp_path: Path) -> None:
    """A sync failed, and the worker was killed before it could mark the copy: the kernel calls the next sync good, so
    what the disk has decides. That copy is given up for good; the others are sealed."""
    disk = ForgetfulDisk()
    world = World(tmp_path, disk=disk)
    writer = Writer(SHUFFLE)
    for partition in (0, 1):
        assert world.push(writer, [writer.batch(partition, os.urandom(50_000)) for _ in range(30)]) == {}
    world.restart()
    disk.forgotten = "1-0.open"
    for _ in range(2):
        first, second = world.seal([(0, 0), (1, 0)])
        assert (first.status, second.status) == (Status.OK, Status.FAILED_COPY)
        disk.forgotten = ""
        world.restart()
    assert len(world.read(0)) == 30


def test_a_disk_that_takes_no_records_gives_up_at_once(world: World) -> None:
    """Where the index cannot be written nothing is called sealed, and the answer comes at once: FAILED_COPY."""
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(0, b"a" * 60_000), writer.batch(1, b"b")])
    world.disk.commit_error = errno.EROFS
    epochs = [(0, 0), (1, 0)]
    for _ in range(2):
        assert {answer.status for answer in world.seal(epochs, final=False)} == {Status.FAILED_COPY}
    (directory,) = world.store.directories()
    assert "Read-only" in directory.problem
    world.disk.commit_error = errno.ENOSPC
    third = writer.batch(2, b"c")
    assert world.push(writer, [third]) == {}
    with pytest.raises(HoldfastError) as caught:
        world.seal([(2, 0)])
    assert caught.value.status == Status.DISK_FULL
    world.disk.commit_error = 0
    assert [answer.status for answer in world.seal([(2, 0)])] == [Status.OK]


def test_a_disk_that_removes_nothing_stops_nobody(world: World) -> None:
    """The log cannot be let go of on a read-only disk: that is told, and no push, seal or tick fails of it."""
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(0, b"a")])
    world.disk.remove_error = errno.EROFS
    assert [answer.status for answer in world.seal([(0, 0)])] == [Status.OK]
    world.store.reduce.tick()
    world.store.reduce.tick()
    assert "Read-only" in world.store.directories()[0].problem


@pytest.mark.parametrize("emptied", [False, True])
def test_a_directory_that_vanished_vouches_for_nothing(world: World, tmp_path: Path, emptied: bool) -> None:
    """When the directory is deleted, or all in it, sealed epochs are answered DATA_LOST, open ones FAILED_COPY, it has
    no room, and its status says so."""
    writer = Writer(SHUFFLE)
    fill(world, writer)
    assert free_of(world.store, 0.1, 0)[0] > 0
    assert world.seal([(0, 0)], final=False)[0].status == Status.OK
    shutil.rmtree(world.root / "0")
    if emptied:
        (world.root / "0").mkdir()
    assert world.seal([(0, 0)], final=False)[0].status == Status.DATA_LOST
    assert world.seal([(1, 0)], final=False)[0].status == Status.FAILED_COPY
    assert free_of(world.store, 0.1, 0) == [0]
    (directory,) = world.store.directories()
    assert not directory.healthy


def test_a_forgotten_shuffle_leaves_nothing(world: World) -> None:
    """forget removes open and sealed epochs, their records, and, when nothing else is in it, the log."""
    fill(world, Writer(SHUFFLE))
    world.seal([(1, 0)], final=False)
    assert world.store.shuffles() == [SHUFFLE]
    world.core.forget(SHUFFLE)
    assert world.store.forget([SHUFFLE]).result(30) == 1
    world.store.reduce.tick()
    assert world.store.shuffles() == []
    assert world.log_is_empty()
    assert not list((world.root / "0" / "data").iterdir())
    world.restart()
    assert world.store.shuffles() == []


def test_a_removal_that_cannot_look_is_no_removal(world: World) -> None:
    """Where a folder cannot be read, its shuffle is still here, and goes with the next try."""
    fill(world, Writer(SHUFFLE))
    world.seal([(1, 0)], final=False)
    world.core.forget(SHUFFLE)
    world.disk.look_error, world.disk.look_name = errno.EIO, Path(shuffle_folder(SHUFFLE)).name
    with pytest.raises(OSError, match="Input/output error"):
        world.store.forget([SHUFFLE]).result(30)
    assert world.store.shuffles() == [SHUFFLE]
    assert world.store.forget([SHUFFLE]).result(30) == 1
    assert not list((world.root / "0" / "data").iterdir())


def test_a_removal_that_the_index_refuses_speaks_against_its_directory(world: World) -> None:
    """An index with a fatal error takes no removal until its worker starts again: the directory says what is wrong with
    it, and does not try for ever while all seems well. Too few descriptors say nothing against it."""
    fill(world, Writer(SHUFFLE))
    world.seal([(1, 0)], final=False)
    world.core.forget(SHUFFLE)
    world.disk.commit_error = errno.EMFILE
    with pytest.raises(OSError, match="Too many open files"):
        world.store.forget([SHUFFLE]).result(30)
    assert [one.problem for one in world.store.directories()] == [""]
    world.disk.commit_error = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        world.store.forget([SHUFFLE]).result(30)
    assert [one.problem for one in world.store.directories()] == ["writing failed: [Errno 5] Input/output error"]
    assert world.store.shuffles() == [SHUFFLE]


def test_forgotten_leftovers_of_earlier_starts_go_too(world: World) -> None:
    """What an earlier start left of a shuffle that the masters do not know is removed, log segments too."""
    fill(world, Writer(SHUFFLE))
    world.restart()
    assert world.store.shuffles() == [SHUFFLE]
    world.store.forget([SHUFFLE]).result(30)
    world.store.reduce.tick()
    assert not world.files("*.push")
    assert not world.files("*.open")


@pytest.mark.parametrize("sick", [0, 1])
def test_a_sick_index_hides_no_epochs_of_other_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sick: int
) -> None:
    """An index cannot be read, before anybody has noticed: what another directory has is read, and what neither can
    tell of is an error that says so."""
    world = World(tmp_path, directories=2)
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(partition, os.urandom(100_000)) for partition in range(2)])
    world.seal([(0, 0), (1, 0)])

    def reading(_: object) -> Never:
        raise LmdbDamagedError("it had a fatal error")

    broken = world.store.reduce._directories[sick].index
    monkeypatch.setattr(broken, "reading", partial(reading, broken))
    assert [len(world.read(partition)) for partition in range(2)] == [1, 1]
    with pytest.raises(CorruptError, match="it had a fatal error, and no footer has it"):
        world.store.reduce.chunks(SHUFFLE, 7, 0)


def test_an_index_is_rebuilt_from_footers(world: World) -> None:
    """With the index gone, seals are answered the same and all is read back."""
    fill(world, Writer(SHUFFLE))
    epochs = [(partition, 0) for partition in range(6)]
    answers = world.seal(epochs)
    world.store.close()
    for path in (world.root / "0" / "index").iterdir():
        path.unlink()
    world.start()
    assert world.seal(epochs) == answers
    assert len(world.read(0)) == 8


def test_a_sealed_epoch_that_lost_its_file_is_an_error(world: World) -> None:
    """A sealed file that is gone or cut is refused by name, and verify says so."""
    fill(world, Writer(SHUFFLE))
    world.seal([(partition, 0) for partition in range(6)])
    world.store.close()
    (path,) = world.files("*.part")
    path.unlink()
    assert verify_directory(str(world.root / "0")).damaged
    world.start()
    place = world.store.reduce.chunks(SHUFFLE, 0, 0)
    assert not Path(place.path).exists()


def test_chunks_are_of_whole_batches_and_bounded(world: World) -> None:
    """20 MiB become chunks of at most 8 MiB, each of whole batches."""
    writer = Writer(SHUFFLE)
    for _ in range(320):
        world.push(writer, [writer.batch(0, os.urandom(65_000))])
    (answer,) = world.seal([(0, 0)])
    place = world.store.reduce.chunks(SHUFFLE, 0, 0)
    assert answer.chunks == len(place.record.chunks) == 3
    assert all(row.length <= 8 * MIB for row in place.record.chunks)
    assert len(world.read(0)) == 320
