"""asyncio's TLS for the HTTP ports, without what a flood of connections would fill memory with.

asyncio gives each connection under TLS 256 KiB to receive into, before a byte has come. Where a handshake fails these
stay in a cycle of the error with its traceback, which a collector that runs seldom does not find for hours.

Rules: all connections of a port receive through one buffer, which is used within a callback only; what speaks HTTP is
made after the handshake; a connection that ended leaves nothing behind that waits for the collector. Only the names of
two attributes are asyncio's own affair: where it renames them connections have a buffer of RECEIVED_BYTES each again,
and nothing else changes. Called by http_server.py.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import Any, cast

from holdfast.common.limits import KIB

#: Received at once: two records of TLS.
RECEIVED_BYTES = 32 * KIB


class TlsProtocol(sslproto.SSLProtocol):
    """The accepting side of one connection; `made()` is its protocol after the handshake."""

    max_size = RECEIVED_BYTES

    def __init__(
        self,
        tls: ssl.SSLContext,
        made: Callable[[], asyncio.Protocol],
        shaking: dict[Any, None],
        received: bytearray,
        handshake_seconds: float,
        shutdown_seconds: float,
    ) -> None:
        """`shaking` holds this while its handshake is under way; `received` may be shared by connections of a loop."""
        super().__init__(
            asyncio.get_running_loop(),
            _Shaken(self, made),
            tls,
            cast("Any", None),  # no waiter for the end of the handshake
            server_side=True,
            ssl_handshake_timeout=cast("Any", handshake_seconds),
            ssl_shutdown_timeout=shutdown_seconds,
        )
        self._ssl_buffer, self._ssl_buffer_view = received, memoryview(received)
        self._under_tls: asyncio.Transport | None = None
        self.shaking = shaking
        shaking[self] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hear from asyncio."""
        self._under_tls = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        if self not in self.shaking:
            self.abort()  # as requested before the transport existed

    def connection_lost(self, exc: BaseException | None) -> None:
        """Hear from asyncio."""
        if self in self.shaking and exc is not None:
            exc = exc.with_traceback(None)  # its frames hold the error, and this
        self.shaking.pop(self, None)
        self._under_tls = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._under_tls is not None:
            self._under_tls.abort()


class _Shaken(asyncio.Protocol):
    """A placeholder for the protocol until the handshake is done: then that is made."""

    def __init__(self, tls: TlsProtocol, made: Callable[[], asyncio.Protocol]) -> None:
        self._tls: TlsProtocol | None = tls
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls, self._tls = self._tls, None
        assert tls is not None
        tls.shaking.pop(tls, None)
        protocol = self._made()
        cast("asyncio.Transport", transport).set_protocol(protocol)
        protocol.connection_made(transport)
