"""The checks of disks over real directories: what is isolated, what returns, what stays given up, what a hang stops."""

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.common.errors import RerouteError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.limits import KIB, MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.statuses import Status
from holdfast.worker.core.health import DirectoryHealth, HealthLimits
from holdfast.worker.storage import names
from holdfast.worker.storage.disks.monitor import Monitor, see
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.env.interfaces import FileSystem, Handle, Name
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import Store, open_store, prepare
from tests.support.logged import logged
from tests.support.map_data import file_key, shuffle_key
from tests.support.reduce_data import Writer
from tests.support.storage_data import free_of
from tests.support.storage_env import Disk, env_of
from tests.support.waiting import wait_until
from tests.unit.worker.storage.reduce_world import SHUFFLE, FaultyDisk, World

LIMITS = HealthLimits(probes_to_return=2, errors_max=100)
BOTH = [(partition, 0) for partition in range(2)]


class SickDisk(FaultyDisk):
    """A disk that also lies, and that hangs below one directory until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.lies = False
        self.create_error = 0
        self.hangs_below = ""
        #: roots of which somebody asked how much is free
        self.asked: list[Path] = []
        self.go_on = threading.Event()

    def create(self, path: Name) -> Handle:
        if self.create_error:
            raise OSError(self.create_error, os.strerror(self.create_error))
        return super().create(path)

    def sync(self, handle: Handle) -> None:
        self._hang(os.readlink(f"/proc/self/fd/{handle.fd}"))
        super().sync(handle)

    def read_back(self, handle: Handle, size: int, offset: int) -> bytes:
        data = super().read_back(handle, size, offset)
        return bytes(size) if self.lies else data

    def file_system(self, path: Name) -> FileSystem:
        self.asked.append(Path(path))
        return super().file_system(path)

    def _hang(self, path: str) -> None:
        if self.hangs_below and path.startswith(self.hangs_below):
            assert self.go_on.wait(60), "nobody let the disk go on"


class Checked(World):
    """A store with a monitor whose probes the test calls."""

    disk: SickDisk

    def __init__(self, root: Path, directories: int = 1, limits: HealthLimits = LIMITS) -> None:
        super().__init__(root, directories)
        self.disk = SickDisk()
        self.settings = replace(self.settings, health=limits)
        self.restart()

    def start(self) -> None:
        super().start()
        self.monitor: Monitor = self.store.monitor(3_600)

    @property
    def directories(self) -> list[StorageDirectory]:
        """The real ones."""
        return self.store._directories

    def probe(self, times: int = 1) -> None:
        """Probe and look, and let the core know what room there is."""
        for _ in range(times):
            self.probe_all()
            self.look()

    def probe_all(self) -> None:
        """What the threads do every interval."""
        for device in self.monitor._devices:
            for one in device.directories:
                used, thorough = one.condition.used_bytes, bool(one.problem)
                device.ended(*see(self.store._env, one, used, probes=True, thorough=thorough))

    def look(self) -> None:
        """What the loop does once a second."""
        self.core.set_has_room([room > 0 for room in free_of(self.store, 0.1, 0)])
        self.monitor.look()
        self.core.set_has_room([room > 0 for room in free_of(self.store, 0.1, 0)])

    def states(self) -> list[str]:
        """As people see them."""
        return [found.state for found in self.store.directories()]


@pytest.fixture
def world(tmp_path: Path) -> Checked:
    """One directory."""
    return Checked(tmp_path)


def test_row_33_a_disk_that_failed_returns_and_takes_new_epochs(world: Checked) -> None:
    """A failed write isolates at once: no room, no MAP file. After good probes a new epoch goes there, into a new
    segment; the copy that failed stays failed, also after a restart."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a")]) == {}
    world.disk.write_error = errno.EIO
    assert world.push(writer, [writer.batch(0, b"b")]) == {0: Status.FAILED_COPY}
    assert world.states() == ["suspect"]
    assert free_of(world.store, 0.1, 0) == [0]
    with pytest.raises(RerouteError) as refused:
        world.store.begin(file_key(shuffle_key()), 4, Ack.WRITTEN)
    assert refused.value.status is Status.DISK_FAILED
    world.probe(3)
    assert world.states() == ["suspect"], "the disk still fails"
    world.disk.write_error = 0
    world.probe()
    assert world.states() == ["suspect"], "one good probe is not enough"
    segments = len(world.files("*.push"))
    world.probe()
    assert (world.states(), world.directories[0].problem) == (["well"], "")
    assert world.push(writer, [writer.batch(1, b"c")]) == {}
    assert len(world.files("*.push")) == segments + 1
    world.store.begin(file_key(shuffle_key()), 4, Ack.WRITTEN)
    for _ in range(2):
        assert [answer.status for answer in world.seal(BOTH)] == [Status.FAILED_COPY, Status.OK]
        world.restart()
    assert len(world.read(1)) == 1


def test_a_failed_sync_is_never_tried_again_after_a_return(world: Checked) -> None:
    """The segment whose sync failed is not written to any more, and what needed it is failed; others are sealed."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a")], Ack.SYNCED) == {}
    world.disk.sync_error = errno.EIO
    with pytest.raises(RerouteError):
        world.push(writer, [writer.batch(0, b"b")], Ack.SYNCED)
    world.disk.sync_error = 0

    def is_back() -> bool:
        world.probe()
        return world.states() == ["well"]

    wait_until(is_back, "the directory is back: a thread marks what was given up first", 60)
    log = world.directories[0].unsealed.log
    (failed,) = [segment for segment in log.segments.values() if segment.failed]
    end = failed.end
    assert world.push(writer, [writer.batch(1, b"c")], Ack.SYNCED) == {}
    assert (failed.end, log.newest) == (end, failed.number + 1)
    assert [answer.status for answer in world.seal(BOTH)] == [Status.FAILED_COPY, Status.OK]


def test_what_could_not_be_marked_as_failed_is_marked_before_the_return(world: Checked) -> None:
    """Given up on a disk that takes no mark: as soon as a probe finds it well the mark is written, and a restart knows
    of the failure."""
    writer = Writer(SHUFFLE)
    assert world.push(writer, [writer.batch(0, b"a")]) == {}
    world.disk.write_error = world.disk.create_error = errno.EROFS
    assert world.push(writer, [writer.batch(0, b"b")]) == {0: Status.FAILED_COPY}
    world.directories[0].lane.submit(int).result(30)  # behind the try to mark it
    assert world.files("*.failed") == []
    world.disk.write_error = world.disk.create_error = 0
    world.probe()
    world.directories[0].lane.submit(int).result(30)
    assert len(world.files("*.failed")) == 1
    world.restart()
    assert [answer.status for answer in world.seal([(0, 0)])] == [Status.FAILED_COPY]


def test_an_index_that_takes_no_record_keeps_a_directory_out(world: Checked) -> None:
    """Files can be written again, the index cannot: no return before both can."""
    world.directories[0].condition.broke(OSError(errno.EIO, "asked for by the test"))
    world.disk.commit_error = errno.EIO
    world.probe(3)
    assert world.states() == ["suspect"]
    world.disk.commit_error = 0
    world.probe(2)
    assert world.states() == ["well"]


def test_a_directory_moved_away_and_back_returns(world: Checked) -> None:
    """Moved away it is gone; moved back it is the same and returns, with what was sealed."""
    writer = Writer(SHUFFLE)
    world.push(writer, [writer.batch(0, b"a")])
    assert [answer.status for answer in world.seal([(0, 0)], final=False)] == [Status.OK]
    shutil.move(world.root / "0", world.root / "away")
    world.probe()
    assert world.states() == ["suspect"]
    assert "deleted, emptied or unmounted" in world.directories[0].problem
    assert not (world.root / "0").exists(), "a probe makes nothing where the directory was"
    shutil.move(world.root / "away", world.root / "0")
    world.probe(2)
    assert world.states() == ["well"]
    assert world.push(writer, [writer.batch(1, b"b")]) == {}
    assert [answer.status for answer in world.seal(BOTH)] == [Status.OK, Status.OK]


@pytest.mark.parametrize("how", ["copied", "another identity"])
def test_another_directory_in_its_place_is_not_taken(world: Checked, how: str) -> None:
    """A copy of it, whose index is not the one that is open, or one of somebody else, stays out for good."""
    root, away = world.root / "0", world.root / "away"
    shutil.move(root, away)
    world.look()
    shutil.copytree(away, root)
    if how == "another identity":
        shutil.rmtree(root)
        shutil.move(away, root)
        (root / names.IDENTITY).write_bytes(b"somebody else's")
    world.probe(5)
    assert world.states() == ["suspect"]


def test_row_33_a_disk_that_is_full_is_well(world: Checked) -> None:
    """No room for the probe: nothing is isolated, nothing is counted."""
    world.disk.write_error = errno.ENOSPC
    world.probe(5)
    (found,) = world.store.directories()
    assert (found.state, found.errors, found.healthy) == ("well", 0, True)


def test_a_disk_that_lies_is_critical(world: Checked) -> None:
    """Other bytes come back than were synced: critical, with the reason."""
    world.disk.lies = True
    world.probe()
    assert world.states() == ["critical"]
    assert "other bytes" in world.directories[0].problem


def test_row_33_errors_are_promoted_and_people_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each state is logged when it begins, however often it is looked at; many errors make it critical."""
    world = Checked(tmp_path, limits=HealthLimits(probes_to_return=2, errors_max=3))
    condition = world.directories[0].condition
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            condition.broke(OSError(errno.EIO, "asked for by the test"))
            world.look()
            world.look()
        world.probe(3)
    told = logged(caplog, LogEvent.DIRECTORY_FAILING, LogEvent.DIRECTORY_RECOVERED)
    assert [each["state"] for each in told] == ["suspect", "critical"]
    assert world.store.directories()[0].errors == 5


def test_an_error_during_the_return_isolates_again(world: Checked) -> None:
    """What fails between the last good probe and the look is not forgotten by the return."""
    condition = world.directories[0].condition
    condition.broke(OSError(errno.EIO, "the first"))
    world.look()
    world.probe_all()
    world.probe_all()
    condition.broke(OSError(errno.EIO, "the second"))
    world.look()
    assert world.states() == ["suspect"]
    assert "the second" in world.directories[0].problem
    world.probe(2)
    assert world.states() == ["well"]


# Disks that hang.


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Checked]:
    """Two directories, and a disk that is let go at the end."""
    world = Checked(tmp_path, 2, HealthLimits(probe_timeout_ns=20_000_000, probes_to_return=2))
    yield world
    world.disk.go_on.set()
    world.monitor.close()


def begin_checks(world: Checked) -> Callable[[list[str]], None]:
    """Start the threads; return what waits for states."""
    world.monitor = world.store.monitor(0.005)
    world.monitor.start()

    def wait_for(states: list[str]) -> None:
        def reached() -> bool:
            world.look()
            return world.states() == states

        wait_until(reached, f"{states}")

    return wait_for


def test_row_33_a_device_that_hangs_holds_up_nobody_and_returns(two: Checked) -> None:
    """Two directories of one device hang together, though one is stuck; status, room, tick and pushes go on without
    asking the disk. Let go, both return."""
    wait_for = begin_checks(two)
    two.disk.hangs_below = str(two.root / "0")
    wait_for(["hanging", "hanging"])
    two.disk.asked.clear()
    assert all("hangs" in found.problem for found in two.store.directories())
    assert free_of(two.store, 0.1, 0) == [0, 0]
    two.store.reduce.tick()
    assert two.store.hanging
    assert not two.disk.asked
    two.disk.go_on.set()
    wait_for(["well", "well"])
    writer = Writer(SHUFFLE)
    assert two.push(writer, [writer.batch(0, b"a"), writer.batch(1, b"b")]) == {}


def test_the_other_device_goes_on(two: Checked) -> None:
    """Seals wait for one device; the directory on the other one takes and seals meanwhile, is the only one that is
    given anything, and can be forgotten; the store closes."""
    first, second = two.directories
    second.condition.device += 1
    writer = Writer(SHUFFLE)
    frame = [writer.batch(partition, b"x" * 40 * KIB) for partition in range(2)]
    assert two.push(writer, frame) == {}
    inside = {state.partition for state in first.unsealed.copy_of}
    assert len(inside) == 1, "an epoch in each"
    two.disk.hangs_below = str(two.root / "0")
    futures = [one for _, one in two.store.reduce.seal(SHUFFLE, False, BOTH) if not isinstance(one, SealedEpoch)]
    begin_checks(two)(["hanging", "well"])
    more = [writer.batch(partition, b"y", epoch=1) for partition in range(8)]
    assert two.push(writer, more) == {}
    assert {key.epoch for key in (*first.unsealed.copies, *first.unsealed.sealing)} == {0}
    wait_until(lambda: any(future.done() for future in futures), "the seal on the other device")
    (sealed,) = [future.result() for future in futures if future.done()]
    assert not inside & {key.partition for key in sealed}
    assert two.store.forget([SHUFFLE]).result(30) == 1
    two.monitor.close()
    two.store.close()


# The room of one device.


class Fixed(Disk):
    """A file system of a known size."""

    free = 664 * MIB

    def file_system(self, path: Name) -> FileSystem:
        return FileSystem(4_096 * MIB, self.free)


def opened(root: Path, *capacities: int) -> Store:
    """A store with one directory for each capacity."""
    directories = [
        DirectorySettings(path=str(root / str(number)), capacity_bytes=capacity)
        for number, capacity in enumerate(capacities)
    ]
    settings = StoreSettings(cluster_id="c", worker_name="w", directories=tuple(directories))
    return open_store(prepare(settings, env_of(Fixed())))


@pytest.mark.parametrize(
    ("capacities", "free", "expected_mib"),
    [
        ((0,), [600], [656]),
        ((0, 0), [300, 300], [328, 328]),
        ((0, 0, 0), [200, 200, 200], [218, 218, 218]),
        ((0, 100 * MIB), [500, 100], [564, 92]),
        ((2_048 * MIB, 2_048 * MIB), [300, 300], [328, 328]),
    ],
)
def test_directories_of_one_device_share_its_room(
    tmp_path: Path, capacities: tuple[int, ...], free: list[int], expected_mib: list[int]
) -> None:
    """The reserve is taken once (64 MiB; of rooms 8 MiB here), the rest is divided; who may take less leaves it to the
    others. One directory alone has all."""
    store = opened(tmp_path, *capacities)
    found = store.directories()
    assert len({one.device for one in found}) == 1
    assert [one.free_bytes // MIB for one in found] == free
    assert [room // MIB for room in free_of(store, 0.1, 8 * MIB)] == expected_mib
    store.close()


def test_a_directory_that_is_out_leaves_its_share(tmp_path: Path) -> None:
    """What nobody may write into needs no room: the other one has all of it."""
    store = opened(tmp_path, 0, 0)
    store._directories[0].condition.broke(OSError(errno.EIO, "asked for by the test"))
    assert [one.free_bytes // MIB for one in store.directories()] == [0, 600]
    assert [room // MIB for room in free_of(store, 0.1, 8 * MIB)] == [0, 656]
    store.close()


def test_means_of_writes_are_told(world: Checked) -> None:
    """A push makes the mean time of a write known; of reads nothing is known yet."""
    writer = Writer(SHUFFLE)
    assert world.store.directories()[0].flush_us == 0
    for _ in range(20):
        world.push(writer, [writer.batch(0, os.urandom(2 * MIB))])
    (found,) = world.store.directories()
    assert found.flush_us > 0
    assert found.fetch_us == 0
    assert world.directories[0].condition.state is DirectoryHealth.WELL
