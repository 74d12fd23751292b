"""Framed connections over real sockets: what arrives, what is refused, what is bounded."""

import asyncio
import contextlib
import os
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError, Status, UnknownStreamError
from holdfast.common.frame import HEADER_BYTES, FrameHeader, FrameType, check_meta, decode_header, encode_frame
from holdfast.common.ids import Generation, Incarnation, Instance, PartitionId, ShuffleId, ShuffleKey, WorkerId
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, FRAME_META_BYTES_MAX, MIB
from holdfast.common.messages import DataFlag, Hello, HelloOk, StreamData, StreamOpen, StreamOpened
from holdfast.common.net import frame_server, frames
from holdfast.common.net.buffers import Body, BufferPool
from holdfast.common.net.frame_client import FrameClient, StreamSink
from holdfast.common.net.frame_server import FrameServer, ServerConnection, serve
from holdfast.common.net.frames import FileRange
from tests.support.waiting import wait_until_async

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
        return await FrameClient.connect(*self.server.address, hello, BufferPool(64 * MIB), inflight_max=inflight_max)

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection."""
        return await asyncio.open_connection(*self.server.address)


@contextlib.asynccontextmanager
async def world(budget: int = 64 * MIB) -> AsyncIterator[World]:
    """A server that ends with the test and has all its memory back."""
    echo = Echo()
    pool = BufferPool(budget)
    server = await serve("127.0.0.1", 0, echo, pool)
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


def test_requests_find_their_answers() -> None:
    """Pipelined requests of all body sizes around the borders of the buffers come back to their own futures."""

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            assert (client.hello.worker, client.hello.incarnation) == (3, 4)
            sizes = [1, 100, 16_383, 16_384, 16_385, 65_536, 65_537, MIB, 3 * MIB + 1, FRAME_BODY_BYTES_MAX]
            futures = []
            for number, size in enumerate(sizes):
                body = bytes([number]) * (size - 1) + bytes([255 - number])
                split = memoryview(body)[: size // 2], memoryview(body)[size // 2 :]
                futures.append(await client.start(FrameType.MAP_PUSH, b"meta", *split))
            for number, (size, future) in enumerate(zip(sizes, futures, strict=True)):
                first = number if size > 1 else 255 - number
                assert (await future).meta == b"%d %d %d" % (first, 255 - number, size)
            client.close()
            await client.wait_closed()

    run(story)


@pytest.mark.parametrize("size", [0, 1, 16_384 - HEADER_BYTES, 16_384, 20_000, FRAME_META_BYTES_MAX])
def test_metas_of_every_size_arrive(size: int) -> None:
    """A meta section comes whole, whether it fits the small buffer or not."""

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            meta = os.urandom(size)
            assert (await client.request(FrameType.PING, meta)).meta == meta
            client.abort()

    run(story)


@pytest.mark.parametrize("step", [1, 7, 31, 33])
def test_bytes_may_come_in_any_portions(step: int) -> None:
    """Frames that arrive a few bytes at a time are the same frames."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            body = bytes(range(250))
            sent = GREETING + encode_frame(FrameType.PING, 2, b"hello")
            sent += encode_frame(FrameType.MAP_PUSH, 3, b"", len(body)) + body + encode_frame(FrameType.PING, 4)
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start in range(0, len(sent), step):
                writer.write(sent[start : start + step])
                await writer.drain()
                await asyncio.sleep(0)
            answers = [await next_frame(reader) for _ in range(4)]
            assert [header.request_id for header, _ in answers] == [1, 2, 3, 4]
            assert [meta for _, meta in answers[1:]] == [b"hello", b"0 249 250", b""]
            writer.close()

    run(story)


def test_random_portions_of_many_frames() -> None:
    """A long mix of frames cut at random places arrives whole and in order."""

    async def story() -> None:
        chance = random.Random(1)
        async with world() as it:
            reader, writer = await it.raw()
            sent = bytearray(GREETING)
            expected = []
            for number in range(2, 300):
                body = os.urandom(chance.choice([0, 1, 50, 20_000, 70_000]))
                meta = os.urandom(chance.choice([0, 3, 5_000]))
                frame_type = FrameType.MAP_PUSH if body else FrameType.PING
                sent += encode_frame(frame_type, number, meta, len(body)) + body
                expected.append(b"%d %d %d" % (body[0], body[-1], len(body)) if body else meta)

            async def feed() -> None:
                offset = 0
                while offset < len(sent):
                    size = chance.choice([1, 10, 1_000, 30_000])
                    writer.write(bytes(sent[offset : offset + size]))
                    await writer.drain()
                    offset += size

            feeding = asyncio.create_task(feed())
            await next_frame(reader)
            assert [(await next_frame(reader))[1] for _ in expected] == expected
            await feeding
            writer.close()

    run(story)


def broken(change: Callable[[bytearray], None]) -> bytes:
    """A PING with its bytes changed."""
    frame = bytearray(encode_frame(FrameType.PING, 2, b"some meta"))
    change(frame)
    return bytes(frame)


def field(offset: int, layout: str, value: int) -> Callable[[bytearray], None]:
    """A change of one header field, its checksum put right: only the field is wrong."""

    def change(frame: bytearray) -> None:
        from holdfast.common.checksum import crc32c

        struct.pack_into(layout, frame, offset, value)
        struct.pack_into("<I", frame, 28, crc32c(bytes(frame[32:]), crc32c(bytes(frame[:28]))))

    return change


def flip(offset: int) -> Callable[[bytearray], None]:
    """A change of one bit."""

    def change(frame: bytearray) -> None:
        frame[offset] ^= 1

    return change


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (broken(field(0, "<I", 0x31303030)), Status.BAD_FRAME),
        (broken(field(4, "<B", 9)), Status.BAD_VERSION),
        (broken(field(5, "<B", 200)), Status.BAD_FRAME),
        (broken(field(6, "<H", 0x8000)), Status.BAD_FRAME),
        (broken(field(6, "<H", 1)), Status.BAD_FRAME),
        (broken(field(16, "<I", FRAME_META_BYTES_MAX + 1)), Status.TOO_LARGE),
        (broken(field(20, "<I", FRAME_BODY_BYTES_MAX + 1)), Status.TOO_LARGE),
        (broken(flip(8)), Status.BAD_FRAME),
        (broken(flip(28)), Status.BAD_FRAME),
        (broken(flip(40)), Status.BAD_FRAME),
        (encode_frame(FrameType.HELLO, 5, Hello(cluster_id="mine").encode()), Status.BAD_FRAME),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", Status.BAD_FRAME),
    ],
)
def test_a_bad_frame_is_answered_with_its_reason_and_closed(bad: bytes, status: Status) -> None:
    """After HELLO, whatever is not a frame of ours gets a CLOSING frame with a status, then the end of the stream."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            writer.write(GREETING + bad + bytes(100_000))  # what follows is thrown away, not answered by a reset
            await next_frame(reader)
            header, reason = await next_frame(reader)
            assert (header.type, header.status, header.request_id) == (FrameType.CLOSING, status, 0)
            assert reason
            assert await reader.read() == b""
            writer.close()
            await wait_until_async(lambda: it.echo.lost_connections == 1, "the server to forget the connection")

    run(story)


@pytest.mark.parametrize(
    ("first", "status"),
    [
        (encode_frame(FrameType.PING, 1), Status.BAD_FRAME),
        (encode_frame(FrameType.MAP_PUSH, 1, b"", 1_000), Status.BAD_FRAME),
        (encode_frame(FrameType.HELLO, 1, Hello(cluster_id="mine").encode(), 1), Status.TOO_LARGE),
        (encode_frame(FrameType.HELLO, 1, bytes(100_000)), Status.TOO_LARGE),
        (encode_frame(FrameType.HELLO, 1, b"short"), Status.BAD_FRAME),
        (encode_frame(FrameType.HELLO, 1, Hello(cluster_id="other").encode()), Status.WRONG_CLUSTER),
    ],
)
def test_the_first_frame_is_a_small_hello(first: bytes, status: Status) -> None:
    """Before HELLO was accepted nothing else is, and no body takes memory."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            writer.write(first)
            header, _ = await next_frame(reader)
            assert (header.type, header.status) == (FrameType.CLOSING, status)
            assert await reader.read() == b""
            writer.close()
            assert it.pool.used_bytes_peak == 0
            assert it.echo.seen == 0

    run(story)


def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not say HELLO in time hears why and is closed."""
    monkeypatch.setattr(frame_server, "HELLO_SECONDS", 0.05)

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            header, reason = await next_frame(reader)
            assert header.type == FrameType.CLOSING
            assert b"HELLO" in reason
            writer.close()

    run(story)


def test_a_refused_client_gets_the_typed_error() -> None:
    """WRONG_CLUSTER reaches connect() as a ProtocolError with that status."""

    async def story() -> None:
        async with world() as it:
            with pytest.raises(ProtocolError) as caught:
                await it.client(cluster="other")
            assert caught.value.status == Status.WRONG_CLUSTER

    run(story)


def test_connecting_to_nobody_may_be_tried_again() -> None:
    """A refused or silent address raises RetryError."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            host, port = silent.getsockname()
            with pytest.raises(RetryError, match="did not answer"):
                await FrameClient.connect(host, port, Hello(), BufferPool(64 * MIB), timeout_seconds=0.05)
        with pytest.raises(RetryError, match="cannot connect"):
            await FrameClient.connect(host, port, Hello(), BufferPool(64 * MIB))

    run(story)


def test_a_refusal_is_raised_by_its_class() -> None:
    """A status other than OK becomes its exception; the connection goes on."""

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            with pytest.raises(RetryError, match="not now") as caught:
                await client.request(FrameType.MAP_ABORT)
            assert caught.value.status == Status.BUSY
            assert (await client.request(FrameType.PING, b"still here")).meta == b"still here"
            client.abort()

    run(story)


def test_a_lost_connection_fails_everything_at_once() -> None:
    """Unanswered requests, streams, waiters for room and later calls all get a RetryError."""

    async def story() -> None:
        async with world() as it:
            it.echo.mute = True
            client = await it.client(inflight_max=3)
            sink = Recorder()
            await client.open_stream(OPENING, sink)
            futures = [await client.start(FrameType.PING) for _ in range(3)]
            waiting = asyncio.create_task(client.request(FrameType.PING))
            await wait_until_async(lambda: it.echo.seen == 4, "all requests to arrive")
            it.echo.connection.abort()
            for future in (*futures, waiting):
                with pytest.raises(RetryError):
                    await future
            assert isinstance(sink.error, RetryError)
            with pytest.raises(RetryError):
                await client.request(FrameType.PING)

    run(story)


def test_requests_in_flight_are_bounded() -> None:
    """No more than inflight_max requests are sent before one is answered."""

    async def story() -> None:
        async with world() as it:
            it.echo.keep = True
            client = await it.client(inflight_max=2)
            tasks = [asyncio.create_task(client.request(FrameType.MAP_PUSH, b"", b"x")) for _ in range(5)]
            for done in range(5):
                in_flight = partial(lambda wanted: len(it.echo.kept) == wanted, min(2, 5 - done))
                await wait_until_async(in_flight, "requests in flight")
                it.echo.release_one()
            await asyncio.gather(*tasks)
            client.abort()

    run(story)


def test_a_full_pool_pauses_reading_and_goes_on_in_order() -> None:
    """Bodies beyond the budget stay in the sockets; each release lets the longest waiting connection go on."""

    async def story() -> None:
        async with world(budget=FRAME_BODY_BYTES_MAX) as it:
            it.echo.keep = True
            clients = [await it.client() for _ in range(8)]
            body = bytes(4 * MIB)
            tasks = [asyncio.create_task(client.request(FrameType.MAP_PUSH, b"", body)) for client in clients]
            await wait_until_async(lambda: len(it.echo.kept) == 4 and it.pool.waiting == 4, "a full pool and a line")
            for _ in range(8):
                await wait_until_async(lambda: bool(it.echo.kept), "a body")
                it.echo.release_one()
            assert [reply.meta for reply in await asyncio.gather(*tasks)] == [b"0 0 4194304"] * 8
            assert it.pool.used_bytes_peak <= FRAME_BODY_BYTES_MAX
            assert len({connection.number for connection in it.server.connections}) == 8
            for client in clients:
                client.abort()

    run(story)


def test_a_long_meta_takes_its_memory_from_the_pool() -> None:
    """A meta beyond the small buffer waits for the budget as a body does, and gives its memory back once it is read."""

    async def story() -> None:
        async with world(budget=FRAME_BODY_BYTES_MAX) as it:
            it.echo.keep = True
            first, second = await it.client(), await it.client()
            await first.start(FrameType.MAP_PUSH, b"", bytes(FRAME_BODY_BYTES_MAX))
            await wait_until_async(lambda: len(it.echo.kept) == 1, "the first body")
            meta = os.urandom(FRAME_META_BYTES_MAX)
            waiting = await second.start(FrameType.PING, meta)
            await wait_until_async(lambda: it.pool.waiting == 1, "the meta to wait")
            it.echo.release_one()
            assert (await waiting).meta == meta
            assert it.pool.used_bytes == 0
            first.abort()
            second.abort()

    run(story)


def test_who_leaves_the_line_does_not_stop_it() -> None:
    """A connection that dies while it waits for memory lets those behind it go on."""

    async def story() -> None:
        async with world(budget=FRAME_BODY_BYTES_MAX) as it:
            it.echo.keep = True
            first, second, third = [await it.client() for _ in range(3)]
            await first.start(FrameType.MAP_PUSH, b"", bytes(10 * MIB))
            await wait_until_async(lambda: len(it.echo.kept) == 1, "the first body")
            await second.start(FrameType.MAP_PUSH, b"", bytes(10 * MIB))
            await wait_until_async(lambda: it.pool.waiting == 1, "the second to wait")
            await third.start(FrameType.MAP_PUSH, b"", bytes(1 * MIB))
            await wait_until_async(lambda: it.pool.waiting == 2, "the third to wait")
            second.abort()  # not noticed while its connection is not read; it gives back what it is granted
            it.echo.release_one()
            await wait_until_async(lambda: len(it.echo.kept) == 1, "the third body")
            assert it.echo.kept[0][2].view.nbytes == MIB
            first.abort()
            third.abort()

    run(story)


def test_who_stops_in_the_middle_of_a_body_loses_its_connection() -> None:
    """Two sweeps without a byte end a connection that holds memory; one that is merely idle stays."""

    async def story() -> None:
        async with world() as it:
            idle = await it.client()
            reader, writer = await it.raw()
            writer.write(GREETING + encode_frame(FrameType.MAP_PUSH, 2, b"", MIB) + bytes(1_000))
            await next_frame(reader)
            await wait_until_async(lambda: it.pool.used_bytes >= MIB, "the body to be begun")
            it.server.sweep()
            it.server.sweep()
            header, reason = await next_frame(reader)
            assert header.type == FrameType.CLOSING
            assert b"stopped" in reason
            assert it.pool.used_bytes == 0
            assert (await idle.request(FrameType.PING)).meta == b""
            writer.close()
            idle.abort()

    run(story)


def test_ranges_of_files_arrive_between_frames_in_order(tmp_path: Path) -> None:
    """Frames sent from memory and from a file keep their order and content, whatever the sizes."""
    content = os.urandom(5 * MIB)
    path = tmp_path / "data"
    path.write_bytes(content)

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            sink = Recorder()
            await client.open_stream(OPENING, sink)
            chance = random.Random(2)
            expected = []
            with path.open("rb") as file:
                for sequence in range(60):
                    offset, size = chance.randrange(4 * MIB), chance.choice([1, 100, 65_536, MIB])
                    data = StreamData(stream=1, sequence=sequence, file=0, region=0, flags=0, runs=[(0, size)])
                    it.echo.connection.send_range(
                        FrameType.STREAM_DATA, 2, data.encode(), FileRange(file.fileno(), file, offset, size)
                    )
                    expected.append(content[offset : offset + size])
                end = StreamData(stream=1, sequence=60, file=0, region=0, flags=DataFlag.END, runs=[])
                it.echo.connection.send(FrameType.STREAM_DATA, 2, end.encode(), response=True)
                await wait_until_async(lambda: len(sink.frames) == 61, "all frames")
            assert [body for _, body in sink.frames[:-1]] == expected
            assert not client.sinks
            assert it.echo.writable_calls > 0
            client.abort()

    run(story)


def test_a_file_that_is_too_short_ends_the_connection(tmp_path: Path) -> None:
    """A cut frame cannot be repaired: the reader sees a lost connection, not other bytes."""
    path = tmp_path / "data"
    path.write_bytes(b"short")

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            sink = Recorder()
            await client.open_stream(OPENING, sink)
            data = StreamData(stream=1, sequence=0, file=0, region=0, flags=0, runs=[(0, 100)])
            with path.open("rb") as file:
                body = FileRange(file.fileno(), file, 0, 100)
                it.echo.connection.send_range(FrameType.STREAM_DATA, 2, data.encode(), body)
                await wait_until_async(lambda: sink.error is not None, "the stream to fail")
            assert isinstance(sink.error, RetryError)
            assert not sink.frames

    run(story)


def test_a_stream_can_fail_by_status() -> None:
    """A refused credit and a data frame with a status end the stream with the typed error, and only that stream."""

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            refused, broke, third = Recorder(), Recorder(), Recorder()
            for sink in (refused, broke, third):
                await client.open_stream(OPENING, sink)
            send = it.echo.connection.send
            send(FrameType.STREAM_CREDIT, 2, b"who?", response=True, status=Status.UNKNOWN_STREAM)
            send(FrameType.STREAM_DATA, 3, b"bad disk", response=True, status=Status.DISK_FAILED)
            await client.request(FrameType.PING)
            assert isinstance(refused.error, UnknownStreamError)
            assert broke.error is not None
            assert broke.error.status == Status.DISK_FAILED
            assert third.error is None
            assert list(client.sinks) == [4]
            client.abort()

    run(story)


def test_a_reader_that_does_not_read_costs_bounded_memory() -> None:
    """Answers that nobody takes stop the reading of requests; once they are taken everything is answered."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            writer.write(GREETING)
            await next_frame(reader)
            meta = bytes(100_000)
            requests = 300

            async def ask() -> None:
                for number in range(requests):
                    writer.write(encode_frame(FrameType.PING, 2 + number, meta))
                    await writer.drain()

            asking = asyncio.create_task(ask())
            connection = it.echo.connection
            await wait_until_async(lambda: connection.held_bytes >= frames.HELD_BYTES_HIGH, "answers to pile up")
            seen = it.echo.seen
            assert connection.held_bytes < frames.HELD_BYTES_HIGH + MIB
            assert seen < requests
            for _ in range(requests):
                assert len((await next_frame(reader))[1]) == len(meta)
            await asking
            writer.close()

    run(story)


@pytest.mark.parametrize("corked", [False, True])
def test_a_crowded_connection_always_calls_back(corked: bool) -> None:
    """Who finds a connection crowded is told when it is not, also if more was sent in between; else it never was."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            writer.write(GREETING)
            await next_frame(reader)
            connection = it.echo.connection
            received = connection.bytes_out
            if corked:
                connection.cork()
            while not connection.crowded:
                connection.send(FrameType.PING, 5, b"", bytes(MIB), response=True)
            if corked:
                connection.uncork()
            was_crowded = connection.crowded
            connection.send(FrameType.PING, 6, b"last", response=True)
            while received < connection.bytes_out or connection.queued_bytes:
                received += len(await reader.read(MIB))
            assert it.echo.writable_calls == int(was_crowded)
            assert not connection.crowded
            writer.close()

    run(story)


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection too many is told BUSY; the others stay."""
    monkeypatch.setattr(frame_server, "CONNECTIONS_MAX", 1)

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            with pytest.raises(RetryError, match="try later"):
                await it.client()
            assert (await client.request(FrameType.PING, b"x")).meta == b"x"
            client.abort()

    run(story)


def test_a_client_takes_no_garbage() -> None:
    """A server that speaks something else, or answers what was not asked, ends in a ProtocolError."""

    async def story(answer: bytes) -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        with pytest.raises(ProtocolError):
            await FrameClient.connect(host, port, Hello(), BufferPool(64 * MIB))
        server.close()
        await server.wait_closed()

    for answer in (
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        encode_frame(FrameType.HELLO, 99, response=True),
        encode_frame(FrameType.PING, 1, response=True),
        encode_frame(FrameType.HELLO, 1, b"xx", response=True),
    ):
        run(partial(story, answer))
