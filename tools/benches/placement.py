"""Placement at the size of Celeborn's own benchmark: shuffles of 100,000 partitions with two copies on 1,500 workers.

The workers are only registered, by one client; no process runs for them. What a shuffle takes is what the client sees:
placing, encoding, three synced masters, and an answer with all addresses.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.formats.reduce_layouts import ReduceLocations
from holdfast.common.limits import GIB, MIB
from holdfast.common.net.control import ControlClient
from holdfast.tools.bare import reduce_request, register_application
from holdfast.tools.benches.commands import longest_turn
from holdfast.tools.benches.control import measure_control
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.fleet import HOSTS, RACKS, register, registrations
from holdfast.tools.benches.process_stats import pss_bytes

PARTITIONS = 100_000
#: So that 10^6 partitions live.
SHUFFLES = 10
#: Of commands beside snapshots.
_SECONDS = 10.0
#: For the masters of this section: the workers send no heartbeats, and snapshots come often.
SETTINGS: Mapping[str, Mapping[str, object]] = {"lease": {"worker": "1h"}, "raft": {"snapshot_entries": 2_000}}


def placement(cluster: LocalCluster) -> list[Figure]:
    """Register workers, place shuffles, and ask for small commands while the masters write snapshots of it all."""
    cluster.leader()
    times, encoded, apart = asyncio.run(_place(cluster.endpoints))
    times.sort()
    turn = longest_turn(cluster)
    found = asyncio.run(measure_control(cluster.endpoints, clients=4, seconds=_SECONDS))
    memory = max(pss_bytes(master.pid) for master in cluster.masters)
    beside = f"of {found.commands}, p99 {found.p99_ms:.1f} ms"
    note = f"{HOSTS} workers in {RACKS} racks, 2 copies, {len(times)} shuffles"
    return [
        Figure("placement", f"a shuffle of {PARTITIONS:,}, median", times[len(times) // 2], "s", 0.5, note=note),
        Figure("placement", "the longest", times[-1], "s"),
        Figure("placement", "encoded assignment", encoded, "B", MIB),
        Figure("placement", "pairs on one rack", apart, "", 0),
        Figure("placement", "longest turn of a Raft thread", turn, "s", 0.05, note="disk included"),
        Figure("placement", "master with 1,000,000 partitions, PSS", memory, "B", GIB),
        Figure("placement", "longest command beside snapshots of them", found.max_ms / 1000, "s", 0.1, note=beside),
    ]


async def _place(endpoints: str) -> tuple[list[float], int, int]:
    """Return the seconds that each shuffle took, the bytes of an assignment, and how many pairs are on one rack."""
    instance = secrets.token_bytes(16)
    async with ControlClient(endpoints) as client:
        await register(client, registrations())
        await register_application(client, instance, "bench")
        times, encoded, together = [], 0, 0
        for number in range(SHUFFLES):
            request = reduce_request(instance, number, PARTITIONS)
            began = time.perf_counter()
            reply = await client.call("Shuffles/RegisterShuffle", request)
            times.append(time.perf_counter() - began)
            encoded = max(encoded, len(reply.assignment_array))
            racks = {each.worker: each.place for each in reply.workers}
            rows = ReduceLocations.decode(reply.assignment_array).partitions
            together += sum(len({racks[one] for one in row.workers}) < 2 for row in rows)
    return times, encoded, together
