"""Clocks of masters that differ by hours and jump: no lease ends early, every lease ends, nothing is deleted.

The masters' clocks are offset through the fault port, each by its own time, and the clock of the day of each jumps to
and fro every two seconds. Each round kills the leader, so that a master with another clock becomes the leader. A driver
with a short lease lives all the time: what it committed must be read in every round, its application must not be
marked, and no worker may be called lost. Another application of every round is not renewed: it must live for its lease
and grace, by the clock of this process, and end after that.
"""

from __future__ import annotations

import asyncio
import random
import time

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.session import Session
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.tasks import awaited
from holdfast.tools.bare import register_application, register_shuffle
from holdfast.tools.drills.running import Ground
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.jobs import Job, no_client_error
from holdfast.tools.drills.support.report import Report, Step

LEASE_SECONDS, GRACE_SECONDS = 2.0, 1.0
JUMP_SECONDS = 2.0
#: Clocks differ by as much as two days. None is late: the clock that measures silence gets the same offset, and no
#: machine has one below zero.
_OFFSET_SECONDS_MAX = 2 * 86_400
_SILENT_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.1
#: What the answer to the last renewal may take on a loaded machine; the lease runs from its arrival.
_HEARD_SECONDS = 0.5


def ground(seed: int) -> Ground:
    """Three masters with clocks of their own, and two workers, whose clocks differ too."""
    rng = random.Random(f"{seed}/clocks")

    def clock(*, jumps: bool) -> dict[str, object]:
        offset = f"{rng.randrange(_OFFSET_SECONDS_MAX)}s"
        if not jumps:
            return {"enabled": True, "clock_offset": offset}
        jump = f"{rng.choice((-1, 1)) * rng.randrange(60, _OFFSET_SECONDS_MAX)}s"
        every = f"{int(JUMP_SECONDS * 1e3)}ms"
        return {"enabled": True, "clock_offset": offset, "clock_jump": jump, "clock_jump_every": every}

    own = {name: {"faults": clock(jumps=name.startswith("m"))} for name in ("m1", "m2", "m3", "w1", "w2")}
    lease = {"worker": "5s", "heartbeat": "500ms", "deletion_grace": f"{int(GRACE_SECONDS * 1e3)}ms", "tick": "200ms"}
    return Ground(workers=2, settings={"lease": lease}, own=own)


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Run the rounds. Raises DrillError when something does not happen in time."""
    async with ControlClient(cluster.endpoints) as control:
        with Session(cluster.endpoints, app="drill clock-skew", lease_seconds=LEASE_SECONDS) as session:
            job = await asyncio.to_thread(Job, session, report, rng.getrandbits(32))
            await job.push(0.0)
            await asyncio.to_thread(job.commit)
            for _ in range(report.rounds):
                async with no_client_error(report):
                    await _round(cluster, control, report, rng, session, job)
                report.done += 1
                step(f"{report.failed} broken promises")


async def _round(
    cluster: LocalCluster, control: ControlClient, report: Report, rng: random.Random, session: Session, job: Job
) -> None:
    old = await servers.leader(cluster)
    await asyncio.sleep(rng.uniform(0.0, JUMP_SECONDS))
    await servers.kill([old], report)
    await servers.leader(cluster)
    silent = awaited(_silent(cluster.endpoints, report, rng.randbytes(16)))
    until = time.monotonic() + 1.5 * JUMP_SECONDS
    while time.monotonic() < until:  # the clock of the new leader has jumped at least once by then
        await _look(control, report, session)
        await asyncio.sleep(_LOOK_SECONDS)
    await asyncio.to_thread(job.check_read)
    await servers.start([old])
    await silent
    await _look(control, report, session)


async def _look(control: ControlClient, report: Report, session: Session) -> None:
    """What the living driver has is there, and so are the workers, which beat all the time."""
    listed = await control.call("Admin/ListShuffles", pb.ListShufflesRequest(instance=session.instance))
    states = [each.state for each in listed.shuffles]
    text = f"the shuffle of a driver that renews its lease is {states[0] if states else 'not listed'}"
    report.check("no lease ends early", states == ["committed"], text)
    workers = await control.call("Admin/ListWorkers", pb.ListWorkersRequest())
    lost = [each.name for each in workers.workers if each.state == "lost"]
    report.check("no worker that beats is lost", not lost, f"{', '.join(lost)} beats, and is called lost")


async def _silent(endpoints: str, report: Report, instance: bytes) -> None:
    """An application that says one word: its lease lasts, by this clock, and then ends.

    A client of its own says it: the masters remember answers for 15 minutes by their clocks, so that where these differ
    by more a call that is tried again at the next leader may be refused as too old (docs/operate/failure_model.md).
    """
    async with ControlClient(endpoints) as control:
        await register_application(control, instance, "silent", lease_ms=int(LEASE_SECONDS * 1e3))
        await register_shuffle(control, instance, 0, partitions=1, maps=1)
        renewed = time.monotonic()
        with report.until("an application without renewals does not end"):
            await _until_gone(control, instance)
    lasted = time.monotonic() - renewed
    least = LEASE_SECONDS + GRACE_SECONDS
    wrong = f"a lease of {LEASE_SECONDS:g} s with {GRACE_SECONDS:g} s of grace ended after {lasted:.1f} s"
    report.check("no lease ends early", lasted >= least - _HEARD_SECONDS, wrong)
    report.check("leases end", True, "")
    report.time("silent applications, from the last word to the end", lasted)


async def _until_gone(control: ControlClient, instance: bytes) -> None:
    """Look again and again, which renews nothing. Raises TimeoutError."""
    async with asyncio.timeout(_SILENT_SECONDS_MAX):
        while True:
            listed = await control.call("Admin/ListShuffles", pb.ListShufflesRequest(instance=instance))
            if all(each.state == "dropped" for each in listed.shuffles):
                return
            await asyncio.sleep(_LOOK_SECONDS)
