"""Every worker of one rack killed, under load with two copies: nothing is lost or runs again, no client gets an error.

Each round registers a shuffle with two copies, lets four maps push, and kills all workers of a rack with -9 at once: in
the middle of the pushes, before the commit, or before the reads. They stay away until everything was read. A shuffle
that was committed while all racks were there is read in every round as well; of what was pushed while only one rack was
left, both copies are there, and nothing else is promised.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.session import Session
from holdfast.common.system.tasks import awaited
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.jobs import Job, no_client_error
from holdfast.tools.drills.support.report import DrillError, Report, Step

WORKERS = 4
#: Two racks of two workers, in turn, so that placement without racks would put both copies on one. A worker that is
#: away is soon called lost, so that a round is not spent on waiting.
GROUND = Ground(
    workers=WORKERS,
    settings={"lease": {"worker": "3s", "heartbeat": "500ms"}, "worker": {"return_grace": "10s"}},
    own={f"w{number}": {"worker": {"rack": f"r{number % 2 + 1}"}} for number in range(1, WORKERS + 1)},
)
_PUSH_SECONDS = 1.0


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Run the rounds. Raises DrillError where there are no two racks, or something does not happen in time."""
    with Session(cluster.endpoints, app="drill rack", credentials=cluster.credentials) as session:
        racks = await asyncio.to_thread(racks_of, cluster, session)
        before = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=2)
        await before.push(0.0)
        await asyncio.to_thread(before.commit)
        for _ in range(report.rounds):
            rack = rng.choice(sorted(racks))
            try:
                async with no_client_error(report):
                    await _round(session, racks[rack], report, rng)
                    await asyncio.to_thread(before.check_read)
            finally:
                await servers.start([worker for worker in racks[rack] if not worker.running])
            with report.until("the masters do not accept the workers of the rack"):
                await servers.registered(racks[rack])
            report.done += 1
            step(f"{report.failed} broken promises")


def racks_of(cluster: LocalCluster, session: Session) -> dict[str, list[Server]]:
    """The workers by where the masters say that they are. Raises DrillError unless there are two such places."""
    places = {each.name: each.place for each in session.workers()}
    racks: dict[str, list[Server]] = defaultdict(list)
    for worker in cluster.workers:
        racks[places.get(worker.name, "")].append(worker)
    if len(racks) < 2:
        raise DrillError(f"all workers are in {', '.join(racks)}: a rack can only be lost where there is another one")
    return racks


async def _round(session: Session, rack: list[Server], report: Report, rng: random.Random) -> None:
    job = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=2)
    moment = rng.choice(("pushes", "pushes", "commit", "reads"))
    report.counts[f"killed before the end of {moment}"] += 1
    pushing = awaited(job.push(_PUSH_SECONDS))
    if moment == "pushes":
        await asyncio.sleep(rng.uniform(0.0, _PUSH_SECONDS))
        await servers.kill(rack, report)
    await pushing
    if moment == "commit":
        await servers.kill(rack, report)
    await asyncio.to_thread(job.commit)
    job.check_attempts()
    if moment == "reads":
        await servers.kill(rack, report)
    await asyncio.to_thread(job.check_read)
    await asyncio.to_thread(job.shuffle.unregister)
