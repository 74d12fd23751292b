"""The gRPC port of a master: how many connections it takes, and what they leave for the rest of the process."""

import asyncio
import resource
import socket
from typing import Any, cast

import pytest
from grpc import aio

from holdfast.common.system.descriptors import RESERVE, connections_max
from holdfast.master.api.grpc import serve_grpc
from tests.support.waiting import wait_until_async

MOST = 20


def _closed(connection: socket.socket) -> bool:
    """Whether the server has closed it; what it sends before that is passed over."""
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def test_idle_connections_are_bounded() -> None:
    """Those beyond the bound are closed at once, those within stay; where some go a client finds room."""

    async def story() -> None:
        server, port = await serve_grpc("c", cast("Any", None), "127.0.0.1:0", MOST)
        connections = []
        for _ in range(3 * MOST):
            connection = socket.create_connection(("127.0.0.1", port), 60)
            connection.setblocking(False)
            connections.append(connection)
        await wait_until_async(lambda: sum(map(_closed, connections)) == 2 * MOST, "the end of those beyond the bound")
        for connection in connections:
            connection.close()
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 60)
        await server.stop(None)

    asyncio.run(story())


@pytest.mark.parametrize("soft", [1_024, 20_000, 1_048_576])
def test_the_doors_of_a_process_leave_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    """However many connections each may take: Raft, files and what else is open need some, too."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    most = connections_max(16_384, 2)
    assert 2 * most + min(RESERVE, soft // 4) <= soft
    assert most == 16_384 or 2 * most + RESERVE + 2 > soft - soft // 4
