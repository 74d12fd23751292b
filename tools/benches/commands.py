"""The masters: latency of one command after the other, commands a second of many clients, failover."""

from __future__ import annotations

import asyncio
import random
import secrets

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.connection.direct import DirectConnection
from holdfast.tools.benches.control import measure_control
from holdfast.tools.benches.figures import Figure
from holdfast.tools.cli.output import percentile
from holdfast.tools.drills import leader
from holdfast.tools.drills.support.report import Report

_SECONDS = 5.0
_CLIENTS = 64
_FAILOVERS = 5


def latency(cluster: LocalCluster) -> list[Figure]:
    """One client, one command after the other, each durable on a majority before the next is given."""
    cluster.leader()
    found = asyncio.run(measure_control(cluster.endpoints, clients=1, seconds=_SECONDS))
    note = f"{found.commands} commands, {found.transport}, three synced masters"
    return [
        Figure("latency", "one durable command, p50", found.p50_ms / 1000, "s", 0.002, note=note),
        Figure("latency", "one durable command, p99", found.p99_ms / 1000, "s", 0.010),
    ]


def rate(cluster: LocalCluster) -> list[Figure]:
    """Many clients, each with one command under way; they share the cores with the masters."""
    cluster.leader()
    found = asyncio.run(measure_control(cluster.endpoints, clients=_CLIENTS, seconds=_SECONDS))
    note = f"{found.clients} clients in one process, p50 {found.p50_ms:.1f} ms"
    return [
        Figure("rate", "durable commands", found.per_second, "1/s", 3000, less_is_better=False, note=note),
        Figure("rate", "longest turn of a Raft thread", longest_turn(cluster), "s", 0.05, note="disk included"),
    ]


def longest_turn(cluster: LocalCluster) -> float:
    """Return the longest that the Raft thread of any master was away from its sockets so far, in seconds."""
    turns = []
    for master in cluster.masters:
        connection = DirectConnection(master.address)
        lines = connection.get("/metrics").splitlines()
        connection.close()
        turns += [float(line.split()[1]) for line in lines if line.startswith("holdfast_master_raft_turn_seconds_max ")]
    return max(turns)


def failover(cluster: LocalCluster) -> list[Figure]:
    """Kill the leader a few times; `holdfast drill leader` does it more often."""
    report = Report("failover", secrets.randbits(32), _FAILOVERS)
    asyncio.run(leader.drill_kill(cluster, report, random.Random(report.seed), lambda _: None))
    spans = report.times[leader.FAILOVER]
    return [
        Figure("failover", "kill -9 to the next accepted command, median", percentile(spans, 0.5), "s"),
        Figure("failover", "the longest", max(spans), "s", leader.FAILOVER_SECONDS, note=f"of {len(spans)} kills"),
    ]
