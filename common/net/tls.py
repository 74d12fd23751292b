"""TLS on bytes: plain bytes go in and encrypted bytes come out, and the other way; no socket, no clock.

Rules: pure but for OpenSSL; the caller bounds the input, and the input bounds the output.
asyncio's own TLS would hold 256 KiB for every connection and count connections only after their handshake; the Raft
port has no asyncio. So both put this pipe between their socket and their bytes; HTTP uses asyncio's, tamed by
tls_protocol.py, gRPC its own. Called by tls_wire.py, master/raft/transport.py; `words_of` also by transports.py.
"""

from __future__ import annotations

import ssl
from typing import Any

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError
from holdfast.common.limits import KIB

#: One piece of what is said that is sealed at a time: what waits sealed is no more than that.
PIECE_BYTES = 128 * KIB
#: OpenSSL is given and asked for so much at once, in whole records: its buffers grow to that, and stay.
SLICE_BYTES = 32 * KIB
#: A record begins with its type, its version, and the length of the rest.
_HEAD_BYTES = 5
#: OpenSSL's errors for bytes that are not TLS.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL"})

NOT_TLS = "the data is not TLS: [security] enabled has to be the same at both ends"


class TlsPipe:
    """One side of one connection. `receive` what came, then `shake` until it is done, then `read_into`; `seal` and
    `close` as wanted; after all but `seal` what `take` returns is to be sent."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        """`server_hostname`: the name that the peer's certificate must have; None on the accepting side."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: Any = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        #: came, and OpenSSL was not given it yet; and how much is missing of the record that it was given last
        self._unfed = memoryview(b"")
        self._missing = 0
        #: the handshake is done: bytes can be sealed and read
        self.shaken = False
        #: the peer has closed its direction
        self.ended = False

    def receive(self, data: bytes | memoryview) -> None:
        """Take what came. It is not copied: before that memory changes, all of it was read, or `keep` is called."""
        self._unfed = memoryview(b"".join((self._unfed, data)) if self._unfed else data)

    def keep(self) -> None:
        """Copy what was received and not looked at yet."""
        if self._unfed:
            self._unfed = memoryview(bytes(self._unfed))

    def shake(self) -> bool:
        """Continue the handshake; return whether it is done. Raises the error that `failure` makes."""
        while not self.shaken:
            try:
                self._tls.do_handshake()
                self.shaken = True
            except ssl.SSLWantReadError:
                if not self._feed():
                    return False
            except ssl.SSLError as error:
                raise failure(error) from None
        return True

    @property
    def holds(self) -> bool:
        """Something that came was not looked at yet."""
        return bool(self._unfed) or bool(self._incoming.pending or self._tls.pending())

    def read_into(self, buffer: memoryview) -> int:
        """Fill the buffer with what was said, as far as it came; return how much that is. Raises as `shake`."""
        at, size = 0, len(buffer)
        try:
            while at < size and (self._incoming.pending or self._tls.pending() or self._feed()):
                try:
                    count = self._tls.read(size - at, buffer[at:])
                except ssl.SSLWantReadError:
                    if not self._feed():
                        break  # the rest of a record is on its way
                    continue
                if not count:
                    self.ended = True
                    break
                at += count
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            raise failure(error) from None
        return at

    def seal(self, data: bytes | memoryview) -> list[bytes]:
        """Say it, after the handshake; return what is to be sent. PIECE_BYTES at most. Raises as `shake`."""
        sealed = []
        for at in range(0, len(data), SLICE_BYTES):
            part = data[at : at + SLICE_BYTES]
            try:
                written = self._tls.write(part)
            except ssl.SSLError as error:
                raise failure(error) from None
            assert written == len(part), (written, len(part))
            sealed.append(self._outgoing.read())
        return sealed

    def _feed(self) -> bool:
        """Give OpenSSL the next records, or the beginning of one of which no more came; return whether it got any."""
        data, at = self._unfed, self._missing
        size = len(data)
        while at < SLICE_BYTES and at + _HEAD_BYTES <= size:
            at += _HEAD_BYTES + (data[at + 3] << 8) + data[at + 4]
        if not size or not at:
            return False  # fewer bytes than a head has
        self._incoming.write(data[:at])
        self._unfed, self._missing = data[at:], max(0, at - size)
        return True

    def take(self) -> bytes:
        """Return what is to be sent now, and forget it."""
        return self._outgoing.read()

    def close(self) -> None:
        """Say that nothing more is said."""
        if self.shaken:
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the other side has not said the same yet, or is in the middle of something: it is the end anyway


def words_of(error: ssl.SSLError) -> str:
    """The cause, and what to do; for people only."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is refused: {error.verify_message}. It has to be signed by the CA that was given, to be "
            "valid today, and to name the host as it is connected to"
        )
    if error.reason in _NO_TLS:
        return NOT_TLS
    if error.reason and "ALERT_UNKNOWN_CA" in error.reason:
        return "it refuses our certificate: both sides need the same CA (security.ca)"
    return f"TLS failed: {error.reason or error}"


def failure(error: ssl.SSLError) -> HoldfastError:
    """Its error: RetryError for a certificate, since the right host may be there the next time, and
    another server may do meanwhile."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return RetryError(words_of(error))
    return ProtocolError(words_of(error))
