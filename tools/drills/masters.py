"""All masters killed at once, under concurrent commands: nothing acknowledged is missing, nothing is applied twice.

Each round: traffic runs, all masters are killed with -9 at a random moment and started again in random order, the
traffic continues until new commands are acknowledged; then it stops, and the state of the masters is compared with the
ledger and with one another.
"""

from __future__ import annotations

import asyncio
import random
import time

from holdfast.client.cluster.local import LocalCluster
from holdfast.tools.drills.support import servers
from holdfast.tools.drills.support.report import Report, Step
from holdfast.tools.drills.support.traffic import Traffic

CLIENTS = 8
#: The longest that traffic runs before a kill.
_RUN_SECONDS = 0.8
#: Commands to be acknowledged after a restart before the round is checked: every client got through.
_ANSWERED_AFTER = 3 * CLIENTS


async def drill(cluster: LocalCluster, report: Report, rng: random.Random, step: Step) -> None:
    """Run `report.rounds` rounds. Raises DrillError when something does not happen in time."""
    async with Traffic(cluster, CLIENTS, random.Random(rng.random()), report) as traffic:
        try:
            for _ in range(report.rounds):
                await _round(cluster, report, rng, traffic)
                report.done += 1
                step(f"{traffic.ledger.acknowledged} commands acknowledged, {report.failed} broken promises")
        finally:
            report.counts["commands acknowledged"] = traffic.ledger.acknowledged


async def _round(cluster: LocalCluster, report: Report, rng: random.Random, traffic: Traffic) -> None:
    traffic.resume()
    await asyncio.sleep(rng.uniform(0.0, _RUN_SECONDS))
    await servers.kill(cluster.masters, report)
    order = rng.sample(cluster.masters, len(cluster.masters))
    began = time.monotonic()
    await servers.start(order)
    with report.until("no command was acknowledged after the restart"):
        await traffic.answered(1)
        report.time("all masters: from exec to the next acknowledged command", time.monotonic() - began)
        await traffic.answered(_ANSWERED_AFTER)
    with report.until("clients still wait for an answer"):
        await traffic.pause()
    await traffic.check()
    with report.until("the masters do not reach the same applied index"):
        replies = await servers.agree(cluster.masters)
    hashes = {reply.state_hash.hex() for reply in replies}
    report.check("equal state hashes", len(hashes) == 1, f"{len(hashes)} states at index {replies[0].applied_index}")
