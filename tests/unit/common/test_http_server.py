"""The door of HTTP ports: bounds on connections and on silence (common/net/http_server.py)."""

import asyncio
import contextlib
import gc
import socket
import zlib
from asyncio import sslproto
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from holdfast.common.errors import UnauthenticatedError
from holdfast.common.net.http_server import HttpLimits, HttpServer
from holdfast.common.net.tls import TlsPipe
from holdfast.common.security.tokens import Bearer, TokenKind, must_be
from tests.support.certificates import authority
from tests.support.waiting import wait_until_async


def get(token: str, path: str = "/") -> bytes:
    """A request that shows a token."""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


GET = get("viewer")


def play(story: Callable[[int], Awaitable[None]], handler: Any = None, security: Any = None, **bounds: Any) -> None:
    """Run a story against a server that answers "hello"."""

    async def hello(*_: object) -> web.Response:
        return web.Response(text="hello")

    async def run() -> None:
        server = HttpServer(handler or hello, viewers_only, security, limits=HttpLimits(**bounds))
        port = await server.start(("127.0.0.1", 0))
        try:
            await asyncio.wait_for(story(port), 30)
        finally:
            await server.stop()

    asyncio.run(run())


def viewers_only(_: web.BaseRequest, caller: Bearer | None) -> None:
    """Who may ask."""
    must_be(caller, TokenKind.VIEWER)


def identify(token: str) -> Bearer:
    """A token is the name of its kind."""
    try:
        return Bearer(TokenKind[token.upper()], b"", 0)
    except KeyError:
        raise UnauthenticatedError("who is that?") from None


def secured(folder: Path) -> Any:
    """What a server of a secured cluster has."""
    return SimpleNamespace(listening=authority().issue("127.0.0.1").context(folder), identify=identify)


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

    play(story, first_s=0.3)


def test_a_connection_that_stops_asking_is_closed():
    """Also with the beginning of a second request."""

    async def story(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await reader.readuntil(b"hello")
        writer.write(b"GET")
        assert await reader.read() == b""

    play(story, keepalive_s=0.3)


def test_a_long_poll_is_not_silence():
    """A request under way keeps its connection, however long it takes."""
    finish = asyncio.Event()

    async def poll(*_: object) -> web.Response:
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

    play(story, poll, first_s=0.3)


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

    play(story, connections=1)


@pytest.mark.parametrize("secure", [False, True])
def test_a21_strangers_make_room_for_who_comes(secure: bool, tmp_path: Path) -> None:
    """Connections that show nothing, or nothing that is permitted, fill all places: who comes is served all the same,
    and keeps its place from the first permitted request on, also while that one is under way."""
    asked, finish = asyncio.Event(), asyncio.Event()

    async def answer(request: web.BaseRequest, _: object) -> web.Response:
        if request.path == "/poll":
            asked.set()
            await finish.wait()
        return web.Response(text="hello")

    async def story(port: int) -> None:
        credentials = authority().credentials().context if secure else None

        nobody = [b"", b"GET / HT", get("nobody", "/healthz")]
        nobody += [get("nobody"), get("application")] if secure else []

        async def strangers() -> list[asyncio.StreamWriter]:
            found = []
            for sent in nobody * 4:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=credentials if sent else None)
                writer.write(sent)
                if sent.endswith(b"\r\n\r\n"):
                    await reader.readuntil(b"\r\n\r\n")
                found.append(writer)
            return found

        held = await strangers()
        polling, poller = await asyncio.open_connection("127.0.0.1", port, ssl=credentials)
        poller.write(get("viewer", "/poll"))
        await asked.wait()
        held += await strangers()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=credentials)
        for _ in range(2):
            writer.write(GET)
            await reader.readuntil(b"hello")
            held += await strangers()
        finish.set()
        await polling.readuntil(b"hello")
        for each in (*held, writer, poller):
            each.close()

    play(story, answer, connections=8, security=secured(tmp_path) if secure else None)


def over(reader: asyncio.StreamReader) -> bool:
    """Whether the server has closed this connection."""
    return reader.at_eof() or reader.exception() is not None


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait for that."""
    with contextlib.suppress(ConnectionResetError):
        await reader.read()


def test_a21_of_strangers_the_oldest_makes_room(tmp_path: Path) -> None:
    """Whether it said nothing at all, shook hands, or was refused."""

    async def story(port: int) -> None:
        credentials = authority().credentials().context
        places = [
            await asyncio.open_connection("127.0.0.1", port, ssl=secure) for secure in (None, credentials, credentials)
        ]
        places[-1][1].write(get("nobody"))
        assert (await places[-1][0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401")
        for number in range(3):
            places.append(await asyncio.open_connection("127.0.0.1", port))
            await ended(places[number][0])
            assert not any(over(reader) for reader, _ in places[number + 1 :])
        for _, writer in places:
            writer.close()

    play(story, connections=3, security=secured(tmp_path))


def test_under_tls_requests_are_answered_and_bounds_hold(tmp_path: Path) -> None:
    """A request is answered; a connection that never asks, or stops asking, is closed as without TLS."""

    async def story(port: int) -> None:
        credentials = authority().credentials().context
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=credentials)
        writer.write(GET)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        silent, other = await asyncio.open_connection("127.0.0.1", port, ssl=credentials)
        assert await silent.read() == b""
        assert await reader.read() == b""
        writer.close()
        other.close()

    play(story, first_s=0.3, keepalive_s=0.3, security=secured(tmp_path))


def test_what_is_not_tls_is_hung_up_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A plain request, garbage, silence and half a handshake end soon, and without a word in the log."""
    pipe = TlsPipe(authority().credentials().context, "127.0.0.1")
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

    play(story, handshake_s=0.3, security=secured(tmp_path))
    assert (complaints, caplog.records) == ([], [])


def test_handshakes_under_way_count_as_connections(tmp_path: Path) -> None:
    """Who says nothing takes a place until somebody else comes or its time is over; then others are served."""

    async def story(port: int) -> None:
        first, held = await asyncio.open_connection("127.0.0.1", port)
        beyond, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await first.read() == b""  # at once, where the other one waits
        held.close()
        assert await beyond.read() == b""
        writer.close()

        async def served() -> bool:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority().credentials().context)
            except OSError:
                return False
            writer.write(GET)
            await reader.readuntil(b"hello")
            writer.close()
            return True

        while not await served():
            continue  # its place is being freed

    play(story, connections=1, handshake_s=1.0, security=secured(tmp_path))


def under_tls() -> int:
    """Connections under TLS whose memory was not given back, of both sides."""
    return sum(isinstance(each, sslproto.SSLProtocol) for each in gc.get_objects())


async def ask(port: int) -> None:
    """One request under TLS."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority().credentials().context)
    writer.write(GET)
    await reader.readuntil(b"hello")
    writer.close()
    await writer.wait_closed()


def test_a_connection_under_tls_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whoever connects and goes, says garbage, half a handshake or nothing, asks and goes: the server has forgotten it
    when the connection has ended, though no collector runs."""
    pipe = TlsPipe(authority().credentials().context, "127.0.0.1")
    pipe.shake()
    hello = pipe.take()

    async def story(port: int) -> None:
        gc.collect()
        gc.disable()
        before = under_tls()
        for data in (b"", GET, bytes(range(256)), hello[:100], hello):
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", port)) as plain:
                    plain.sendall(data)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for _ in range(5):
            await ask(port)
        await wait_until_async(lambda: under_tls() == before, "all of them to be forgotten")
        for each in silent:
            each.close()

    try:
        play(story, handshake_s=0.3, security=secured(tmp_path))
    finally:
        gc.enable()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_who_does_not_take_answers_is_dropped(tmp_path: Path, secure: bool) -> None:
    """Requests one after the other, no answer read: the connection ends, and what was unsent with it."""

    async def much(*_: object) -> web.Response:
        return web.Response(body=bytes(1 << 20))

    async def run() -> None:
        security = secured(tmp_path) if secure else None
        server = HttpServer(much, viewers_only, security, limits=HttpLimits(keepalive_s=0.3, flush_s=0.3))
        port = await server.start(("127.0.0.1", 0))
        credentials = authority().credentials().context if secure else None
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=credentials, limit=1_024)
        writer.write(GET * 100)
        await wait_until_async(lambda: server.connections == 1, "the connection")
        await wait_until_async(lambda: server.connections == 0, "its end", 60.0)
        writer.transport.abort()
        await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "gzip, identity"])
def test_a_compressed_body_is_refused_and_never_unpacked(encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    """415 before the handler hears of it, whole or damaged, and not a word in the log."""

    async def story(port: int) -> None:
        for body in (zlib.compress(bytes(1 << 20)), b"abcd"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 415")
            writer.close()
            await writer.wait_closed()

    play(story)
    assert caplog.records == []


def test_what_is_no_http_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged header, line or body is answered 400 without a piece of it, and logged in one line without one, whether
    the body was wanted or not."""

    async def read(request: web.BaseRequest, _: object) -> web.Response:
        await request.read()
        return web.Response()

    async def refuse(*_: object) -> web.Response:
        return web.Response(status=400)

    async def story(port: int) -> None:
        for sent in (
            b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hidden\x01\r\n\r\n",
            b"GET /hidden\x01 HTTP/1.1\r\n\r\n",
            b"hidden\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nhidden\r\nhidden\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            answer = await reader.read()
            assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
            assert b"hidden" not in answer
            writer.close()
            await writer.wait_closed()

    play(story, read)
    play(story, refuse)
    assert "hidden" not in caplog.text
    assert "Traceback" not in caplog.text
