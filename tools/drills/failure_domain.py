"""Every worker of one rack or host killed, under load with two copies: nothing is lost or runs again, no client gets an
error.

Each round registers a shuffle with two copies, lets four maps push, and kills all workers of the rack or host with -9
at once: in the middle of the pushes, before the commit, or before the reads. They stay away until everything was read.
A shuffle that was committed while all were there is read in every round as well; of what was pushed while only one rack
was left, both copies are there, and nothing else is promised.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.session import Session
from holdfast.common.system.tasks import awaited
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.jobs import Job, no_client_error
from holdfast.tools.drills.support.report import DrillError, Report, Step

Domains = Mapping[str, list[Server]]


class FailureDomain(NamedTuple):
    """What fails together: its word, the cluster to kill it in, and which workers each of them has."""

    word: str
    ground: Ground
    of: Callable[[LocalCluster, Session], Domains]


#: A worker that is away is soon called lost, so that a round is not spent on waiting.
_GROUND = Ground(settings={"lease": {"worker": "3s", "heartbeat": "500ms"}, "worker": {"return_grace": "10s"}})
_RACK_WORKERS = 4
_PUSH_SECONDS = 1.0


def _by_rack(cluster: LocalCluster, session: Session) -> Domains:
    """By where the masters say that they are."""
    places = {each.name: each.place for each in session.workers()}
    racks: dict[str, list[Server]] = defaultdict(list)
    for worker in cluster.workers:
        racks[places.get(worker.name, "")].append(worker)
    return racks


def _by_host(cluster: LocalCluster, _: Session) -> Domains:
    """By where they are, whatever the masters take for a host."""
    return servers.by_host(cluster.workers)


#: Two of two workers, in turn, so that placement without racks would put both copies on one.
RACK = FailureDomain(
    "rack",
    replace(
        _GROUND,
        workers=_RACK_WORKERS,
        own={f"w{number}": {"worker": {"rack": f"r{number % 2 + 1}"}} for number in range(1, _RACK_WORKERS + 1)},
    ),
    _by_rack,
)
#: Three, so that two are left for two copies.
HOST = FailureDomain("host", replace(_GROUND, workers=3, workers_per_host=2), _by_host)


async def drill(
    cluster: LocalCluster, report: Report, rng: random.Random, step: Step, *, domain: FailureDomain
) -> None:
    """Run the rounds. Raises DrillError where there are no two of them, or something does not happen in time."""
    with Session(cluster.endpoints, app=f"drill {domain.word}", credentials=cluster.credentials) as session:
        domains = await asyncio.to_thread(domain.of, cluster, session)
        if len(domains) < 2:
            where = ", ".join(domains)
            raise DrillError(f"all workers are in {where}: a {domain.word} can only be lost where there is another one")
        before = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=2)
        await before.push(0.0)
        await asyncio.to_thread(before.commit)
        for _ in range(report.rounds):
            workers = domains[rng.choice(sorted(domains))]
            try:
                async with no_client_error(report):
                    await _round(session, workers, report, rng)
                    await asyncio.to_thread(before.check_read)
            finally:
                await servers.start([worker for worker in workers if not worker.running])
            with report.until(f"the masters do not accept the workers of the {domain.word}"):
                await servers.registered(workers)
            report.done += 1
            step(f"{report.failed} broken promises")


async def _round(session: Session, workers: list[Server], report: Report, rng: random.Random) -> None:
    job = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=2)
    moment = rng.choice(("pushes", "pushes", "commit", "reads"))
    report.counts[f"killed before the end of {moment}"] += 1
    pushing = awaited(job.push(_PUSH_SECONDS))
    if moment == "pushes":
        await asyncio.sleep(rng.uniform(0.0, _PUSH_SECONDS))
        await servers.kill(workers, report)
    await pushing
    if moment == "commit":
        await servers.kill(workers, report)
    await asyncio.to_thread(job.commit)
    job.check_attempts()
    if moment == "reads":
        await servers.kill(workers, report)
    await asyncio.to_thread(job.check_read)
    await asyncio.to_thread(job.shuffle.unregister)
