"""The faults of a seed: what happens to workers, disks, masters, executors and the network, until calm."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.sim.worker import SimWorker

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario

#: Weights of the kinds of faults.
FAULTS = {
    "kill": 4,
    "power": 2,
    "inside": 3,
    "full": 2,
    "sick": 2,
    "wipe": 1,
    "drain": 1,
    "master": 3,
    "isolate": 3,
    "cut": 5,
    "weather": 4,
    "executor": 2,
    "all": 1,
}


class Mischief:
    """Draws faults, one after another. A method with the name of a kind makes one happen."""

    def __init__(self, world: Scenario) -> None:
        self._world = world
        self._rng, self._loop = world.rng, world.loop
        self.counts: Counter[str] = Counter()

    def go_on(self) -> None:
        """The next fault comes after a while."""
        self._loop.call_later(self._rng.expovariate(1 / self._world.shape.pace), self._strike)

    def _strike(self) -> None:
        world = self._world
        kinds = world.shape.faults
        if world.calm:
            return
        if kinds:
            kind = self._rng.choices(kinds, [FAULTS[each] for each in kinds])[0]
            self.counts[kind] += 1
            world.network.note("fault", kind)
            getattr(self, kind)(self._rng.choice(world.workers))
        self.go_on()

    def _later(self, seconds: float, act: Any, *values: Any) -> None:
        self._loop.call_later(self._rng.uniform(0.05, seconds), act, *values)

    def kill(self, worker: SimWorker, power: bool = False) -> None:
        """A worker is killed, or its machine loses power."""
        if worker.life.alive:
            worker.crash(power)
            self._later(4.0, worker.start)

    def power(self, worker: SimWorker) -> None:
        """The machine loses power."""
        self.kill(worker, True)

    def inside(self, worker: SimWorker) -> None:
        """The process dies in the middle of a write soon."""
        worker.disk.armed = self._rng.randrange(4)

    def died(self, worker: SimWorker) -> None:
        """It did."""
        worker.crash(False)
        self._later(4.0, worker.start)

    def full(self, worker: SimWorker) -> None:
        """There is no room on the disk for a while."""
        worker.disk.full = True
        worker.sins["full"] = None
        self._later(3.0, self._emptied, worker)

    @staticmethod
    def _emptied(worker: SimWorker) -> None:
        worker.disk.full = False

    def sick(self, worker: SimWorker) -> None:
        """Writes and syncs fail now and then."""
        worker.disk.sick = self._rng.choice((0.05, 0.5))
        worker.sins["sick"] = None
        self._later(2.0, self._cured, worker)

    @staticmethod
    def _cured(worker: SimWorker) -> None:
        worker.disk.sick = 0.0

    def wipe(self, worker: SimWorker) -> None:
        """The directory is replaced by an empty one."""
        if worker.life.alive:
            worker.crash(True)
            worker.disk.wipe()
            worker.sins["wiped"] = None
            self._later(4.0, worker.start)

    def drain(self, worker: SimWorker) -> None:
        """A worker takes no new epochs and splits those it has, until it is told otherwise or starts again."""
        if worker.life.alive:
            pushes = worker.pushes
            pushes.drain(True)
            self._later(2.0, pushes.drain, False)

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

    def end(self) -> None:
        """From now on everything works."""
        world = self._world
        network = world.network
        network.weather.drop = network.weather.repeat = network.weather.turn = 0.0
        network.weather.slow, network.weather.reorder = 0.002, False
        network.cuts.clear()
        for worker in world.workers:
            worker.disk.full, worker.disk.sick, worker.disk.armed = False, 0.0, None
            if worker.life.alive:
                worker.pushes.drain(False)
            worker.start()
        for master in world.cluster.masters.values():
            world.cluster.boot(master)
