"""Simulated workers: they only send registrations and heartbeats to the masters."""

from __future__ import annotations

import asyncio
import secrets

from holdfast.common.limits import GIB
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb

HOSTS = 1_500
RACKS = 30
#: Calls under way at once.
AT_ONCE = 32
#: Tier and path of each directory of a worker that has its host for itself.
_TIERS = (("MEMORY", "/dev/shm/holdfast"), ("SSD", "/data/nvme0"), ("HDD", "/data/disk1"))
#: How many counters a worker tells, those of its pace among them.
_COUNTERS = 29


def registrations(hosts: int = HOSTS, workers_per_host: int = 1) -> list[pb.RegisterWorkerRequest]:
    """The workers of all hosts, host by host."""
    return [registration(host, number, workers_per_host) for host in range(hosts) for number in range(workers_per_host)]


async def register(client: ControlClient, made: list[pb.RegisterWorkerRequest]) -> list[pb.HeartbeatRequest]:
    """Register workers with the masters; return the heartbeat of each, in their order."""
    beats: list[pb.HeartbeatRequest] = []
    for first in range(0, len(made), AT_ONCE):
        some = made[first : first + AT_ONCE]
        replies = await asyncio.gather(*(client.call("Registry/RegisterWorker", each) for each in some))
        beats += map(_heartbeat, some, replies)
    return beats


def registration(host: int, number: int, workers_per_host: int) -> pb.RegisterWorkerRequest:
    """The first start of a worker: directories of 1000 GiB, each filled by another part; one that shares its host has
    one of its own."""
    used = (host % 900) * GIB
    directories = [
        pb.Directory(
            id=secrets.token_bytes(16),
            path=path,
            tier=tier,
            capacity_bytes=1000 * GIB,
            used_bytes=used,
            free_bytes=1000 * GIB - used,
            healthy=True,
            state="well",
        )
        for tier, path in (_TIERS if workers_per_host == 1 else [("HDD", f"/data/disk{number}")])
    ]
    return pb.RegisterWorkerRequest(
        uid=secrets.token_bytes(16),
        name=f"w{host}-{number}" if number else f"w{host}",
        incarnation=1,
        host=f"h{host}",
        machine_id=f"machine of h{host}",
        rack=f"/dc/r{host % RACKS}",
        data_address=f"h{host}:{7080 + 2 * number}",
        http_address=f"h{host}:{7081 + 2 * number}",
        directories=directories,
    )


def _heartbeat(registered: pb.RegisterWorkerRequest, reply: pb.RegisterWorkerReply) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        worker=reply.worker,
        uid=registered.uid,
        state=reply.state,
        incarnation=registered.incarnation,
        directories=registered.directories,
        memory_bytes=256 << 20,
        files=1_000,
        counters={
            "push_bytes": 1 << 40,
            "stream_bytes": 1 << 40,
            **{f"counter_of_a_worker_{number}": 1 << number for number in range(_COUNTERS - 2)},
        },
    )


def moved_on(beat: pb.HeartbeatRequest) -> pb.HeartbeatRequest:
    """The next heartbeat of the same worker, which has taken and given data meanwhile."""
    beat.counters["push_bytes"] += 1 << 20
    beat.counters["stream_bytes"] += 1 << 20
    return beat
