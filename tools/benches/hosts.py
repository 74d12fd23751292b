"""1,500 hosts with 16 workers each: what 24,000 workers cost the leading master.

The workers are simulated by one client: it registers them and sends the heartbeats of each host every three seconds,
all of its workers in one, as they do (worker/server/membership/neighbours.py). The rest is measured beside these.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.common.errors import HoldfastError
from holdfast.common.net.control import ControlClient
from holdfast.common.net.http_client import HttpClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.system.tasks import awaited
from holdfast.tools.bare import reduce_request, register_application
from holdfast.tools.benches.commands import longest_turn
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.fleet import HOSTS, moved_on, register, registration, registrations
from holdfast.tools.benches.page import load
from holdfast.tools.benches.process_stats import cpu_seconds, pss_bytes
from holdfast.tools.cli.output import percentile

WORKERS_PER_HOST = 16
PARTITIONS = 100_000
_EVERY_SECONDS = 3.0
#: Hosts whose heartbeats may be under way at once.
_SENDERS = 20
_SECONDS = 21.0
_PAGE_SECONDS = 10.0
_REPEATS = 5
_REGISTRATIONS = 50
#: For the masters of this section: while all are registered there are no heartbeats yet.
SETTINGS: Mapping[str, Mapping[str, object]] = {"lease": {"worker": "1h", "heartbeat": f"{_EVERY_SECONDS:g}s"}}


def hosts(cluster: LocalCluster) -> list[Figure]:
    """Register all, then measure beside their heartbeats; in the end kill the leader and start it again."""
    figures, leader = asyncio.run(_measure(cluster))
    return figures + asyncio.run(_restart(cluster, leader))


async def _measure(cluster: LocalCluster) -> tuple[list[Figure], Server]:
    async with ControlClient(cluster.endpoints) as client:
        began = time.perf_counter()
        beats = await register(client, registrations(workers_per_host=WORKERS_PER_HOST))
        registering = time.perf_counter() - began
        leader = await asyncio.to_thread(cluster.leader)
        times: list[float] = []
        hosts = [_together(beats[at : at + WORKERS_PER_HOST]) for at in range(0, len(beats), WORKERS_PER_HOST)]
        beating = awaited(_beat(client, hosts, times))
        await asyncio.sleep(_EVERY_SECONDS)
        sent, cpu, began = len(times), cpu_seconds(leader.pid), time.perf_counter()
        await asyncio.sleep(_SECONDS)
        passed = time.perf_counter() - began
        used, alone = cpu_seconds(leader.pid) - cpu, times[sent:]
        beside = await _beside(client, leader)
        assert not beating.done(), beating.exception()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    if await asyncio.to_thread(cluster.leader) is not leader:
        raise HoldfastError("another master leads now: this machine is too busy to measure one")
    wanted = HOSTS / _EVERY_SECONDS
    note = (
        f"{len(beats):,} workers on {HOSTS:,} hosts, each heard every {_EVERY_SECONDS:g} s: {wanted:,.0f} a second; "
        f"worked out of {len(alone) / passed:,.0f}"
    )
    turn = await asyncio.to_thread(longest_turn, cluster)
    state = sum(each.stat().st_size for each in (leader.config.parent / leader.name).rglob("*") if each.is_file())
    return [
        Figure("hosts", "the leader, heartbeats alone", 100 * wanted * used / len(alone), "% core", 50.0, note=note),
        Figure("hosts", "the same, for the heartbeat of one host", used / len(alone), "s"),
        Figure("hosts", "a heartbeat, p99", percentile(alone, 0.99), "s"),
        Figure("hosts", "all workers registered", registering, "s", note=f"{len(beats) / registering:,.0f} a second"),
        *beside,
        Figure("hosts", "longest turn of a Raft thread", turn, "s", 0.05, note="disk included"),
        Figure("hosts", "the leader's log and snapshots", state, "B"),
        Figure("hosts", "the leader's memory, PSS", pss_bytes(leader.pid), "B"),
    ], leader


def _together(beats: Sequence[pb.HeartbeatRequest]) -> pb.HeartbeatRequest:
    """The heartbeat of the first worker of a host, with those of the others."""
    first, *others = beats
    first.neighbours.extend(others)
    return first


async def _beat(client: ControlClient, hosts: Sequence[pb.HeartbeatRequest], times: list[float]) -> None:
    """Send the heartbeat of each host in its turn until cancelled; `times` gets the seconds of each call."""
    loop = asyncio.get_running_loop()
    begun, step = loop.time(), _EVERY_SECONDS / len(hosts)

    async def send(first: int) -> None:
        number = first
        while True:
            await asyncio.sleep(max(0.0, begun + number * step - loop.time()))
            beat = hosts[number % len(hosts)]
            for each in (beat, *beat.neighbours):
                moved_on(each)
            before = time.perf_counter()
            reply = await client.call("Registry/Heartbeat", beat)
            times.append(time.perf_counter() - before)
            known = [not each.reregister for each in (reply, *reply.neighbours)]
            assert known == [True] * WORKERS_PER_HOST, known
            number += _SENDERS

    await asyncio.gather(*map(send, range(_SENDERS)))


async def _beside(client: ControlClient, leader: Server) -> list[Figure]:
    """What others see while the heartbeats go on."""
    instance, registering, placing, named = secrets.token_bytes(16), [], [], 0
    for number in range(_REGISTRATIONS):
        began = time.perf_counter()
        await client.call("Registry/RegisterWorker", registration(HOSTS, number, WORKERS_PER_HOST))
        registering.append(time.perf_counter() - began)
    await register_application(client, instance, "bench")
    for number in range(_REPEATS):
        request = reduce_request(instance, number, PARTITIONS)
        began = time.perf_counter()
        reply = await client.call("Shuffles/RegisterShuffle", request)
        placing.append(time.perf_counter() - began)
        named = len(reply.workers)
    pages = HttpClient()
    page, size = await load(pages, leader.address, "/", time.perf_counter() + _PAGE_SECONDS)
    scrapes, _ = await load(pages, leader.address, "/metrics", time.perf_counter() + _PAGE_SECONDS / 4)
    await pages.close()
    note = f"{PARTITIONS:,} partitions, 2 copies; the answer names {named:,} workers"
    shown = f"{len(page)} pages of {size:,} bytes, one after the other"
    return [
        Figure("hosts", "one more worker registered, p99", percentile(registering, 0.99), "s", 0.5),
        Figure("hosts", "a shuffle registered, median", percentile(placing, 0.5), "s", 0.5, note=note),
        Figure("hosts", "the page, median", percentile(page, 0.5), "s", 0.3, note=shown),
        Figure("hosts", "the page, the longest", max(page), "s"),
        Figure("hosts", "metrics, median", percentile(scrapes, 0.5), "s", 0.3),
    ]


async def _restart(cluster: LocalCluster, leader: Server) -> list[Figure]:
    """Kill the leader and have another one take a command; then start it again, with all that it had."""
    async with ControlClient(cluster.endpoints) as client:
        await asyncio.to_thread(leader.kill)
        began = time.perf_counter()
        await register_application(client, secrets.token_bytes(16), "bench")
        accepted = time.perf_counter() - began
    began = time.perf_counter()
    await asyncio.to_thread(leader.start)
    return [
        Figure("hosts", "kill -9 of the leader to the next accepted command", accepted, "s"),
        Figure("hosts", "its restart, exec to serving", time.perf_counter() - began, "s"),
    ]
