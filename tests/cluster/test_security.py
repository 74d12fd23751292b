"""A secured cluster: every call, frame and page without a token, with a wrong, an ended and another's, is refused; what
is refused tells nothing, changes nothing and is not in any log."""

from __future__ import annotations

import asyncio
import http.client
import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message

from holdfast.client import Credentials, LocalCluster, Session, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.common.errors import (
    ApplicationGoneError,
    ForbiddenError,
    HoldfastError,
    RetryError,
    TokenExpiredError,
    UnauthenticatedError,
)
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.formats.meta import pack_shuffle
from holdfast.common.ids import Instance
from holdfast.common.limits import MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.net.methods import METHODS, STATUS_KEY, Method
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.tokens import Keeper, TokenKind
from holdfast.common.statuses import Status
from holdfast.master.api.access import METHOD_KINDS
from holdfast.tools.cli.main import run
from holdfast.worker.core.access import NAMING
from tests.support.waiting import gone, wait_until

LIFE_S = 3_600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three masters and two workers with security, which all tests here share."""
    with local_cluster(3, 2, dir=tmp_path_factory.mktemp("secure") / "cluster", secure=True) as started:
        yield started


@pytest.fixture(scope="module")
def keeper(cluster: LocalCluster) -> Keeper:
    """Makes tokens of this cluster."""
    return Keeper((cluster.directory / "secret").read_bytes().strip(), (cluster.directory / "cluster").read_text())


@pytest.fixture(scope="module")
def wrong_tokens(keeper: Keeper) -> dict[str, str]:
    """Tokens that are good for nothing, by what is wrong with them."""
    now = int(time.time())
    good = keeper.mint(TokenKind.SERVER, b"m1", now, LIFE_S)
    return {
        "none": "",
        "garbage": "hft1.garbage",
        "cut": good[:-4],
        "ended": keeper.mint(TokenKind.SERVER, b"m1", now - 100, 50),
        "of another secret": Keeper(bytes(32), "x").mint(TokenKind.SERVER, b"m1", now, LIFE_S),
    }


def made(cluster: LocalCluster, keeper: Keeper, kind: TokenKind, subject: bytes) -> Credentials:
    """Credentials with a fresh token."""
    assert cluster.credentials is not None
    return cluster.credentials.with_token(keeper.mint(kind, subject, int(time.time()), LIFE_S))


def asked(
    cluster: LocalCluster, address: str, verb: str, path: str, token: str, body: bytes = b""
) -> tuple[int, dict[str, str], str]:
    """HTTP status, headers and text of one request."""
    assert cluster.credentials is not None
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=cluster.credentials.context)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(verb, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def logs(cluster: LocalCluster) -> str:
    """All that the servers have written."""
    return "".join(path.read_text("utf-8", "replace") for path in (cluster.directory / "logs").iterdir())


def naming(method: Method, instance: bytes) -> bytes:
    """The request of a method, for that instance where it names one, in JSON."""
    request = method.request()
    if "key" in request.DESCRIPTOR.fields_by_name:
        request.key.CopyFrom(pb.ShuffleKey(instance=instance))  # type: ignore[attr-defined]
    elif "instance" in request.DESCRIPTOR.fields_by_name:
        request.instance = instance  # type: ignore[attr-defined]
    return json_format.MessageToJson(request).encode()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_no_call_without_its_token(
    cluster: LocalCluster, keeper: Keeper, wrong_tokens: dict[str, str], name: str
) -> None:
    """Every method on the leader over HTTP: refused with 401 for every wrong token and 403 for every kind that it is
    not for, before anything is looked at."""
    method, leader = METHODS[name], cluster.leader().address
    for what, token in wrong_tokens.items():
        status, headers, text = asked(cluster, leader, "POST", method.path, token, naming(method, bytes(16)))
        wanted = Status.TOKEN_EXPIRED if what == "ended" else Status.UNAUTHENTICATED
        assert (status, int(headers[STATUS_KEY])) == (401, wanted), what
        assert not token or token not in text
    for kind in set(TokenKind) - set(METHOD_KINDS[name]):
        token = keeper.mint(kind, b"somebody", int(time.time()), LIFE_S)
        status, headers, text = asked(cluster, leader, "POST", method.path, token, naming(method, bytes(16)))
        assert (status, int(headers[STATUS_KEY])) == (403, Status.FORBIDDEN), kind
        assert token not in text


@pytest.mark.parametrize("name", sorted(METHODS))
def test_grpc_asks_as_http_does(cluster: LocalCluster, wrong_tokens: dict[str, str], name: str) -> None:
    """The same over gRPC, where there is neither health nor reflection."""
    import grpc

    reply = asyncio.run(discover(cluster))
    assert cluster.credentials is not None
    secure = grpc.ssl_channel_credentials(cluster.credentials.ca_pem.encode())
    with grpc.secure_channel(reply.leader_grpc, secure) as channel:
        for what, token in wrong_tokens.items():
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(METHODS[name].path, bytes, bytes)(b"", metadata=metadata, timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, what
            assert not token or token not in str(refused.value.details())
        for path in ("/grpc.health.v1.Health/Check", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(path, bytes, bytes)(b"", timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("content_type", ["application/json", "application/proto"])
def test_who_may_not_call_is_reported_before_the_body_is_read(
    cluster: LocalCluster, keeper: Keeper, content_type: str
) -> None:
    """A token of another kind and a body that never comes: the refusal does not wait for it."""
    assert cluster.credentials is not None
    token = keeper.mint(TokenKind.VIEWER, b"eve", int(time.time()), LIFE_S)
    host, _, port = cluster.leader().address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        cluster.credentials.context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        head = f"POST {METHODS['Registry/CheckShuffles'].path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        secure.sendall(f"{head}Content-Type: {content_type}\r\nContent-Length: 7000000\r\n\r\n".encode())
        assert secure.recv(4_096).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("kind", [None, TokenKind.VIEWER])
def test_grpc_refuses_before_it_reads(cluster: LocalCluster, keeper: Keeper, kind: TokenKind | None) -> None:
    """The same over gRPC, without a token and with one of another kind."""
    import grpc

    reply = asyncio.run(discover(cluster))
    assert cluster.credentials is not None
    secure = grpc.ssl_channel_credentials(cluster.credentials.ca_pem.encode())
    never = threading.Event()
    metadata: tuple[tuple[str, str], ...] = ()
    if kind is not None:
        token = keeper.mint(kind, b"eve", int(time.time()), LIFE_S)
        metadata = (("authorization", f"Bearer {token}"),)

    def nothing() -> Iterator[bytes]:
        never.wait(30)
        yield from ()

    with grpc.secure_channel(reply.leader_grpc, secure) as channel:
        call: Any = channel.stream_unary(METHODS["Registry/CheckShuffles"].path, bytes, bytes)
        with pytest.raises(grpc.RpcError) as refused:
            call(nothing(), metadata=metadata, timeout=60)
        never.set()
    wanted = grpc.StatusCode.UNAUTHENTICATED if kind is None else grpc.StatusCode.PERMISSION_DENIED
    assert refused.value.code() is wanted


async def discover(cluster: LocalCluster) -> pb.DiscoverReply:
    """What the leader says of itself."""
    async with ControlClient(cluster.leader().address, cluster.credentials) as client:
        reply: pb.DiscoverReply = await client.ask(client.endpoints[0], "Shuffles/Discover", pb.DiscoverRequest())
        return reply


def test_pages_ask_for_a_token_too(cluster: LocalCluster, keeper: Keeper, wrong_tokens: dict[str, str]) -> None:
    """/metrics, /status and whatever else is there, on masters and workers; a browser is asked for a password, and may
    give the token as one. Only /healthz and /readyz say yes or no to everybody."""
    viewer = keeper.mint(TokenKind.VIEWER, b"eve", int(time.time()), LIFE_S)
    application = keeper.mint(TokenKind.APPLICATION, bytes(16), int(time.time()), LIFE_S)
    for address, paths in (
        (cluster.masters[0].address, ("/metrics", "/", "/support.tar.gz", "/nothing")),
        (cluster.workers[0].http, ("/metrics", "/status", "/nothing")),
    ):
        for path in ("/healthz", "/readyz") if "/" in paths else ("/healthz",):
            assert asked(cluster, address, "GET", path, "")[::2] in ((200, "ok\n"), (200, "ok"))
        for path in paths:
            for token in wrong_tokens.values():
                status, headers, text = asked(cluster, address, "GET", path, token)
                assert status == 401
                assert headers["www-authenticate"].startswith("Basic ")
                assert len(text) < 200
                assert not token or token not in text
            assert asked(cluster, address, "GET", path, application)[0] == 403
        assert asked(cluster, address, "GET", "/metrics", viewer)[0] == 200


@pytest.mark.parametrize("role", list(Role))
def test_no_connection_without_its_token(
    cluster: LocalCluster, keeper: Keeper, wrong_tokens: dict[str, str], role: Role
) -> None:
    """HELLO to a worker with every wrong token, and with a good one of another kind, is refused and the connection
    closed."""
    good = {Role.CLIENT: TokenKind.APPLICATION}.get(role, TokenKind.SERVER)
    now = int(time.time())
    others = {kind.name: keeper.mint(kind, b"x" * 16, now, LIFE_S) for kind in TokenKind if kind is not good}
    for what, token in {**wrong_tokens, **others}.items():
        wanted: type[HoldfastError] = ForbiddenError if what in others else UnauthenticatedError
        with pytest.raises(TokenExpiredError if what == "ended" else wanted) as refused:
            asyncio.run(greeted(cluster, token, role))
        assert not token or token not in str(refused.value)


async def greeted(cluster: LocalCluster, token: str, role: Role, *frames: tuple[FrameType, bytes]) -> None:
    """Connect to a worker and send frames; raises what it answers."""
    assert cluster.credentials is not None
    hello = Hello(cluster_id=(cluster.directory / "cluster").read_text(), role=role)
    credentials = cluster.credentials.with_token(token)
    host, _, port = cluster.workers[0].address.rpartition(":")
    client = await FrameClient.connect(host, int(port), hello, BufferPool(1 << 26), credentials=credentials)
    try:
        for frame_type, meta in frames:
            await client.request(frame_type, meta)
    finally:
        client.abort()
        await gone(client)


@pytest.mark.parametrize("frame_type", sorted(NAMING))
def test_no_frame_for_another_application(cluster: LocalCluster, keeper: Keeper, frame_type: FrameType) -> None:
    """A client with a good token of its own names another application's shuffle: its connection is closed, and it is
    not told whether that shuffle is there."""
    token = keeper.mint(TokenKind.APPLICATION, bytes(16), int(time.time()), LIFE_S)
    with Session(cluster.endpoints, app="victim", credentials=cluster.credentials) as session:
        shuffle = session.register_reduce_shuffle(2, 1)
        with shuffle.writer(0) as writer:
            writer.write(0, b"secret bytes")
            shuffle.commit([writer.close()])
        for key in (shuffle.key, shuffle.key._replace(instance=Instance(bytes(15) + b"x"))):
            with pytest.raises(ForbiddenError, match="another application") as refused:
                asyncio.run(greeted(cluster, token, Role.CLIENT, (frame_type, pack_shuffle(key) + bytes(64))))
            assert key.instance.hex()[:8] not in str(refused.value)
        assert [bytes(each.payload) for each in shuffle.reader([0, 1])] == [b"secret bytes"]


def test_row_50_users_keep_to_their_own(cluster: LocalCluster, keeper: Keeper) -> None:
    """A user can neither attach to another's application, by name or by instance, nor register in its instance, nor
    act for it with an application token of their own; the owner can. Nothing tells whether it is there."""
    alice, bob = (made(cluster, keeper, TokenKind.USER, name) for name in (b"alice", b"bob"))
    with Session(cluster.endpoints, app="nightly", credentials=alice) as session:
        with pytest.raises(ApplicationGoneError):
            Session(cluster.endpoints, app="nightly", attach=True, credentials=bob)
        with pytest.raises(ApplicationGoneError) as there:
            Session(cluster.endpoints, attach=session.instance, credentials=bob)
        with pytest.raises(ApplicationGoneError) as absent:
            Session(cluster.endpoints, attach=bytes(16), credentials=bob)
        assert str(there.value).replace(session.instance.hex()[:8], "") == str(absent.value).replace("0" * 8, "")
        with pytest.raises(ApplicationGoneError):
            asyncio.run(
                called(
                    cluster,
                    bob,
                    "Shuffles/RegisterApplication",
                    pb.RegisterApplicationRequest(
                        instance=session.instance, name="nightly", user="alice", holder=bytes(16)
                    ),
                )
            )
        with Session(cluster.endpoints, app="other", credentials=bob) as other:
            token = other.ticket.credentials
            assert token is not None
            for name in ("RegisterShuffle", "GetManifest", "Revive", "Commit", "UnregisterShuffle"):
                method = METHODS[f"Shuffles/{name}"]
                request = json_format.Parse(naming(method, session.instance), method.request())
                with pytest.raises(ForbiddenError):
                    asyncio.run(called(cluster, token, method.name, request))
        listed = asyncio.run(called(cluster, cluster.credentials, "Admin/ListShuffles", pb.ListShufflesRequest()))
        assert all(each.user != "bob" for each in listed.shuffles)
        with Session(cluster.endpoints, app="nightly", attach=True, credentials=alice) as attached:
            assert attached.instance == session.instance


def test_a10_a_user_forgets_what_is_that_users(cluster: LocalCluster, keeper: Keeper) -> None:
    """A user's token lists and drops the applications of that user, no other's and nothing that the masters never heard
    of, with the same words; an admin's token all of them."""
    alice, bob = (made(cluster, keeper, TokenKind.USER, name) for name in (b"alice", b"bob"))
    admin = made(cluster, keeper, TokenKind.ADMIN, b"operator")

    def seen(credentials: Credentials) -> set[bytes]:
        reply = asyncio.run(called(cluster, credentials, "Admin/ListApplications", pb.ListApplicationsRequest()))
        return {each.instance for each in reply.applications}

    def forget(credentials: Credentials, instance: bytes) -> None:
        asyncio.run(called(cluster, credentials, "Admin/Forget", pb.ForgetRequest(instance=instance)))

    instances = {}
    for name, credentials in (("alice", alice), ("bob", bob)):
        instances[name] = secrets.token_bytes(16)
        request = pb.RegisterApplicationRequest(instance=instances[name], name="shell", user=name, holder=bytes(16))
        asyncio.run(called(cluster, credentials, "Shuffles/RegisterApplication", request))
    assert seen(alice) == {instances["alice"]}
    assert seen(admin) >= set(instances.values())
    reported = set()
    for strange in (instances["bob"], secrets.token_bytes(16)):
        with pytest.raises(ForbiddenError) as refused:
            forget(alice, strange)
        reported.add(str(refused.value))
    assert len(reported) == 1
    forget(alice, instances["alice"])
    assert instances["alice"] not in seen(admin)
    forget(admin, instances["bob"])
    assert seen(bob) == set()


async def called(cluster: LocalCluster, credentials: Credentials | None, method: str, request: Message) -> Any:
    """One call; raises what it is refused with."""
    async with ControlClient(cluster.endpoints, credentials) as client:
        return await client.call(method, request)


def pool_is_empty(cluster: LocalCluster, address: str) -> bool:
    """Whether a worker holds no body."""
    return bool(worker_status(address, 5.0, cluster.credentials)["body_bytes"] == 0)


def test_a_users_token_is_refused_by_name(
    cluster: LocalCluster, keeper: Keeper, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Commands that a user's token is not enough for say so, and not that the masters are away."""
    user = made(cluster, keeper, TokenKind.USER, b"etl")
    for name, text in (("HOLDFAST_CA", user.ca_pem), ("HOLDFAST_TOKEN_FILE", user.token)):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        monkeypatch.setenv(name, str(path))
    for command in ("events", "shuffles", "status"):
        assert run([command, "--masters", cluster.endpoints]) == 1
        said = "".join(capsys.readouterr())
        assert "not user" in said
        assert "no master answers" not in said


def test_row_49_everything_works_and_nothing_is_kept(cluster: LocalCluster, keeper: Keeper) -> None:
    """Two copies pushed, committed and read over TLS, tokens on every way, as much as fits no buffer; afterwards the
    workers' pools are empty, and no token is in any log."""
    user = made(cluster, keeper, TokenKind.USER, b"etl")
    with Session(cluster.endpoints, app="whole", credentials=user) as session:
        assert session.ticket.credentials is not None
        application = session.ticket.credentials.token
        assert application != user.token
        shuffle = session.register_reduce_shuffle(4, 2, replication=2)
        payload = bytes(range(256)) * 1_024
        statuses = []
        for each in range(2):
            with shuffle.writer(each) as writer:
                for number in range(64):
                    writer.write(number % 4, payload)
                statuses.append(writer.close())
        shuffle.commit(statuses)
        assert sum(bytes(each.payload) == payload for each in shuffle.reader(range(4))) == 128
        files = session.register_map_shuffle(2, 1, replication=2)
        with files.writer(0, 0) as writer:
            writer.write_region([(0, payload)])
            files.commit([writer.close()])
        assert [bytes(each.payload) for each in files.reader(range(2))] == [payload]
    for worker in cluster.workers:
        wait_until(partial(pool_is_empty, cluster, worker.http), "the pool to be empty")
    counters = [worker_status(worker.http, 5.0, cluster.credentials)["counters"] for worker in cluster.workers]
    assert sum(each["forwards"] for each in counters) > 0
    assert sum(each["forwards_failed"] for each in counters) == 0
    reported = logs(cluster)
    for token in (user.token, application, cluster.credentials.token if cluster.credentials else "?"):
        assert token not in reported
        assert token.partition(".")[2][:40] not in reported


def test_a_token_that_ends_is_renewed_under_way(tmp_path: Path) -> None:
    """Tokens that live for six seconds: a session and a reader that goes on for longer than one of them never hear of
    it, since both renew theirs; one that is not renewed closes its connection."""
    settings = {"security": {"token_life": "6s"}, "lease": {"application": "6s"}}
    with (
        local_cluster(1, 1, dir=tmp_path / "cluster", settings=settings, secure=True) as cluster,
        Session(cluster.endpoints, app="long", credentials=cluster.credentials) as session,
    ):
        assert session.ticket.credentials is not None
        first = session.ticket.credentials.token
        shuffle = session.register_reduce_shuffle(1, 1)
        with shuffle.writer(0) as writer:
            writer.write(0, b"kept")
            statuses = [writer.close()]
        shuffle.commit(statuses)

        def ended() -> bool:
            try:
                asyncio.run(greeted(cluster, first, Role.CLIENT))
            except TokenExpiredError:
                return True
            return False

        wait_until(ended, "the first token to end", 30.0)
        for _ in range(3):
            assert [bytes(each.payload) for each in shuffle.reader([0])] == [b"kept"]
        assert session.ticket.credentials.token != first
        log = cluster.workers[0].log
        wait_until(lambda: "the token of this connection has expired" in log.read_text(), "the worker to end one")


def test_writers_and_readers_outlive_tokens(tmp_path: Path) -> None:
    """A map writer and a reader whose connections end with their token go on with a newer one, which the session gets
    in time though its lease is longer than tokens live."""
    settings = {"security": {"token_life": "5s"}, "lease": {"application": "5m"}}
    with (
        local_cluster(1, 1, dir=tmp_path / "cluster", settings=settings, secure=True) as cluster,
        Session(cluster.endpoints, app="long", credentials=cluster.credentials) as session,
    ):
        log = cluster.workers[0].log

        def ends() -> int:
            return log.read_text().count("the token of this connection has expired")

        def wait_for_an_end(before: int) -> None:
            wait_until(lambda: ends() > before, "the worker to end a connection", 30.0)

        shuffle = session.register_map_shuffle(1)
        pieces = [bytes([number]) * MIB for number in range(24)]
        writer = shuffle.writer(0, 0)
        writer.write_region([(0, pieces[0])])
        wait_for_an_end(0)
        for piece in pieces[1:]:
            writer.write_region([(0, piece)])
        shuffle.commit([writer.close()])
        records = iter(shuffle.reader([0]))
        read = [bytes(next(records).payload)]
        wait_for_an_end(ends())
        assert read + [bytes(each.payload) for each in records] == pieces


def test_plain_text_to_a_tls_port_is_closed_cleanly(cluster: LocalCluster) -> None:
    """Whoever speaks HTTP, our frames or garbage without TLS is closed soon, without an answer in the clear that tells
    anything, without a traceback in the log, and others are served meanwhile."""
    leader = cluster.leader()
    raft = cluster.masters[0].config.read_text().split('raft = "', 1)[1].split('"', 1)[0]
    for address in (leader.address, cluster.workers[0].address, cluster.workers[0].http, raft):
        host, _, port = address.rpartition(":")
        for sent in (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64), b"\x16\x03\x01\x00\x05hello"):
            with socket.create_connection((host, int(port)), timeout=60) as plain:
                plain.sendall(sent)
                answer = b""
                while part := received(plain):
                    answer += part
                assert len(answer) < 1_000
                assert b"holdfast" not in answer
    assert cluster.leader().name == leader.name
    assert "Traceback" not in logs(cluster)


def received(plain: socket.socket) -> bytes:
    """What comes next; nothing if the other side reset the connection."""
    try:
        return plain.recv(4_096)
    except ConnectionResetError:
        return b""


def test_who_trusts_another_ca_does_not_connect(cluster: LocalCluster, tmp_path: Path) -> None:
    """A client with another CA, or that asks for a name which the certificate does not have, ends with a sentence."""
    from holdfast.common.security.authority import make_ca

    assert cluster.credentials is not None
    other = Credentials(make_ca(tmp_path / "ca").read_text(), cluster.credentials.token)
    with pytest.raises(RetryError, match="certificate"):
        asyncio.run(called_soon(cluster.endpoints, other))
    host, _, port = cluster.workers[0].address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"),
    ):
        cluster.credentials.context.wrap_socket(plain, server_hostname="elsewhere")


async def called_soon(endpoints: str, credentials: Credentials, deadline_s: float = 2.0) -> object:
    """One call that does not wait long."""
    async with ControlClient(endpoints, credentials) as client:
        return await client.call("Shuffles/Discover", pb.DiscoverRequest(), deadline_s=deadline_s)


@pytest.mark.parametrize("silent", [False, True], ids=["all answer", "one is silent"])
def test_who_shows_a_wrong_token_hears_it_at_once(
    cluster: LocalCluster, wrong_tokens: dict[str, str], silent: bool
) -> None:
    """A refused token ends a client's call and a session's start, with deadlines longer than this test may take, though
    a master that is silent was not heard."""
    assert cluster.credentials is not None
    endpoints = cluster.endpoints
    if silent:
        endpoints = f"127.0.0.1:1,{cluster.masters[0].address}"
    for what, token in wrong_tokens.items():
        credentials = cluster.credentials.with_token(token)
        wanted: type[HoldfastError] = TokenExpiredError if what == "ended" else UnauthenticatedError
        with pytest.raises(wanted) as caught:
            asyncio.run(called_soon(endpoints, credentials, 600.0))
        assert not token or token not in str(caught.value)
    ended = cluster.credentials.with_token(wrong_tokens["ended"])
    with pytest.raises(TokenExpiredError, match=r"get a new one$"):
        Session(cluster.endpoints, app="late", credentials=ended)


def test_files_of_secrets_are_for_their_owner(cluster: LocalCluster) -> None:
    """Keys, secret and token of a local cluster have mode 0600; a server whose key others may read does not start."""
    folder = cluster.directory
    private = [folder / "secret", *(folder / "security").glob("*.key"), *(folder / "security").glob("*.token")]
    assert len(private) == 4
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    key = folder / "security" / "server.key"
    worker = cluster.workers[1]
    worker.kill()
    key.chmod(0o644)
    try:
        with pytest.raises(HoldfastError, match="mode 0644, so others may read it: chmod 600"):
            worker.start()
    finally:
        key.chmod(0o600)
    worker.start()
    cluster.wait_ready()
    assert json.dumps(worker_status(worker.http, 5.0, cluster.credentials))
