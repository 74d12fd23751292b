"""The push log after kill -9 in the same boot: whatever of it is damaged or gone is never taken for "never had it"."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import Incarnation
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from holdfast.worker.storage import names
from holdfast.worker.storage.layout import shuffle_folder
from holdfast.worker.storage.log.log_records import (
    RECORD_BYTES,
    RECORD_MAGIC,
    RECORDS_AT,
    SEGMENT_HEAD_BYTES,
    SegmentHead,
)
from holdfast.worker.storage.log.log_recovery import find_all
from holdfast.worker.storage.offline.verify import Severity, verify_directory
from tests.support.reduce_data import Writer, shuffle_of
from tests.unit.worker.storage.reduce_world import SHUFFLE, World

EPOCHS = [(partition, 0) for partition in range(4)]
#: an epoch of which there was never a batch
NEVER = (9, 0)


def pushed(root: Path, segment_bytes: int = 256 * KIB) -> World:
    """Four epochs, two batches each, every batch a record of its own, then killed."""
    world = World(root, segment_bytes=segment_bytes)
    writer = Writer(SHUFFLE)
    for _ in range(2):
        for partition, _ in EPOCHS:
            assert world.push(writer, [writer.batch(partition, os.urandom(1_000))]) == {}
    world.store.close()
    return world


def statuses(world: World, epochs: list[tuple[int, int]]) -> list[Status]:
    """What a seal answers."""
    return [Status(answer.status) for answer in world.seal(epochs, final=False)]


def records(data: bytes) -> list[int]:
    """Where records begin."""
    return [found.start() for found in re.finditer(re.escape(RECORD_MAGIC), data)]


def damage_told(world: World) -> bool:
    """Whether verify calls anything damage."""
    findings = verify_directory(str(world.root / "0")).findings
    return any(one.severity is Severity.DAMAGE for one in findings)


@pytest.mark.parametrize("where", ["head", "body", "rows"])
def test_a_flipped_bit_of_the_last_record_loses_its_epoch(tmp_path: Path, where: str) -> None:
    """The last record was acknowledged: a flip in it is damage and no incomplete end, of its epoch and no other."""
    world = pushed(tmp_path)
    (path,) = world.files("*.push")
    data = bytearray(path.read_bytes())
    last = records(bytes(data))[-1]
    end = len(data.rstrip(b"\0"))
    data[{"head": last + 20, "body": last + RECORD_BYTES + 200, "rows": end - 8}[where]] ^= 4
    path.write_bytes(data)
    assert damage_told(world)
    world.start()
    # Without its entries nobody knows the partition, only the shuffle.
    others = Status.DATA_LOST if where == "rows" else Status.OK
    assert statuses(world, EPOCHS) == [others] * 3 + [Status.DATA_LOST]


def test_two_bad_records_hurt_the_epochs_of_both(tmp_path: Path) -> None:
    """A bad record behind a bad one is found although only the first can be read."""
    world = pushed(tmp_path)
    (path,) = world.files("*.push")
    data = bytearray(path.read_bytes())
    starts = records(bytes(data))
    for start in starts[4:6]:
        data[start + RECORD_BYTES + 200] ^= 4
    path.write_bytes(data)
    world.start()
    assert statuses(world, EPOCHS) == [Status.DATA_LOST] * 2 + [Status.OK] * 2


def _zero_start(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(4 * KIB))


def _zero_all(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _flip_note(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[SEGMENT_HEAD_BYTES] ^= 1
    path.write_bytes(data)


def _cut_at_a_record(path: Path) -> None:
    os.truncate(path, records(path.read_bytes())[-2])


def _cut_all(path: Path) -> None:
    os.truncate(path, RECORDS_AT)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


DAMAGES = [_zero_start, _zero_all, _flip_note, _cut_at_a_record, _cut_all, _empty, Path.unlink]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_what_may_have_been_in_a_segment_is_lost(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """Zeroed, cut or removed: what was in the segment is DATA_LOST, and so is what nobody knows of; also after one
    more start, when nothing of the segment is there any more, which says that it may be an earlier start's doing."""
    world = pushed(tmp_path)
    (path,) = world.files("*.push")
    damage(path)
    assert damage_told(world)
    world.start()
    assert set(statuses(world, [*EPOCHS, NEVER])) == {Status.DATA_LOST}
    world.store.reduce.tick()
    world.store.reduce.tick()
    world.restart()
    assert set(statuses(world, [*EPOCHS, NEVER])) == {Status.DATA_LOST}
    assert any("an earlier start found damage" in note for note in world.store.report)


@pytest.mark.parametrize("gone", ["first", "middle", "newest", "all", "folder"])
def test_missing_segments_are_noticed(tmp_path: Path, gone: str) -> None:
    """Whichever segments are missing, no epoch that had acknowledged batches is short or unknown."""
    world = pushed(tmp_path, segment_bytes=4 * KIB)
    paths = sorted(world.files("*.push"), key=lambda path: int(path.stem.split("-")[1]))
    assert len(paths) == 3
    for path in {"first": paths[:1], "middle": paths[1:2], "newest": paths[-1:]}.get(gone, paths):
        path.unlink()
    if gone == "folder":
        shutil.rmtree(paths[0].parent)
    assert damage_told(world)
    world.start()
    assert set(statuses(world, [*EPOCHS, NEVER])) == {Status.DATA_LOST}


def test_a_log_that_cannot_be_looked_at_is_not_taken_for_none(tmp_path: Path) -> None:
    """Where its folder cannot be read a start does without the directory, and the next one has all that was there."""
    world = World(tmp_path)
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a")]) == {}
    world.store.close()
    world.disk.look_error, world.disk.look_name = errno.EIO, names.LOG
    with pytest.raises(OSError, match="Input/output error"):
        world.start()
    world.start()
    assert statuses(world, [(0, 0)]) == [Status.OK]


def test_a_log_stays_until_what_was_given_up_has_its_mark(tmp_path: Path) -> None:
    """A copy that an earlier start left in its log is given up on a sick disk, which takes no mark of it either: the
    next start does not say that it was never here."""
    world = World(tmp_path)
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a")]) == {}
    world.restart()
    world.disk.sync_error = world.disk.mark_error = world.disk.commit_error = errno.EIO
    with suppress(HoldfastError):
        assert statuses(world, [(0, 0)]) == [Status.FAILED_COPY]
    world.disk.commit_error = 0
    world.store.reduce.tick()
    world.store.reduce.tick()
    world.disk.sync_error = world.disk.mark_error = 0
    world.restart()
    assert statuses(world, [(0, 0)]) != [Status.UNKNOWN_FILE]


def test_what_was_given_up_without_a_folder_has_its_mark(tmp_path: Path) -> None:
    """A power cut left no folder of an epoch that is in the log, and a sick disk takes neither that nor a record of
    the copy that is given up: its mark is made with its folder, and the next start does not say that it was never
    here."""
    world = World(tmp_path)
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a")]) == {}
    world.store.close()
    shutil.rmtree(tmp_path / "0" / shuffle_folder(SHUFFLE))
    world.start()
    world.disk.folder_error = world.disk.commit_error = errno.EIO
    assert statuses(world, [(0, 0)]) == [Status.FAILED_COPY]
    world.disk.commit_error = 0
    world.store.reduce.tick()
    world.store.reduce.tick()
    world.restart()
    assert statuses(world, [(0, 0)]) == [Status.FAILED_COPY]


def test_the_log_stays_until_what_was_given_up_is_marked(tmp_path: Path) -> None:
    """A sick disk takes neither the mark of a copy that was given up nor a record of it, and nothing else is in the
    log: the next start does not say that it was never here."""
    world = World(tmp_path)
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a")]) == {}
    world.disk.mark_error = world.disk.commit_error = world.disk.sync_error = errno.EIO
    assert statuses(world, [(0, 0)]) == [Status.FAILED_COPY]
    world.disk.commit_error = world.disk.sync_error = 0
    for _ in range(3):
        world.store.reduce.tick()
    world.disk.mark_error = 0
    world.restart()
    assert statuses(world, [(0, 0)]) != [Status.UNKNOWN_FILE]


def test_doubts_of_one_directory_do_not_hide_what_another_has(tmp_path: Path) -> None:
    """A directory that has lost its log calls lost what it cannot know while another one is away; what that one has is
    sealed and read when it is back."""
    world = World(tmp_path, directories=2)
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a"), writer.batch(1, b"b")]) == {}
    assert statuses(world, [(1, 0)]) == [Status.OK]
    world.store.close()
    for path in (tmp_path / "0").rglob("*.push"):
        path.unlink()
    (tmp_path / "1").rename(tmp_path / "away")
    world.start()
    assert statuses(world, [(1, 0)]) == [Status.DATA_LOST]
    world.store.close()
    shutil.rmtree(tmp_path / "1")
    (tmp_path / "away").rename(tmp_path / "1")
    world.start()
    assert statuses(world, [(1, 0)]) == [Status.OK]
    assert len(world.read(1)) == 1


def test_a_full_disk_under_a_log_that_shrinks_is_no_damage(tmp_path: Path) -> None:
    """The note that the oldest segment is not needed any more finds no room once; a kill after the next try, which
    found some, loses nothing."""
    world = World(tmp_path, segment_bytes=4 * KIB)
    writer = Writer(SHUFFLE)
    for partition in range(3):
        assert world.push(writer, [writer.batch(partition, os.urandom(3_000))]) == {}
    log = world.store.reduce._directories[0].unsealed.log
    assert [*log.segments] == [1, 2, 3]
    world.disk.write_error = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        log.remove_before(2)
    world.disk.write_error = 0
    log.remove_before(2)
    assert [*log.segments] == [2, 3]
    world.restart()
    assert statuses(world, [(1, 0), (2, 0)]) == [Status.OK, Status.OK]


def test_what_was_let_go_of_is_no_damage(tmp_path: Path) -> None:
    """Sealed, forgotten and rotated logs leave nothing to miss: an unknown epoch stays unknown, start after start."""
    world = World(tmp_path, segment_bytes=3 * KIB)
    writer = Writer(SHUFFLE)
    for turn in range(12):
        assert world.push(writer, [writer.batch(turn, os.urandom(2_000))]) == {}
        assert statuses(world, [(turn, 0)]) == [Status.OK]
        if turn % 5 == 0:
            world.store.reduce.tick()
    for _ in range(3):
        world.restart()
        assert statuses(world, [(turn, 0) for turn in range(12)]) == [Status.OK] * 12
        assert statuses(world, [(99, 0)]) == [Status.UNKNOWN_FILE]
        world.store.reduce.tick()
        assert world.files("*.push") == []


def test_a_raised_incarnation_in_the_middle_is_no_damage(tmp_path: Path) -> None:
    """A worker that has to start above its number while its log has segments finds both logs whole later."""
    world = World(tmp_path, segment_bytes=3 * KIB)
    writer = Writer(SHUFFLE)
    for partition, _ in EPOCHS:
        assert world.push(writer, [writer.batch(partition, os.urandom(2_000))]) == {}
    log = world.store._directories[0].unsealed.log
    log.restart(type(log.incarnation)(log.incarnation + 5))
    world.core.seal(SHUFFLE, False, EPOCHS)
    for partition in range(4, 8):
        assert world.push(writer, [writer.batch(partition, os.urandom(2_000))]) == {}
    world.restart()
    assert statuses(world, [(partition, 0) for partition in range(8)]) == [Status.OK] * 8
    assert statuses(world, [NEVER]) == [Status.UNKNOWN_FILE]


def test_after_a_reboot_the_note_means_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page with the note may be on the disk without what it speaks of: synced epochs stand, whatever it says."""
    world = World(tmp_path)
    writer = Writer(SHUFFLE)
    for partition, _ in EPOCHS:
        assert world.push(writer, [writer.batch(partition, os.urandom(1_000))], Ack.SYNCED) == {}
    path = world.files("*.push")[-1]
    assert world.push(writer, [writer.batch(8, os.urandom(1_000))], Ack.SYNCED) == {}
    world.store.close()
    os.truncate(path, records(path.read_bytes())[-1])
    boot = tmp_path / "boot"
    boot.write_text("12345678-1234-1234-1234-123456789012\n")
    monkeypatch.setattr("holdfast.worker.storage.env.system._BOOT_ID", boot)
    world.start()
    assert statuses(world, EPOCHS) == [Status.OK] * 4


@pytest.fixture
def reboot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What lets the next start be in another boot."""
    path = tmp_path / "boot"

    def reboot() -> None:
        path.write_text("12345678-1234-1234-1234-123456789012\n")
        monkeypatch.setattr("holdfast.worker.storage.env.system._BOOT_ID", path)

    return reboot


def test_the_verdict_on_what_nobody_knows_is_kept(tmp_path: Path, reboot: Callable[[], None]) -> None:
    """What was called lost since a log lost records of nobody knows what is not called unknown by a start in a later
    boot, which knows of no damage any more."""
    world = pushed(tmp_path)
    (path,) = world.files("*.push")
    path.unlink()
    world.start()
    assert statuses(world, [NEVER]) == [Status.DATA_LOST]
    world.store.close()
    reboot()
    world.start()
    assert statuses(world, [NEVER]) == [Status.DATA_LOST]


def synced_then_flushed(root: Path) -> World:
    """One batch that was synced in the log, and is in its file too, which was not; then killed."""
    world = World(root)
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, os.urandom(1_000))], Ack.SYNCED) == {}
    unsealed = world.store.reduce._directories[0].unsealed
    (copy,) = unsealed.copy_of.values()
    unsealed.flush(copy)
    world.store.close()
    return world


@pytest.mark.parametrize("first", [0, 30, 71])
def test_a_torn_head_of_what_was_never_synced_hurts_nothing(
    tmp_path: Path, reboot: Callable[[], None], first: int
) -> None:
    """A power cut left a part of the first write of a partition file: what was SYNCED is in the log, and whole."""
    world = synced_then_flushed(tmp_path)
    (path,) = world.files("*.open")
    data = path.read_bytes()
    path.write_bytes(data[:first] + bytes(len(data) - first))
    reboot()
    world.start()
    (answer,) = world.seal([(0, 0)])
    assert (answer.status, answer.batches) == (Status.OK, 1)
    world.store.close()


@pytest.mark.parametrize("where", ["same boot", "flipped"])
def test_a_head_that_is_no_part_of_itself_is_damage(tmp_path: Path, reboot: Callable[[], None], where: str) -> None:
    """A head of which a part is missing in the boot that wrote it, or that has a wrong bit in any, is damage."""
    world = synced_then_flushed(tmp_path)
    (path,) = world.files("*.open")
    data = bytearray(path.read_bytes())
    if where == "flipped":
        data[70] ^= 1
        reboot()
    else:
        data[30:] = bytes(len(data) - 30)
    path.write_bytes(data)
    world.start()
    assert statuses(world, [(0, 0)]) == [Status.DATA_LOST]


def synced_then_written(root: Path) -> World:
    """Four epochs that are SYNCED, one batch each, then four batches of one that is WRITTEN."""
    world = World(root)
    writer, other = Writer(SHUFFLE), Writer(shuffle_of(2))
    for partition, _ in EPOCHS:
        assert world.push(writer, [writer.batch(partition, os.urandom(1_000))], Ack.SYNCED) == {}
    for _ in range(4):
        assert world.push(other, [other.batch(0, os.urandom(1_000))]) == {}
    return world


def test_a38_a_hole_in_what_was_not_synced_hurts_nothing_synced(tmp_path: Path, reboot: Callable[[], None]) -> None:
    """The kernel writes in no order: of the records after the last sync the first may be missing and the others there.
    After another boot the log ends at the hole, and every SYNCED epoch is whole; also when that start is killed."""
    world = synced_then_written(tmp_path)
    world.store.close()
    (path,) = world.files("*.push")
    data = bytearray(path.read_bytes())
    first, second = records(bytes(data))[4:6]
    data[first:second] = bytes(second - first)
    path.write_bytes(data)
    reboot()
    for _ in range(2):
        world.start()
        assert statuses(world, EPOCHS) == [Status.OK] * 4
        assert statuses(world, [NEVER]) == [Status.UNKNOWN_FILE]
        world.store.close()


@pytest.mark.parametrize("where", ["first", "last"])
def test_a38_what_was_synced_and_is_bad_is_damage(tmp_path: Path, reboot: Callable[[], None], where: str) -> None:
    """The note says up to where the segment was synced, also when nothing was pushed since: what is bad before that is
    damage after every boot, of its epoch and no other."""
    world = World(tmp_path)
    writer = Writer(SHUFFLE)
    for partition, _ in EPOCHS:
        assert world.push(writer, [writer.batch(partition, os.urandom(1_000))], Ack.SYNCED) == {}
    world.store.reduce.tick()
    world.store.close()
    (path,) = world.files("*.push")
    data = bytearray(path.read_bytes())
    data[records(bytes(data))[{"first": 0, "last": -1}[where]] + RECORD_BYTES + 200] ^= 4
    path.write_bytes(data)
    assert damage_told(world)
    reboot()
    world.start()
    hurt = {"first": 0, "last": 3}[where]
    assert statuses(world, EPOCHS) == [Status.DATA_LOST if n == hurt else Status.OK for n in range(4)]


def test_a37_a_segment_that_was_used_before_is_no_damage(tmp_path: Path, reboot: Callable[[], None]) -> None:
    """A segment that is used again has its new name on the disk before its new head: after a power cut it is what it
    was, and nothing that was SYNCED in other segments is hurt."""
    world = synced_then_written(tmp_path)
    world.store.close()
    (path,) = world.files("*.push")
    incarnation, number = map(int, path.stem.split("-"))
    again = path.with_name(f"{incarnation}-{number + 1}.push")
    shutil.copyfile(path, again)
    with again.open("r+b") as file:
        file.write(SegmentHead(Incarnation(incarnation), number + 7, b"\0" * 16).encode())
    reboot()
    world.start()
    assert statuses(world, EPOCHS) == [Status.OK] * 4
    assert statuses(world, [NEVER]) == [Status.UNKNOWN_FILE]


#: Memory that ends with a page behind which nothing may be read, and 200 searches in it, each one byte shorter.
GUARDED = """
import ctypes, mmap
from holdfast.worker.storage.log.log_recovery import find_all

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
memory[: 2 * page] = bytes(range(256)) * (2 * page // 256)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory, page))
assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address), page, 0) == 0
data = memoryview(memory)[:page]
for start in range(page - 200, page):
    assert list(find_all(data, b"HFpushed", start)) == []
"""


def test_a_search_reads_nothing_behind_the_map() -> None:
    """A segment that ends with a page has no memory behind it: the search ends there, and not the process."""
    done = subprocess.run([sys.executable, "-P", "-c", GUARDED], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("at", [0, 5, MIB - 9, MIB - 8, MIB - 7, MIB - 1, MIB, 2 * MIB - 8, 2 * MIB + 2])
def test_a_search_finds_what_lies_across_two_looks(at: int) -> None:
    """Wherever the bytes are, each place is told once."""
    data = bytearray(2 * MIB + 10)
    data[at : at + len(RECORD_MAGIC)] = RECORD_MAGIC
    view = memoryview(data)
    assert list(find_all(view, RECORD_MAGIC, 0)) == [at]
    assert list(find_all(view, RECORD_MAGIC, at + 1)) == []
