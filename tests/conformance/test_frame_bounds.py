"""Framed connections over real sockets: memory, order of waiting, files, and what is bounded."""

import asyncio
import gc
import os
import random
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import ProtocolError, RetryError
from holdfast.common.formats.frame import HEADER_BYTES, FrameType, encode_frame
from holdfast.common.formats.messages import DataFlag, StreamData
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, FRAME_META_BYTES_MAX, MIB
from holdfast.common.net.frames import client as frame_client
from holdfast.common.net.frames import connection as frames
from holdfast.common.net.frames import server as frame_server
from holdfast.common.net.frames.reader import FrameReader
from holdfast.common.net.frames.wire import FileRange
from holdfast.common.statuses import Status
from tests.support.frame_world import GREETING, OPENING, Recorder, next_frame, run, world
from tests.support.waiting import wait_until_async


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


def test_a40_a_turn_that_is_not_taken_is_the_next_ones() -> None:
    """Of two requests that wait for room the first is given up just as its turn comes: the second goes on."""

    async def story() -> None:
        async with world() as it:
            it.echo.keep = True
            client = await it.client(inflight_max=1)
            under_way = await client.start(FrameType.MAP_PUSH, b"", b"x")
            first, second = (asyncio.create_task(client.request(FrameType.PING, b"hello")) for _ in range(2))
            await wait_until_async(lambda: it.echo.kept, "the request that is under way")
            under_way.add_done_callback(lambda _: first.cancel())
            it.echo.release_one()
            assert (await asyncio.wait_for(second, 30)).meta == b"hello"
            assert first.cancelled()
            assert client.idle
            client.abort()

    run(story)


def test_a40_a_request_that_cannot_be_sent_takes_no_room() -> None:
    """What is too large for a frame is refused, and others are not held up by an answer that never comes."""

    async def story() -> None:
        async with world() as it:
            client = await it.client(inflight_max=1)
            for _ in range(2):
                with pytest.raises(ProtocolError, match="frame too large"):
                    await client.request(FrameType.PING, bytes(FRAME_META_BYTES_MAX + 1))
            assert client.idle
            assert (await asyncio.wait_for(client.request(FrameType.PING, b"hello"), 30)).meta == b"hello"
            client.abort()

    run(story)


@pytest.mark.parametrize("turns", range(5))
def test_a40_who_connects_as_the_server_ends_is_not_kept(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """A connection that the system took while the server ended is ended with it, however far it had come: it could
    greet, and would be served by a server that is gone."""
    monkeypatch.setattr(frame_server, "HELLO_SECONDS", 3_600)

    async def story() -> None:
        async with world() as it:
            late = socket.create_connection(it.server.address)
            late.setblocking(False)
            loop = asyncio.get_running_loop()
            for _ in range(turns):
                turn = loop.create_future()
                loop.call_soon(turn.set_result, None)
                await turn
            await it.server.close()
            ended = asyncio.create_task(loop.sock_recv(late, 1))
            # asyncio itself lets go of some of them, and leaves the rest to the collector.
            await wait_until_async(lambda: ended.done() or (gc.collect() and False), "the end of the late connection")
            assert isinstance(ended.exception(), ConnectionResetError) or ended.result() == b""
            late.close()

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


def test_a_body_that_is_not_admitted_is_never_buffered() -> None:
    """A refused body takes no memory of the pool, however it arrives; frames before and behind it are answered."""

    async def story() -> None:
        async with world() as it:
            it.echo.body_bytes_max = 100_000
            reader, writer = await it.raw()
            writer.write(GREETING)
            await next_frame(reader)
            chance = random.Random(5)
            sizes = [chance.choice([1, 100, 16_000, 100_000, 100_001, 2 * MIB]) for _ in range(60)]
            raw = b"".join(
                encode_frame(FrameType.MAP_PUSH, 2 + number, os.urandom(chance.choice([0, 10, 20_000])), size)
                + bytes(size)
                for number, size in enumerate(sizes)
            )

            async def send() -> None:
                at = 0
                while at < len(raw):
                    step = chance.choice([1, 30, 5_000, 17_000, MIB])
                    writer.write(raw[at : at + step])
                    await writer.drain()
                    at += step

            sending = asyncio.create_task(send())
            for number, size in enumerate(sizes):
                header, meta = await next_frame(reader)
                assert header.request_id == 2 + number
                if size > 100_000:
                    assert (header.status, meta) == (Status.BUSY, b"too much")
                else:
                    assert (header.status, meta) == (Status.OK, b"0 0 %d" % size)
            await sending
            assert it.pool.used_bytes_peak < 2 * MIB
            writer.close()

    run(story)


def test_who_leaves_within_a_refused_body_leaves_nothing() -> None:
    """A connection that ends, or stops, in the middle of a body that nobody wants is cleaned up as any other."""

    async def story() -> None:
        async with world() as it:
            it.echo.body_bytes_max = 10
            for stops in (True, False):
                reader, writer = await it.raw()
                writer.write(GREETING + encode_frame(FrameType.MAP_PUSH, 2, b"", MIB) + bytes(1_000))
                await next_frame(reader)
                assert (await next_frame(reader))[0].status == Status.BUSY
                if stops:
                    await wait_until_async(lambda: it.echo.connection.receiving, "the body to be begun")
                    it.server.sweep()
                    it.server.sweep()
                    assert (await next_frame(reader))[0].type == FrameType.CLOSING
                writer.close()
            await wait_until_async(lambda: not it.server.connections, "both to be gone")
            assert it.pool.used_bytes_peak == 0

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


def test_who_drips_a_body_loses_its_connection_once_others_wait() -> None:
    """A byte now and then is no progress: it is borne while nobody waits, and ends with a reason when somebody does; a
    frame that is another one than at the last sweep is judged anew."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            writer.write(GREETING + encode_frame(FrameType.MAP_PUSH, 2, b"", MIB) + bytes(1_000))
            await next_frame(reader)
            received = it.echo.connection._reader

            async def drip(data: bytes, frame: int, body_bytes: int) -> None:
                """Send `data`, and sweep when it has come: so many bytes of the body of this frame are there then. The
                bytes of the socket do not tell, since TLS adds some."""
                writer.write(data)
                here = (frame, body_bytes)
                await wait_until_async(lambda: (received.begun, received._target) == here, "the drip to come")
                it.server.sweep()

            for body_bytes in (1_001, 1_002, 1_003):
                await drip(b"x", 2, body_bytes)
            it.echo.hurry = True
            await drip(bytes(MIB - 1_003) + encode_frame(FrameType.MAP_PUSH, 3, b"", MIB) + b"x", 3, 1)
            assert (await next_frame(reader))[0].status == Status.OK
            assert not it.echo.connection.closed
            await drip(b"x", 3, 2)
            header, reason = await next_frame(reader)
            assert header.type == FrameType.CLOSING
            assert b"256 KiB/s while others wait" in reason
            assert it.pool.used_bytes == 0
            writer.close()

    run(story)


def test_a28_who_stops_in_the_middle_of_a_body_is_asked_to_try_again() -> None:
    """Two sweeps without a byte end a connection that holds memory; one that is merely idle stays. It is told to try
    again: a network that was cut for a few seconds does the same, and a reader failed for good with BAD_FRAME."""

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
            assert header.status == Status.UNAVAILABLE
            assert it.pool.used_bytes == 0
            assert (await idle.request(FrameType.PING)).meta == b""
            writer.close()
            idle.abort()

    run(story)


def holds(received: FrameReader, wanted: int) -> bool:
    """So many bytes of a frame that is not whole are here."""
    return received._filled == wanted


def test_a47_a_head_that_trickles_in_costs_its_connection() -> None:
    """A header whose meta section never ends: a byte now and then is no progress, also while nobody waits."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            request = encode_frame(FrameType.MAP_PUSH, 2, bytes(1_000), MIB)
            writer.write(GREETING + request[:100])
            await next_frame(reader)
            received = it.echo.connection._reader
            for more in range(2):
                await wait_until_async(partial(holds, received, 100 + more - HEADER_BYTES), "the drip to come")
                it.server.sweep()
                writer.write(request[100 + more : 101 + more])
            header, reason = await next_frame(reader)
            assert header.type == FrameType.CLOSING
            assert b"the head of a frame is not here" in reason
            writer.close()

    run(story)


def test_a47_a_damaged_length_costs_the_client_its_connection_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer says that more of it comes than was sent. The client waited for it with every later request; now it
    gives the connection up, also where other answers trickle into the hole."""
    monkeypatch.setattr(frame_client, "SWEEP_SECONDS", 0.05)

    async def story(trickles: bool) -> None:
        async with world() as it:
            it.echo.keep = True
            client = await it.client()
            waiting = [await client.start(FrameType.MAP_PUSH, b"", b"x") for _ in range(2)]
            await wait_until_async(lambda: len(it.echo.kept) == 2, "both requests")
            answer = bytearray(encode_frame(FrameType.MAP_PUSH, 2, b"", response=True))
            answer[17] ^= 0x40  # 16 KiB of meta
            server = it.echo.connection
            server._put(memoryview(answer))
            server._flush()
            while trickles and not client.closed:
                before = client.bytes_in
                server._put(memoryview(b"x"))
                server._flush()
                came = partial(lambda before: client.closed or client.bytes_in > before, before)
                await wait_until_async(came, "a byte of what never ends")
            for future in waiting:
                with pytest.raises(RetryError, match="the head of a frame" if trickles else "stopped in the middle"):
                    await future

    run(partial(story, False))
    run(partial(story, True))


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
                for sequence in range(120):  # more than the kernel takes at once, and a crowded queue besides
                    offset, size = chance.randrange(4 * MIB), chance.choice([1, 100, 65_536, MIB])
                    data = StreamData(stream=1, sequence=sequence, file=0, region=0, flags=0, runs=[(0, size)])
                    it.echo.connection.send_range(
                        FrameType.STREAM_DATA, 2, data.encode(), FileRange(file.fileno(), file, offset, size)
                    )
                    expected.append(content[offset : offset + size])
                end = StreamData(stream=1, sequence=120, file=0, region=0, flags=DataFlag.END, runs=[])
                it.echo.connection.send(FrameType.STREAM_DATA, 2, end.encode(), response=True)
                await wait_until_async(lambda: len(sink.frames) == 121, "all frames")
            assert [body for _, body in sink.frames[:-1]] == expected
            assert not client.sinks
            await wait_until_async(lambda: it.echo.writable_calls > 0, "the server to hear that all was sent")
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
            await wait_until_async(lambda: connection._paused & frames.CROWDED, "its requests not to be read")
            seen = it.echo.seen
            assert connection.held_bytes < frames.HELD_BYTES_HIGH + MIB
            assert seen < requests
            for _ in range(requests):
                assert len((await next_frame(reader))[1]) == len(meta)
            await asking
            writer.close()

    run(story)


def test_what_came_while_it_was_held_is_taken_afterwards() -> None:
    """A connection that is held after its first frame goes on with those behind it when it is not, though nothing more
    comes."""

    async def story() -> None:
        async with world() as it:
            reader, writer = await it.raw()
            writer.write(GREETING)
            await next_frame(reader)
            connection, taken = it.echo.connection, it.echo.frame

            def hold_and_take(*what: Any) -> None:
                connection.hold()
                taken(*what)

            it.echo.frame = hold_and_take  # type: ignore[method-assign, assignment]
            requests = 8
            frames_ = [encode_frame(FrameType.MAP_PUSH, 2 + each, b"", 15_000) for each in range(requests)]
            writer.write(b"".join(frame + bytes(15_000) for frame in frames_))
            for number in range(requests):
                await wait_until_async(lambda wanted=number: it.echo.seen > wanted, "a frame")  # type: ignore[misc]
                assert (await next_frame(reader))[0].request_id == 2 + number
                connection.unhold()
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
            while connection.queued_bytes < frames.QUEUED_BYTES_HIGH:
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
    """One connection too many is told BUSY, or gets no handshake under TLS; the others stay."""
    monkeypatch.setattr(frame_server, "CONNECTIONS_MAX", 1)

    async def story() -> None:
        async with world() as it:
            client = await it.client()
            with pytest.raises(RetryError, match="was lost" if it.server.tls else "try later"):
                await it.client()
            assert (await client.request(FrameType.PING, b"x")).meta == b"x"
            client.abort()

    run(story)
