"""One host after the other is killed and stays away, with two copies: the copies that it had are made again in time, so
that in the end the last host has everything.

Each round commits a shuffle, and kills the hosts in a random order, all but one. After each the masters say what is
short of copies, make these again, and say that nothing is short any more; only then is the next host killed. While
copies are made a worker that makes some, or the leading master, is killed in some rounds, and started again. Readers
that have read the manifest before any host was killed, and new ones, get every record.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.session import Session
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.jobs import Job, no_client_error
from holdfast.tools.drills.support.report import DrillError, Report, Step

_HOSTS = 4
#: A host that is away is soon called lost, and soon given up.
GROUND = Ground(
    workers=_HOSTS,
    settings={
        "lease": {"worker": "3s", "heartbeat": "500ms"},
        "worker": {"return_grace": "10s", "restore_after": "4s"},
    },
)
#: From the moment at which a host is killed until its copies are there again.
RESTORED_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.1


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Run the rounds. Raises DrillError where there are too few hosts, or something does not happen in time."""
    with Session(cluster.endpoints, app="drill restored", credentials=cluster.credentials) as session:
        hosts = servers.by_host(cluster.workers)
        if len(hosts) < 3:
            raise DrillError("copies are made again where three hosts are; there are fewer")
        for _ in range(report.rounds):
            try:
                async with no_client_error(report):
                    await _round(cluster, session, list(hosts.values()), report, rng)
            finally:
                away = [each for each in (*cluster.masters, *cluster.workers) if not each.running]
                await servers.start(away)
            with report.until("the masters do not accept the workers"):
                await servers.registered(cluster.workers)
            report.done += 1
            step(f"{report.failed} broken promises")


async def _round(
    cluster: LocalCluster, session: Session, hosts: list[list[Server]], report: Report, rng: random.Random
) -> None:
    job = await asyncio.to_thread(Job, session, report, rng.getrandbits(32), copies=2)
    await job.push(0.0)
    await asyncio.to_thread(job.commit)
    await asyncio.to_thread(job.check_read)  # and keeps the manifest, as executors do
    rng.shuffle(hosts)
    for left in range(len(hosts) - 1, 0, -1):
        await servers.kill(hosts.pop(), report)
        if left > 1:
            await _restored(cluster, report, rng, hosts)
        await asyncio.to_thread(job.check_read)
        report.counts[f"read with {left} of {_HOSTS} hosts"] += 1
    await asyncio.to_thread(job.shuffle.unregister)


async def _restored(cluster: LocalCluster, report: Report, rng: random.Random, hosts: list[list[Server]]) -> None:
    """Return when nothing is short of copies any more. Raises DrillError."""
    with report.until("nothing is said to be short of copies"):
        await _until(cluster, partial(_some, 1))
    victim = rng.choice(("nobody", "a worker", "the leader"))
    again: list[Server] = []
    if victim == "a worker":
        again = rng.choice(hosts)
    elif victim == "the leader":
        again = [await servers.leader(cluster)]
    if again:
        report.counts[f"{victim} killed meanwhile"] += 1
        await asyncio.sleep(rng.uniform(0.0, 5.0))
        await servers.kill(again, report)
        await servers.start(again)
    with report.until("the copies are not made again"):
        await _until(cluster, partial(_some, 0))


def _some(least: int, status: pb.StatusReply) -> bool:
    """Whether at least one epoch is short of copies, or, with 0, none is."""
    return bool(status.epochs_short) == bool(least)


async def _until(cluster: LocalCluster, found: partial[bool]) -> None:
    """Ask the leader again and again. Raises TimeoutError."""
    async with asyncio.timeout(RESTORED_SECONDS_MAX):
        while True:
            status = await servers.status(await servers.leader(cluster))
            if status is not None and status.role == "leader" and found(status):
                return
            await asyncio.sleep(_LOOK_SECONDS)
