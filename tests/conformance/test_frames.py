"""Framed connections over real sockets: what arrives, what is refused, what is bounded."""

import asyncio
import contextlib
import os
import random
import socket
import struct
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.common.errors import ProtocolError, RetryError, UnknownStreamError
from holdfast.common.formats.frame import HEADER_BYTES, FrameHeader, FrameType, encode_frame
from holdfast.common.formats.messages import Hello, StreamCredit, StreamOpened
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, FRAME_META_BYTES_MAX, MIB
from holdfast.common.net.frames import server as frame_server
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.statuses import Status
from tests.support.frame_world import GREETING, OPENING, Recorder, next_frame, run, world
from tests.support.waiting import gone, wait_until_async


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
            await gone(client)

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
        from holdfast.common.formats.checksum import crc32c

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

    async def story() -> None:
        async with world() as it:
            # The handshake of TLS counts, too: where the machine is so busy that it takes longer, there is more time.
            for seconds in (0.05, 0.5, 5.0, 50.0):
                monkeypatch.setattr(frame_server, "HELLO_SECONDS", seconds)
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    reader, writer = await it.raw()
                    header, reason = await next_frame(reader)
                    writer.close()
                    assert (header.type, header.status) == (FrameType.CLOSING, Status.UNAVAILABLE)
                    assert b"HELLO" in reason
                    return
            pytest.fail("the connection was closed without a reason")

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


def test_a_stream_that_is_opened_too_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked for it has left: the worker would keep what it opened, and wait for credit."""

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            came: list[tuple[FrameHeader, bytes]] = []
            monkeypatch.setattr(it.echo, "frame", lambda _, header, meta, body: came.append((header, meta)))
            opening = asyncio.create_task(client.open_stream(OPENING, Recorder()))
            await wait_until_async(lambda: len(came) == 1, "the request to arrive")
            opening.cancel()
            await asyncio.wait((opening,))
            it.echo.connection.reply(came[0][0], StreamOpened(stream=7, total_bytes=0).encode())
            await wait_until_async(lambda: len(came) == 2, "the stream to be closed")
            header, meta = came[1]
            assert (header.type, header.request_id) == (FrameType.STREAM_CLOSE, came[0][0].request_id)
            assert StreamCredit.decode(meta).stream == 7
            assert client.idle
            client.abort()

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
