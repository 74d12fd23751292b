"""One TCP connection between masters, from its first byte on: frames in and out, as they are or under TLS.

Rules: no policy and no waiting; what cannot be sent now stays queued, and the owner of the link bounds the queue. A
frame is u32 length and its bytes; the length is checked before anything is kept. Under TLS one piece is sealed at a
time, the next when the kernel has taken it, and a call seals TURN_BYTES at most, so a turn of the Raft thread stays
short. Called by `transport`.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from itertools import islice

from holdfast.common.errors import HoldfastError
from holdfast.common.net.tls import NOT_TLS, PIECE_BYTES, TlsPipe
from holdfast.master.raft.codec import MAX_MESSAGE_BYTES
from holdfast.master.raft.errors import PeerRefused, WireError
from holdfast.master.raft.handshake import MAC_BYTES, MAX_HANDSHAKE_BYTES, Acceptor, Initiator, SecureSession

#: Sealed in one call.
TURN_BYTES = 4 << 20
#: What a side that speaks TLS begins with: a handshake, or an alert.
_TLS_FIRST = (b"\x16", b"\x15")
_LENGTH = struct.Struct("<I")
_GATHER_MAX = 64


class Link:
    """A socket with its handshake, its queue, and what of a frame has come."""

    def __init__(
        self, sock: socket.socket, handshake: Initiator | Acceptor, deadline: float, tls: TlsPipe | None = None
    ) -> None:
        self.sock, self.handshake, self.deadline, self.tls = sock, handshake, deadline, tls
        self.session: SecureSession | None = None
        self.incoming = bytearray()
        self.out: deque[memoryview] = deque()
        self.out_bytes = 0
        self.writing = False
        self.open = True
        self._sealed = memoryview(b"")
        self._heard = False

    @property
    def shaking(self) -> bool:
        """The handshake of TLS is under way."""
        return self.tls is not None and not self.tls.shaken

    @property
    def waits(self) -> bool:
        """Something can be sent."""
        return bool(self._sealed) or (bool(self.out) and not self.shaking)

    def put(self, *pieces: bytes) -> None:
        """Queue one frame."""
        size = sum(map(len, pieces))
        self.out.append(memoryview(b"".join((_LENGTH.pack(size), *pieces))))
        self.out_bytes += size + _LENGTH.size

    def call(self) -> None:
        """Begin as the connecting side: with TLS it speaks first, before any frame."""
        if self.tls is not None:
            self.tls.shake()
            self._sealed = memoryview(self.tls.take())

    def write(self) -> bool:
        """Send what the kernel takes now; return whether something is left that it is to be asked about again.

        Raises OSError, PeerRefused.
        """
        try:
            return self._write_plain() if self.tls is None else self._write_sealed(self.tls)
        except BlockingIOError:
            return True

    def feed(self, data: bytes, scratch: memoryview) -> None:
        """Take received bytes; messages are put into `incoming`. Raises PeerRefused for invalid TLS."""
        if self.tls is None:
            self.incoming += data
            return
        if not self._heard and not data.startswith(_TLS_FIRST):
            self.tls = None  # it gets a refusal that it can read
            raise PeerRefused(NOT_TLS)
        self._heard = True
        self.tls.receive(data)
        try:
            if self.tls.shaken or self.tls.shake():
                while count := self.tls.read_into(scratch):
                    self.incoming += scratch[:count]
        except HoldfastError as error:
            raise PeerRefused(str(error)) from None
        finally:
            self.tls.keep()
            self._sealed = memoryview(b"".join((self._sealed, self.tls.take())))

    @property
    def ended(self) -> bool:
        """The other side has said in words of TLS that nothing more comes."""
        return self.tls is not None and self.tls.ended

    def next_frame(self) -> bytes | None:
        """The next whole frame received; raises WireError on an impossible length."""
        if len(self.incoming) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self.incoming)
        limit = MAX_MESSAGE_BYTES + MAC_BYTES if self.session else MAX_HANDSHAKE_BYTES
        if not 0 < length <= limit:
            raise WireError(f"a frame announces {length} bytes; at most {limit} are allowed here")
        if len(self.incoming) < _LENGTH.size + length:
            return None
        with memoryview(self.incoming) as view:
            frame = bytes(view[_LENGTH.size : _LENGTH.size + length])
        del self.incoming[: _LENGTH.size + length]
        return frame

    def _write_plain(self) -> bool:
        while self.out:
            self._left(self.sock.sendmsg(list(islice(self.out, _GATHER_MAX))))
        return False

    def _write_sealed(self, tls: TlsPipe) -> bool:
        turn = TURN_BYTES
        while True:
            while self._sealed:
                self._sealed = self._sealed[self.sock.send(self._sealed) :]
            if not self.out or not tls.shaken:
                return False
            if turn <= 0:
                return True
            size = self._seal(tls)
            turn -= size

    def _seal(self, tls: TlsPipe) -> int:
        """Seal the next piece of what waits; return how much that was."""
        parts: list[memoryview] = []
        size = 0
        for item in self.out:
            parts.append(item[: PIECE_BYTES - size])
            size += len(parts[-1])
            if size == PIECE_BYTES:
                break
        try:
            self._sealed = memoryview(b"".join(tls.seal(parts[0] if len(parts) == 1 else b"".join(parts))))
        except HoldfastError as error:
            raise PeerRefused(str(error)) from None
        self._left(size)
        return size

    def _left(self, size: int) -> None:
        """So much has left the queue."""
        self.out_bytes -= size
        while self.out and size >= len(self.out[0]):
            size -= len(self.out.popleft())
        if size:
            self.out[0] = self.out[0][size:]
