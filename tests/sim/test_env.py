"""The simulated disks and indexes do what real ones do: the same random stories against both.

What a kill leaves is compared with a real process that is killed. What a power loss leaves cannot be had here: of that
the rules are tested, and tests/power does it to real file systems.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.lmdb_pages import LmdbDamagedError
from holdfast.common.system.locks import HeldError
from holdfast.worker.storage.env.interfaces import Files, Handle, IndexChange, Indexes, IndexFullError, OpenIndex
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.env.system_index import SystemIndexes
from tests.sim.clock import VirtualLoop
from tests.sim.env.disks import BLOCK_BYTES, PAGE_BYTES, SECTOR_BYTES, SHORT_BYTES, Disks, File
from tests.sim.env.files import SimFiles
from tests.sim.env.indexes import SimIndexes
from tests.sim.env.process import KilledError, Process
from tests.sim.env.threads import SimThreads

STEPS = 120
MAP_BYTES = 1 << 20


class World:
    """Simulated disks with one process, in which everything lies below /d."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disks = Disks(self.rng)
        self.device = self.disks.mount("/d")
        self.start()

    def start(self) -> None:
        self.process = Process(self.disks, self.rng)
        self.files = SimFiles(self.process)
        self.indexes = SimIndexes(self.process)


class Story:
    """Random steps of one process; each gives something that can be compared."""

    def __init__(self, files: Files, root: str, seed: int) -> None:
        self.files, self.root, self.rng = files, root, random.Random(seed)
        self.open: dict[str, Handle] = {}
        self.maps: dict[str, memoryview] = {}

    def path(self) -> str:
        rng = self.rng
        folder = rng.choice(("", "", "a/", "b/", "a/c/"))
        return f"{self.root}/{folder}{rng.choice(('x', 'y', 'z'))}"

    def folder(self) -> str:
        return f"{self.root}/{self.rng.choice(('a', 'b', 'a/c', 'x'))}"

    def step(self) -> object:
        kind = self.rng.choice([name for name in dir(self) if name.startswith("do_")])
        return kind, told(getattr(self, kind))

    def do_create(self) -> object:
        path = self.path()
        self.open["n"] = self.files.create(path)
        return self.files.size(self.open["n"])

    def do_open(self) -> object:
        name, path, write = self.rng.choice("pq"), self.path(), self.rng.random() < 0.7
        handle = self.files.open(path, write=write)
        if self.files.is_folder(path):
            return "a folder"
        self.open[name] = handle
        return self.files.size(self.open[name])

    def _held(self) -> Handle | None:
        name = self.rng.choice("npq")
        return self.open.get(name)

    def do_write(self) -> object:
        handle, size, offset = self._held(), self.rng.choice((0, 1, 70, 5000)), self.rng.choice((0, 3, 5000, 20_000))
        return None if handle is None else self.files.write(handle, self.rng.randbytes(size), offset)

    def do_write_parts(self) -> object:
        handle, parts = self._held(), [self.rng.randbytes(each) for each in (3, 0, 70)]
        return None if handle is None else self.files.write_parts(handle, parts, 73, self.rng.choice((0, 90, 4090)))

    def do_read(self) -> object:
        handle, size, offset = self._held(), self.rng.choice((1, 70, 30_000)), self.rng.choice((0, 3, 4000, 90_000))
        return None if handle is None else self.files.read(handle, size, offset)

    def do_read_back(self) -> object:
        handle = self._held()
        return None if handle is None else self.files.read_back(handle, 100, 0)

    def do_read_whole(self) -> object:
        return self.files.read_whole(self.path())

    def do_set_size(self) -> object:
        handle, size = self._held(), self.rng.choice((0, 5, 4096, 60_000))
        return None if handle is None else self.files.set_size(handle, size)

    def do_truncate(self) -> object:
        self.files.truncate(self.path(), self.rng.choice((0, 5, 60_000)))
        return None

    def do_holes(self) -> object:
        """Which blocks take room is the file system's own affair; that no byte lies in a hole is not."""
        handle = self._held()
        if handle is None:
            return None
        size = self.files.size(handle)
        data = self.files.read(handle, size, 0)
        last = len(data.rstrip(b"\0"))
        first = len(data) - len(data.lstrip(b"\0"))
        return last <= self.files.data_end(handle) <= size, self.files.next_data(handle, 0) <= first

    def do_map(self) -> object:
        handle = self._held()
        size = 0 if handle is None else self.files.size(handle)
        if handle is None or not size:
            return None
        view = self.files.map(handle, size)
        before = bytes(view)
        self.files.write(handle, b"seen", 0)
        return before, bytes(view[:4])

    def do_sync(self) -> object:
        handle = self._held()
        return None if handle is None else self.files.sync(handle)

    def do_sync_folder(self) -> object:
        return self.files.sync_folder(self.folder())

    def do_make_folder(self) -> object:
        return self.files.make_folder(self.folder())

    def do_make_folders(self) -> object:
        return self.files.make_folders(self.folder())

    def do_remove_folder(self) -> object:
        return self.files.remove_folder(self.folder())

    def do_rename(self) -> object:
        return self.files.rename(self.path(), self.path())

    def do_rename_folder(self) -> object:
        return self.files.rename(f"{self.root}/b", f"{self.root}/{self.rng.choice(('x', 'e', 'b'))}")

    def do_remove(self) -> object:
        return self.files.remove(self.path())

    def do_stat(self) -> object:
        found = self.files.stat(self.path())
        return found.kind, found.size if found.kind.value == "file" else 0

    def do_exists(self) -> object:
        path = self.path()
        return self.files.exists(path), self.files.is_folder(path)

    def do_names(self) -> object:
        return sorted(self.files.names(self.folder()))

    def do_entries(self) -> object:
        return sorted(self.files.entries(self.folder()))

    def do_sizes(self) -> object:
        return sorted(str(each) for some in self.files.sizes(self.folder(), ("y", "z")) for each in some)

    def do_replace(self) -> object:
        self.files.replace(Path(self.path()), b"whole")
        return None

    def do_overwrite(self) -> object:
        self.files.overwrite(Path(self.path()), b"in place")
        return None

    def do_lock(self) -> object:
        handle = self.files.lock(f"{self.root}/lock")
        taken = 0
        try:
            self.files.lock(f"{self.root}/lock")
            taken += 1
        except HeldError:
            pass
        del handle
        return taken, self.files.lock(f"{self.root}/lock") is not None, self.files.exists(f"{self.root}/lock")


def told(act: Callable[[], object]) -> object:
    """What an act gives, or what it raises, with the paths left out."""
    try:
        return act()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def tree(files: Files, root: str) -> Iterator[tuple[str, bytes | None]]:
    """Everything below a folder: path and bytes; of folders None."""
    for entry in sorted(files.entries(root)):
        path = f"{root}/{entry.name}"
        if entry.kind.value == "folder":
            yield path, None
            yield from tree(files, path)
        else:
            yield path, files.read_whole(path)


def relative(found: Iterator[tuple[str, bytes | None]], root: str) -> list[tuple[str, bytes | None]]:
    return [(path.removeprefix(root), data) for path, data in found]


@pytest.mark.parametrize("seed", range(15))
def test_simulated_files_do_what_real_ones_do(seed: int, tmp_path: Path) -> None:
    """A story of all calls gives the same results, the same errors and the same files."""
    world = World(seed)
    one, other = Story(world.files, "/d", seed), Story(SystemFiles(), str(tmp_path), seed)
    for number in range(STEPS):
        assert one.step() == other.step(), f"step {number}"
    assert relative(tree(world.files, "/d"), "/d") == relative(tree(SystemFiles(), str(tmp_path)), str(tmp_path))


def play_until_killed(root: str, seed: int, steps: int) -> None:
    """In a process of its own: some steps, and then the end."""
    story = Story(SystemFiles(), root, seed)
    for _ in range(steps):
        story.step()
    os.kill(os.getpid(), signal.SIGKILL)


def run_killed(name: str, *values: Any) -> None:
    """Run a function of this module in a process that kills itself."""
    program = f"import tests.sim.test_env as it, json, sys; it.{name}(*json.loads(sys.argv[1]))"
    ended = subprocess.run([sys.executable, "-c", program, json.dumps(values)], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_leaves_what_it_leaves_of_real_files(seed: int, tmp_path: Path) -> None:
    """What was written and not synced is there after kill -9, in the simulation and on this machine."""
    world, steps = World(seed), 60 + seed
    story = Story(world.files, "/d", seed)
    for _ in range(steps):
        story.step()
    world.process.kill()
    world.start()
    run_killed("play_until_killed", str(tmp_path), seed, steps)
    assert relative(tree(world.files, "/d"), "/d") == relative(tree(SystemFiles(), str(tmp_path)), str(tmp_path))


# power, and failed syncs


def cut(world: World) -> None:
    world.process.kill()
    world.disks.power_loss()
    world.start()


def outcomes(story: Callable[[World], object]) -> set[object]:
    """What is seen after a story over many seeds."""
    return {story(World(seed)) for seed in range(200)}


def test_power_leaves_what_was_synced_and_any_part_of_the_rest() -> None:
    """Synced bytes and names are there; of those that were not, every mixture is, but for parts of what lies in one
    sector and is short."""
    at = SECTOR_BYTES - 1  # so that two bytes are in two sectors

    def story(world: World) -> object:
        handle = world.files.create("/d/x")
        world.files.write(handle, b"AAAA", at)
        world.files.sync(handle)
        world.files.sync_folder("/d")
        world.files.write(handle, b"BB", at)
        world.files.write(handle, b"CCCC", at + 4)
        cut(world)
        return world.files.read_whole("/d/x")[at:]

    found = outcomes(story)
    assert found == {bb + cccc for bb in (b"AAAA", b"BBAA", b"BAAA", b"ABAA") for cccc in (b"", b"CCCC")}


def test_power_cuts_what_is_long_at_any_byte() -> None:
    """Of a write that is not short any part may be there."""
    size = SHORT_BYTES + 1

    def story(world: World) -> object:
        handle = world.files.create("/d/x")
        world.files.sync_folder("/d")
        world.files.write(handle, b"C" * size, 0)
        cut(world)
        return len(world.files.read_whole("/d/x"))

    assert len(outcomes(story)) > 30


def test_power_undoes_a_rename_whose_folder_was_not_synced() -> None:
    """The file has one of its two names, in one piece; synced it has the later one."""

    def story(world: World, *, synced: bool = False) -> object:
        world.files.make_folder("/d/a")
        world.files.replace(Path("/d/x"), b"data")
        world.files.sync_folder("/d")
        world.files.rename("/d/x", "/d/a/y")
        if synced:
            world.files.sync_folder("/d/a")
        cut(world)
        return tuple(relative(tree(world.files, "/d"), "/d"))

    before, after = (("/a", None), ("/x", b"data")), (("/a", None), ("/a/y", b"data"))
    assert outcomes(story) == {before, after}
    assert outcomes(lambda world: story(world, synced=True)) == {after}


def test_power_takes_files_whose_folder_has_no_name() -> None:
    """A folder that was not synced into its parent goes with what is in it."""

    def story(world: World) -> object:
        world.files.make_folder("/d/a")
        world.files.replace(Path("/d/a/x"), b"data")
        cut(world)
        return world.files.exists("/d/a/x")

    assert outcomes(story) == {True, False}


def test_what_a_failed_sync_should_have_brought_down_never_comes() -> None:
    """It is told once; a sync after it succeeds with nothing done, and power shows that the pages are gone."""

    def story(world: World) -> object:
        handle = world.files.create("/d/x")
        world.files.write(handle, b"AA", 0)
        world.files.sync(handle)
        world.files.sync_folder("/d")
        world.files.write(handle, b"BB", 0)
        world.device.sync_errors = 1.0
        with pytest.raises(OSError, match="error"):
            world.files.sync(handle)
        world.device.heal()
        seen = world.files.read(handle, 2, 0)
        world.files.sync(handle)
        cut(world)
        return seen, world.files.read_whole("/d/x")

    assert outcomes(story) == {(b"BB", b"AA"), (b"AA", b"AA")}


def test_a_full_disk_takes_any_part() -> None:
    """A write for which there is no room may be there in part, and room comes back with what is removed."""

    def story(world: World) -> object:
        handle = world.files.create("/d/x")
        world.files.write(handle, bytes(BLOCK_BYTES), 0)
        world.device.capacity = world.device.used + BLOCK_BYTES
        with pytest.raises(OSError, match="space"):
            world.files.write(handle, b"x" * 2 * BLOCK_BYTES, BLOCK_BYTES)
        size = world.files.size(handle)
        world.files.remove("/d/x")
        world.files.create("/d/y")
        return size

    sizes = outcomes(story)
    assert BLOCK_BYTES in sizes
    assert len(sizes) > 20


@pytest.mark.parametrize("at", [0, PAGE_BYTES - 5])
def test_the_process_dies_before_in_the_middle_of_and_behind_a_step(at: int) -> None:
    """A write may be there up to any page, and within a page all or nothing: the kernel looks for a kill in between."""
    data = b"0123456789" * 20

    def story(world: World) -> object:
        handle = world.files.create("/d/x")
        world.process.armed = 0
        with pytest.raises(KilledError):
            world.files.write(handle, data, at)
        with pytest.raises(KilledError):
            world.files.names("/d")
        world.start()
        return world.files.read_whole("/d/x")[at:]

    pages = range((at + PAGE_BYTES) // PAGE_BYTES * PAGE_BYTES, at + len(data), PAGE_BYTES)
    assert outcomes(story) == {data[:size] for size in (0, *(page - at for page in pages), len(data))}


@pytest.mark.parametrize("at", [PAGE_BYTES - 5, SECTOR_BYTES - 5])
def test_a_kill_cuts_what_is_short_between_two_sectors_only(at: int) -> None:
    """A sector lies in one page: what a power loss leaves whole a kill does, too."""

    def story(world: World) -> object:
        handle = world.files.create("/d/x")
        world.process.armed = 0
        with pytest.raises(KilledError):
            world.files.write(handle, b"0123456789", at)
        world.start()
        return world.files.read_whole("/d/x")[at:]

    assert outcomes(story) == {b"0123456789"[:size] for size in ((0, 5, 10) if at > PAGE_BYTES else (0, 10))}


def test_a_folder_comes_back_as_it_was_and_as_another() -> None:
    """A copy has the same bytes and other files; who still has one of the first open does not see it change."""
    world = World(0)
    world.files.make_folder("/d/a")
    world.files.replace(Path("/d/a/x"), b"old")
    copy = world.disks.copy(world.disks.folder("/d/a"))
    number = world.files.stat("/d/a/x").inode
    handle = world.files.open("/d/a/x", write=True)
    world.files.write(handle, b"new", 0)
    gone = world.disks.take_away("/d/a")
    assert not world.files.exists("/d/a")
    assert world.files.read(handle, 3, 0) == b"new"
    world.disks.put("/d/a", copy)
    assert world.files.read_whole("/d/a/x") == b"old"
    assert world.files.stat("/d/a/x").inode != number
    assert isinstance(gone.entries["x"], File)


# indexes


class Pages:
    """Random transactions and lookups."""

    def __init__(self, indexes: Indexes, path: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.index: OpenIndex = indexes.open(path, MAP_BYTES)
        self.bytes = MAP_BYTES

    def key(self) -> bytes:
        return self.rng.choice((b"F", b"E", b"C")) + self.rng.choice((b"", b"a", b"aa", b"ab", b"b", b"\xff", b"\0"))

    def step(self) -> object:
        rng = self.rng
        if rng.random() < 0.5:
            puts = [(self.key(), rng.randbytes(rng.choice((0, 4, 900)))) for _ in range(rng.randrange(6))]
            change = IndexChange(puts, [self.key() for _ in range(rng.randrange(2))], [self.key()][: rng.randrange(2)])
            self.index.commit(change)
            return None
        start = self.key()
        with self.index.reading() as found:
            return found.get(start), found.first(start), list(found.below(start))

    def all(self) -> list[tuple[bytes, bytes]]:
        with self.index.reading() as found:
            return list(found.below(b""))


@pytest.mark.parametrize("seed", range(5))
def test_simulated_indexes_do_what_lmdb_does(seed: int, tmp_path: Path) -> None:
    """A story of transactions and lookups gives the same, and so does opening it again."""
    world = World(seed)
    world.files.make_folder("/d/i")
    one, other = Pages(world.indexes, "/d/i", seed), Pages(SystemIndexes(), str(tmp_path), seed)
    for number in range(60):
        assert one.step() == other.step(), f"step {number}"
    for pages in (one, other):
        pages.index.close()
    again = [Pages(world.indexes, "/d/i", 0), Pages(SystemIndexes(), str(tmp_path), 0)]
    everything = again[0].all()
    assert everything == again[1].all()
    for pages in again:
        pages.index.close()
    assert sorted(world.files.names("/d/i")) == sorted(os.listdir(tmp_path))
    for indexes, path in ((world.indexes, "/d/i"), (SystemIndexes(), str(tmp_path))):
        assert indexes.size(path) > 0
        with indexes.open_read_only(path).reading() as found:
            assert list(found.below(b"")) == everything


def commit_until_killed(path: str, seed: int, steps: int) -> None:
    """In a process of its own: some transactions, one that is not committed, and then the end."""
    pages = Pages(SystemIndexes(), path, seed)
    for _ in range(steps):
        pages.step()
    environment: Any = pages.index
    transaction = environment._environment.begin(write=True)
    transaction.put(b"Fnever", b"")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("seed", range(1))
def test_a_kill_leaves_the_last_transaction_of_lmdb_whole(seed: int, tmp_path: Path) -> None:
    """After kill -9 in the middle of a transaction the one before is there, and nothing of that one."""
    world = World(seed)
    world.files.make_folder("/d/i")
    pages = Pages(world.indexes, "/d/i", seed)
    for _ in range(40):
        pages.step()
    run_killed("commit_until_killed", str(tmp_path), seed, 40)
    assert Pages(SystemIndexes(), str(tmp_path), 0).all() == pages.all()


def test_an_index_is_old_or_new_behind_a_crash_never_half() -> None:
    """Who dies or loses power in a commit finds either state; where the meta page failed both are open."""

    def story(world: World, *, how: str) -> object:
        world.files.make_folder("/d/i")
        index = world.indexes.open("/d/i", MAP_BYTES)
        index.commit(IndexChange([(b"a", b"1"), (b"b", b"1")]))
        world.files.sync_folder("/d")
        world.files.sync_folder("/d/i")
        change = IndexChange([(b"a", b"2"), (b"b", b"2")])
        if how == "dies":
            world.process.armed = 0
            with pytest.raises(KilledError):
                index.commit(change)
            world.start()
        elif how == "fails":
            world.device.sync_errors = 1.0
            with pytest.raises(OSError, match="error"):
                index.commit(change)
            world.device.heal()
            world.start()
        else:
            index.commit(change)
            cut(world)
        with world.indexes.open("/d/i", MAP_BYTES).reading() as found:
            return tuple(value for _, value in found.below(b""))

    old, new = (b"1", b"1"), (b"2", b"2")
    assert outcomes(lambda world: story(world, how="dies")) == {old, new}
    assert outcomes(lambda world: story(world, how="fails")) == {old, new}
    assert outcomes(lambda world: story(world, how="power")) == {new}


def test_an_index_is_full_damaged_and_older() -> None:
    """The map ends, pages go bad, an old state comes back."""
    world = World(1)
    world.files.make_folder("/d/i")
    index = world.indexes.open("/d/i", 40_000)
    with pytest.raises(IndexFullError):
        index.commit(IndexChange([(b"big", bytes(20_000))]))
    index.enlarge(MAP_BYTES)
    index.commit(IndexChange([(b"big", bytes(20_000))]))
    index.commit(IndexChange([(b"small", b"1")]))
    file = world.disks.find("/d/i/data.mdb")
    assert isinstance(file, File)
    assert file.index.go_back(world.rng)
    with index.reading() as found:
        assert found.get(b"small") is None
    index.commit(IndexChange([(b"small", b"1")]))
    assert file.flip(world.rng)
    with pytest.raises(LmdbDamagedError), index.reading() as found:
        list(found.below(b""))


# threads


def test_threads_end_in_any_order_and_equal_seeds_give_equal_orders() -> None:
    """What runs beside is interleaved at its steps; a kill ends it in the middle, and nothing of it goes on."""

    def play(seed: int, kill_at: float | None = None) -> tuple[str, ...]:
        world, loop = World(seed), VirtualLoop()
        threads = SimThreads(world.process, loop, world.rng, 0.1)
        told: list[str] = []
        lock = threads.lock()

        def work(name: str) -> str:
            for number in range(3):
                world.files.exists("/d")
                told.append(f"{name}{number}")
            with lock:
                world.files.exists("/d")
                told.append(f"{name}[")
                world.files.exists("/d")
                told.append(f"{name}]")
            return name

        pool = threads.pool(2, "pool")
        futures = [pool.submit(work, name) for name in "abc"]
        if kill_at is not None:
            loop.call_later(kill_at, world.process.kill)
        loop.call_later(5.0, loop.stop)
        loop.run_forever()
        loop.close()
        assert kill_at is not None or [one.result(0) for one in futures] == ["a", "b", "c"]
        assert not threads.works
        return tuple(told)

    orders = {play(seed) for seed in range(40)}
    assert len(orders) > 30
    assert all("".join(order).count("][") <= 3 for order in orders)
    for order in orders:
        inside = [one for one in order if one[1] in "[]"]
        assert all(one[0] == other[0] for one, other in zip(inside[::2], inside[1::2], strict=True))
    assert play(7) == play(7)
    assert len(play(7, kill_at=0.1)) < len(play(7))
