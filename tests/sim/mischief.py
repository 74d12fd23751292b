"""The faults of a seed: what happens to workers, disks, masters, executors and the network, until calm."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.common.ids import NO_WORKER
from tests.sim.dfs_faults import DFS_FAULTS, DfsFaults
from tests.sim.env.disks import Device, File, Folder
from tests.sim.env.process import Aim, Process
from tests.sim.host_faults import HOST_FAULTS, HostFaults
from tests.sim.worker import SimWorker

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario

#: Weights of the kinds of faults.
FAULTS = {
    "kill": 4,
    "power": 3,
    "inside": 4,
    "full": 2,
    "sick": 2,
    "read_only": 1,
    "unreadable": 1,
    "rot": 1,
    "hang": 1,
    "wipe": 1,
    "vanish": 1,
    "old": 1,
    "other": 1,
    "lost_index": 1,
    "old_index": 1,
    "bad_page": 1,
    "drain": 1,
    "master": 3,
    "isolate": 3,
    "cut": 5,
    "weather": 4,
    "executor": 2,
    "all": 1,
}


#: Of those that only some families have.
RARE_FAULTS = {
    "aimed": 4,
    "aimed_power": 3,
    "brim": 8,
    "unsynced": 8,
    "unsynced_killed": 8,
    "sick_index": 4,
    "log_rot": 2,
    "lost_log": 2,
    "wipe_some": 1,
    "swapped": 2,
    "no_descriptors": 4,
    "reused": 8,
}
WEIGHTS = FAULTS | RARE_FAULTS | DFS_FAULTS | HOST_FAULTS
#: Parts of the paths of what a worker writes.
_AIMS = ("/log/", "/log/", "/data/", "/index", ".open", ".moving")
#: The same of files that grow.
_WRITTEN = ("/log/", "/log/", ".open", ".open", ".moving")
#: When somebody looks after workers that are not well, once all faults have ended.
MEND_SECONDS = 20.0


class Mischief:
    """Draws faults, one after another. A method with the name of a kind makes one happen."""

    def __init__(self, world: Scenario) -> None:
        self._world = world
        self._rng, self._loop = world.rng, world.loop
        self.counts: Counter[str] = Counter()
        self._dfs = DfsFaults(world, world.bucket) if world.bucket is not None else None
        self.hosts = HostFaults(world, self)

    def go_on(self) -> None:
        """The next fault comes after a while."""
        self._loop.call_later(self._rng.expovariate(1 / self._world.shape.pace), self._strike)

    def _strike(self) -> None:
        world = self._world
        kinds = world.shape.faults
        if world.calm:
            return
        if kinds:
            kind = self._rng.choices(kinds, [WEIGHTS[each] for each in kinds])[0]
            self.counts[kind] += 1
            world.network.note("fault", kind)
            worker = self._rng.choice(world.workers)
            if kind in DFS_FAULTS:
                assert self._dfs is not None, "a world without a DFS has none of its faults"
                self._dfs.strike(kind, worker)
            elif kind in HOST_FAULTS:
                self.hosts.strike(kind, worker)
            else:
                getattr(self, kind)(worker)
        self.go_on()

    def _later(self, seconds: float, act: Any, *values: Any) -> None:
        self._loop.call_later(self._rng.uniform(0.05, seconds), act, *values)

    def _start_again(self, worker: SimWorker) -> None:
        self._later(self._world.shape.restart, worker.start)

    def kill(self, worker: SimWorker, power: bool = False) -> None:
        """A worker is killed, or its machine loses power."""
        if worker.life.alive:
            worker.crash(power)
            self._start_again(worker)

    def power(self, worker: SimWorker) -> None:
        """The machine loses power."""
        self.kill(worker, True)

    def inside(self, worker: SimWorker) -> None:
        """The process dies in the middle of a step soon, perhaps while it starts."""
        steps = self._rng.randrange(60)
        if worker.life.alive and worker.process is not None:
            worker.process.armed = steps
        else:
            worker.armed = steps

    def aimed(self, worker: SimWorker, power: bool = False) -> None:
        """The process dies in the middle of a step that changes something of one kind, perhaps with its machine."""
        aim = Aim(self._rng.choice(_AIMS), self._rng.randrange(8))
        worker.loses_power = power
        if worker.life.alive and worker.process is not None:
            worker.process.aim = aim
        else:
            worker.aim = aim

    def aimed_power(self, worker: SimWorker) -> None:
        """The same of the machine."""
        self.aimed(worker, True)

    def died(self, worker: SimWorker) -> None:
        """It did, or could not start. Where that lasts somebody gives it empty directories."""
        if self._world.calm and worker.problem:
            self._wipe(worker, worker.paths)
        self._start_again(worker)

    def reused(self, worker: SimWorker) -> None:
        """The machine loses power soon after a segment of a push log is used again."""
        if worker.process is not None:
            worker.process.reused = self._rng.randrange(3, 9)
            worker.loses_power = True

    # disks

    def _device(self, worker: SimWorker) -> Device:
        return self._rng.choice(worker.devices)

    def full(self, worker: SimWorker) -> None:
        """There is no room on a disk for a while, or only a little."""
        device = self._device(worker)
        device.capacity = device.used + self._rng.choice((0, 5_000, 20_000))
        worker.sins["full"] = None
        self._later(3.0, device.heal)

    def brim(self, worker: SimWorker) -> None:
        """A disk is full for a moment, which nobody has seen coming: one write meets it."""
        if worker.process is not None:
            worker.process.full_at = Aim(self._rng.choice(_WRITTEN), self._rng.randrange(3))
            worker.sins["full"] = None

    def unsynced(self, worker: SimWorker) -> None:
        """A sync fails, and all else goes well."""
        if worker.process is not None:
            worker.process.unsynced_at = Aim(self._rng.choice(_WRITTEN), self._rng.randrange(2))
            worker.sins["sick"] = None

    def unsynced_killed(self, worker: SimWorker) -> None:
        """The same, and the process dies soon after it."""
        self.unsynced(worker)
        if worker.process is not None:
            worker.process.unsynced = self._rng.randrange(1, 12)

    def no_descriptors(self, worker: SimWorker) -> None:
        """A process has no descriptors left for a moment, which says nothing against its disks."""
        if worker.process is not None:
            worker.process.no_descriptors = True
            self._later(1.0, self._has_descriptors, worker.process)

    @staticmethod
    def _has_descriptors(process: Process) -> None:
        process.no_descriptors = False

    def sick_index(self, worker: SimWorker) -> None:
        """Transactions of an index fail now and then, and no file has errors."""
        device = self._device(worker)
        device.index_errors = self._rng.choice((0.2, 1.0))
        worker.sins["sick"] = None
        self._later(2.0, device.heal)

    def sick(self, worker: SimWorker) -> None:
        """Writes and syncs fail now and then."""
        device, rate = self._device(worker), self._rng.choice((0.05, 0.5))
        device.write_errors, device.sync_errors = self._rng.choice(((rate, 0.0), (0.0, rate), (rate, rate)))
        worker.sins["sick"] = None
        self._later(2.0, device.heal)

    def read_only(self, worker: SimWorker) -> None:
        """A file system turns read-only."""
        device = self._device(worker)
        device.read_only = True
        worker.sins["sick"] = None
        self._later(2.0, device.heal)

    def unreadable(self, worker: SimWorker) -> None:
        """Reads fail now and then, or give wrong bits."""
        device = self._device(worker)
        device.read_errors = self._rng.choice((0.0, 0.02, 0.3))
        device.flips = self._rng.choice((0.0, 0.05, 0.3))
        worker.sins["unreadable"] = None
        self._later(2.0, device.heal)

    def hang(self, worker: SimWorker) -> None:
        """Whatever a thread asks of a disk takes long."""
        device = self._device(worker)
        device.hangs_until = self._loop.now + self._rng.uniform(0.5, 15.0)
        worker.sins["full"] = None

    def rot(self, worker: SimWorker) -> None:
        """Some bits change on the platter."""
        path = self._rng.choice(worker.paths)
        files = [] if path in worker.gone else worker.disks.files(path)
        for _ in range(self._rng.choice((1, 1, 5))):
            if files:
                self._rng.choice(files).flip(self._rng)
        self._meddled(worker, "rotten")

    def _log_of(self, worker: SimWorker) -> tuple[Folder, list[str]]:
        """The folder of a push log whose worker is killed, and what is in it."""
        self.kill(worker)
        folder = worker.disks.folder(f"{self._rng.choice(worker.paths)}/log")
        worker.sins["log"] = None
        return folder, sorted(folder.entries)

    def log_rot(self, worker: SimWorker) -> None:
        """A bit changes in a push log."""
        with suppress(OSError):
            folder, names = self._log_of(worker)
            if names:
                file = folder.entries[self._rng.choice(names)]
                assert isinstance(file, File), "a log has segments"
                file.flip(self._rng)

    def lost_log(self, worker: SimWorker) -> None:
        """A segment of a push log is gone, or all of them are."""
        with suppress(OSError):
            folder, names = self._log_of(worker)
            for name in names if self._rng.random() < 0.5 else self._rng.sample(names, min(1, len(names))):
                worker.disks.change((folder, name, None))
            worker.disks.bring_down(folder)

    def _meddled(self, worker: SimWorker, sin: str) -> None:
        worker.sins[sin] = None
        self._world.oracle.meddled(worker)

    def _down(self, worker: SimWorker) -> None:
        if worker.life.alive:
            worker.crash(self._rng.random() < 0.5)
        self._start_again(worker)

    def wipe_some(self, worker: SimWorker) -> None:
        """A directory is replaced by an empty one, and another one is left."""
        path = self._rng.choice(worker.paths)
        if len(worker.paths) - len(worker.gone) > 1 and path not in worker.gone:
            self._down(worker)
            self._wipe(worker, [path])

    def wipe(self, worker: SimWorker) -> None:
        """A directory is replaced by an empty one."""
        self._down(worker)
        self._wipe(worker, worker.paths if self._rng.random() < 0.5 else [self._rng.choice(worker.paths)])

    def _wipe(self, worker: SimWorker, paths: list[str]) -> None:
        worker.empty(paths)
        self._meddled(worker, "wiped")

    def replace(self, worker: SimWorker, *, excused: bool) -> None:
        """A worker ends, and another one takes its place; `excused`: what it had may be lost with it."""
        self._down(worker)
        worker.empty(worker.paths)
        worker.number = NO_WORKER
        if excused:
            worker.sins["wiped"] = None
        self._world.oracle.meddled(worker)

    def vanish(self, worker: SimWorker) -> None:
        """A directory is gone while it is in use, and is there again later, or an empty one is there at once."""
        path = self._rng.choice(worker.paths)
        if path in worker.gone:
            return
        gone = worker.disks.take_away(path)
        found = gone if self._rng.random() < 0.6 else worker.disks.empty(gone)
        self._meddled(worker, "wiped")
        worker.gone[path] = found
        if found is not gone:
            worker.disks.put(path, found)
        self._later(3.0, worker.come_back, path)

    def swapped(self, worker: SimWorker) -> None:
        """A start lacks one directory, and the next one has that and lacks another, which knows of the first start."""
        if len(worker.paths) > 1 and not worker.gone:
            first, second = self._rng.sample(worker.paths, 2)
            self._lacks(worker, first)
            self._later(6.0, self._other_lacks, worker, first, second)

    def _lacks(self, worker: SimWorker, path: str) -> None:
        self._down(worker)
        self._meddled(worker, "wiped")
        worker.gone[path] = worker.disks.take_away(path)

    def _other_lacks(self, worker: SimWorker, first: str, second: str) -> None:
        if first in worker.gone and not self._world.calm:
            self._lacks(worker, second)
            worker.come_back(first)
            self._later(6.0, worker.come_back, second)

    def old(self, worker: SimWorker) -> None:
        """A directory comes back as it was some time ago."""
        path = self._rng.choice(worker.paths)
        if path not in worker.gone:
            self._later(5.0, self._came_old, worker, path, worker.disks.copy(worker.disks.folder(path)))

    def _came_old(self, worker: SimWorker, path: str, copy: Folder) -> None:
        if path in worker.gone or self._world.calm:
            return
        self._down(worker)
        worker.disks.take_away(path)
        worker.disks.put(path, copy)
        self._meddled(worker, "meddled")

    def other(self, worker: SimWorker) -> None:
        """A worker finds the directory of another one where its own was; later its own is there again."""
        rival = self._rng.choice([each for each in self._world.workers if each is not worker])
        path = self._rng.choice(worker.paths)
        if path in worker.gone or rival.paths[0] in rival.gone:
            return
        self._down(worker)
        worker.gone[path] = worker.disks.take_away(path)
        worker.disks.put(path, worker.disks.adopt(rival.disks.folder(rival.paths[0]), worker.gone[path].device))
        self._meddled(worker, "meddled")
        self._later(4.0, worker.come_back, path)

    def _index_of(self, worker: SimWorker) -> File | None:
        """The file of an index of a worker that is down."""
        self._down(worker)
        try:
            found = worker.disks.find(f"{self._rng.choice(worker.paths)}/index/data.mdb")
        except OSError:
            return None
        return found if isinstance(found, File) and found.index is not None else None

    def lost_index(self, worker: SimWorker) -> None:
        """An index is not there when its worker starts."""
        self._down(worker)
        path = self._rng.choice(worker.paths)
        with suppress(OSError):
            worker.disks.take_away(f"{path}/index")
            self._meddled(worker, "meddled")

    def old_index(self, worker: SimWorker) -> None:
        """An index is older than the files."""
        file = self._index_of(worker)
        if file is not None and file.index.go_back(self._rng):
            self._meddled(worker, "meddled")

    def bad_page(self, worker: SimWorker) -> None:
        """An index has a bad page."""
        file = self._index_of(worker)
        if file is not None and file.flip(self._rng):
            self._meddled(worker, "rotten")

    # the others

    def drain(self, worker: SimWorker) -> None:
        """A worker takes no new epochs and splits those it has, until it is told otherwise or starts again."""
        if worker.life.alive:
            server = worker.server
            server.drain(True)
            self._later(2.0, server.drain, False)

    def master(self, _: SimWorker) -> None:
        """A master is killed, most often the leader."""
        cluster = self._world.cluster
        master = cluster.leader if self._rng.random() < 0.7 else self._rng.choice([*cluster.masters.values()])
        if master is not None and master.life.alive:
            cluster.crash(master)
            self._later(3.0, cluster.boot, master)

    def isolate(self, _: SimWorker) -> None:
        """A master is cut off from the others, and is reached by everybody else."""
        cluster = self._world.cluster
        master = cluster.leader if self._rng.random() < 0.8 else self._rng.choice([*cluster.masters.values()])
        if master is not None and master.life.alive:
            cluster.isolate(master, self._rng.uniform(0.5, 5.0))

    def cut(self, _: SimWorker) -> None:
        """Messages from one host to another are lost or late for a while."""
        world = self._world
        hosts = [*world.cluster.names, *[each.name for each in world.workers], *[each.name for each in world.executors]]
        one, other = self._rng.sample(hosts, 2)
        until = self._loop.now + self._rng.uniform(0.2, 5.0)
        world.network.cuts[one, other] = until
        if self._rng.random() < 0.4:
            world.network.cuts[other, one] = until

    def weather(self, _: SimWorker) -> None:
        """The network changes its manners."""
        rng, weather = self._rng, self._world.network.weather
        weather.drop = rng.choice((0.0, 0.01, 0.1))
        weather.repeat = rng.choice((0.0, 0.05, 0.3))
        weather.turn = rng.choice((0.0, 0.0, 0.02, 0.2))
        weather.slow = rng.choice((0.002, 0.05, 0.5))
        weather.reorder = rng.random() < 0.5

    def executor(self, _: SimWorker) -> None:
        """An executor dies with its tasks, and another one takes its place."""
        executor = self._rng.choice(self._world.executors)
        executor.crash()
        executor.start()

    def all(self, _: SimWorker) -> None:
        """Every worker at once."""
        power = self._rng.random() < 0.5 and "power" in self._world.shape.faults
        for worker in self._world.workers:
            self.kill(worker, power)

    def mend(self) -> None:
        """Somebody looks after workers whose directories do not come back by themselves: a start helps."""
        for worker in self._world.workers:
            if worker.life.alive and worker.store.failing:
                worker.crash(power=False)
                worker.start()

    def end(self) -> None:
        """From now on everything works."""
        world = self._world
        if not world.over:
            world.over = True
            for seconds in (MEND_SECONDS, 2 * MEND_SECONDS):
                self._loop.call_later(seconds, self.mend)
        network = world.network
        network.weather.drop = network.weather.repeat = network.weather.turn = 0.0
        network.weather.slow, network.weather.reorder = 0.002, False
        network.cuts.clear()
        if self._dfs is not None:
            self._dfs.end()
        for worker in world.workers:
            for device in worker.devices:
                device.heal()
            for path in list(worker.gone):
                worker.come_back(path)
            worker.armed = worker.aim = None
            worker.loses_power = False
            if worker.life.alive:
                assert worker.process is not None
                worker.process.armed = worker.process.aim = None
                worker.process.full_at = worker.process.unsynced_at = None
                worker.process.no_descriptors = False
                worker.process.unsynced = worker.process.reused = None
                worker.server.drain(False)
            worker.start()
        for master in world.cluster.masters.values():
            world.cluster.boot(master)
