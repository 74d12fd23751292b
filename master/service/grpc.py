"""The gRPC side of a master: generic handlers made from the descriptors, health and reflection. No policy.

Requests are parsed by handlers.py and not by gRPC, so that a malformed body gets a typed error like any other. They
come as streams of one message, which is the same on the wire: so who calls is known before any of it is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast.common.errors import HoldfastError, ProtocolError, Status
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX
from holdfast.common.net.descriptors import MASTER_DOORS, connections_max
from holdfast.common.net.methods import CLUSTER_KEY, METHODS, Method, told_cluster
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.http import token_of
from holdfast.common.security.server import ServerSecurity
from holdfast.common.security.tokens import Identity
from holdfast.master.service.handlers import Handlers
from holdfast.master.service.statuses import code_of, metadata_of

#: RPCs that gRPC itself lets in; long polls are most of them.
_RPCS_MAX = 16_384
#: Connections open at once, as at the HTTP port; beyond them new ones are closed.
CONNECTIONS_MAX = 16_384
_OPTIONS = (
    ("grpc.max_send_message_length", CONTROL_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", CONTROL_MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    # Clients ask every 10 s whether a silent connection still stands.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # One that says nothing, or calls nothing, makes room for others; a client connects again when it calls.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
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
    server = aio.server(options=(*_OPTIONS, bound), maximum_concurrent_rpcs=_RPCS_MAX)
    for service in pb.DESCRIPTOR.services_by_name.values():
        methods: dict[str, Any] = {
            method.name: grpc.stream_unary_rpc_method_handler(
                _handler(cluster_id, handlers, METHODS[f"{service.name}/{method.name}"], security)
            )
            for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, methods),))
    names = [service.full_name for service in pb.DESCRIPTOR.services_by_name.values()]
    if security is None:
        await _add_health(server, names)
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


async def _add_health(server: aio.Server, names: list[str]) -> None:
    servicer = health.aio.HealthServicer()
    for name in ("", *names):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)


def _identify(security: ServerSecurity | None, context: Any) -> Identity | None:
    if security is None:
        return None
    shown = dict(context.invocation_metadata() or ()).get("authorization", "")
    return security.identify(token_of(shown if isinstance(shown, str) else ""))


async def _request(messages: AsyncIterator[bytes], method: Method) -> bytes:
    """Read the one message of a call."""
    async for data in messages:
        if len(data) > method.request_bytes_max:
            most = method.request_bytes_max
            raise ProtocolError(f"a request of {method.name} has at most {most} bytes", status=Status.TOO_LARGE)
        return data
    raise ProtocolError("the call has no request", status=Status.BAD_REQUEST)


def _handler(
    cluster_id: str, handlers: Handlers, method: Method, security: ServerSecurity | None
) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
    cluster = (CLUSTER_KEY, told_cluster(cluster_id))

    async def handle(messages: AsyncIterator[bytes], context: Any) -> bytes:
        context.set_trailing_metadata((cluster,))
        try:
            caller = _identify(security, context)
            handlers.admit(method, caller)
            return await handlers.call_bytes(method, await _request(messages, method), caller)
        except HoldfastError as error:
            code = grpc.StatusCode[code_of(error.status).upper()]
            await context.abort(code, str(error), (cluster, *metadata_of(error).items()))
            raise AssertionError("abort raises") from error

    return handle
