"""A power cut at any step, whatever of the unsynced is on the disk then: nothing acknowledged SYNCED is missing."""

import os
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.common.formats.messages import Ack
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import KIB
from holdfast.common.statuses import Status
from tests.support.power_disk import PowerDisk
from tests.support.reduce_data import Writer, shuffle_of
from tests.support.storage_data import CheckHere
from tests.support.storage_faults import Inline, KilledError
from tests.unit.worker.storage.reduce_world import World

SEEDS = 100
#: One shuffle is pushed at SYNCED, the other one at WRITTEN.
LEVELS = {shuffle_of(1): Ack.SYNCED, shuffle_of(2): Ack.WRITTEN}
SYNCED, WRITTEN = LEVELS
#: Partitions of the first one.
PARTITIONS = 3
TURNS = 60
Name = tuple[int, int, int]


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the id of this boot; everything runs on one thread."""
    path = tmp_path / "boot"
    monkeypatch.setattr("holdfast.worker.storage.store._BOOT_ID", path)
    monkeypatch.setattr("holdfast.worker.storage.store.ThreadPoolExecutor", Inline)
    monkeypatch.setattr("holdfast.worker.storage.prepare._check", CheckHere)
    return path


class Machine:
    """A worker's directory on a machine whose power goes again and again."""

    def __init__(self, place: Path, boot: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self._place, self._boot = place, boot
        self._cuts = 0
        #: until the last kill in this boot
        self.disk: PowerDisk | None = None
        self.world: World | None = None
        #: what was acknowledged
        self.heartbeat_answer: dict[tuple[ShuffleKey, int], set[Name]] = {}
        #: what was sealed and answered OK
        self.sealed: set[tuple[ShuffleKey, int]] = set()
        self.root = place / "0"
        (self.root / "0").mkdir(parents=True)
        boot.write_text(self._boot_id())

    def _boot_id(self) -> str:
        return f"00000000-0000-0000-0000-{self._cuts:012}\n"

    def start(self, kill_after: int | None = None) -> World:
        """Start the worker; the power goes after so many steps."""
        self.world = None
        self.disk = PowerDisk(self.root, kill_after, self.disk)
        self.world = World(self.root, segment_bytes=4 * KIB, disk=self.disk)
        return self.world

    def kill(self) -> None:
        """The worker is gone."""
        assert self.disk is not None
        self.disk.kill_after = 0
        if self.world is not None:
            with suppress(KilledError):
                self.world.store.close()
        self.world = None
        # A start that was killed still has lock and index open in this process: go on with a copy.
        after = self._place / f"{self.root.name}k"
        subprocess.run(["cp", "-r", "--sparse=always", self.root, after], check=True)
        self.root = after

    def cut(self) -> None:
        """The power goes, and comes back."""
        self._cuts += 1
        after = self._place / f"{self._cuts}"
        assert self.disk is not None
        self.disk.cut(after, self.rng)
        self.kill()
        self.disk, self.root = None, after
        self._boot.write_text(self._boot_id())

    def work(self) -> None:
        """Push at both levels, seal, and let the log roll."""
        world, rng = self.start(kill_after=self.rng.randrange(10, 500)), self.rng
        writers = {shuffle: Writer(shuffle) for shuffle in LEVELS}
        first = 0
        for _ in range(TURNS):
            draw = rng.random()
            if draw < 0.25:
                self.push(world, writers[SYNCED], rng.randrange(PARTITIONS), rng.choice([300, 900, 40_000]))
            elif draw < 0.9:
                self.push(world, writers[WRITTEN], first + rng.randrange(4), rng.choice([400, 1_500]))
            elif draw < 0.95:
                world.store.reduce.tick()
            else:
                self.seal(world, WRITTEN, range(first, first + 4))
                first += 4

    def push(self, world: World, writer: Writer, partition: int, size: int) -> None:
        """Push one batch, and note that it was acknowledged."""
        batch = writer.batch(partition, os.urandom(size))
        if world.push(writer, [batch], LEVELS[writer.shuffle]) == {}:
            told = self.heartbeat_answer.setdefault((writer.shuffle, partition), set())
            told.add((writer.map, writer.attempt, batch.number))

    def seal(self, world: World, shuffle: ShuffleKey, partitions: range, *, final: bool = False) -> None:
        """Seal, and look at each answer and at what is there."""
        epochs = [(partition, 0) for partition in partitions]
        for answer in world.seal(epochs, final=final, shuffle=shuffle):
            key, status = (shuffle, answer.partition), Status(answer.status)
            told = self.heartbeat_answer.get(key, set())
            if status is Status.OK:
                self.sealed.add(key)
                found = {(one.map, one.attempt, one.number) for one in world.read(answer.partition, shuffle=shuffle)}
                assert told <= found, f"{key} is short"
            else:
                assert key not in self.sealed, f"{key} is {status.name} after it was sealed"
                if LEVELS[shuffle] is Ack.SYNCED:
                    assert (status.name, len(told)) == ("UNKNOWN_FILE", 0), world.store.report
                else:
                    assert status in (Status.UNKNOWN_FILE, Status.DATA_LOST), key

    def seal_all(self, world: World) -> None:
        """What a start does for a commit of both."""
        world.store.reduce.tick()
        self.seal(world, SYNCED, range(PARTITIONS), final=True)
        world.store.reduce.tick()
        self.seal(world, WRITTEN, range(4 * TURNS), final=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a37_a_power_cut_loses_nothing_synced(tmp_path: Path, boot: Path, seed: int) -> None:
    """SYNCED epochs beside WRITTEN traffic that rolls the log and uses segments again; a cut at any step, and two more
    while it is recovered from, with a kill in between: every SYNCED batch is there, and no epoch is called lost that
    lost nothing."""
    machine = Machine(tmp_path, boot, seed)
    with suppress(KilledError):
        machine.work()
    machine.cut()
    for ended in (machine.cut, machine.kill, machine.cut):
        with suppress(KilledError):
            machine.seal_all(machine.start(kill_after=machine.rng.randrange(120)))
        ended()
    machine.seal_all(machine.start())
    machine.kill()
