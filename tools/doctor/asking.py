"""Asks masters and workers what they are, each for itself, and whether their other ports can be reached from here."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.client.connection.direct import ask, worker_status
from holdfast.client.connection.runtime import runtime
from holdfast.common.config.config import Config
from holdfast.common.errors import (
    ConfigError,
    HoldfastError,
    NotMasterError,
    RetryError,
    TokenExpiredError,
    UnauthenticatedError,
)
from holdfast.common.formats.messages import Hello, Role
from holdfast.common.limits import FRAME_BODY_BYTES_MAX
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import Credentials, CredentialsProvider, calling_context
from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import TokenKind, bearer_of
from holdfast.common.statuses import Status
from holdfast.common.worker_states import AWAY
from holdfast.tools.cli.asking import waiting_shown
from holdfast.tools.doctor.core.facts import Clock, Cluster, JobFact, MasterFact, SilentPort, WelcomeFact, WorkerFact

#: A server that is silent is asked three ways, one after the other, and a person waits for all of it.
_SECONDS = 2.0
#: Servers that are asked at once.
_AT_ONCE = 64
#: A pool holds one body at least; the answer to a HELLO has none.
_POOL_BYTES = FRAME_BODY_BYTES_MAX


@dataclass(frozen=True)
class _Unnamed:
    """What is shown to a server of this very machine, whose certificate names it as others call it."""

    token: str
    ca_pem: str
    context: ssl.SSLContext


def credentials_of(config: Config | None) -> CredentialsProvider | None:
    """Credentials of the environment, else of the server of this file; None without security, or where the
    files are unusable, which other checks report."""
    try:
        found = Credentials.from_environment()
        if found is None and config is not None and config.security.enabled:
            return ServerSecurity.of(config, "doctor")
    except ConfigError:
        return None
    return found


def whose_http(role: str, host: str, port: int, config: Config) -> tuple[str, str] | None:
    """Cluster and name of the server of that role whose HTTP port this is; None if it is none."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    credentials = credentials_of(config)
    if credentials is not None:
        context = calling_context(credentials.ca_pem)
        context.check_hostname = False
        credentials = _Unnamed(credentials.token, credentials.ca_pem, context)
    try:
        if role == "master":
            reply = ask(address, "Shuffles/Discover", pb.DiscoverRequest(), pb.DiscoverReply, _SECONDS, credentials)
            return reply.cluster_id, reply.name
        listed = worker_status(address, _SECONDS, credentials)
        return str(listed["cluster_id"]), str(listed["name"])
    except (HoldfastError, ValueError, KeyError, TypeError):
        return None


def gather_cluster(
    endpoints: Iterable[str], config: Config | None, expected: bool, job: Credentials | None = None
) -> Cluster:
    """What answers at the masters' HTTP addresses, at those of the masters that these name, and at the workers'; `job`
    is shown where there is nothing else to show."""
    return runtime().run(_gather(list(dict.fromkeys(endpoints)), config, expected, credentials_of(config) or job))


async def _gather(
    endpoints: list[str], config: Config | None, expected: bool, credentials: CredentialsProvider | None
) -> Cluster:
    raft = {str(peer.http): str(peer.raft) for peer in config.master.peers} if config is not None else {}
    silent = f"no answer yet, asking for {3 * _SECONDS:g} s at most: {', '.join(endpoints)}"
    with waiting_shown(lambda: silent):
        return await _asked(endpoints, raft, expected, credentials)


async def _asked(
    endpoints: list[str], raft: dict[str, str], expected: bool, credentials: CredentialsProvider | None
) -> Cluster:
    seen_as = _seen_as(credentials)
    async with ControlClient(endpoints, credentials) as client:

        async def each_of(addresses: Iterable[str]) -> list[MasterFact]:
            return list(
                await asyncio.gather(*(_master(client, each, raft.get(each, ""), bool(seen_as)) for each in addresses))
            )

        masters = await each_of(endpoints)
        named = {http for each in masters for _, http in each.peers} - set(endpoints)
        masters += [replace(each, only_named=True) for each in await each_of(sorted(named))]
        there = [each for each in masters if not each.error]
        secured = any(each.speaks_tls for each in masters) or (credentials is not None and bool(there))
        found = Cluster(masters=tuple(masters), expected=expected, secured=secured, seen_as=seen_as)
        if not any(each.leads for each in there):
            return found
        try:
            reply = await client.call("Admin/ListWorkers", pb.ListWorkersRequest(), deadline_s=_SECONDS)
        except HoldfastError as error:
            return replace(found, workers_error=str(error))
        turn = asyncio.Semaphore(_AT_ONCE)
        met = [_worker(turn, each, there[0].cluster_id, credentials, bool(seen_as)) for each in reply.workers]
        workers = await asyncio.gather(*met)
    return replace(found, workers=tuple(workers))


def try_job(endpoints: Iterable[str], job: Credentials, found: JobFact) -> JobFact:
    """The same with what masters make of the CA and the token that a job would show."""
    return replace(found, welcomes=tuple(runtime().run(_welcomes(list(dict.fromkeys(endpoints)), job))))


def _seen_as(credentials: CredentialsProvider | None) -> str:
    """The kind of a token that does not let see all; "" for others."""
    kind = bearer_of(credentials.token)[0] if credentials is not None else 0
    return TokenKind(kind).name.lower() if kind in (TokenKind.USER, TokenKind.APPLICATION) else ""


def gather_welcomes(config: Config) -> list[WelcomeFact]:
    """How the masters of a file take what its server shows: its own secret and CA, whatever the environment has."""
    named = [str(each) for each in config.worker.masters] or [str(peer.http) for peer in config.master.peers]
    try:
        credentials = ServerSecurity.of(config, "doctor")
    except ConfigError:
        return []  # found with the settings
    return runtime().run(_welcomes(list(dict.fromkeys(named)), credentials))


async def _welcomes(endpoints: list[str], credentials: CredentialsProvider | None) -> list[WelcomeFact]:
    async with ControlClient(endpoints, credentials) as client:
        return list(await asyncio.gather(*(_welcome(client, each, credentials is not None) for each in endpoints)))


async def _welcome(client: ControlClient, address: str, secured: bool) -> WelcomeFact:
    try:
        await client.ask(address, "Shuffles/Discover", pb.DiscoverRequest(), timeout_s=_SECONDS)
    except (UnauthenticatedError, TokenExpiredError) as error:
        return WelcomeFact(address=address, secret_refused=str(error) if secured else "")
    except NotMasterError as error:
        if error.status is Status.UNAUTHENTICATED:
            return WelcomeFact(address=address, certificate_refused=str(error))
        return await _tls_differs(address, secured)
    except RetryError:
        return await _tls_differs(address, secured)
    except HoldfastError:
        pass  # whatever its answer is, it has admitted us
    return WelcomeFact(address=address, let_in=True)


async def _tls_differs(address: str, secured: bool) -> WelcomeFact:
    """Who cannot be talked to may just speak otherwise."""
    there, _ = await _reach(address)
    if there:
        return WelcomeFact(address=address)
    tls = await _speaks_tls(address)
    return WelcomeFact(address=address, only_master_tls=tls and not secured, only_file_tls=secured and not tls)


async def _master(client: ControlClient, address: str, raft: str, partly: bool) -> MasterFact:
    """`partly`: without what only viewers may see."""
    sent = time.time()
    try:
        status = pb.StatusReply()
        if not partly:
            status = await client.ask(address, "Admin/Status", pb.StatusRequest(), timeout_s=_SECONDS)
        got = time.time()
        found: pb.DiscoverReply = await client.ask(address, "Shuffles/Discover", pb.DiscoverRequest(), _SECONDS)
    except HoldfastError as error:
        reached, refused = await _reach(address)
        tls = not reached and await _speaks_tls(address)
        return MasterFact(address=address, error=reached or str(error), refused=refused, speaks_tls=tls)
    own = next((each for each in found.masters if each.name == found.name), pb.MasterInfo())
    return MasterFact(
        address=address,
        name=status.name or found.name,
        cluster_id=status.cluster_id or found.cluster_id,
        leads=bool(own.http) and found.leader_http == own.http if partly else status.role == "leader",
        version=status.version or found.version,
        versions=dict(status.versions),
        settings=dict(status.settings),
        peers=tuple((each.name, each.http) for each in found.masters),
        dfs_url=status.dfs_url,
        clock=_clock(sent, got, status.clock_ms),
        faults=tuple(status.faults),
        under_replicated=status.under_replicated,
        awaited=status.awaited,
        silent=await _silent({"gRPC port": own.grpc, "raft port": raft}),
    )


async def _data_port(address: str, cluster_id: str, credentials: CredentialsProvider | None) -> None:
    """Greet the worker there; with security, where only applications and servers may, look at its certificate. Raises
    what is wrong."""
    if credentials is None:
        host, _, port = address.rpartition(":")
        hello = Hello(role=Role.CLIENT, cluster_id=cluster_id)
        pool = BufferPool(_POOL_BYTES)
        client = await FrameClient.connect(host.strip("[]"), int(port), hello, pool, timeout_seconds=_SECONDS)
        client.abort()
        return
    try:
        writer = await _connect(address, credentials.context)
    except TimeoutError:
        raise RetryError(f"{address} does not answer within {_SECONDS:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise UnauthenticatedError(error.verify_message) from None
    except OSError as error:
        raise RetryError(f"{address}: {error}") from None
    writer.transport.abort()


async def _speaks_tls(address: str) -> bool:
    """Whether the server there completes a handshake, whatever its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        writer = await _connect(address, context)
    except OSError:  # a timeout is one
        return False
    writer.transport.abort()
    return True


async def _worker(
    turn: asyncio.Semaphore,
    listed: pb.WorkerInfo,
    cluster_id: str,
    credentials: CredentialsProvider | None,
    partly: bool,
) -> WorkerFact:
    """`partly`: without what only viewers may see."""
    silent: list[SilentPort] = []
    refused = ""
    status: dict[str, Any] = {}
    clock = None
    if listed.state not in AWAY:
        async with turn:
            sent = time.time()
            data, http = await asyncio.gather(
                _data_port(listed.data_address, cluster_id, credentials),
                asyncio.sleep(0, {})
                if partly
                else asyncio.to_thread(worker_status, listed.http_address, _SECONDS, credentials),
                return_exceptions=True,
            )
            got = time.time()
        if credentials is not None and isinstance(data, UnauthenticatedError):
            refused = str(data)  # for both ports, which have one certificate
        elif isinstance(data, BaseException):
            silent.append(await _unanswered("data port", listed.data_address, str(data)))
        if isinstance(http, BaseException):
            silent += [] if refused else [await _unanswered("HTTP port", listed.http_address, str(http))]
        else:
            status, clock = http, _clock(sent, got, int(http.get("clock_ms", 0)))
    versions = status.get("versions", {})
    faults = status.get("faults", [])
    return WorkerFact(
        name=listed.name,
        host=listed.host,
        data_address=listed.data_address,
        http_address=listed.http_address,
        state=listed.state,
        version=listed.version,
        dfs_url=listed.dfs.url if listed.HasField("dfs") else "",
        machine_id=listed.machine_id,
        disks=tuple(each.path for each in listed.directories if each.tier != "MEMORY"),
        versions=versions if isinstance(versions, dict) else {},
        clock=clock,
        faults=tuple(map(str, faults if isinstance(faults, list) else [faults] if faults else [])),
        silent=tuple(silent),
        certificate_refused=refused,
    )


def _clock(sent: float, got: float, clock_ms: int) -> Clock | None:
    """How far the other clock is ahead, as it was half-way between question and answer; None if it gave no time."""
    return Clock(clock_ms / 1e3 - (sent + got) / 2, (got - sent) / 2) if clock_ms else None


async def _silent(ports: Mapping[str, str]) -> tuple[SilentPort, ...]:
    found = []
    for what, address in ports.items():
        reason, refused = await _reach(address) if address else ("", False)
        if reason:
            found.append(SilentPort(what, reason, refused))
    return tuple(found)


async def _unanswered(what: str, address: str, reason: str) -> SilentPort:
    """A port that gave no answer; whether anything listens is asked now."""
    _, refused = await _reach(address)
    return SilentPort(what, reason or f"{address} does not answer", refused)


async def _connect(address: str, context: ssl.SSLContext | None = None) -> asyncio.StreamWriter:
    """Raises OSError; TimeoutError, which is one, if no answer comes in time."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_SECONDS):
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    return writer


async def _reach(address: str) -> tuple[str, bool]:
    """Why no connection is possible there, "" if one is, and whether the host itself refused."""
    try:
        writer = await _connect(address)
    except TimeoutError:
        return f"{address} does not answer within {_SECONDS:g} s", False
    except OSError as error:
        return f"{address}: {error.strerror or error}", isinstance(error, ConnectionRefusedError)
    writer.close()
    return "", False
