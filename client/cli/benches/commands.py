"""The masters: latency of one command after the other, commands a second of many clients, failover."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import secrets
import time
from concurrent.futures import ProcessPoolExecutor

from holdfast.client.cli.benches.figures import Figure
from holdfast.client.cli.drills import leader
from holdfast.client.cli.drills.report import Report
from holdfast.client.cli.output import percentile
from holdfast.client.cluster import LocalCluster
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb

_SEQUENTIAL = 1000
_PROCESSES = 2
_CLIENTS_PER_PROCESS = 32
_RATE_SECONDS = 5.0
_FAILOVERS = 5


def latency(cluster: LocalCluster) -> list[Figure]:
    """One client, one command after the other, each durable on a majority before the next is given."""
    cluster.leader()
    spans = asyncio.run(_sequential(cluster.endpoints))
    note = f"{len(spans)} RegisterShuffle, gRPC, 3 synced masters"
    return [
        Figure("latency", "one durable command, p50", percentile(spans, 0.5), "s", 0.002, note=note),
        Figure("latency", "one durable command, p99", percentile(spans, 0.99), "s", 0.010),
    ]


def rate(cluster: LocalCluster) -> list[Figure]:
    """Many clients in other processes, each with one command under way."""
    cluster.leader()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool:
        begin = time.time() + 2.0  # when every process has loaded what it needs
        found = [pool.submit(_load, cluster.endpoints, begin) for _ in range(_PROCESSES)]
        total = sum(future.result() for future in found)
    note = f"{_PROCESSES * _CLIENTS_PER_PROCESS} clients in {_PROCESSES} processes for {_RATE_SECONDS:g} s, same cores"
    return [Figure("rate", "durable commands", total / _RATE_SECONDS, "1/s", 3000, less_is_better=False, note=note)]


def failover(cluster: LocalCluster) -> list[Figure]:
    """Kill the leader a few times; `holdfast drill leader` does it more often."""
    report = Report("failover", secrets.randbits(32), _FAILOVERS)
    asyncio.run(leader.drill_kill(cluster, report, random.Random(report.seed), lambda _: None))
    spans = report.times[leader.FAILOVER]
    return [
        Figure("failover", "kill -9 to the next accepted command, median", percentile(spans, 0.5), "s"),
        Figure("failover", "the longest", max(spans), "s", leader.FAILOVER_SECONDS, note=f"of {len(spans)} kills"),
    ]


async def _sequential(endpoints: str) -> list[float]:
    async with ControlClient(endpoints) as client:
        instance = await _register_application(client)
        spans = []
        for number in range(_SEQUENTIAL):
            began = time.perf_counter()
            await _register_shuffle(client, instance, number)
            spans.append(time.perf_counter() - began)
        await client.call("Admin/Forget", pb.ForgetRequest(instance=instance))
        return spans


def _load(endpoints: str, begin: float) -> int:
    """In a process of its own: commands answered within the measured seconds."""
    return asyncio.run(_many(endpoints, begin))


async def _many(endpoints: str, begin: float) -> int:
    clients = [ControlClient(endpoints) for _ in range(_CLIENTS_PER_PROCESS)]
    instance = await _register_application(clients[0])
    done = 0

    async def run(number: int, client: ControlClient) -> None:
        nonlocal done
        shuffle = number << 20
        while time.time() < begin + _RATE_SECONDS:
            await _register_shuffle(client, instance, shuffle)
            shuffle += 1
            done += begin <= time.time() < begin + _RATE_SECONDS

    await asyncio.gather(*(run(number, client) for number, client in enumerate(clients)))
    await clients[0].call("Admin/Forget", pb.ForgetRequest(instance=instance))
    for client in clients:
        await client.close()
    return done


async def _register_application(client: ControlClient) -> bytes:
    instance = secrets.token_bytes(16)
    request = pb.RegisterApplicationRequest(instance=instance, name="bench", holder=instance)
    await client.call("Shuffles/RegisterApplication", request)
    return instance


async def _register_shuffle(client: ControlClient, instance: bytes, number: int) -> None:
    key = pb.ShuffleKey(instance=instance, shuffle=number, generation=0)
    request = pb.RegisterShuffleRequest(
        key=key, kind=pb.PARTITION_KIND_MAP, partitions=64, maps=8, ack=1, holder=instance
    )
    await client.call("Shuffles/RegisterShuffle", request)
