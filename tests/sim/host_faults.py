"""What happens to whole hosts, with all workers that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Ack
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.worker_states import AWAY
from tests.sim.clock import pause
from tests.sim.control import Control
from tests.sim.worker import SimWorker

if TYPE_CHECKING:
    from tests.sim.mischief import Mischief
    from tests.sim.scenario import Scenario

#: Weights of the kinds of faults.
HOST_FAULTS = {"host_killed": 3, "host_lost": 1, "host_drained": 4}


class HostFaults:
    """A method with the name of a kind makes one happen."""

    def __init__(self, world: Scenario, mischief: Mischief) -> None:
        self._world, self._mischief = world, mischief
        self._rng = world.rng
        #: the host that loses what it has, always the same one: the others have what nothing excuses the loss of
        self._victim = ""
        self._drained: dict[str, None] = {}
        #: hosts that were drained to the end, and replaced
        self.replaced = 0

    def strike(self, kind: str, worker: SimWorker) -> None:
        """One happens."""
        getattr(self, kind)(worker.host)

    def _of(self, host: str) -> list[SimWorker]:
        return [each for each in self._world.workers if each.host == host]

    def host_killed(self, host: str) -> None:
        """All workers of a host die at once, perhaps with the machine."""
        power = self._world.shape.ack is Ack.SYNCED and self._rng.random() < 0.5
        for worker in self._of(host):
            self._mischief.kill(worker, power)

    def host_lost(self, host: str) -> None:
        """A machine is gone with all its disks, and another one takes its place."""
        self._victim = self._victim or host
        for worker in self._of(self._victim):
            self._mischief.replace(worker, excused=True)

    def host_drained(self, host: str) -> None:
        """Somebody drains a host, and replaces it once the masters say that it may be removed: nothing is lost."""
        if host not in self._drained:
            self._drained[host] = None
            within = self._rng.choice((0, 60_000))
            for worker in self._of(host):
                worker.leaving = worker.leaving or within > 0
            self._world.admin.run(self._drain(host, within))

    async def _drain(self, host: str, within_ms: int) -> None:
        control = Control(self._world.network)
        asked = pb.DrainWorkersRequest(workers=[host], within_ms=within_ms)
        try:
            while not self._world.calm:
                await pause(0.5)
                try:
                    if await self._may_go(control, asked, host):
                        self._replace(host)
                        return
                except HoldfastError:  # a worker is lost, nobody else takes data, or no master answers: later, perhaps
                    continue
            asked.cancel, asked.within_ms = True, 0
            await control.call("Admin/DrainWorkers", asked, 10.0)
        except HoldfastError:
            return
        finally:
            del self._drained[host]

    async def _may_go(self, control: Control, asked: pb.DrainWorkersRequest, host: str) -> bool:
        """Drain what does not drain yet, and wait for what keeps it, as `holdfast drain --for removal` does."""
        told = (await control.call("Admin/DrainWorkers", asked, 10.0)).workers
        while not self._world.calm:
            await pause(0.5)
            listed = (await control.call("Admin/ListWorkers", pb.ListWorkersRequest(), 10.0)).workers
            named = {each.worker for each in told}
            ours = [each for each in listed if each.worker in named or (each.host == host and each.state not in AWAY)]
            if not all(each.HasField("drain") for each in ours):
                return False  # a start of its own takes data again
            if all(each.drain.removal for each in ours):
                return True
        return False

    def _replace(self, host: str) -> None:
        self.replaced += 1
        self._world.network.note("replaced", host)
        for worker in self._of(host):
            self._mischief.replace(worker, excused=False)
