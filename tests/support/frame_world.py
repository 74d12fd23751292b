"""A server of framed connections with a simple handler, and its clients, on one loop."""

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError
from holdfast.common.formats.frame import HEADER_BYTES, FrameHeader, FrameType, check_meta, decode_header, encode_frame
from holdfast.common.formats.messages import Hello, HelloOk, StreamData, StreamOpen, StreamOpened
from holdfast.common.ids import Generation, Incarnation, Instance, PartitionId, ShuffleId, ShuffleKey, WorkerId
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, MIB
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.client import FrameClient, StreamSink
from holdfast.common.net.frames.server import FrameServer, ServerConnection, serve
from holdfast.common.statuses import Status
from tests.support.certificates import authority

#: Worlds made now are under TLS; tests/conformance/conftest.py has every test run both ways.
secured = False

OPENING = StreamOpen(
    shuffle=ShuffleKey(Instance(bytes(16)), ShuffleId(1), Generation(0)),
    begin=PartitionId(0),
    end=PartitionId(1),
    credit_bytes=0,
    files=[],
)


class Echo:
    """Answers a PING with its meta, a MAP_PUSH with the first and last byte and the length of its body."""

    def __init__(self) -> None:
        self.kept: list[tuple[ServerConnection, FrameHeader, Body]] = []
        #: keep bodies instead of answering
        self.keep = False
        #: keep requests without answering
        self.mute = False
        #: larger bodies are refused before they are received
        self.body_bytes_max = FRAME_BODY_BYTES_MAX
        #: others wait
        self.hurry = False
        self.lost_connections = 0
        self.writable_calls = 0
        self.seen = 0
        self.connection: ServerConnection

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        """Refuse clusters called "other"."""
        if hello.cluster_id == "other":
            raise ProtocolError("this is another cluster", status=Status.WRONG_CLUSTER)
        self.connection = connection
        return HelloOk(worker=WorkerId(3), incarnation=Incarnation(4))

    def admit(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> bool:
        """Refuse bodies beyond the largest that is wanted."""
        if header.body_bytes <= self.body_bytes_max:
            return True
        connection.refuse(header, RetryError("too much", status=Status.BUSY))
        return False

    def frame(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
        """Answer, or keep."""
        self.seen += 1
        if body is not None and self.keep:
            self.kept.append((connection, header, body))
        elif body is not None:
            self.answer(connection, header, body)
        elif header.type == FrameType.MAP_ABORT:
            connection.refuse(header, RetryError("not now", status=Status.BUSY))
        elif header.type == FrameType.STREAM_OPEN:
            connection.reply(header, StreamOpened(stream=1, total_bytes=0).encode())
        elif not self.mute:
            connection.reply(header, meta)

    def answer(self, connection: ServerConnection, header: FrameHeader, body: Body) -> None:
        """Release a body and say what it was."""
        said = b"%d %d %d" % (body.view[0], body.view[-1], len(body))
        body.release()
        connection.reply(header, said)

    def release_one(self) -> None:
        """Answer the oldest kept body."""
        self.answer(*self.kept.pop(0))

    def writable(self, connection: ServerConnection) -> None:
        """Count."""
        self.writable_calls += 1

    def hurried(self) -> bool:
        """As it is set."""
        return self.hurry

    def lost(self, connection: ServerConnection) -> None:
        """Count."""
        self.lost_connections += 1


class Recorder(StreamSink):
    """Keeps what a stream brought."""

    def __init__(self) -> None:
        self.frames: list[tuple[StreamData, bytes]] = []
        self.error: HoldfastError | None = None

    def data(self, data: StreamData, body: Body | None) -> None:
        """Copy and release."""
        self.frames.append((data, bytes(body.view) if body is not None else b""))
        if body is not None:
            body.release()

    def failed(self, error: HoldfastError) -> None:
        """Keep the error."""
        assert self.error is None
        self.error = error


class World:
    """A server, its pool and its clients."""

    def __init__(self, echo: Echo, server: FrameServer) -> None:
        self.echo = echo
        self.server = server
        self.pool = server.pool

    async def client(self, cluster: str = "mine", inflight_max: int = 64) -> FrameClient:
        """A connected client with a pool of its own."""
        hello = Hello(cluster_id=cluster)
        credentials = authority().credentials() if self.server.tls is not None else None
        pool = BufferPool(64 * MIB)
        return await FrameClient.connect(
            *self.server.address, hello, pool, inflight_max=inflight_max, credentials=credentials
        )

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection; under TLS asyncio's own."""
        context = authority().credentials().context if self.server.tls is not None else None
        return await asyncio.open_connection(*self.server.address, ssl=context)


@cache
def listening() -> ssl.SSLContext:
    """What a server on this machine listens with."""
    with tempfile.TemporaryDirectory() as folder:
        return authority().issue("127.0.0.1", "localhost").context(Path(folder))


@contextlib.asynccontextmanager
async def world(budget: int = 64 * MIB) -> AsyncIterator[World]:
    """A server that ends with the test and has all its memory back."""
    echo = Echo()
    pool = BufferPool(budget)
    server = await serve("127.0.0.1", 0, echo, pool, listening() if secured else None)
    assert server._sweeper is not None
    server._sweeper.cancel()  # a story sweeps itself: one more sweep on a slow machine would be another story
    try:
        yield World(echo, server)
    finally:
        await server.close()
        for _, _, body in echo.kept:
            body.release()
    assert pool.used_bytes == 0


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's story on a loop of its own."""
    asyncio.run(asyncio.wait_for(story(), 60))


async def next_frame(reader: asyncio.StreamReader) -> tuple[FrameHeader, bytes]:
    """Read one frame without body from a bare connection."""
    raw = await reader.readexactly(HEADER_BYTES)
    header = decode_header(raw)
    meta = await reader.readexactly(header.meta_bytes)
    check_meta(raw, header, meta)
    return header, meta


GREETING = encode_frame(FrameType.HELLO, 1, Hello(cluster_id="mine").encode())
