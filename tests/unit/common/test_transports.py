"""Control calls of a secured cluster: who is called, and what is shown (common/net/transports.py)."""

import asyncio
import contextlib
import select
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from holdfast.common.errors import HoldfastError, NotMasterError, RetryError
from holdfast.common.net.http_client import HttpClient
from holdfast.common.net.http_server import HttpServer
from holdfast.common.net.transports import ControlTransport, GrpcTransport
from holdfast.common.security.credentials import Credentials
from holdfast.common.statuses import Status
from holdfast.master.api.budgets import Budgets
from holdfast.master.api.grpc import serve_grpc
from tests.support.certificates import Authority, Certificate, authority
from tests.support.waiting import wait_until_async

PATH = "/holdfast.v1.Shuffles/Discover"
CALL_SECONDS = 10.0


class Door:
    """What answers, and what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.budgets = Budgets()

    async def http(self, request: web.BaseRequest, _: object = None) -> web.Response:
        """Answer over HTTP."""
        return web.Response(body=b"answer of " + await request.read(), headers={"Holdfast-Cluster": "c"})

    def admit(self, *_: Any) -> None:
        """Everybody."""

    def parse(self, _: Any, data: bytes) -> Any:
        """Take anything."""
        return data

    async def call(self, _: Any, data: bytes, *__: Any) -> Any:
        """Answer over gRPC."""
        reply = b"answer of " + data
        return SimpleNamespace(ByteSize=lambda: len(reply), SerializeToString=lambda: reply)

    def identify(self, token: str) -> None:
        """Take any token."""
        self.shown.append(f"Bearer {token}")


def play(
    kind: type[GrpcTransport | HttpClient],
    certificate: Certificate,
    folder: Path,
    story: Callable[[str, Door], Awaitable[None]],
) -> None:
    """Run a story against a server of that kind."""

    async def http(door: Door) -> None:
        security: Any = SimpleNamespace(identify=door.identify, listening=certificate.context(folder))
        server = HttpServer(door.http, door.admit, security)
        port = await server.start(("127.0.0.1", 0))
        await story(f"127.0.0.1:{port}", door)
        await server.stop()

    async def grpc(door: Door) -> None:
        pems = {"certificate_pem": certificate.certificate.decode(), "key_pem": certificate.key.decode()}
        security: Any = SimpleNamespace(identify=door.identify, **pems)
        handlers: Any = door
        server, port = await serve_grpc("c", handlers, "127.0.0.1:0", 20, security)
        await story(f"127.0.0.1:{port}", door)
        await server.stop(None)

    asyncio.run(asyncio.wait_for((http if kind is HttpClient else grpc)(Door()), 60))


async def refused(transport: ControlTransport, address: str) -> HoldfastError:
    """Why a call did not succeed."""
    try:
        with pytest.raises(HoldfastError) as error:
            await transport.call(address, PATH, b"x", CALL_SECONDS)
    finally:
        await transport.close()
    return error.value


KINDS = pytest.mark.parametrize("kind", [HttpClient, GrpcTransport])


@KINDS
def test_calls_show_the_token_of_the_moment(kind: type[GrpcTransport | HttpClient], tmp_path: Path) -> None:
    """Each call shows the token that its process has then, also on a connection that was kept."""

    async def story(address: str, door: Door) -> None:
        shown = Credentials(authority().pem, "first")
        transport = kind(shown)
        assert await transport.call(address, PATH, b"one", CALL_SECONDS) == b"answer of one"
        shown._token = "second"
        assert await transport.call(address, PATH, b"two", CALL_SECONDS) == b"answer of two"
        assert door.shown == ["Bearer first", "Bearer second"]
        await transport.close()

    play(kind, authority().issue("127.0.0.1"), tmp_path, story)


@KINDS
@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_another_server_is_shown_nothing(kind: type[GrpcTransport | HttpClient], wrong: str, tmp_path: Path) -> None:
    """A certificate of another CA, or for another name, ends the call before the token is shown."""

    async def story(address: str, door: Door) -> None:
        error = await refused(kind(authority().shown("secret")), address)
        assert "secret" not in str(error)
        assert door.shown == []
        if kind is HttpClient:
            assert isinstance(error, NotMasterError)
            assert error.status is Status.UNAUTHENTICATED
            assert str(error).startswith(f"{address}: its certificate is refused")

    signer, host = (Authority(), "127.0.0.1") if wrong == "authority" else (authority(), "other.example")
    play(kind, signer.issue(host), tmp_path, story)


@KINDS
def test_a_client_without_a_ca_hears_what_is_missing(
    kind: type[GrpcTransport | HttpClient], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A plain client fails with a sentence, and the HTTP server says nothing of it."""

    async def story(address: str, door: Door) -> None:
        error = await refused(kind(), address)
        assert isinstance(error, RetryError)
        if kind is HttpClient:
            assert "HOLDFAST_CA and HOLDFAST_TOKEN_FILE" in str(error)

    play(kind, authority().issue("127.0.0.1"), tmp_path, story)
    if kind is HttpClient:  # what gRPC writes depends on who imported it first
        assert capfd.readouterr() == ("", "")


def test_a_plain_port_is_distinguished_from_one_under_tls() -> None:
    """A client of a secured cluster says of a port without TLS what is wrong."""

    async def story() -> None:
        server = HttpServer(Door().http, Door().admit)
        port = await server.start(("127.0.0.1", 0))
        error = await refused(HttpClient(authority().shown()), f"127.0.0.1:{port}")
        assert "is not TLS" in str(error)
        await server.stop()

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a40_calls_that_are_given_up_leave_no_connects_behind() -> None:
    """Of a host that answers nothing at all, not even a refusal: each try ends with its call, many leave nothing."""

    async def story() -> None:
        with socket.socket() as listener, contextlib.ExitStack() as filling:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = "{}:{}".format(*listener.getsockname())
            while True:  # until the system drops what comes
                one = filling.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(listener.getsockname())
                if not select.select([], [one], [], 0.2)[1]:
                    break
            transport, before = HttpClient(), asyncio.all_tasks()
            for _ in range(5):
                with pytest.raises(RetryError, match="did not answer"):
                    await transport.call(address, PATH, b"x", 0.01)
            await wait_until_async(lambda: asyncio.all_tasks() == before, "the end of what connects")
            await transport.close()

    asyncio.run(asyncio.wait_for(story(), 60))
