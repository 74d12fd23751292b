"""Disks that run full while maps push: what was acknowledged is read, and limits are named where there is no room.

Three workers' disks hold little, each another amount (ENOSPC through the fault port). Each round lets maps push more
than the smallest disk can take: their partitions move to workers that have room. In half of the rounds a worker that is
full is killed with -9 before the commit, and comes back. Everything is read, once. Then maps push more than all disks
hold together: each map that fails must get NoRoomError, with the limit that was met; and what was committed before
is read again. A worker that starts anew finds its disk empty, so all are killed and started between two rounds.
"""

from __future__ import annotations

import asyncio
import random

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.connection.direct import worker_status
from holdfast.client.session import Session
from holdfast.common.errors import NoRoomError
from holdfast.common.limits import KIB, MIB
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.jobs import MAPS, Job, no_client_error
from holdfast.tools.drills.support.report import Report, Step

#: MiB that each disk holds.
DISKS = {"w1": 12, "w2": 24, "w3": 48}
_RECORD_BYTES = 100 * KIB
#: MiB of a round: a third of it is more than the smallest disk holds, and all of it is less than all hold. Then what no
#: room is left for.
_ROUND_MIB, _TOO_MUCH_MIB = 50, 70
_NO_ROOM_GRACE_SECONDS = 2.0

_FULL = {"enabled": True, "disk_error_rate": 1.0, "disk_error": "ENOSPC"}
GROUND = Ground(
    masters=1,
    workers=len(DISKS),
    settings={"worker": {"disk_reserve": "1MiB"}, "lease": {"heartbeat": "300ms"}},
    own={name: {"faults": {**_FULL, "disk_error_after": f"{mib}MiB"}} for name, mib in DISKS.items()},
)


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Run the rounds. Raises DrillError when something does not happen in time."""
    with Session(cluster.endpoints, app="drill disk-full", no_room_grace=_NO_ROOM_GRACE_SECONDS) as session:
        for _ in range(report.rounds):
            async with no_client_error(report):
                await _round(cluster, session, report, rng)
            if report.done + 1 < report.rounds:
                await servers.kill(cluster.workers, report)
                await servers.start(cluster.workers)
                with report.until("the masters do not accept the workers"):
                    await servers.registered(cluster.workers)
            report.done += 1
            step(f"{report.counts['maps without room']} maps without room, {report.failed} broken promises")


async def _round(cluster: LocalCluster, session: Session, report: Report, rng: random.Random) -> None:
    copies = rng.choice((1, 1, 2))
    job = await asyncio.to_thread(_job, session, report, rng.getrandbits(32), _ROUND_MIB // copies, copies)
    await job.push(0.0)
    full = [worker for worker in cluster.workers if await asyncio.to_thread(_full, worker)]
    report.counts["workers that were full"] += len(full)
    report.event(f"full: {', '.join(worker.name for worker in full)}")
    report.check("some worker was full", bool(full), "no worker was full after the pushes: the drill proves nothing")
    if full and rng.random() < 0.5:
        killed = rng.choice(full)
        report.counts["workers killed while full"] += 1
        await servers.kill([killed], report)
        await servers.start([killed])
    await asyncio.to_thread(job.commit)
    job.check_attempts()
    await asyncio.to_thread(job.check_read)
    await _too_much(session, report, rng)
    await asyncio.to_thread(job.check_read)
    await asyncio.to_thread(job.shuffle.unregister)


async def _too_much(session: Session, report: Report, rng: random.Random) -> None:
    """Push more than there is room for: every map ends, or gets the error of what is full."""
    job = await asyncio.to_thread(_job, session, report, rng.getrandbits(32), _TOO_MUCH_MIB, 1)
    pushes = [asyncio.to_thread(job.push_map, map_id, 0.0, map_id) for map_id in range(MAPS)]
    refused = 0
    for outcome in await asyncio.gather(*pushes, return_exceptions=True):
        if isinstance(outcome, NoRoomError):
            refused += 1
            named = "MiB" in str(outcome) and any(name in str(outcome) for name in DISKS)
            report.check("the limit that was met is named", named, f"without worker or limit: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
    report.counts["maps without room"] += refused
    report.check("a client gets the error that there is no room", refused > 0, f"{_TOO_MUCH_MIB} MiB found room")
    await asyncio.to_thread(job.shuffle.unregister)


def _job(session: Session, report: Report, seed: int, mib: int, copies: int) -> Job:
    records = mib * MIB // (MAPS * _RECORD_BYTES)
    return Job(session, report, seed, copies=copies, records=records, sizes=(_RECORD_BYTES,))


def _full(worker: Server) -> bool:
    """Whether it took nothing more for want of room, or has none for anything now: it starts anew with each round."""
    outcome = worker_status(worker.http, 5.0)
    return outcome["counters"]["epochs_split_for_room"] > 0 or any(
        each["full"] or each["free_bytes"] < 2 * MIB for each in outcome["directories"]
    )
