"""Every worker of some hosts, racks or regions killed at once, under load: nothing is lost or runs again, no client
gets an error.

Each round registers a shuffle, lets four maps push, and kills all workers of these with -9 at once: in the middle of
the pushes, before the commit, or before the reads. They stay away until everything was read. Of hosts and racks as many
are killed as there are copies but one; of regions one, since copies have to be in two. A shuffle that was committed
while all were there is read in every round as well; what was pushed while others were away may stand together where
nothing refuses that.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
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
    """What fails together: its word, the cluster for so many copies to kill it in, and which workers each of them has.
    `durable`: placement refuses fewer of them; 0: it refuses nothing, and wishes for as many as there are copies."""

    word: str
    ground: Callable[[int], Ground]
    of: Callable[[LocalCluster, Session], Domains]
    durable: int = 0

    def killed(self, copies: int) -> int:
        """How many may be lost at once."""
        return (self.durable or copies) - 1


#: A worker that is away is soon called lost, so that a round is not spent on waiting.
_GROUND = Ground(settings={"lease": {"worker": "3s", "heartbeat": "500ms"}, "worker": {"return_grace": "10s"}})
_PUSH_SECONDS = 1.0
_REGIONS, _DURABLE = 3, 2


def _spread(domains: int, rack: str) -> Ground:
    """Two workers in each, in turn, so that placement that does not look at them would put copies together. {n} is the
    number of the domain."""
    workers = 2 * domains
    own = {f"w{at}": {"worker": {"rack": rack.format(n=at % domains + 1)}} for at in range(1, workers + 1)}
    return replace(_GROUND, workers=workers, own=own)


def _hosts(copies: int) -> Ground:
    """So many that there is one for each copy when the others are killed."""
    return replace(_GROUND, workers=2 * copies - 1, workers_per_host=2)


def _racks(copies: int) -> Ground:
    return _spread(copies, "r{n}").with_settings({"placement": {"min_racks": copies}})


def _regions(_: int) -> Ground:
    return _spread(_REGIONS, "/region{n}/r").with_settings(
        {"placement": {"policy": "regionaware", "durable_regions": _DURABLE}}
    )


def _by_place(parts: int | None = None) -> Callable[[LocalCluster, Session], Domains]:
    """By so many parts of where the masters say that they are."""

    def of(cluster: LocalCluster, session: Session) -> Domains:
        places = {each.name: each.place for each in session.workers()}
        found: dict[str, list[Server]] = defaultdict(list)
        for worker in cluster.workers:
            found["/".join(places.get(worker.name, "").split("/")[:parts])].append(worker)
        return found

    return of


def _by_host(cluster: LocalCluster, _: Session) -> Domains:
    """By where they are, whatever the masters take for a host."""
    return servers.by_host(cluster.workers)


HOST = FailureDomain("host", _hosts, _by_host)
RACK = FailureDomain("rack", _racks, _by_place())
REGION = FailureDomain("region", _regions, _by_place(2), _DURABLE)


async def drill(
    cluster: LocalCluster, report: Report, rng: random.Random, step: Step, *, domain: FailureDomain, copies: int
) -> None:
    """Run the rounds. Raises DrillError where there are too few of them, or something does not happen in time."""
    with Session(cluster.endpoints, app=f"drill {domain.word}", credentials=cluster.credentials) as session:
        domains = await asyncio.to_thread(domain.of, cluster, session)
        killed = domain.killed(copies)
        if len(domains) <= killed:
            where = ", ".join(domains)
            raise DrillError(
                f"all workers are in {where}: {killed} can only be lost where there is another {domain.word}"
            )
        here = {worker.name: name for name, workers in domains.items() for worker in workers}
        before = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=copies)
        await before.push(0.0)
        await asyncio.to_thread(before.commit)
        await asyncio.to_thread(_check_spread, session, before, here, report, killed)
        for _ in range(report.rounds):
            workers = list(chain.from_iterable(domains[each] for each in rng.sample(sorted(domains), killed)))
            try:
                async with no_client_error(report):
                    job = await _round(session, workers, report, rng, copies)
                    if domain.durable:
                        await asyncio.to_thread(_check_spread, session, job, here, report, killed)
                    await asyncio.to_thread(job.shuffle.unregister)
                    await asyncio.to_thread(before.check_read)
            finally:
                await servers.start([worker for worker in workers if not worker.running])
            with report.until(f"the masters do not accept the workers of the {domain.word}"):
                await servers.registered(workers)
            report.done += 1
            step(f"{report.failed} broken promises")


async def _round(session: Session, workers: list[Server], report: Report, rng: random.Random, copies: int) -> Job:
    job = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=copies)
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
    return job


def _check_spread(session: Session, job: Job, here: Mapping[str, str], report: Report, killed: int) -> None:
    """Check that the copies of each epoch are in one domain more than are killed at once. Blocks."""
    where = {each.worker: here[each.name] for each in session.workers()}
    for epoch in job.shuffle.manifest().epochs.epochs:
        found = sorted({where[copy.worker] for copy in epoch.copies})
        wrong = f"epoch {epoch.epoch} of partition {epoch.partition} of shuffle {job.shuffle.key} is in {found} only"
        report.check("copies do not fail together", len(found) > killed, wrong)
