"""Framed connections under TLS: who is taken for whom, what is not TLS, what never finishes (common/net/tls.py)."""

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError, UnauthenticatedError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Hello
from holdfast.common.limits import MIB
from holdfast.common.net.frames import server as frame_server
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.net.frames.server import FrameServer, serve
from holdfast.common.net.tls import TlsPipe
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.statuses import Status
from tests.support.certificates import Authority, Certificate, authority
from tests.support.frame_world import GREETING, Echo, next_frame
from tests.support.waiting import gone, wait_until_async


class Listener(Echo):
    """Notes the token of the last HELLO."""

    token = b""

    def hello(self, connection: Any, hello: Hello) -> Any:
        """Take anybody."""
        self.token = hello.token
        return super().hello(connection, hello)


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, certificate: Certificate | None) -> AsyncIterator[FrameServer]:
    """A server with this certificate, or a plain one."""
    pool = BufferPool(64 * MIB)
    tls = certificate.context(tmp_path) if certificate else None
    server = await serve("127.0.0.1", 0, Listener(), pool, tls)
    try:
        yield server
    finally:
        await server.close()
    assert pool.used_bytes == 0


async def connect(server: FrameServer, credentials: CredentialsProvider | None, host: str = "127.0.0.1") -> FrameClient:
    """A client that gives up late."""
    return await FrameClient.connect(
        host,
        server.address[1],
        Hello(cluster_id="mine"),
        BufferPool(64 * MIB),
        timeout_seconds=60,
        credentials=credentials,
    )


def quietly(story: Callable[[], Coroutine[Any, Any, None]], caplog: pytest.LogCaptureFixture) -> None:
    """Run a story in which nothing may be said that is more than one line of information."""
    caplog.set_level(logging.INFO)
    complaints: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await asyncio.wait_for(story(), 60)

    asyncio.run(watched())
    assert complaints == []
    assert [record for record in caplog.records if record.levelno > logging.INFO or record.exc_info] == []


def test_a_pipe_takes_bytes_as_they_come(tmp_path: Path) -> None:
    """Two pipes understand each other whether bytes come one by one or all at once, and say when nothing more comes."""
    chance = random.Random(3)
    for step in (1, 7, 100_000):
        listening = authority().issue("host.example").context(tmp_path)
        left, right = TlsPipe(listening), TlsPipe(authority().credentials().context, "host.example")
        said = chance.randbytes(50_000)

        def carry(data: bytes, target: TlsPipe, step: int = step) -> bytes:
            heard, buffer = bytearray(), memoryview(bytearray(9_000))
            for at in range(0, len(data), step):
                target.receive(data[at : at + step])
                while target.shake() and (count := target.read_into(buffer)):
                    heard += buffer[:count]
            return bytes(heard)

        right.shake()
        for _ in range(2):
            carry(right.take(), left)
            carry(left.take(), right)
        assert left.shaken
        assert right.shaken
        assert carry(b"".join(right.seal(said)), left) == said
        assert not left.holds
        right.close()
        assert carry(right.take(), left) == b""
        assert left.ended


def test_what_is_kept_is_read_later(tmp_path: Path) -> None:
    """A reader that stops in the middle finds the rest later, although the memory that it came in is used again."""
    left = TlsPipe(authority().issue("host.example").context(tmp_path))
    right = TlsPipe(authority().credentials().context, "host.example")
    right.shake()
    while not (left.shaken and right.shaken):
        left.receive(right.take())
        left.shake()
        right.receive(left.take())
        right.shake()
    said = random.Random(5).randbytes(100_000)
    memory = bytearray(b"".join(left.seal(said)))
    right.receive(memoryview(memory))
    first, rest = memoryview(bytearray(30_001)), memoryview(bytearray(100_000))
    assert right.read_into(first) == len(first)
    right.keep()
    memory[:] = bytes(len(memory))
    assert right.holds
    count = right.read_into(rest)
    assert bytes(first) + bytes(rest[:count]) == said
    assert not right.holds


def test_the_token_comes_with_hello(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client shows its token, and requests of every size are answered."""

    async def story() -> None:
        async with serving(tmp_path, authority().issue("127.0.0.1")) as server:
            client = await connect(server, authority().credentials("my.token"))
            assert isinstance(server.handler, Listener)
            assert server.handler.token == b"my.token"
            body = bytes(5 * MIB)
            assert (await client.request(FrameType.MAP_PUSH, b"", body)).meta == b"0 0 %d" % len(body)
            client.close()
            await gone(client)

    quietly(story, caplog)


@pytest.mark.parametrize(
    ("hosts", "days", "stranger", "words"),
    [
        (["127.0.0.1"], 1, True, "signed by the CA that was given"),
        (["other.example"], 1, False, "name the host"),
        (["127.0.0.1"], -1, False, "has expired"),
    ],
)
def test_a_server_that_is_another_is_not_talked_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hosts: list[str], days: int, stranger: bool, words: str
) -> None:
    """Another CA, another name, a certificate that has ended: the client says which, and shows no token."""

    async def story() -> None:
        signer = Authority("strangers") if stranger else authority()
        async with serving(tmp_path, signer.issue(*hosts, days=days)) as server:
            with pytest.raises(RetryError, match=words) as refused:
                await connect(server, authority().credentials("secret.token"))
            assert refused.value.status is Status.UNAVAILABLE
            assert isinstance(server.handler, Listener)
            assert server.handler.token == b""
            await wait_until_async(lambda: not server.connections, "the server to forget it")

    quietly(story, caplog)


def test_one_of_ours_without_tls_learns_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client that knows nothing of TLS hears from a port that wants it what to give."""

    async def story() -> None:
        async with serving(tmp_path, authority().issue("127.0.0.1")) as server:
            with pytest.raises(UnauthenticatedError, match="HOLDFAST_CA"):
                await connect(server, None)

    quietly(story, caplog)


def test_a_port_without_tls_is_distinguished_from_one_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client that wants TLS says of a plain port what is wrong with it, and the port survives it."""

    async def story() -> None:
        async with serving(tmp_path, None) as server:
            with pytest.raises(ProtocolError, match="is not TLS"):
                await connect(server, authority().credentials())
            assert (await (await connect(server, None)).request(FrameType.PING, b"x")).meta == b"x"

    quietly(story, caplog)


def test_tls_of_old_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TLS 1.2 does not get in."""

    async def story() -> None:
        async with serving(tmp_path, authority().issue("127.0.0.1")) as server:
            old = ssl.create_default_context(cadata=authority().pem)
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(ssl.SSLError):
                await asyncio.open_connection(*server.address, ssl=old)

    quietly(story, caplog)


async def leaves(server: FrameServer, data: bytes) -> bytes:
    """Connect without TLS, send this and no more; what comes until the server hangs up."""
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(data)
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        heard = await reader.read()
    writer.close()
    return heard


def test_what_is_no_handshake_ends_cleanly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Garbage, a web browser, cut and damaged handshakes: closed, without a complaint and without a trace."""
    chance = random.Random(8)
    pipe = TlsPipe(authority().credentials().context, "127.0.0.1")
    pipe.shake()
    hello = pipe.take()

    async def story() -> None:
        async with serving(tmp_path, authority().issue("127.0.0.1")) as server:
            assert await leaves(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") == b""
            assert await leaves(server, chance.randbytes(100_000)) == b""
            for _ in range(100):
                damaged = bytearray(hello)
                for _ in range(chance.choice([1, 3, 40])):
                    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
                whole = chance.choice([len(damaged), chance.randrange(1, len(damaged))])
                reader, writer = await asyncio.open_connection(*server.address)
                writer.write(damaged[:whole])
                writer.write_eof()
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
                writer.close()
            await wait_until_async(lambda: not server.connections, "all to be gone")
            client = await connect(server, authority().credentials())
            assert (await client.request(FrameType.PING, b"x")).meta == b"x"
            client.abort()

    quietly(story, caplog)


def test_a_handshake_that_does_not_come_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence and half a handshake are counted as connections and closed after the time for HELLO, and so is a whole
    handshake without HELLO behind it."""
    # The moment is chosen here: on a busy machine a short time would end before anybody looked.
    monkeypatch.setattr(frame_server, "HELLO_SECONDS", 3_600)
    pipe = TlsPipe(authority().credentials().context, "127.0.0.1")
    pipe.shake()
    hello = pipe.take()

    async def story() -> None:
        async with serving(tmp_path, authority().issue("127.0.0.1")) as server:
            for sent in (b"", hello[:100], hello):
                reader, writer = await asyncio.open_connection(*server.address)
                writer.write(sent)
                await wait_until_async(lambda: len(server.connections) == 1, "it to be counted")
                (late,) = server.connections
                assert late._greeting is not None
                late._no_hello()
                await reader.read()
                writer.close()
                await wait_until_async(lambda: not server.connections, "it to be gone")
            context = authority().credentials().context
            reader, writer = await asyncio.open_connection(*server.address, ssl=context)
            (late,) = server.connections
            await wait_until_async(lambda: late._tls is not None and late._tls.shaken, "its handshake")
            late._no_hello()
            header, reason = await next_frame(reader)
            assert header.type == FrameType.CLOSING
            assert b"no HELLO" in reason
            writer.close()

    quietly(story, caplog)


def test_damage_on_the_way_ends_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A flipped bit of a sealed byte is never taken for a frame: the connection ends, and its memory is back."""

    async def story() -> None:
        async with serving(tmp_path, authority().issue("127.0.0.1")) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            pipe = TlsPipe(authority().credentials().context, "127.0.0.1")
            while not pipe.shake():
                writer.write(pipe.take())
                pipe.receive(await reader.read(10_000))
            writer.writelines(pipe.seal(GREETING))
            assert isinstance(server.handler, Listener)
            await wait_until_async(lambda: hasattr(server.handler, "connection"), "HELLO")
            sealed = bytearray(b"".join(pipe.seal(GREETING)))
            sealed[-5] ^= 1
            writer.write(sealed)
            await reader.read()
            writer.close()
            await wait_until_async(lambda: not server.connections, "the end")
            assert server.handler.lost_connections == 1
            assert isinstance(server.handler.connection.error, ProtocolError)

    quietly(story, caplog)


def test_errors_name_the_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a client says begins with the address that it tried."""

    async def story() -> None:
        async with serving(tmp_path, Authority("others").issue("127.0.0.1")) as server:
            with pytest.raises(HoldfastError) as refused:
                await connect(server, authority().credentials())
            assert str(refused.value).startswith(f"127.0.0.1:{server.address[1]}: ")

    quietly(story, caplog)
