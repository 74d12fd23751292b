"""A wire with TLS: sealed bytes go to the kernel and come from it, a bounded piece at a time.

Rules: one piece of what is queued is sealed, and the next only when the kernel has taken all of it, so memory beside
the queue is one piece; what is queued counts as sent when its piece has left. What came is opened straight into the
reader's buffer; sealed bytes that wait because reading is paused are at most one receive. All connections of a loop
receive through one buffer, and read files through another. Called by connection.py.
"""

from __future__ import annotations

import os
import socket

from holdfast.common.errors import HoldfastError
from holdfast.common.net.frames.reader import FrameReader
from holdfast.common.net.frames.wire import FileRange, Queue, Wire, too_short
from holdfast.common.net.tls import PIECE_BYTES, TlsPipe

#: The kernel's flag for "more follows at once".
_MORE = socket.MSG_MORE


class TlsWire(Wire):
    """Bytes under TLS. Receiving raises HoldfastError for invalid TLS."""

    def __init__(
        self, out: socket.socket, reader: FrameReader, pipe: TlsPipe, receiving: memoryview, sending: memoryview
    ) -> None:
        """Connections of a loop share `sending`, used within calls only, and `receiving`, from `buffer` to `settle`."""
        super().__init__(out, reader)
        self._pipe, self._receiving, self._sending = pipe, receiving, sending
        #: encrypted, not yet taken by the kernel, and the bytes of the queue that it covers
        self._rest: list[bytes | memoryview] = []
        self._plain = 0
        self._flags = 0
        #: the first bytes that came: a Holdfast peer without TLS gets the reason
        self.first = b""

    @property
    def ready(self) -> bool:
        """The handshake is done."""
        return self._pipe.shaken

    @property
    def ended(self) -> bool:
        """The other side has said so, in words of TLS."""
        return self._pipe.ended

    @property
    def holds(self) -> bool:
        """Sealed bytes that came while the reader wanted none."""
        return self._pipe.holds

    def begin(self) -> None:
        """The connecting side speaks first."""
        self._pipe.shake()
        self._note_rest()

    def buffer(self) -> memoryview:
        """Sealed bytes do not belong into a frame."""
        return self._receiving

    def received(self, count: int) -> int:
        """Open what came. Raises HoldfastError."""
        self.more = False
        if not self._pipe.shaken and not self.first:
            self.first = bytes(self._receiving[: min(count, 8)])
        self._pipe.receive(self._receiving[:count])
        try:
            if not self._pipe.shaken and not self._pipe.shake():
                return 0
            buffer = self._reader.buffer()
            opened = self._pipe.read_into(buffer)
            self.more = opened == len(buffer)
            return opened
        finally:
            self._note_rest()

    def read_into(self, buffer: memoryview) -> int:
        """Open more of what came. Raises HoldfastError."""
        return self._pipe.read_into(buffer)

    def settle(self) -> None:
        """Keep what was not wanted: the memory it is in is needed by others."""
        self._pipe.keep()

    def send_memory(self, queue: Queue) -> int:
        """Seal and send a piece of the first buffers, small ones together."""
        if not self._rest:
            self._seal_memory(queue)
        return self._send()

    def send_file(self, item: FileRange) -> int:
        """Read, seal and send a piece of the range."""
        if not self._rest:
            piece = self._sending[: min(item.count, PIECE_BYTES)]
            count = os.preadv(item.fileno, (piece,), item.offset)
            if count == 0:
                raise too_short()
            self._seal(piece[:count], count, _MORE if count < item.count else 0)
        return self._send()

    def send_rest(self) -> None:
        """Send the bytes of the handshake, or an alert."""
        self._send()

    def end(self) -> None:
        """Say so in words of TLS if the kernel takes them now, and half close the connection."""
        self._pipe.close()
        last, self._rest, self.unsent = b"".join((*self._rest, self._pipe.take())), [], False
        try:
            self._out.send(last)
        except BlockingIOError:
            pass  # frames say where they end, so nothing depends on that word
        self._out.shutdown(socket.SHUT_WR)

    def _seal_memory(self, queue: Queue) -> None:
        parts: list[memoryview] = []
        size = flags = 0
        for item in queue:
            if isinstance(item, FileRange):
                flags = _MORE
                break
            part = item[: PIECE_BYTES - size]
            parts.append(part)
            size += part.nbytes
            if size == PIECE_BYTES:
                break
        self._seal(parts[0] if len(parts) == 1 else b"".join(parts), size, flags)

    def _seal(self, data: bytes | memoryview, size: int, flags: int) -> None:
        try:
            self._rest = [*self._pipe.seal(data)]
        except HoldfastError as error:
            raise ConnectionAbortedError(str(error)) from None
        self._plain, self._flags = size, flags

    def _send(self) -> int:
        """Send what is sealed; return how much of the queue has left with it."""
        sent = self._out.sendmsg(self._rest, [], self._flags)
        if sent < sum(map(len, self._rest)):
            self._rest = [memoryview(b"".join(self._rest))[sent:]]
            return 0  # called again: the kernel has something to say
        plain, self._plain, self._rest, self.unsent = self._plain, 0, [], False
        return plain

    def _note_rest(self) -> None:
        """What TLS itself has to say leaves before the next piece, or with what is on its way."""
        if not self._rest and (said := self._pipe.take()):
            self._rest, self._flags, self.unsent = [said], 0, True
