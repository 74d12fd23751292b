"""What the drills do to servers and ask them, from coroutines: blocking handles run in threads."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from holdfast.client.cli.drills.report import Report
from holdfast.client.direct import DirectConnection, ask
from holdfast.client.local_cluster import LocalCluster, Server
from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.proto import holdfast_pb2 as pb

#: Masters that stand still must agree after this; entries go out at once, so this is for a loaded machine.
AGREE_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.02


async def kill(servers: Sequence[Server], report: Report) -> float:
    """Kill -9 all of them at once; returns the moment (monotonic seconds) when the last signal was sent."""
    for server in servers:
        os.kill(server.pid, signal.SIGKILL)
    moment = time.monotonic()
    report.kills += len(servers)
    await asyncio.gather(*(asyncio.to_thread(server.kill) for server in servers))
    return moment


async def start(servers: Sequence[Server]) -> None:
    """Start all of them, at once, and wait until they are ready. Raises StartError."""
    await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))


async def leader(cluster: LocalCluster) -> Server:
    """The master that leads now; waits for one."""
    return await asyncio.to_thread(cluster.leader)


async def status(master: Server) -> pb.StatusReply | None:
    """What one master says about itself; None if it does not answer."""
    try:
        return await asyncio.to_thread(ask, master.address, "Admin/Status", pb.StatusRequest(), pb.StatusReply, 2.0)
    except HoldfastError:
        return None


def worker_status(worker: Server) -> dict[str, Any]:
    """What a worker says at /status; {} if it does not answer. Blocking."""
    connection = DirectConnection(worker.http, 2.0)
    try:
        said: dict[str, Any] = json.loads(connection.get("/status"))
    except RetryError:
        return {}
    finally:
        connection.close()
    return said


async def agree(masters: Sequence[Server]) -> list[pb.StatusReply]:
    """Wait until all masters have applied the same, and return what each says then. Raises TimeoutError."""
    async with asyncio.timeout(AGREE_SECONDS_MAX):
        while True:
            found = [reply for reply in await asyncio.gather(*map(status, masters)) if reply is not None]
            if len(found) == len(masters) and len({reply.applied_index for reply in found}) == 1:
                return found
            await asyncio.sleep(_LOOK_SECONDS)
