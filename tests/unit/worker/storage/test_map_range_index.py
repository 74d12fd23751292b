"""Views by maps: the same batches as the file itself, in the same chunks, whatever order they came in."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.common.errors import CorruptError
from holdfast.common.formats.batch import HEADER_BYTES, parse_batches
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.ids import PartitionId
from holdfast.common.limits import MIB
from holdfast.worker.storage.engine.owner import Owner
from holdfast.worker.storage.index.records import ChunkRow
from holdfast.worker.storage.read import loans
from holdfast.worker.storage.read import map_range_index as map_view
from holdfast.worker.storage.read.loans import Loan, Loans
from holdfast.worker.storage.read.map_range_index import (
    MapRangeIndex,
    MapRangeIndexes,
    build,
    find_runs,
    join,
    scan,
    select,
    sort_runs,
)
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.storage_env import Disk, env_of
from tests.support.waiting import wait_until
from tests.unit.worker.storage.reduce_world import World

SHUFFLE = shuffle_of()
MAPS = 12


class Epoch(NamedTuple):
    """A file of chunks, as a partition file has them."""

    path: Path
    rows: list[ChunkRow]

    def chunk(self, number: int) -> bytes:
        """The bytes of a chunk."""
        row = self.rows[number]
        return self.path.read_bytes()[row.offset : row.offset + row.length]


def make(folder: Path, size: int, seed: int = 1) -> Epoch:
    """An epoch of 3 chunks with batches of up to `size` bytes, maps in random order."""
    draw = random.Random(seed)
    writers = [Writer(SHUFFLE, map=number, attempt=100 + number) for number in range(MAPS)]
    path, data, rows = folder / "epoch", bytearray(b"head of the file"), []
    for _ in range(3):
        chosen = [draw.choice(writers) for _ in range(60)]
        chunk = b"".join([one.batch(0, draw.randbytes(draw.randint(0, size))).data for one in chosen])
        numbers = [one.map for one in chosen]
        rows.append(ChunkRow(len(data), len(chunk), len(chosen), min(numbers), max(numbers)))
        data += chunk
    path.write_bytes(data)
    return Epoch(path, rows)


class Purse:
    """A directory without a limit."""

    def __init__(self, _: str) -> None:
        pass

    def lend(self, size: int) -> Loan | None:
        """Whatever is asked for."""
        return Loans().take(size)

    @property
    def is_low(self) -> bool:
        """Never."""
        return False


def names(data: bytes) -> list[tuple[int, int]]:
    """(map, number) of batches, every one of them checked."""
    return [(one.map, one.number) for one in parse_batches(memoryview(data), partition_seed(SHUFFLE, PartitionId(0)))]


def read(view: MapRangeIndex, epoch: Epoch, chunk: int, begin: int, end: int) -> list[tuple[int, int]]:
    """What a view gives of one chunk."""
    fd = view.copy.fd if view.copy is not None else os.open(epoch.path, os.O_RDONLY)
    offset = epoch.rows[chunk].offset
    return names(b"".join([os.pread(fd, length, offset + at) for at, length in view.ranges(chunk, begin, end)]))


@pytest.mark.parametrize(("size", "sorted_copy"), [(3_000, True), (400_000, False)])
def test_a_view_gives_the_batches_of_the_range_and_no_others(tmp_path: Path, size: int, sorted_copy: bool) -> None:
    """Every range of maps of every chunk: the batches that the file has, those of one map in their order."""
    epoch = make(tmp_path, size)
    view = build(Disk(), epoch.path, epoch.rows, Loans().take(0), lambda: True)
    assert view is not None
    assert (view.copy is not None) == sorted_copy
    for chunk in range(3):
        whole = names(epoch.chunk(chunk))
        for begin, end in [(0, MAPS), (0, 1), (3, 7), (MAPS - 1, 99), (MAPS, 99), (5, 5)]:
            found = read(view, epoch, chunk, begin, end)
            wanted = [one for one in whole if begin <= one[0] < end]
            assert found == (sorted(wanted) if sorted_copy else wanted)
            if sorted_copy:
                assert len(view.ranges(chunk, begin, end)) <= 1, "one piece to read"
    assert os.listdir(tmp_path) == ["epoch"], "a copy has no name"


def test_runs_are_of_neighbours() -> None:
    """Batches of one map that lie back to back are one run; a selection joins runs that touch."""
    writers = [Writer(SHUFFLE, map=number) for number in range(3)]
    made = [writers[number].batch(0, b"x" * 10).data for number in (0, 0, 1, 2, 2, 0)]
    data = b"".join(made)
    runs, one = find_runs(data, "it"), len(made[0])
    assert list(runs.maps) == [0, 1, 2, 0]
    assert list(runs.starts) == [0, 2 * one, 3 * one, 5 * one, 6 * one]
    assert select(runs, 1, 3) == [(2 * one, 3 * one)]
    assert select(runs, 0, 1) == [(0, 2 * one), (5 * one, one)]
    parts, ordered = sort_runs(data, runs)
    assert names(b"".join(parts)) == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    assert (list(ordered.maps), list(ordered.starts)) == ([0, 1, 2], [0, 3 * one, 4 * one, 6 * one])


def test_a_chunk_looked_through_in_steps_gives_the_same(tmp_path: Path) -> None:
    """Whatever the steps are cut at, the joined ranges are those of one look."""
    epoch = make(tmp_path, 300)
    data = epoch.chunk(1)
    for step in (HEADER_BYTES, 100, 1_000, len(data)):
        found: list[tuple[int, int]] = []
        at = 0
        while at < len(data):
            runs = scan(data[at : at + step], at, len(data), "it")
            join(found, select(runs, 3, 9))
            at = runs.starts[-1]
        assert found == select(find_runs(data, "it"), 3, 9)


@pytest.mark.parametrize("cut", [5, 40])
def test_a_chunk_that_is_not_of_whole_batches_is_named(cut: int) -> None:
    """A cut header or payload is an error that says which chunk, never fewer batches."""
    data = Writer(SHUFFLE).batch(0, b"x" * 100).data
    with pytest.raises(CorruptError, match="partition 7 chunk 3"):
        find_runs(data + data[:cut], "partition 7 chunk 3")


def test_the_second_reader_has_it_made_and_the_next_have_it(tmp_path: Path) -> None:
    """One slice alone pays its pass; a view is made when a second one comes, and goes with its shuffle."""
    epoch = make(tmp_path, 3_000)
    views = MapRangeIndexes(env_of(), Purse, Owner(env_of()))

    def find() -> MapRangeIndex | None:
        return views.find(str(epoch.path), epoch.rows)

    assert find() is None
    assert not views._building, "one reader alone is not worth it"
    assert find() is None
    wait_until(lambda: len(views) == 1, "the view")
    view = find()
    assert view is not None
    assert views.built == 1
    views.forget(str(tmp_path))
    assert find() is None
    assert read(view, epoch, 0, 0, MAPS), "a stream that runs goes on"
    views.close()


@pytest.mark.parametrize(
    "harm", [lambda path: path.write_bytes(path.read_bytes()[:-9]), lambda path: path.unlink(), lambda path: None]
)
def test_where_no_view_can_be_made_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    """A file that is cut or gone, or a disk without room for a copy: no view, no other try, and no trace."""
    epoch = make(tmp_path, 3_000)
    monkeypatch.setattr(loans, "FREE_BYTES_MIN", 1 << 60)
    monkeypatch.setattr(loans, "FREE_SHARE_MIN", 1.1)
    harm(epoch.path)
    views = MapRangeIndexes(env_of(), Purse, Owner(env_of()))
    for _ in range(3):
        assert views.find(str(epoch.path), epoch.rows) is None
        wait_until(lambda: not views._building, "the try")
    assert views._hopeless
    views.close()


def test_a_copy_counts_in_its_directory_while_anybody_holds_it(tmp_path: Path) -> None:
    """A sorted copy takes of the capacity of its directory, until the last stream that reads it has let go."""
    world = World(tmp_path, capacity_bytes=8 * MIB)
    (directory,) = world.store._directories
    epoch = make(directory.root, 3_000)
    before = directory.used_bytes
    for _ in range(2):
        world.store.views.find(str(epoch.path), epoch.rows)
    wait_until(lambda: len(world.store.views) == 1, "the view")
    view = world.store.views.find(str(epoch.path), epoch.rows)
    assert view is not None
    assert view.copy is not None
    assert directory.used_bytes - before == os.fstat(view.copy.fd).st_size - epoch.rows[0].offset
    world.store.views.forget(str(directory.root))
    assert directory.used_bytes > before, "a stream that runs has it"
    del view
    assert directory.used_bytes == before
    world.store.close()


def test_without_room_in_its_directory_no_copy_is_made(tmp_path: Path) -> None:
    """A copy that would leave less than a fifth of the capacity is not made, and one that leaves less by now goes."""
    world = World(tmp_path, capacity_bytes=8 * MIB)
    (directory,) = world.store._directories
    views = world.store.views
    (directory.root / "other").mkdir()
    epoch, other = make(directory.root, 3_000), make(directory.root / "other", 3_000)
    directory.coming_bytes = 7 * MIB
    for _ in range(3):
        views.find(str(epoch.path), epoch.rows)
        wait_until(lambda: not views._building, "the try")
    assert len(views) == 0
    directory.coming_bytes = 0
    for _ in range(2):
        views.find(str(other.path), other.rows)
    wait_until(lambda: len(views) == 1, "the view")
    views.tick()
    assert len(views) == 1
    directory.coming_bytes = 7 * MIB
    views.tick()
    assert len(views) == 0
    world.store.close()


def test_views_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound of copies the view used longest ago goes; one that nobody uses goes by itself."""
    monkeypatch.setattr(map_view, "COPIES_MAX", 2)
    views = MapRangeIndexes(env_of(), Purse, Owner(env_of()))
    epochs = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        epochs.append(make(tmp_path / str(number), 2_000, number))
        for _ in range(2):
            views.find(str(epochs[-1].path), epochs[-1].rows)
        wait_until(lambda number=number: views.built == number + 1, "the view")  # type: ignore[misc]
    assert len(views) == 2
    assert views.find(str(epochs[0].path), epochs[0].rows) is None
    monkeypatch.setattr(map_view, "IDLE_SECONDS", -1.0)
    views.tick()
    assert len(views) == 0
    shutil.rmtree(tmp_path / "0")
    views.close()
