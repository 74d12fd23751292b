"""Workers that are only told of: masters take their registrations and heartbeats for those of real ones."""

from __future__ import annotations

import secrets

from holdfast.common.limits import GIB
from holdfast.common.proto import holdfast_pb2 as pb

#: Tier and path of each directory of a worker.
TIERS = (("MEMORY", "/dev/shm/holdfast"), ("SSD", "/data/nvme0"), ("HDD", "/data/disk1"))


def registration(number: int, racks: int) -> pb.RegisterWorkerRequest:
    """The first start of worker `number` of a cluster with so many racks: three directories of 1000 GiB, each filled
    by another part."""
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
        for tier, path in TIERS
    ]
    return pb.RegisterWorkerRequest(
        uid=secrets.token_bytes(16),
        name=f"w{number}",
        incarnation=1,
        host=f"h{number}",
        rack=f"/dc/r{number % racks}",
        data_address=f"h{number}:7080",
        http_address=f"h{number}:7081",
        directories=directories,
    )
