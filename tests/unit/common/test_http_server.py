"""The door of HTTP ports: bounds on connections and on silence (common/net/http_server.py)."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from holdfast.common.net.http_server import HttpServer
from holdfast.common.net.tls import TlsPipe
from tests.support.certificates import authority

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def play(story: Callable[[int], Awaitable[None]], handler: Any = None, **bounds: Any) -> None:
    """Run a story against a server that answers "hello"."""

    async def hello(_: web.BaseRequest) -> web.Response:
        return web.Response(text="hello")

    async def run() -> None:
        server = HttpServer(handler or hello, **bounds)
        port = await server.start(("127.0.0.1", 0))
        try:
            await asyncio.wait_for(story(port), 30)
        finally:
            await server.stop()

    asyncio.run(run())


def test_a_connection_that_never_asks_is_closed():
    """Nothing, or half a request: closed after the time for the first one; one that asks in time is served."""

    async def story(port: int) -> None:
        silent, _ = await asyncio.open_connection("127.0.0.1", port)
        half, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HT")
        assert await silent.read() == b""
        assert await half.read() == b""
        asking, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert (await asking.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        writer.close()

    play(story, first_seconds=0.3)


def test_a_connection_that_stops_asking_is_closed():
    """Also with the beginning of a second request."""

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await reader.readuntil(b"hello")
        writer.write(b"GET")
        assert await reader.read() == b""

    play(story, keepalive_seconds=0.3)


def test_a_long_poll_is_not_silence():
    """A request under way keeps its connection, however long it takes."""
    finish = asyncio.Event()

    async def poll(_: web.BaseRequest) -> web.Response:
        await finish.wait()
        return web.Response(text="hello")

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        silent, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await silent.read() == b""  # a connection that came later has been closed by now
        finish.set()
        await reader.readuntil(b"hello")
        writer.close()

    play(story, poll, first_seconds=0.3)


def test_connections_are_bounded():
    """One beyond the bound is closed at once; the others are served."""

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await reader.readuntil(b"hello")
        beyond, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await beyond.read() == b""
        writer.write(GET)
        await reader.readuntil(b"hello")
        writer.close()

    play(story, connections_max=1)


def listening(tmp_path: Path) -> ssl.SSLContext:
    """What it listens with."""
    return authority().issue("127.0.0.1").context(tmp_path)


def test_under_tls_requests_are_answered_and_bounds_hold(tmp_path: Path) -> None:
    """A request is answered; a connection that never asks, or stops asking, is closed as without TLS."""

    async def story(port: int) -> None:
        shown = authority().shown().context
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
        writer.write(GET)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        silent, other = await asyncio.open_connection("127.0.0.1", port, ssl=shown)
        assert await silent.read() == b""
        assert await reader.read() == b""
        writer.close()
        other.close()

    play(story, first_seconds=0.3, keepalive_seconds=0.3, tls=listening(tmp_path))


def test_what_is_not_tls_is_hung_up_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A plain request, garbage, silence and half a handshake end soon, and without a word in the log."""
    pipe = TlsPipe(authority().shown().context, "127.0.0.1")
    pipe.shake()
    half = pipe.take()[:100]
    complaints: list[dict[str, Any]] = []

    async def story(port: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        for data in (GET, bytes(range(256)) * 400, b"", half):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            with contextlib.suppress(ConnectionResetError):
                assert len(await reader.read()) < 100
            writer.close()

    play(story, handshake_seconds=0.3, tls=listening(tmp_path))
    assert (complaints, caplog.records) == ([], [])


def test_handshakes_under_way_count_as_connections(tmp_path: Path) -> None:
    """Who says nothing takes a place until its time is over; then others are served."""

    async def story(port: int) -> None:
        first, held = await asyncio.open_connection("127.0.0.1", port)
        beyond, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await beyond.read() == b""  # at once, where the first one waits
        writer.close()
        assert await first.read() == b""
        held.close()

        async def served() -> bool:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority().shown().context)
            except OSError:
                return False
            writer.write(GET)
            await reader.readuntil(b"hello")
            writer.close()
            return True

        while not await served():
            continue  # its place is being freed

    play(story, connections_max=1, handshake_seconds=1.0, tls=listening(tmp_path))
