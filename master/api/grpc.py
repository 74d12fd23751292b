"""The gRPC side of a master: generic handlers made from the descriptors, health and reflection. No policy.

Requests are parsed by handlers.py and not by gRPC, so that a malformed body gets a typed error like any other. They
come as streams of one message, and answers go as such, which is the same on the wire: so the caller is known, and room
is taken, before any of a request is read, and an answer has its room until gRPC has sent it. How long a message is
gRPC only says when it is there, so each that is read may be as long as the longest, which is short. Before a handler
asks for it gRPC keeps a window of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX, KIB
from holdfast.common.net.methods import CLUSTER_KEY, GRPC_MESSAGE_BYTES_MAX, METHODS, Method, quoted_cluster
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.http import token_of
from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import Bearer
from holdfast.common.statuses import Status
from holdfast.common.system.descriptors import MASTER_DOORS, connections_max
from holdfast.master.api.budgets import RPCS_MAX, SMALL_BYTES, BudgetRoom
from holdfast.master.api.handlers import Handlers, without_frames
from holdfast.master.api.statuses import bad_request, code_of, metadata_of

#: RPCs that gRPC itself lets in of one connection.
STREAMS_MAX = 1_024
#: Connections open at once; beyond them new ones are closed. Clients of ours use the HTTP port.
CONNECTIONS_MAX = 1_024
#: Of an unread message, of each call.
WINDOW_BYTES = 16 * KIB
#: For a request to come, and for an answer to be taken.
_MESSAGE_SECONDS = 60.0
_OPTIONS = (
    ("grpc.max_send_message_length", CONTROL_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.so_reuseport", 0),
    # Clients check every 10 s that a silent connection is still open.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # One that says nothing, or calls nothing, makes room for others; a client connects again when it calls.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 30_000),
    # Nobody holds one for ever; what is under way, such as a long poll, ends first.
    ("grpc.max_connection_age_ms", 300_000),
    ("grpc.max_connection_age_grace_ms", 60_000),
)


async def serve_grpc(
    cluster_id: str,
    handlers: Handlers,
    address: str,
    most: int = CONNECTIONS_MAX,
    security: ServerSecurity | None = None,
) -> tuple[aio.Server, int]:
    """Start a server at "host:port" with room for `most` connections; return it and its port. With `security` it
    offers neither health nor reflection: only calls show a token. Raises OSError if the address is taken."""
    bound = ("grpc.max_allowed_incoming_connections", connections_max(most, MASTER_DOORS))
    server = aio.server(options=(*_OPTIONS, bound), maximum_concurrent_rpcs=RPCS_MAX)
    for service in pb.DESCRIPTOR.services_by_name.values():
        methods: dict[str, Any] = {
            method.name: grpc.stream_stream_rpc_method_handler(
                _handler(cluster_id, handlers, METHODS[f"{service.name}/{method.name}"], security)
            )
            for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, methods),))
    names = [service.full_name for service in pb.DESCRIPTOR.services_by_name.values()]
    if security is None:
        servicer = health.aio.HealthServicer()
        for name in ("", *names):
            await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    try:
        if security is None:
            port = server.add_insecure_port(address)
        else:
            pair = (security.key_pem.encode(), security.certificate_pem.encode())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise OSError(f"cannot listen for gRPC at {address}: {error}") from error
    await server.start()
    return server, port


def _identify(security: ServerSecurity | None, context: Any) -> Bearer | None:
    if security is None:
        return None
    shown = dict(context.invocation_metadata() or ()).get("authorization", "")
    return security.identify(token_of(shown if isinstance(shown, str) else ""))


async def _request(messages: AsyncIterator[bytes], budget_room: BudgetRoom) -> bytes:
    """Read the one message of a call into the room that it takes. Raises ProtocolError, RetryError."""
    budget_room.take(GRPC_MESSAGE_BYTES_MAX)
    try:
        async with asyncio.timeout(_MESSAGE_SECONDS):
            async for data in messages:
                budget_room.keep(len(data))
                return data
    except TimeoutError:
        raise bad_request(f"no request within {_MESSAGE_SECONDS:.0f} s") from None
    raise bad_request("the call has no request")


async def _send(reply: Message, budget_room: BudgetRoom, context: Any) -> None:
    """Return when gRPC has sent an answer into the room that it takes. Raises RetryError."""
    size = reply.ByteSize()
    if size > SMALL_BYTES:
        budget_room.take(size)
    try:
        async with asyncio.timeout(_MESSAGE_SECONDS):
            await context.write(reply.SerializeToString())
    except TimeoutError:
        raise RetryError(f"the answer was not taken within {_MESSAGE_SECONDS:.0f} s", status=Status.BUSY) from None


async def _answer(
    handlers: Handlers, method: Method, security: ServerSecurity | None, messages: AsyncIterator[bytes], context: Any
) -> HoldfastError | None:
    """Answer a call; return what refuses it, without frames that would hold its request."""
    budgets = handlers.budgets
    try:
        caller = _identify(security, context)
        handlers.admit(method, caller)
        host = str(context.peer()).rpartition(":")[0]
        asker = budgets.asker(caller, host, method)
        with budgets.rpc(asker) as rpc:
            rpc.take(1)
            with budgets.body(asker) as budget_room:
                request = handlers.parse(method, await _request(messages, budget_room))
                reply = await handlers.call(method, request, caller, asker)
            with budgets.answer(asker) as budget_room:
                await _send(reply, budget_room, context)
    except HoldfastError as error:
        return without_frames(error)
    return None


def _handler(
    cluster_id: str, handlers: Handlers, method: Method, security: ServerSecurity | None
) -> Callable[[AsyncIterator[bytes], Any], Awaitable[None]]:
    cluster = (CLUSTER_KEY, quoted_cluster(cluster_id))

    async def handle(messages: AsyncIterator[bytes], context: Any) -> None:
        context.set_trailing_metadata((cluster,))
        refused = await _answer(handlers, method, security, messages, context)
        if refused is not None:
            code = grpc.StatusCode[code_of(refused.status).upper()]
            await context.abort(code, str(refused), (cluster, *metadata_of(refused).items()))

    return handle
