"""A framed connection on asyncio: what both sides share. client.py and server.py are the two sides.

Receiving: FrameReader gives the buffer; when the pool of bodies is used up, reading pauses until it is our turn.
Sending: frames and ranges of files are queued in order, and a wire takes them to the kernel, on a duplicate of the
socket: as they are (wire.py), or under TLS (tls_wire.py). Both are bounded: `crowded` means the sender has to wait,
and `_on_writable` that it may go on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Iterator
from time import perf_counter_ns
from typing import NamedTuple, cast

from holdfast.common.errors import HoldfastError, RetryError
from holdfast.common.formats.frame import MAGIC_BYTES, FrameType, encode_frame
from holdfast.common.formats.messages import Closing
from holdfast.common.limits import KIB, MIB, READ_FRAME_BYTES
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.buffers import Body, BufferPool, Waiter
from holdfast.common.net.frames.reader import WASTE, Frame, FrameReader
from holdfast.common.net.frames.tls_wire import TlsWire
from holdfast.common.net.frames.wire import FileRange, Queue, Wire
from holdfast.common.net.tls import TlsPipe
from holdfast.common.statuses import Status
from holdfast.common.system.log import log_event

#: What may wait to be sent before `crowded`, and below what it is `writable` again.
QUEUED_BYTES_HIGH = 4 * MIB
QUEUED_BYTES_LOW = 1 * MIB
#: The same for the number of buffers and file ranges.
QUEUED_ITEMS_HIGH = 2_048
QUEUED_ITEMS_LOW = 512
#: One connection sends at most this much before the others of the loop get their turn.
TURN_BYTES = 4 * MIB
#: Answers that a peer does not take: past this its requests are not read.
HELD_BYTES_HIGH = 256 * KIB
HELD_BYTES_LOW = 64 * KIB
#: Kernel buffers per socket; see docs/internals/adr/0007-data-plane.md for what was measured.
SOCKET_BUFFER_BYTES = 4 * MIB
#: A closing connection may take this long to deliver why.
LINGER_SECONDS = 1.0
#: A silent peer is probed after this many seconds, three times, ten seconds apart.
KEEPALIVE_IDLE_SECONDS = 30

assert QUEUED_BYTES_LOW < QUEUED_BYTES_HIGH, "a crowded connection becomes writable before it is empty"
assert READ_FRAME_BYTES < QUEUED_BYTES_HIGH, "at least one full data frame waits while another is sent"

Buffer = bytes | bytearray | memoryview

#: Why reading is paused; a bit each.
STARVED = 1  #: the pool has no memory for the next body
CROWDED = 2  #: the peer does not read our answers
HELD = 4  #: the owner of the connection asked for it


#: A connection whose frame makes no progress is checked so often, and is closed at the second check.
SWEEP_SECONDS = 10.0
#: While others wait, a frame that takes longer than that has to come at least this fast.
FRAME_BYTES_PER_SECOND_MIN = 256 * KIB


class _Mark(NamedTuple):
    """How far a connection has come."""

    frames: int
    pauses: int
    in_head: bool
    bytes_in: int


class FrameConnection(asyncio.BufferedProtocol):
    """Base of both sides. Subclasses implement `_on_frame`, `_on_writable` and `_on_lost`; all on the loop thread."""

    #: what this side sends are answers, so that not reading requests is what keeps them few
    _answers_only = False

    def __init__(self, pool: BufferPool, tls: TlsPipe | None = None) -> None:
        """`tls`: our side of it, where the connection is to be under TLS."""
        self._pool = pool
        self._tls = tls
        self._reader = FrameReader(pool)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: socket.socket | None = None
        self._wire: Wire
        self._queue: Queue = deque()
        self._watching = False
        self._corked = False
        self._paused = 0
        self._waiter: Waiter | None = None
        self._linger: asyncio.TimerHandle | None = None
        #: at the last look, if a frame was unfinished then
        self._mark: _Mark | None = None
        #: set when this side decided to close: what comes is thrown away
        self._closing = False
        self._end_said = False
        #: why the connection ended or is ending
        self.error: HoldfastError | None = None
        self.peer = ""
        #: the queue reached a high mark: the sender should wait for `_on_writable`
        self.crowded = False
        #: bytes that wait to be sent, and those of them that are held in memory
        self.queued_bytes = 0
        self.held_bytes = 0
        #: frame bytes received (under TLS as they came, sealed) and sent since the connection began
        self.bytes_in = 0
        #: how often reading was stopped
        self.pauses = 0
        self.bytes_out = 0

    # What subclasses act on.

    def _on_frame(self, frame: Frame) -> None:
        raise NotImplementedError

    def _on_writable(self) -> None:
        """The queue fell below its low mark."""

    def _on_lost(self, error: HoldfastError) -> None:
        """The connection is closed; nothing is called after this."""

    # Sending.

    @property
    def closed(self) -> bool:
        """No more frames can be sent."""
        return self._out is None or self._closing

    def send(
        self,
        frame_type: FrameType,
        request_id: int,
        meta: bytes = b"",
        *body: Buffer,
        response: bool = False,
        status: int = Status.OK,
    ) -> None:
        """Queue a frame; `body` is sent as it lies in memory, so it must not change until it was sent."""
        parts = [memoryview(part) for part in body]
        size = sum(part.nbytes for part in parts)
        head = encode_frame(frame_type, request_id, meta, size, response=response, status=status)
        self._put(memoryview(head))
        for part in parts:
            self._put(part.cast("B") if part.format != "B" or part.ndim != 1 else part)
        self._flush()

    def send_range(self, frame_type: FrameType, request_id: int, meta: bytes, body: FileRange) -> None:
        """Queue a response whose body is a part of a file, sent from the page cache to the socket without a copy."""
        if self._out is None:
            return
        self._put(memoryview(encode_frame(frame_type, request_id, meta, body.count, response=True)))
        self._queue.append(body)
        self.queued_bytes += body.count
        self._flush()

    def cork(self) -> None:
        """Queue without sending until `uncork`: many small frames leave in one call."""
        self._corked = True

    def uncork(self) -> None:
        """Send what was queued."""
        self._corked = False
        self._flush()

    def _put(self, part: memoryview) -> None:
        if self._out is None or not part.nbytes:
            return
        self._queue.append(part)
        self.queued_bytes += part.nbytes
        self.held_bytes += part.nbytes

    def _flush(self) -> None:
        """Send until the queue is empty, the kernel takes no more, or our turn is over."""
        if self._out is None:
            return
        if not self._watching and not self._corked:
            try:
                self._send_some()
            except (BlockingIOError, InterruptedError):
                pass  # the kernel's buffer is full: go on when it is not
            except OSError as error:
                self._broken(error)
                return
            if self._unsent:
                self._loop.add_writer(self._out.fileno(), self._writable)
                self._watching = True
        if self.queued_bytes >= QUEUED_BYTES_HIGH or len(self._queue) >= QUEUED_ITEMS_HIGH:
            self.crowded = True
        elif not self._watching:
            self.crowded = False  # else it stays until _writable meets the low mark, and says so
        if self.held_bytes >= HELD_BYTES_HIGH and self._answers_only:
            self._pause(CROWDED)
        elif self.held_bytes <= HELD_BYTES_LOW:
            self._resume(CROWDED)  # what was queued under a cork may all leave at once, and `_writable` is never called
        if self._closing and not self._queue:
            self._say_end()

    def _writable(self) -> None:
        """The kernel takes bytes again."""
        assert self._out is not None
        try:
            self._send_some()
        except (BlockingIOError, InterruptedError):
            pass  # still watched: called again
        except OSError as error:
            self._broken(error)
            return
        if not self._unsent:
            self._loop.remove_writer(self._out.fileno())
            self._watching = False
        if self.held_bytes <= HELD_BYTES_LOW:
            self._resume(CROWDED)
        if self.crowded and self.queued_bytes <= QUEUED_BYTES_LOW and len(self._queue) <= QUEUED_ITEMS_LOW:
            self.crowded = False
            if not self._closing:
                try:
                    self._on_writable()
                except Exception as error:  # noqa: BLE001 - any error is logged, and the peer gets the reason
                    self._mistaken(error)
        if self._closing and not self._queue:
            self._say_end()

    def _mistaken(self, error: Exception) -> None:
        """What acts on this connection raised what is none of ours: it ends, or someone would wait for an answer."""
        log_event(LogEvent.CONNECTION_INTERNAL_ERROR, peer=self.peer, trace=error)
        self.abort()

    @property
    def _unsent(self) -> bool:
        """There is something that the kernel can be given."""
        return bool(self._queue and self._wire.ready) or self._wire.unsent

    def _send_some(self) -> None:
        wire = self._wire
        if wire.unsent:
            wire.send_rest()
        if not wire.ready:
            return
        turn = TURN_BYTES
        while self._queue and turn > 0:
            first = self._queue[0]
            sent = self._send_file(first) if isinstance(first, FileRange) else self._send_memory()
            self.queued_bytes -= sent
            self.bytes_out += sent
            turn -= sent

    def _send_file(self, item: FileRange) -> int:
        began = perf_counter_ns()
        sent = self._wire.send_file(item)
        ended = perf_counter_ns()
        item.offset += sent
        item.count -= sent
        item.took_ns += ended - began
        if not item.count:
            self._queue.popleft()
            if item.times is not None:
                item.times.add(ended, item.took_ns)
        return sent

    def _send_memory(self) -> int:
        sent = self._wire.send_memory(self._queue)
        self.held_bytes -= sent
        left = sent
        while left:
            part = cast(memoryview, self._queue[0])
            if part.nbytes > left:
                self._queue[0] = part[left:]
                break
            left -= part.nbytes
            self._queue.popleft()
        return sent

    def _broken(self, error: OSError) -> None:
        """Sending failed: a frame may be cut, so the connection is of no more use."""
        if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ETIMEDOUT):
            log_event(LogEvent.CONNECTION_SEND_FAILED, peer=self.peer, cause=error)
            first = self._queue[0] if self._queue else None
            if isinstance(first, FileRange) and first.failed is not None:
                first.failed(error)
        self.abort(RetryError(f"connection to {self.peer} broke: {error}"))

    # Receiving.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the socket (called by asyncio)."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._out = out = _sending_half(transport.get_extra_info("socket").fileno())
        tls, reader = self._tls, self._reader
        self._wire = Wire(out, reader) if tls is None else TlsWire(out, reader, tls, *self._pool.scratches)
        self._wire.begin()
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes go (called by asyncio)."""
        return WASTE if self._closing else self._wire.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take the next bytes (called by asyncio), and while they come in plenty go on without a turn of the loop."""
        self.bytes_in += nbytes
        if self._closing:
            return
        wire = self._wire
        try:
            count = wire.received(nbytes)
        except HoldfastError as error:
            self._not_tls(error)
            return
        if wire.unsent:
            self._flush()
        if not wire.more:
            self._take(self._reader.received(count))
        else:
            self.cork()  # what is answered in this turn leaves together
            try:
                self._take(self._reader.received(count))
                self._read_on()
            finally:
                self.uncork()
        self._settle()

    def _settle(self) -> None:
        """See to what TLS leaves behind: bytes that wait because reading was paused, and the word that no more come."""
        self._wire.settle()
        if self._wire.ended and self._transport is not None:
            self._transport.close()

    def _read_on(self) -> None:
        """Receive as long as every buffer is filled, which saves two system calls and a turn of the loop for each; one
        connection takes at most so much before the others get theirs. Errors and the end are left to asyncio."""
        left = TURN_BYTES
        while left > 0 and not self._paused and not self._closing and self._out is not None:
            buffer = self._reader.buffer()
            try:
                count = self._wire.read_into(buffer)
            except OSError:
                return
            except HoldfastError as error:
                self._not_tls(error)
                return
            if not count:
                return
            left -= count
            if self._tls is None:
                self.bytes_in += count
            full = count == len(buffer)
            self._take(self._reader.received(count))
            if not full:
                return

    def _catch_up(self) -> None:
        """Reading resumes: take what came under TLS before it was paused."""
        self.cork()
        try:
            self._read_on()
        finally:
            self.uncork()
        self._settle()

    def _not_tls(self, error: HoldfastError) -> None:
        """Received bytes are not valid TLS: no frame can be sent any more, so there is no CLOSING."""
        assert self._out is not None
        log_event(LogEvent.CONNECTION_CLOSED, peer=self.peer, status=error.status.name, cause=error)
        self.error = error.reworded(f"{self.peer}: {error}")
        if self._answers_only and isinstance(self._wire, TlsWire) and self._wire.first.startswith(MAGIC_BYTES):
            self._tell_plainly("TLS is needed here: the CA has to be given (HOLDFAST_CA), and a token")
        self._drop_queue()
        self._begin_closing()

    def _tell_plainly(self, words: str) -> None:
        """Tell a Holdfast peer without TLS why the connection ends, in a frame that it can read."""
        frame = encode_frame(FrameType.CLOSING, 0, Closing(words).encode(), 0, status=Status.UNAUTHENTICATED)
        try:
            if self._out is not None:
                self._out.send(frame)
        except OSError:
            pass  # then it gets no reason

    def _take(self, frames: Iterator[Frame]) -> None:
        """Act on the frames that are complete, then see whether the next body has to wait for memory."""
        try:
            for frame in frames:
                if self._closing:
                    if frame.body is not None:
                        frame.body.release()
                    return
                self._on_frame(frame)
        except HoldfastError as error:
            self.close_because(error)
            return
        except Exception as error:  # noqa: BLE001 - the same
            self._mistaken(error)
            return
        if self._reader.starved and not self._closing:
            self._pause(STARVED)
            self._waiter = self._pool.wait(self._reader.starved, self._supplied, self._reader.owner)

    def _supplied(self, body: Body) -> None:
        """The pool has memory for this connection. Called from another owner's release, so the loop does the work."""
        self._loop.call_soon(self._go_on, body)

    def _go_on(self, body: Body) -> None:
        self._waiter = None
        if self.closed:
            body.release()
            return
        self._resume(STARVED)
        self._take(self._reader.supply(body))

    def hold(self) -> None:
        """Stop reading until `unhold`: the owner has as much work of this connection as it wants."""
        self._pause(HELD)

    def unhold(self) -> None:
        """Read again."""
        self._resume(HELD)

    def _pause(self, cause: int) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self.pauses += 1
        self._paused |= cause

    def _resume(self, cause: int) -> None:
        if self._paused & cause:
            self._paused &= ~cause
            if not self._paused and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
                if self._wire.holds:
                    self._loop.call_soon(self._catch_up)

    @property
    def receiving(self) -> bool:
        """A frame was begun and is not complete, and the peer causes the wait."""
        return not self._paused and self._reader.inside_frame

    def slow_reason(self, hurried: bool) -> str | None:
        """What is wrong with how its frame comes, by what came since this was last asked, SWEEP_SECONDS ago.

        A header and its meta section are small and have to be here in that time, whatever trickles in: a damaged length
        would otherwise swallow one answer after the other. `hurried`: others wait for the memory of its body.
        """
        mark, self._mark = self._mark, None
        if not self.receiving:
            return None
        self._mark = now = _Mark(self._reader.begun, self.pauses, self._reader.inside_head, self.bytes_in)
        if mark is None:
            return None
        if now.bytes_in == mark.bytes_in:
            return "the connection stopped in the middle of a frame"
        if now[:3] != mark[:3]:
            return None
        if now.in_head:
            return f"the head of a frame is not here after {SWEEP_SECONDS:.0f} s"
        if hurried and now.bytes_in - mark.bytes_in < FRAME_BYTES_PER_SECOND_MIN * SWEEP_SECONDS:
            rate = f"{FRAME_BYTES_PER_SECOND_MIN // KIB} KiB/s"
            return f"a frame arrives more slowly than {rate} while others wait; send smaller frames"
        return None

    # The end.

    def close_because(self, error: HoldfastError) -> None:
        """Tell the peer why in a CLOSING frame, send what is queued, then close."""
        if self._closing or self._out is None:
            return
        log_event(LogEvent.CONNECTION_CLOSED, peer=self.peer, status=error.status.name, cause=error)
        self.send(FrameType.CLOSING, 0, Closing(str(error)).encode(), status=error.status)
        self.error = error
        self._begin_closing()

    def close(self) -> None:
        """Send what is queued, then close."""
        if not self._closing and self._out is not None:
            self.error = self.error or RetryError(f"connection to {self.peer} was closed by this side")
            self._begin_closing()

    def _begin_closing(self) -> None:
        self._closing = True
        self._stop_waiting()
        self._reader.discard()
        if self._out is None:
            return
        self._linger = self._loop.call_later(LINGER_SECONDS, self.abort)
        if not self._wire.ready:
            self._drop_queue()  # without TLS nothing can be said
        self._resume(STARVED | CROWDED | HELD)  # what comes is thrown away: an unread rest would reset the connection
        if not self._queue:
            self._say_end()

    def _say_end(self) -> None:
        """All is sent: tell the peer, and wait (not for long) until it has closed too."""
        if self._out is not None and not self._end_said:
            self._end_said = True
            try:
                self._wire.end()
            except OSError:
                self.abort()

    def _drop_queue(self) -> None:
        self._queue.clear()
        self.queued_bytes = self.held_bytes = 0

    def abort(self, error: HoldfastError | None = None) -> None:
        """Drop the connection and everything queued."""
        self.error = self.error or error or RetryError(f"connection to {self.peer} was dropped")
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up (called by asyncio)."""
        self._stop_waiting()
        self._reader.discard()
        if self._linger is not None:
            self._linger.cancel()
        out, self._out = self._out, None
        if out is not None:
            if self._watching:
                self._loop.remove_writer(out.fileno())
            out.close()
        self._drop_queue()
        if self.error is None:
            self.error = RetryError(f"connection to {self.peer} was lost" + (f": {exc}" if exc else ""))
        self._closing = True
        self._on_lost(self.error)

    def _stop_waiting(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._pool.leave(waiter)


def _sending_half(fd: int) -> socket.socket:
    """Return a duplicate of the connection's socket, tuned; asyncio watches the original for reading only."""
    out = socket.socket(fileno=os.dup(fd))
    out.setblocking(False)
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        out.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    return out
