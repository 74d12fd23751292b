"""What the drills do to servers and ask them, from coroutines: blocking handles run in threads."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import ask, worker_status
from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import Credentials
from holdfast.tools.drills.support.report import Report

#: Idle masters must agree after this; entries are sent at once, so this is for a loaded machine.
AGREE_SECONDS_MAX = 60.0
#: The same for a worker that was started again, or can be reached again.
BACK_SECONDS_MAX = 60.0
_LOOK_SECONDS = 0.02


async def kill(servers: Sequence[Server], report: Report) -> float:
    """Kill -9 all of them at once; returns the moment (monotonic seconds) when the last signal was sent, or where
    commands send them, when the first was about to be."""
    for server in servers:
        if server.here:
            os.kill(server.pid, signal.SIGKILL)
    moment = time.monotonic()
    report.killed(*(server.name for server in servers))
    await asyncio.gather(*(asyncio.to_thread(server.kill) for server in servers))
    return moment


def by_host(workers: Iterable[Server]) -> dict[str, list[Server]]:
    """The workers of each host."""
    found: dict[str, list[Server]] = {}
    for worker in workers:
        found.setdefault(worker.host, []).append(worker)
    return found


async def start(servers: Sequence[Server]) -> None:
    """Start all of them, at once, and wait until they are ready. Raises StartError."""
    await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))


async def leader(cluster: LocalCluster) -> Server:
    """The current leader; waits for one."""
    return await asyncio.to_thread(cluster.leader)


async def status(master: Server) -> pb.StatusReply | None:
    """What one master says about itself; None if it does not answer."""
    try:
        request, credentials = pb.StatusRequest(), master.credentials
        return await asyncio.to_thread(ask, master.address, "Admin/Status", request, pb.StatusReply, 2.0, credentials)
    except HoldfastError:
        return None


def owner(cluster: LocalCluster, reply: pb.RegisterApplicationReply) -> Credentials | None:
    """The credentials of the owner of a registered application; None without security."""
    return None if cluster.credentials is None else cluster.credentials.with_token(reply.token)


async def registered(workers: Iterable[Server], seconds: float = BACK_SECONDS_MAX) -> None:
    """Wait until the masters have accepted each of the workers since its last start. Raises TimeoutError."""

    def look(worker: Server) -> bool:
        try:
            return bool(worker_status(worker.http, 2.0, worker.credentials)["registered"])
        except RetryError:
            return False

    for worker in workers:
        await until(partial(look, worker), seconds)


async def until(look: Callable[[], bool], seconds: float) -> None:
    """Wait until `look`, which may block, finds what it looks for. Raises TimeoutError."""
    if not await asyncio.to_thread(wait_until, look, seconds):
        raise TimeoutError


async def agree(masters: Sequence[Server]) -> list[pb.StatusReply]:
    """Wait until all masters have applied the same, and return what each says then. Raises TimeoutError."""
    async with asyncio.timeout(AGREE_SECONDS_MAX):
        while True:
            found = [reply for reply in await asyncio.gather(*map(status, masters)) if reply is not None]
            if len(found) == len(masters) and len({reply.applied_index for reply in found}) == 1:
                return found
            await asyncio.sleep(_LOOK_SECONDS)
