"""The page of the leading master and its metrics, with 1,500 workers and 1,000 shuffles.

The workers are simulated by one client that sends their heartbeats; each has three directories. Measured is what a
client sees from the request to the last byte, one page after the other while heartbeats and commands go on, and what
commands beside them see, since a page must not hold up the masters. What a browser adds is seen with `tox -e page`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.net.control import ControlClient
from holdfast.common.net.http_client import HttpClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.tasks import awaited
from holdfast.tools.bare import reduce_request, register_application
from holdfast.tools.benches.commands import longest_turn
from holdfast.tools.benches.control import measure_control
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.fleet import AT_ONCE, HOSTS, RACKS, moved_on, register, registrations
from holdfast.tools.benches.process_stats import cpu_seconds
from holdfast.tools.cli.output import percentile

APPLICATIONS = 20
SHUFFLES = 50
_SECONDS = 8.0
_PAGE_SECONDS_MAX = 60.0
#: For one registration, of many at once.
_FILL_SECONDS_MAX = 120.0
#: For the masters of this section: heartbeats come late, since one process sends them all.
SETTINGS: Mapping[str, Mapping[str, object]] = {"lease": {"worker": "1h"}}


def page(cluster: LocalCluster) -> list[Figure]:
    """Tell the masters of workers and shuffles, then load the page again and again."""
    return asyncio.run(_measure(cluster))


async def _measure(cluster: LocalCluster) -> list[Figure]:
    pages = HttpClient()
    async with ControlClient(cluster.endpoints) as client:
        beats = await fill(client)
        leader = await asyncio.to_thread(cluster.leader)
        filling = await asyncio.to_thread(longest_turn, cluster)
        before = cpu_seconds(leader.pid)
        alone, _ = await load(pages, leader.address, "/", time.perf_counter() + _SECONDS / 2)
        core = (cpu_seconds(leader.pid) - before) / len(alone)
        quiet = await measure_control(cluster.endpoints, clients=1, seconds=_SECONDS / 2)
        beating = awaited(_beat(client, beats))
        loading = awaited(load(pages, leader.address, "/", time.perf_counter() + _SECONDS))
        beside = await measure_control(cluster.endpoints, clients=1, seconds=_SECONDS - 1)
        times, size = await loading
        scrapes, _ = await load(pages, leader.address, "/metrics", time.perf_counter() + 2.0)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    await pages.close()
    turn = await asyncio.to_thread(longest_turn, cluster)
    without = f"without: {quiet.p99_ms:.1f} ms"
    before_pages = f"before the first page, while all was registered: {filling * 1000:.0f} ms"
    note = f"{HOSTS:,} workers in {RACKS} racks, {APPLICATIONS * SHUFFLES:,} shuffles, {len(times)} pages"
    return [
        Figure("page", "from the request to the last byte, median", percentile(times, 0.5), "s", 0.1, note=note),
        Figure("page", "the same, p99", percentile(times, 0.99), "s", 0.1),
        Figure("page", "the same without heartbeats, median", percentile(alone, 0.5), "s", 0.1),
        Figure("page", "the leader's core for one page", core, "s", note="whatever else the machine does"),
        Figure("page", "its size", size, "B"),
        Figure("page", "metrics, median", percentile(scrapes, 0.5), "s", 0.1),
        Figure("page", "one command beside pages, p99", beside.p99_ms / 1000, "s", note=without),
        Figure("page", "longest turn of a Raft thread", turn, "s", 0.05, note=f"disk included; {before_pages}"),
    ]


async def load(pages: HttpClient, address: str, path: str, end: float) -> tuple[list[float], int]:
    """Load a page again and again; return the seconds of each, and its size."""
    times, size = [], 0
    while (began := time.perf_counter()) < end:
        size = len(await pages.get(address, path, _PAGE_SECONDS_MAX))
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.02)
    return times, size


async def fill(client: ControlClient) -> list[pb.HeartbeatRequest]:
    """Register everything; return a heartbeat of each worker."""
    beats = await register(client, registrations())
    for number in range(APPLICATIONS):
        instance = secrets.token_bytes(16)
        await register_application(client, instance, f"application-{number}")
        requests = [reduce_request(instance, shuffle, 200, 40) for shuffle in range(SHUFFLES)]
        for first in range(0, SHUFFLES, AT_ONCE):
            calls = (
                client.call("Shuffles/RegisterShuffle", each, _FILL_SECONDS_MAX)
                for each in requests[first : first + AT_ONCE]
            )
            await asyncio.gather(*calls)
    return beats


async def _beat(client: ControlClient, beats: list[pb.HeartbeatRequest]) -> None:
    """Send heartbeats of all workers in turn, as fast as a quarter of a core may, until cancelled."""
    while True:
        for beat in beats:
            began = time.perf_counter()
            await client.call("Registry/Heartbeat", moved_on(beat))
            await asyncio.sleep(3 * (time.perf_counter() - began))
