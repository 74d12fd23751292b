"""Sealed files move between a worker's directories: readers never notice, no kill loses or doubles anything."""

import os
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.common.errors import HoldfastError
from holdfast.common.statuses import Status
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.layout import DataKey, sealed_path
from holdfast.worker.storage.offline.inspect import inspect_directory
from holdfast.worker.storage.offline.verify import verify_directory
from holdfast.worker.storage.tiers import moving
from holdfast.worker.storage.tiers.moving import FileMove
from tests.support.reduce_data import Writer, names
from tests.support.storage_env import CheckHere, carry_out, drive, env_of
from tests.unit.worker.storage.reduce_world import SHUFFLE, World, fill
from tests.unit.worker.storage.test_reduce_crashes import KilledError, KillingDisk, disk_of

PARTITIONS = 6
EPOCHS = [(partition, 0) for partition in range(PARTITIONS)]
EXPECTED = [sorted((0, 0, n) for n in range(8 if not partition else 5)) for partition in range(PARTITIONS)]


def tiered(root: Path) -> World:
    """A worker with memory and a disk; a pack file and a partition file are sealed in memory."""
    world = World(root, tiers=["MEMORY", "SSD"])
    world.core.has_room = [True, False]
    fill(world, Writer(SHUFFLE), PARTITIONS)
    assert {answer.status for answer in world.seal(EPOCHS)} == {Status.OK}
    return world


def files_in(world: World, number: int) -> list[tuple[DataKey, int]]:
    """The sealed files that a directory's index has, with their lengths."""
    directory = world.store._directories[number]
    with directory.index.reading() as reader:
        return sorted(reader.data_files(SHUFFLE), key=str)


def move(world: World, key: DataKey, size: int, source: int = 0, target: int = 1) -> FileMove:
    """A move between two directories."""
    here, there = world.store._directories[source], world.store._directories[target]
    return world.store.mover.move(key, size, here, there, there)


def everything(world: World) -> list[list[tuple[int, int, int]]]:
    """Which batches are read of each partition."""
    return [sorted(names(world.read(partition))) for partition in range(PARTITIONS)]


def move_all(world: World, source: int = 0, target: int = 1) -> None:
    """FileMove every file, in this thread."""
    for key, size in files_in(world, source):
        carry_out(world.store.mover, move(world, key, size, source, target))


def test_files_move_with_everything_that_is_known_of_them(tmp_path: Path) -> None:
    """Pack and partition files are read where they went, answers of seals stay, sums follow; so after a restart."""
    world = tiered(tmp_path)
    answers = world.seal(EPOCHS)
    used = world.store._directories[0].used_bytes
    here = files_in(world, 0)
    assert len(here) == 2
    move_all(world)
    assert (files_in(world, 0), files_in(world, 1)) == ([], here)
    assert everything(world) == EXPECTED
    assert all(world.store.reduce.chunks(SHUFFLE, p, 0).path.startswith(str(tmp_path / "1")) for p in range(PARTITIONS))
    size = sum(size for _, size in here)
    assert (used - world.store._directories[0].used_bytes, world.store._directories[1].used_bytes) == (size, size)
    world.restart()
    assert (everything(world), world.seal(EPOCHS)) == (EXPECTED, answers)
    assert world.store.report == ()
    assert [one.used_bytes for one in world.store._directories][1] == size
    world.store.close()
    for number in (0, 1):
        assert not verify_directory(str(tmp_path / str(number))).damaged
        assert inspect_directory(str(tmp_path / str(number))).problems == []


def test_whoever_reads_goes_on(tmp_path: Path) -> None:
    """A place that is held before the move gives the new path after it; an open file is read to its end."""
    world = tiered(tmp_path)
    place = world.store.reduce.chunks(SHUFFLE, 0, 0)
    with open(place.path, "rb") as file:
        before, data = place.path, file.read(100)
        move_all(world)
        assert place.path != before
        assert not os.path.exists(before)
        assert data + file.read() == Path(place.path).read_bytes()
    assert world.store.reduce.chunks(SHUFFLE, 0, 0) is place


def test_who_comes_between_the_record_and_the_word_shares_the_place(tmp_path: Path) -> None:
    """A second stream opens when the new place is recorded and readers are not told yet: the first goes on."""
    world = tiered(tmp_path)
    first = [world.store.reduce.chunks(SHUFFLE, partition, 0) for partition in range(PARTITIONS)]
    second = []

    def on_loop(act: Callable[[], object]) -> None:
        second.extend([world.store.reduce.chunks(SHUFFLE, partition, 0) for partition in range(PARTITIONS)])
        act()

    world.store.run_on(on_loop)
    move_all(world)
    assert all(os.path.exists(place.path) for place in (*first, *second))
    second.clear()
    move_all(world, 1, 0)
    assert all(os.path.exists(place.path) for place in (*first, *second))


def test_a_move_up_is_a_move(tmp_path: Path) -> None:
    """Files come back to the faster directory, and can go down again."""
    world = tiered(tmp_path)
    here = files_in(world, 0)
    move_all(world)
    move_all(world, 1, 0)
    assert (files_in(world, 0), files_in(world, 1), everything(world)) == (here, [], EXPECTED)
    move_all(world)
    world.restart()
    assert (files_in(world, 0), files_in(world, 1), everything(world)) == ([], here, EXPECTED)


@pytest.mark.parametrize("up", [False, True])
def test_killed_at_any_step_a_file_is_in_one_place_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up: bool
) -> None:
    """A kill between any two steps of a move leaves the file readable, in one directory after the next start, the room
    of the other one free; moved again it arrives."""
    monkeypatch.setattr("holdfast.worker.storage.env.system.SystemChecks.start", staticmethod(CheckHere))
    template = tmp_path / "template"
    world = tiered(template)
    source, target = (1, 0) if up else (0, 1)
    if up:
        move_all(world)
    (key, size), _ = files_in(world, source)
    world.store.close()
    step, ended = 0, False
    while not ended:
        root = tmp_path / f"step-{step}"
        shutil.copytree(template, root, ignore=shutil.ignore_patterns("lock"))
        world = reopened(root)
        disk_of(world).left = step
        try:
            carry_out(world.store.mover, move(world, key, size, source, target))
            ended = True
        except KilledError:
            pass
        disk_of(world).left = None
        world.store.close()
        world = reopened(root)
        where = [number for number in (0, 1) if key in dict(files_in(world, number))]
        assert len(where) == 1, f"step {step}: in {where}"
        assert [number for number in (0, 1) if (root / str(number) / sealed_path(key)).exists()] == where
        assert everything(world) == EXPECTED, f"step {step}"
        assert not list(root.rglob("*.moving"))
        if where == [source]:
            carry_out(world.store.mover, move(world, key, size, source, target))
        world.restart()
        assert (everything(world), {one.status for one in world.seal(EPOCHS)}) == (EXPECTED, {Status.OK})
        world.store.close()
        shutil.rmtree(root)
        step += 1
    assert step > 8


def reopened(root: Path) -> World:
    """The directories of `tiered` again."""
    return World(root, tiers=["MEMORY", "SSD"], disk=KillingDisk())


@pytest.mark.parametrize("damaged", [(), (1,), (2,), (1, 2), (0, 1, 2)])
def test_of_a_file_in_several_directories_a_start_keeps_the_last_that_is_whole(
    tmp_path: Path, damaged: tuple[int, ...]
) -> None:
    """Whichever others are cut short; if all are, nothing is removed: what is left of them is for people to look at."""
    world = World(tmp_path, tiers=["MEMORY", "SSD", "HDD"])
    world.core.has_room = [True, False, False]
    fill(world, Writer(SHUFFLE), PARTITIONS)
    assert {answer.status for answer in world.seal(EPOCHS)} == {Status.OK}
    here = files_in(world, 0)
    for target in (1, 2):
        for key, size in here:  # the worker ends before anything is removed where the files were
            path, directory = tmp_path / "0" / sealed_path(key), world.store._directories[target]
            record = read_footer(world.disk, path, key)
            one = move(world, key, size, 0, target)
            drive(moving._copy(env_of(world.disk), path, one, directory, record))
    world.store.close()
    for number in damaged:
        for key, size in here:
            os.truncate(tmp_path / str(number) / sealed_path(key), size - 1)
    world.start()
    whole = [number for number in range(3) if number not in damaged]
    kept = whole[-1:] or [0, 1, 2]
    assert [number for number in range(3) if files_in(world, number) == here] == kept
    there = [number for number in range(3) for key, _ in here if (tmp_path / str(number) / sealed_path(key)).exists()]
    assert sorted(set(there)) == kept
    if whole:
        assert everything(world) == EXPECTED
    world.store.close()


def test_what_moved_is_no_leftover_of_the_log(tmp_path: Path) -> None:
    """The log of the first directory still has the batches when the worker starts again: they are sealed elsewhere."""
    world = World(tmp_path, tiers=["MEMORY", "SSD"])
    world.core.has_room = [True, False]
    writer = Writer(SHUFFLE)
    fill(world, writer, PARTITIONS)
    world.push(writer, [writer.batch(9, b"stays open, and so does the log")])
    world.seal(EPOCHS, final=False)
    move_all(world)
    assert world.files("*.push")
    world.restart()
    assert everything(world) == EXPECTED
    assert world.store.reduce.gauges()["epochs_left"] == 1
    (answer,) = world.seal([(9, 0)])
    assert (answer.status, answer.batches) == (Status.OK, 1)


@pytest.mark.parametrize("full", [True, False])
def test_a_target_without_room_leaves_the_file_where_it_is(tmp_path: Path, full: bool) -> None:
    """A move that meets a full or failing disk changes nothing, and says which it was."""
    world = tiered(tmp_path)
    here = files_in(world, 0)
    if full:
        world.store._directories[1].capacity_bytes = 1_000
    else:
        (tmp_path / "1" / "identity").rename(tmp_path / "gone")
        shutil.rmtree(tmp_path / "1" / "data")
    one = move(world, *here[0])
    assert world.store.mover.start(one)
    assert one.done.result(30) is None
    assert one.full == full
    assert one.problem
    assert (files_in(world, 0), everything(world)) == (here, EXPECTED)
    assert world.store._directories[1].coming_bytes == 0


def test_what_the_log_has_yet_to_write_is_no_room_for_moves(tmp_path: Path) -> None:
    """A file that fits only beside the log, and not beside what a seal will write out of it, stays where it is; with
    that room too it moves, and the seal that follows keeps the capacity."""
    world = World(tmp_path, tiers=["MEMORY", "SSD"])
    world.core.has_room = [True, False]
    fill(world, Writer(SHUFFLE), PARTITIONS)
    assert {answer.status for answer in world.seal(EPOCHS, final=False)} == {Status.OK}
    (key, size), *_ = here = files_in(world, 0)
    world.core.has_room = [False, True]
    late = Writer(SHUFFLE, map=1, attempt=1)
    assert world.push(late, [late.batch(1, bytes(20_000), epoch=1)]) == {}
    target = world.store._directories[1]
    pending = target.unsealed.pending_bytes
    assert pending > 20_000
    target.room.kept_bytes = 1_000
    target.capacity_bytes = target.used_bytes + size + pending + 999
    for moves in (False, True):
        one = move(world, key, size)
        assert world.store.mover.start(one)
        assert one.done.result(30) is None
        assert (one.full, not one.problem, (key, size) in files_in(world, 0)) == (not moves, moves, not moves)
        target.capacity_bytes += 1
    assert [answer.status for answer in world.seal([(1, 1)])] == [Status.OK]
    assert target.used_bytes <= target.capacity_bytes
    assert (everything(world), len(here)) == (EXPECTED, 2)


def test_a_damaged_file_stays_where_it_is(tmp_path: Path) -> None:
    """A file whose footer is wrong is not moved; its other bytes are its readers' to judge, wherever it lies."""
    world = tiered(tmp_path)
    here = files_in(world, 0)
    path = tmp_path / "0" / sealed_path(here[0][0])
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    one = move(world, *here[0])
    assert world.store.mover.start(one)
    assert one.done.result(30) is None
    assert one.problem
    assert not one.full
    assert path.read_bytes() == data


def test_a_shuffle_that_is_forgotten_on_its_way_is_gone_everywhere(tmp_path: Path) -> None:
    """Deleting a shuffle waits for the move that runs and drops those that wait; nothing is left at either end."""
    world = tiered(tmp_path)
    entered, go_on = threading.Event(), threading.Event()
    acts: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()

    def loop() -> None:
        assert go_on.wait(30)
        for act in iter(acts.get, None):
            act()

    def on_loop(act: Callable[[], object]) -> None:
        acts.put(act)
        entered.set()

    moves = [move(world, *one) for one in files_in(world, 0)]
    world.store.run_on(on_loop)
    looping = threading.Thread(target=loop)
    looping.start()
    for one in moves:
        assert world.store.mover.start(one)
    assert entered.wait(30)
    forgetting = threading.Thread(target=lambda: world.store.forget([SHUFFLE]).result(30))
    forgetting.start()
    go_on.set()
    forgetting.join(30)
    assert not forgetting.is_alive()
    assert all(one.done.done() for one in moves)
    acts.put(None)
    looping.join(30)
    world.store.run_on(lambda act: act())
    assert world.store.shuffles() == []
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pack", ".part", ".moving")]
    with pytest.raises(HoldfastError) as caught:
        world.read(0)
    assert caught.value.status == Status.UNKNOWN_FILE
    world.store.reduce.tick()  # the log goes
    world.restart()
    assert world.store.shuffles() == []


def test_pack_files_of_two_directories_never_share_a_name(tmp_path: Path) -> None:
    """What two directories pack for one shuffle can lie in one directory afterwards."""
    world = World(tmp_path, directories=2)
    fill(world, Writer(SHUFFLE), PARTITIONS)
    world.seal(EPOCHS)
    assert [len(list((tmp_path / str(n)).rglob("*.pack"))) for n in range(2)] == [1, 1]
    move_all(world)
    assert everything(world) == EXPECTED
