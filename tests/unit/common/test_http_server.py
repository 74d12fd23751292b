"""The door of HTTP ports: bounds on connections and on silence (common/net/http_server.py)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from holdfast.common.net.http_server import HttpServer

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
