"""Carries one control call to one master: what every way has to do, and the way over gRPC. The way over HTTP is
http_client.py.

Rules: one try, no policy; every failure is a typed error: the master's own refusal by its status number,
everything that says nothing about the call (refused, reset, timed out) as RetryError with UNAVAILABLE, an answer that
no master of the cluster gives as NotMasterError (answers.py). The messages of the latter two begin with the address.
gRPC is imported when first used, so that a process that only reads does not pay for it. Called by control.py only.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any, Protocol

from holdfast.common.errors import HoldfastError, NotMasterError, RetryError
from holdfast.common.limits import CONTROL_MESSAGE_BYTES_MAX
from holdfast.common.net.answers import check_cluster, refusal
from holdfast.common.net.http_client import broke, fail
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import background

_GRPC_OPTIONS = (
    ("grpc.max_send_message_length", CONTROL_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", CONTROL_MESSAGE_BYTES_MAX),
    # A master that comes back is to be noticed at once; the retry policy is ours.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # A host that vanished without a word is noticed in 15 s even while a long poll waits.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


class ControlTransport(Protocol):
    """What control.py needs of a way to a master."""

    #: whose masters are meant; "" while any will do
    cluster_id: str

    def call(self, address: str, path: str, request: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin one try at the master at `address`. The future gets the reply's bytes or a HoldfastError.

        Whoever gives the call up resolves or cancels the future; the connection is not used again then.
        """

    async def close(self) -> None:
        """Drop all connections."""


class GrpcTransport:
    """Calls over grpc.aio; one channel per address."""

    def __init__(self, credentials: CredentialsProvider | None = None) -> None:
        """`credentials`: of a secured cluster."""
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its lines about handshakes; the caller reports errors
        self._credentials = credentials
        self.cluster_id = ""
        self._calls: dict[tuple[str, str], Any] = {}
        self._channels: dict[str, Any] = {}

    def call(self, address: str, path: str, request: bytes, timeout_s: float) -> asyncio.Future[bytes]:
        """Begin one try at the master at `address`, a gRPC address."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        task = background(self._run(address, path, request, timeout_s, answered), partial(broke, answered, address))
        answered.add_done_callback(lambda _: task.cancel())
        return answered

    async def close(self) -> None:
        """Close the channels; calls under way fail."""
        channels, self._channels, self._calls = self._channels, {}, {}
        for channel in channels.values():
            await channel.close()

    async def _run(
        self, address: str, path: str, request: bytes, timeout_s: float, answered: asyncio.Future[bytes]
    ) -> None:
        from grpc import RpcError

        call = self._method(address, path)(request, timeout=timeout_s, metadata=self._metadata())
        try:
            reply = await call
            check_cluster(address, _headers(await call.trailing_metadata()), self.cluster_id, "it answers over gRPC")
        except RpcError as error:
            fail(answered, self._from_grpc(error, address))
            return
        except HoldfastError as error:
            fail(answered, error)
            return
        if not answered.done():
            answered.set_result(reply)

    def _from_grpc(self, error: Any, address: str) -> HoldfastError:
        from grpc import StatusCode

        headers, details = _headers(error.trailing_metadata()), str(error.details() or "")
        if headers:
            try:
                check_cluster(address, headers, self.cluster_id, details)
            except NotMasterError as stranger:
                return stranger
            return refusal(address, headers, details)
        if error.code() is StatusCode.RESOURCE_EXHAUSTED:  # of gRPC itself: as many calls as it lets in
            return RetryError(f"master {address} is busy: {details}", status=Status.BUSY)
        return RetryError(f"master {address} cannot be reached: {error.code().name}: {details}")

    def _method(self, address: str, path: str) -> Any:
        found = self._calls.get((address, path))
        if found is None:
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._channel(address)
            found = self._calls[(address, path)] = channel.unary_unary(path)
        return found

    def _channel(self, address: str) -> Any:
        from grpc import aio, ssl_channel_credentials

        if self._credentials is None:
            return aio.insecure_channel(address, options=_GRPC_OPTIONS)
        credentials = ssl_channel_credentials(self._credentials.ca_pem.encode())
        return aio.secure_channel(address, credentials, options=_GRPC_OPTIONS)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._credentials is None else (("authorization", f"Bearer {self._credentials.token}"),)


def _headers(metadata: Any) -> dict[str, str]:
    """The metadata of an answer over gRPC."""
    return {str(key): str(value) for key, value in (metadata or ())}
