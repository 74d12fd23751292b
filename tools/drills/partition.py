"""The network cut between masters and workers: a minority answers nothing, cut-off servers come back, nothing is lost.

Each round lets maps push, with one copy or two, and cuts the network in one of these ways, in turn:

* the leader from the other masters, from all workers and from clients: the others elect a new one and accept a command
  that the old one cannot have; then it is asked, and may answer that it is not the leader, but not from memory;
* one worker from all masters, until these call it lost: clients reach it all the time;
* one worker from the other workers, from the masters and from clients, for some seconds;
* the leader and one worker from everybody else.

Then the network is joined: in half of the rounds what was on its way arrives late, in the others connections break. The
maps end, the masters commit, and everything is read: every record once, nothing lost, no client gets an error.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import cycle

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.connection.direct import DirectConnection, worker_status
from holdfast.client.session import Session
from holdfast.common.errors import HoldfastError
from holdfast.common.system.tasks import awaited
from holdfast.tools.drills import leader
from holdfast.tools.drills.running import Drill, Ground
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.jobs import Job, no_client_error
from holdfast.tools.drills.support.network import CLIENT, ProxiedNetwork
from holdfast.tools.drills.support.report import Report, Step

WORKERS = 3
_PUSH_SECONDS = 2.0
#: How long a worker is out of everybody's reach: shorter than a push waits for its answer, so that it need not go
#: elsewhere, and longer than forwards and leases.
_CUT_SECONDS = (1.0, 6.0)
_LOST_SECONDS_MAX = 60.0


class NetworkCut(Enum):
    """What is cut off from what."""

    LEADER = "the leader"
    FROM_MASTERS = "a worker from the masters"
    FROM_ALL = "a worker from all"
    LEADER_AND_WORKER = "the leader and a worker"


def ground() -> tuple[Drill, Ground]:
    """The drill and its cluster: three workers, and a network that can be cut."""
    names = [f"m{number}" for number in range(1, 4)] + [f"w{number}" for number in range(1, WORKERS + 1)]
    network = ProxiedNetwork(names)
    settings = {"lease": {"worker": "2s", "heartbeat": "300ms", "tick": "200ms"}}
    where = Ground(workers=WORKERS, settings=settings, own=network.own, around=network.around)
    return partial(drill, network=network), where


async def drill(
    cluster: LocalCluster, report: Report, rng: random.Random, step: Step, *, network: ProxiedNetwork
) -> None:
    """Run the rounds. Raises DrillError when something does not happen in time."""
    async with leader.Commands(cluster, rng) as commands:
        with Session(cluster.endpoints, app="drill partition") as session:
            for _, cut in zip(range(report.rounds), cycle(NetworkCut), strict=False):
                one = _Round(cluster, network, commands, report, rng)
                async with no_client_error(report):
                    await one.run(session, cut)
                await one.end()
                report.done += 1
                step(f"{report.failed} broken promises")
    await leader.agree_all(cluster, report)


@dataclass(frozen=True, slots=True)
class _Round:
    """One cut."""

    cluster: LocalCluster
    network: ProxiedNetwork
    commands: leader.Commands
    report: Report
    rng: random.Random

    async def run(self, session: Session, cut: NetworkCut) -> None:
        """Push, cut, join, commit, read. Raises the errors of clients."""
        rng, report = self.rng, self.report
        job = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=rng.choice((1, 2)))
        pushing = awaited(job.push(_PUSH_SECONDS))
        await asyncio.sleep(rng.uniform(0.0, _PUSH_SECONDS / 2))
        report.counts[f"cut off: {cut.value}"] += 1
        old = await servers.leader(self.cluster)
        worker = rng.choice(self.cluster.workers)
        try:
            match cut:
                case NetworkCut.LEADER:
                    await self._cut_leader(old, [])
                case NetworkCut.LEADER_AND_WORKER:
                    await self._cut_leader(old, [worker])
                case NetworkCut.FROM_MASTERS:
                    await self._cut_from_masters(worker)
                case NetworkCut.FROM_ALL:
                    self._cut([worker])
                    await asyncio.sleep(rng.uniform(*_CUT_SECONDS))
        finally:
            self._join()
        await pushing
        with report.until("a server that was cut off is not accepted again"):
            await self._all_back()
        await asyncio.to_thread(job.commit)
        job.check_attempts()
        await asyncio.to_thread(job.check_read)
        await asyncio.to_thread(job.shuffle.unregister)

    async def end(self) -> None:
        """Whatever a round came to, the next one begins whole."""
        self.network.join(broken=True)
        with self.report.until("a server that was cut off is not accepted again"):
            await self._all_back()

    def _cut(self, some: list[Server]) -> None:
        """Cut these off from everybody else."""
        names = [server.name for server in some]
        others = [server.name for server in self.cluster.servers if server not in some]
        self.network.cut(names, [*others, CLIENT])
        self.report.event(f"cut {', '.join(names)} off from all others")

    def _join(self) -> None:
        broken = self.rng.random() < 0.5
        self.network.join(broken=broken)
        self.report.event("joined; connections " + ("break" if broken else "go on"))

    async def _cut_leader(self, old: Server, with_it: list[Server]) -> None:
        """Cut the leader off, have the others accept a command, and ask it for what it cannot have."""
        report, commands = self.report, self.commands
        connections = [DirectConnection(old.address, seconds=10.0) for _ in range(2)]
        self._cut([old, *with_it])
        moment = time.monotonic()
        try:
            with report.until("no command was accepted after the leader was cut off"):
                accepted = await commands.accepted_after(moment)
                report.time("from the cut to the next accepted command", accepted - moment)
                new = await commands.register()
            with report.until("the leader that is cut off does not even refuse"):
                async with asyncio.timeout(30.0):
                    for connection in connections:
                        await leader.ask_for_new(connection, new, commands, report)
        finally:
            for connection in connections:
                connection.close()

    async def _cut_from_masters(self, worker: Server) -> None:
        self.network.cut([worker.name], [master.name for master in self.cluster.masters])
        self.report.event(f"cut {worker.name} off from all masters")

        def lost() -> bool:
            alive = self.cluster.alive_workers()
            return alive is not None and worker.name not in alive

        with self.report.until("a worker without masters is not called lost"):
            await servers.until(lost, _LOST_SECONDS_MAX)
        self.report.check("a worker that is cut off keeps running", worker.running, f"{worker.name} has ended")

    async def _all_back(self) -> None:
        """Wait until all workers are alive for the masters, and take data. Raises TimeoutError."""
        await servers.registered(self.cluster.workers)
        names = {worker.name for worker in self.cluster.workers}
        await servers.until(lambda: self.cluster.alive_workers() == names, servers.BACK_SECONDS_MAX)
        for worker in self.cluster.workers:
            with_problems = await asyncio.to_thread(_problems, worker)
            self.report.check("workers see nothing wrong", not with_problems, f"{worker.name}: {with_problems}")


def _problems(worker: Server) -> str:
    try:
        return "; ".join(worker_status(worker.http, 5.0)["problems"])
    except HoldfastError as error:
        return str(error)
