"""Simulated workers: they only send registrations and heartbeats to the masters."""

from __future__ import annotations

import asyncio
import secrets

from holdfast.common.limits import GIB
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb

WORKERS = 1_500
RACKS = 30
#: Calls under way at once.
AT_ONCE = 32
#: Tier and path of each directory of a worker.
_TIERS = (("MEMORY", "/dev/shm/holdfast"), ("SSD", "/data/nvme0"), ("HDD", "/data/disk1"))


async def register(client: ControlClient) -> list[tuple[pb.RegisterWorkerRequest, pb.RegisterWorkerReply]]:
    """Register all workers with the masters; return each request and reply."""
    registered: list[tuple[pb.RegisterWorkerRequest, pb.RegisterWorkerReply]] = []
    for first in range(0, WORKERS, AT_ONCE):
        made = [_registration(number) for number in range(first, min(first + AT_ONCE, WORKERS))]
        replies = await asyncio.gather(*(client.call("Registry/RegisterWorker", each) for each in made))
        registered += zip(made, replies, strict=True)
    return registered


def _registration(number: int) -> pb.RegisterWorkerRequest:
    """The first start of a worker: three directories of 1000 GiB, each filled by another part."""
    directories = [
        pb.Directory(
            id=secrets.token_bytes(16),
            path=path,
            tier=tier,
            capacity_bytes=1000 * GIB,
            used_bytes=(number % 900) * GIB,
            free_bytes=(1000 - number % 900) * GIB,
            healthy=True,
            state="well",
        )
        for tier, path in _TIERS
    ]
    return pb.RegisterWorkerRequest(
        uid=secrets.token_bytes(16),
        name=f"w{number}",
        incarnation=1,
        host=f"h{number}",
        rack=f"/dc/r{number % RACKS}",
        data_address=f"h{number}:7080",
        http_address=f"h{number}:7081",
        directories=directories,
    )
