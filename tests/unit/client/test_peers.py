"""Connections of a process to workers: shared, and kept only while they are of use."""

import asyncio

import pytest

from holdfast.client.connection.peers import Peers
from holdfast.client.connection.ticket import Ticket
from holdfast.common.errors import RetryError
from holdfast.common.formats.messages import Hello, HelloOk
from holdfast.common.ids import NO_WORKER, Incarnation, Instance, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.server import ServerConnection, serve
from holdfast.common.security.credentials import Credentials
from tests.support.certificates import authority
from tests.support.frame_world import Echo


class Beginner(Echo):
    """A worker that has no number at the first HELLO, and has one then."""

    def __init__(self) -> None:
        super().__init__()
        self.number = NO_WORKER

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        """Say the number, and have another one the next time."""
        reported, self.number = self.number, WorkerId(3)
        return HelloOk(worker=reported, incarnation=Incarnation(1))


def test_a11_a_connection_whose_hello_named_no_worker_is_not_kept() -> None:
    """A worker that has not registered answers HELLO without a number. Whoever wants it is told to try again, and the
    next try makes a connection of its own: what the first one said would never change."""

    async def story() -> None:
        pool = BufferPool(64 * MIB)
        server = await serve("127.0.0.1", 0, Beginner(), pool)
        address = "{}:{}".format(*server.address)
        peers = Peers(Ticket("127.0.0.1:1", "mine", Instance(bytes(16)), b""), lambda: pool)
        try:
            with pytest.raises(RetryError, match="has not registered yet"):
                await peers.link(address)
            assert (await peers.link(address)).hello.worker == 3
            assert await peers.link(address) is await peers.link(address)
        finally:
            await peers.close(masters=True)
            await server.close()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a40_another_token_is_not_waited_for_without_end() -> None:
    """A session that gets no answer as it asks for another token holds up a call no longer than the call may last, and
    neither does a call that waits for the same."""

    async def story() -> None:
        async def never(seconds: float) -> str:
            await asyncio.Event().wait()
            return ""

        shown = Credentials(authority().pem, "old")
        peers = Peers(Ticket("127.0.0.1:1", "mine", Instance(bytes(16)), b"", credentials=shown), lambda: pool)
        peers.sessions = {b"one": never, b"other": never}
        asked = [asyncio.create_task(peers.show_anew("old", seconds)) for seconds in (30.0, 0.01)]
        assert await asyncio.wait_for(asked[1], 60) is False
        asked[0].cancel()
        await asyncio.wait(asked)
        assert await asyncio.wait_for(peers.show_anew("old", 0.01), 60) is False

    pool = BufferPool(64 * MIB)
    asyncio.run(asyncio.wait_for(story(), 60))
