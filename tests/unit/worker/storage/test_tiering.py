"""Where epochs begin and which files move: the books of a worker's tiers over real directories."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.common.formats.messages import Ack
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from holdfast.worker.core.write.space import Space
from holdfast.worker.storage.layout import DataKey, EpochKey
from tests.support.reduce_data import Writer, names
from tests.unit.worker.storage.reduce_world import SHUFFLE, World

SHARE = 0.1


def open_space(unused: int = 100 * MIB) -> Space:
    """A directory of 100 MiB, of which a tenth stays free, with so much that is not used."""
    return Space(100 * MIB, 1 << 40, 1 << 40, 100 * MIB - unused, 0, 1 << 40, SHARE)


FULL = open_space(9 * MIB)
CLOSED = None


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[list[World]]:
    """Stores that are closed at the end; the first has memory, two SSDs and an HDD."""
    made = [World(tmp_path, tiers=["MEMORY", "SSD", "SSD", "HDD"])]
    yield made
    for world in made:
        world.store.close()


def chosen(world: World, spaces: list[Space | None], hint: int = 0, ack: Ack = Ack.WRITTEN) -> int | None:
    """Where a new epoch goes."""
    world.store.tiering.look(spaces)
    return world.store.tiering.choose(hint, ack)


def test_new_epochs_go_to_memory_then_where_they_were_advised_then_anywhere(worlds: list[World]) -> None:
    """Memory while it accepts, then the hint, then the emptiest of the fastest tier that accepts, then any."""
    (world,) = worlds
    room = open_space()
    assert chosen(world, [room] * 4) == 0
    assert chosen(world, [room] * 4, hint=3) == 0
    assert chosen(world, [FULL, room, room, room], hint=3) == 2
    assert chosen(world, [FULL, room, FULL, room], hint=3) == 1
    assert chosen(world, [FULL, open_space(60 * MIB), room, room]) == 2
    assert chosen(world, [FULL, FULL, FULL, room]) == 3
    assert chosen(world, [FULL, FULL, CLOSED, FULL]) is None
    assert chosen(world, [CLOSED] * 4, hint=2) is None


def test_what_must_be_on_a_disk_never_goes_to_memory(worlds: list[World]) -> None:
    """At level SYNCED memory is no place, not even the last one."""
    (world,) = worlds
    room = open_space()
    assert chosen(world, [room] * 4, ack=Ack.SYNCED) == 1
    assert chosen(world, [room] * 4, hint=1, ack=Ack.SYNCED) == 1
    assert chosen(world, [room, FULL, FULL, FULL], ack=Ack.SYNCED) is None


def test_epochs_that_begin_between_two_looks_are_spread(worlds: list[World]) -> None:
    """Two equal disks get every other epoch, though nobody looked at them in between."""
    (world,) = worlds
    world.store.tiering.look([FULL, open_space(), open_space(), FULL])
    numbers = [world.store.tiering.choose(0, Ack.WRITTEN) for _ in range(20)]
    assert (numbers.count(1), numbers.count(2)) == (10, 10)


def small_world(root: Path) -> World:
    """Memory of 24 MiB and a disk; epochs go where the policies say."""
    world = World(root, tiers=["MEMORY", "SSD"], capacity_bytes=24 * MIB)
    world.core.choose = world.store.tiering.choose
    return world


def sealed_in(world: World, number: int) -> dict[DataKey, int]:
    """The files that the index of a directory has."""
    with world.store._directories[number].index.reading() as reader:
        return dict(reader.data_files(SHUFFLE))


def partitions_in(world: World, number: int) -> set[int]:
    """Partitions with a file of their own in a directory."""
    return {key.partition for key in sealed_in(world, number) if isinstance(key, EpochKey)}


def step(world: World, now: float = 1.0) -> list[tuple[int, int]]:
    """Look, plan, and wait for what moves."""
    world.store.look(SHARE, 1 << 40)
    asked = world.store.tiering.step(now)
    while world.store.mover.busy:
        pass
    return asked


def push_some(world: World, writer: Writer, partition: int, size: int) -> None:
    """Push so many bytes to a partition, in batches that go straight into its file."""
    for _ in range(size // (256 * KIB)):
        assert world.push(writer, [writer.batch(partition, bytes(256 * KIB - 40))]) == {}


def test_memory_past_its_mark_sends_the_largest_files_to_disk(worlds: list[World], tmp_path: Path) -> None:
    """The largest sealed file leaves memory first, so many as bring it to the low mark, and what stays is in memory."""
    world = small_world(tmp_path / "small")
    worlds.append(world)
    writer = Writer(SHUFFLE)
    world.store.look(SHARE, 1 << 40)
    sizes = {0: 3 * MIB, 1: 9 * MIB, 2: 2 * MIB, 3: 7 * MIB}
    for partition, size in sizes.items():
        world.store.tiering.look([open_space(), FULL])  # memory accepts, whatever chance would say
        push_some(world, writer, partition, size)
        world.seal([(partition, 0)], final=False)
    assert len(sealed_in(world, 0)) == 4
    assert step(world) == []
    assert partitions_in(world, 1) == {1}
    step(world)
    assert len(sealed_in(world, 0)) == 3
    assert len(names(world.read(1))) == 9 * 4
    counts = world.store.tiering.counts
    assert (counts.files, counts.failed) == (1, 0)
    assert counts.bytes == sum(sealed_in(world, 1).values())


def test_where_only_open_epochs_fill_memory_the_largest_are_split(worlds: list[World], tmp_path: Path) -> None:
    """Nothing is sealed that could move: the largest open epoch is split, once, and moves when it is sealed."""
    world = small_world(tmp_path / "small")
    worlds.append(world)
    writer = Writer(SHUFFLE)
    for partition, size in {0: 3 * MIB, 1: 12 * MIB, 2: 6 * MIB}.items():
        world.store.tiering.look([open_space(), FULL])
        push_some(world, writer, partition, size)
    ((directory, missing),) = step(world)
    assert directory == 0
    assert world.core.split_largest(directory, missing) == 1
    ((directory, missing),) = step(world)
    assert world.core.split_largest(directory, missing) == 0, "what is split already counts"
    assert world.push(writer, [writer.batch(1, bytes(100))]) == {0: Status.HARD_SPLIT}
    assert world.push(writer, [writer.batch(0, bytes(100))]) == {}
    world.seal([(1, 0)], final=False)
    assert step(world) == []
    assert partitions_in(world, 1) == {1}
    assert len(names(world.read(1))) == 12 * 4


def test_what_found_no_room_below_the_mark_makes_some(worlds: list[World], tmp_path: Path) -> None:
    """Memory that is below its mark, with less left than a frame takes: sealed files leave it, and the frame fits."""
    world = small_world(tmp_path / "small")
    worlds.append(world)
    writer = Writer(SHUFFLE)
    world.store.look(SHARE, 1 << 40)
    for partition in range(4):
        push_some(world, writer, partition, 4_928 * KIB)
        world.seal([(partition, 0)], final=False)
    assert step(world) == []
    assert sealed_in(world, 1) == {}, "it is below its mark"
    world.store.look(SHARE, 1 << 40)
    world.store.tiering.look([open_space(), FULL])  # memory accepts, whatever chance would say
    wide = [writer.batch(10 + number, bytes(20_000)) for number in range(80)]
    assert set(world.push(writer, wide).values()) == {Status.NO_ROOM}
    world.store.look(SHARE, 1 << 40)
    assert "used of 24.0 MiB" in world.store.limits_met(SHARE, 1 << 40, 1)[0], "masters place elsewhere meanwhile"
    step(world)
    assert sealed_in(world, 1) != {}
    world.store.look(SHARE, 1 << 40)
    assert world.store.limits_met(SHARE, 1 << 40, 1)[0] == ""
    again = [writer.batch(100 + number, bytes(20_000)) for number in range(80)]
    assert world.push(writer, again) == {}


def test_files_that_are_read_stay(worlds: list[World], tmp_path: Path) -> None:
    """While somebody holds a place in a file it is not moved; afterwards it is."""
    world = small_world(tmp_path / "small")
    worlds.append(world)
    writer = Writer(SHUFFLE)
    world.store.tiering.look([open_space(), FULL])
    push_some(world, writer, 0, 21 * MIB)
    world.seal([(0, 0)])
    place = world.store.reduce.chunks(SHUFFLE, 0, 0)
    assert world.store.tiering.step(1.0) == []
    ((directory, missing),) = step(world, 2.0)
    assert (directory, missing > 0, len(sealed_in(world, 1))) == (0, True, 0)
    assert place.record.batches
    del place
    step(world, 3.0)
    assert len(sealed_in(world, 1)) == 1


def test_files_that_were_there_at_the_start_move_too(worlds: list[World], tmp_path: Path) -> None:
    """The books are made from the indexes when a worker starts."""
    world = small_world(tmp_path / "small")
    worlds.append(world)
    writer = Writer(SHUFFLE)
    world.store.tiering.look([open_space(), FULL])
    push_some(world, writer, 0, 21 * MIB)
    world.seal([(0, 0)])
    world.restart()
    step(world)
    assert len(sealed_in(world, 1)) == 1


def test_a_directory_that_was_made_smaller_drains(worlds: list[World], tmp_path: Path) -> None:
    """Started again with less than what a disk holds: its files go down until it is at its low mark, though memory is
    many times larger than it."""
    world = World(tmp_path / "small", tiers=["MEMORY", "SSD", "HDD"], capacity_bytes=64 * MIB)
    worlds.append(world)
    world.core.choose = world.store.tiering.choose
    writer = Writer(SHUFFLE)
    for partition in range(10):
        world.store.tiering.look([FULL, open_space(), FULL])
        push_some(world, writer, partition, 3 * MIB)
        world.seal([(partition, 0)], final=False)
    assert len(sealed_in(world, 1)) == 10
    memory, disk, slow = world.settings.directories
    smaller = dataclasses.replace(disk, capacity_bytes=20 * MIB)
    world.settings = dataclasses.replace(world.settings, directories=(memory, smaller, slow))
    world.restart()
    assert step(world) == []
    assert 8 * MIB < sum(sealed_in(world, 1).values()) <= 18 * MIB * 0.7
    assert len(sealed_in(world, 1)) + len(sealed_in(world, 2)) == 10


def test_a_forgotten_shuffle_is_in_no_book(worlds: list[World], tmp_path: Path) -> None:
    """After its end nothing of a shuffle is planned with."""
    world = small_world(tmp_path / "small")
    worlds.append(world)
    world.store.tiering.look([open_space(), FULL])
    push_some(world, Writer(SHUFFLE), 0, 21 * MIB)
    world.seal([(0, 0)])
    world.store.forget([SHUFFLE]).result(30)
    assert step(world) == []
    assert world.store.tiering.counts.files == 0
    assert not len(world.store.tiering._orders)


def test_one_tier_keeps_no_books(worlds: list[World], tmp_path: Path) -> None:
    """Where files have nowhere to go, nothing is followed: tiers cost nothing there."""
    world = World(tmp_path / "one", directories=2)
    worlds.append(world)
    push_some(world, Writer(SHUFFLE), 0, 1 * MIB)
    world.seal([(0, 0)])
    assert not world.store.tiering.follows
    assert not len(world.store.tiering._orders)


def test_who_finds_no_room_has_some_made(worlds: list[World], tmp_path: Path) -> None:
    """No directory has room for a new epoch and none is past its mark: what makes room with the fewest bytes moves, and
    the next one that asks finds it; asked again before the next look nothing more is planned."""
    world = small_world(tmp_path / "small")
    worlds.append(world)
    writer = Writer(SHUFFLE)
    for partition, size in {0: 3 * MIB, 1: 2 * MIB}.items():
        world.store.tiering.look([open_space(), FULL])
        push_some(world, writer, partition, size)
        world.seal([(partition, 0)], final=False)
    almost: list[Space | None] = [open_space(10 * MIB), open_space(50 * MIB)]
    world.store.tiering._media[Ack.WRITTEN] = frozenset({"MEMORY"})  # the disk is no place for the epoch itself
    assert chosen(world, almost) is None
    assert world.store.tiering.choose(0, Ack.WRITTEN) is None
    while world.store.mover.busy:
        pass
    assert len(sealed_in(world, 1)) == 1
    world.store.tiering.step(1.0)
    assert chosen(world, [open_space(20 * MIB), open_space(50 * MIB)]) == 0
