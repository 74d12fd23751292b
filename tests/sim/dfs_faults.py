"""What happens to the DFS of a seed, and to workers that are just bringing a file there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.env.dfs import Bucket
from tests.sim.env.process import Process
from tests.sim.worker import SimWorker

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario

#: Weights of the kinds of faults.
DFS_FAULTS = {
    "ambush": 6,
    "dfs_errors": 3,
    "dfs_hang": 2,
    "dfs_away": 2,
    "dfs_refuses": 1,
    "dfs_full": 1,
    "dfs_other": 1,
}
#: Steps of a process from the moment on at which it begins to bring a file there until that has left its directory.
_MOVE_STEPS = 60


class DfsFaults:
    """A method with the name of a kind makes one happen."""

    def __init__(self, world: Scenario, bucket: Bucket) -> None:
        self._world, self._bucket = world, bucket
        self._rng, self._loop = world.rng, world.loop

    def strike(self, kind: str, worker: SimWorker) -> None:
        """One happens."""
        getattr(self, kind)(worker)

    def _later(self, seconds: float, act: Any) -> None:
        self._loop.call_later(self._rng.uniform(0.05, seconds), lambda: None if self._world.calm else act())

    def ambush(self, worker: SimWorker) -> None:
        """When a worker brings the next file there it dies at one of the steps of that, perhaps with its machine."""

        def begins(process: Process) -> None:
            if worker.process is process and process.armed is None:
                process.armed = self._rng.randrange(_MOVE_STEPS)
                worker.loses_power = self._rng.random() < 0.5
                self._bucket.on_upload = lambda _: None

        self._bucket.on_upload = begins

    def dfs_errors(self, _: SimWorker) -> None:
        """Requests fail now and then, some of them though they were carried out."""
        self._bucket.errors = self._rng.choice((0.1, 0.3, 0.6))
        self._later(4.0, self._no_errors)

    def _no_errors(self) -> None:
        self._bucket.errors = 0.0

    def dfs_hang(self, _: SimWorker) -> None:
        """Requests are answered later, or never."""
        self._bucket.hangs_until = self._loop.now + self._rng.uniform(0.5, 8.0)

    def dfs_away(self, _: SimWorker) -> None:
        """It cannot be reached: for a while, or where there is time for that for minutes."""
        most = self._world.shape.fault_seconds * 0.9
        self._bucket.away_until = self._loop.now + self._rng.uniform(0.5, most)

    def dfs_refuses(self, _: SimWorker) -> None:
        """It takes nobody's credentials."""
        self._bucket.refuses = True
        self._later(4.0, self._lets_in)

    def _lets_in(self) -> None:
        self._bucket.refuses = False

    def dfs_full(self, _: SimWorker) -> None:
        """It takes nothing new."""
        self._bucket.full = True
        self._later(4.0, self._has_room)

    def _has_room(self) -> None:
        self._bucket.full = False

    def dfs_other(self, _: SimWorker) -> None:
        """Another store is at its address, in which there is nothing."""
        self._bucket.put_other()
        self._later(4.0, self._bucket.put_back)

    def end(self) -> None:
        """Nothing is wrong any more."""
        self._bucket.heal()
        self._bucket.on_upload = lambda _: None
