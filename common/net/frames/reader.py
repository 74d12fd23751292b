"""Turns received bytes into frames without a copy of the body; uses no sockets.

Rules: lengths are checked before anything is allocated, the checksum before a frame is believed. Small frames are read
many at a time through one small buffer; the rest of a body, or of a long meta, is read from the kernel straight into
memory of the pool. While the pool has none, `starved` is the size that is needed, and the reader takes nothing until
`supply`. A body that `admit` refuses is never buffered: its bytes are read and thrown away. Called by connection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.frame import HEADER_BYTES, FrameHeader, FrameType, check_meta, decode_header
from holdfast.common.limits import KIB, NAME_BYTES_MAX, TOKEN_BYTES_MAX
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.statuses import Status

#: Headers and small metas are read through this; what it holds of a body is copied, so it stays small.
SMALL_BYTES = 16 * KIB
#: The longest meta before HELLO was accepted: fixed fields, a name and a token.
GREETING_META_BYTES_MAX = 64 + NAME_BYTES_MAX + TOKEN_BYTES_MAX

#: Buffer for bytes that are skipped.
WASTE = memoryview(bytearray(64 * KIB))


class Frame(NamedTuple):
    """One whole frame; its receiver releases the body."""

    header: FrameHeader
    meta: bytes
    body: Body | None


class FrameReader:
    """One direction of one connection. `buffer` is where to receive, `received` takes how much came."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._small = memoryview(bytearray(SMALL_BYTES))
        #: bytes [start, filled) of the small buffer are received and not yet used
        self._start = 0
        self._filled = 0
        self._header: FrameHeader | None = None
        self._raw = b""
        self._meta: bytes | None = None
        #: buffer for the rest of a long meta or of a body, and how much of it is filled
        self._large: memoryview | None = None
        self._target = 0
        self._body: Body | None = None
        #: whose share of the pool it takes of
        self.owner: Hashable = ()
        #: set once HELLO was accepted; before, only that one small frame is allowed
        self.greeted = False
        #: frames whose header is here
        self.begun = 0
        #: bytes that the pool could not give; reading pauses until supply()
        self.starved = 0
        #: asked before memory is taken for a body; False throws the body away, and the frame is not yielded
        self.admit: Callable[[FrameHeader, bytes], bool] | None = None
        #: bytes of a refused body that are still to come; none of them is in the small buffer
        self._unwanted = 0

    def buffer(self) -> memoryview:
        """Return where the next bytes belong; never empty while not starved."""
        if self._large is not None:
            return self._large[self._target :]
        if self._unwanted:
            return WASTE[: self._unwanted]
        return self._small[self._filled :]

    def received(self, count: int) -> Iterator[Frame]:
        """Take note of `count` bytes in buffer(); yield the frames they complete. Raises ProtocolError."""
        if self._large is not None:
            self._target += count
        elif self._unwanted:
            self._unwanted -= count
        else:
            self._filled += count
        return self._frames()

    def supply(self, memory: Body) -> Iterator[Frame]:
        """Go on with the memory that was wanted; yields frames as `received` does."""
        self.starved = 0
        self._use(memory)
        return self._frames()

    @property
    def inside_frame(self) -> bool:
        """Some of a frame is here, and not all of it."""
        return self._header is not None or self._filled > self._start or self._unwanted > 0

    @property
    def inside_head(self) -> bool:
        """The header or the meta section of a frame is not complete."""
        return self.inside_frame and self._meta is None and not self._unwanted

    def discard(self) -> None:
        """Give memory of the pool back: of a meta that is copied, or of what will never be finished."""
        if self._body is not None:
            self._large = None
            self._body.release()
            self._body = None

    def _frames(self) -> Iterator[Frame]:
        while not self._unwanted:
            if self._header is None and not self._begin():
                return
            if self._meta is None and not self._finish_meta():
                return
            if self._header is None:
                continue  # refused
            if self.starved or not self._large_done():
                return
            yield self._take_frame()

    def _begin(self) -> bool:
        if self._filled - self._start < HEADER_BYTES:
            self._shift()
            return False
        raw = bytes(self._small[self._start : self._start + HEADER_BYTES])
        header = decode_header(raw)
        if not self.greeted:
            _check_greeting(header)
        self._start += HEADER_BYTES
        self._header, self._raw = header, raw
        self.begun += 1
        return True

    def _finish_meta(self) -> bool:
        header = self._header
        assert header is not None
        size = header.meta_bytes
        if self._large is not None:
            if not self._large_done():
                return False
            meta = bytes(self._large)
            self.discard()
        elif self._filled - self._start >= size:
            meta = bytes(self._small[self._start : self._start + size])
            self._start += size
        elif size <= SMALL_BYTES:
            self._shift()
            return False
        else:
            self._want(size)
            return False
        check_meta(self._raw, header, meta)
        self._meta = meta
        if header.body_bytes:
            if self.admit is None or self.admit(header, meta):
                self._want(header.body_bytes)
            else:
                self._throw_away(header.body_bytes)
        return True

    def _throw_away(self, size: int) -> None:
        """Forget the frame and skip the received part of its body; the rest is skipped as it comes."""
        self._header = self._meta = None
        here = min(size, self._filled - self._start)
        self._start += here
        self._unwanted = size - here
        if self._unwanted:
            self._shift()

    def _want(self, size: int) -> None:
        """Take memory of the pool for a long meta or a body, or wait for it."""
        memory = self._pool.take(size, self.owner)
        if memory is None:
            self.starved = size
        else:
            self._use(memory)

    def _large_done(self) -> bool:
        return self._large is None or self._target == len(self._large)

    def _take_frame(self) -> Frame:
        assert self._header is not None
        assert self._meta is not None
        frame = Frame(self._header, self._meta, self._body)
        self._header = self._meta = self._body = self._large = None
        return frame

    def _use(self, memory: Body) -> None:
        """Make `memory` the target, and move what the small buffer already holds of it."""
        have = min(len(memory), self._filled - self._start)
        memory.view[:have] = self._small[self._start : self._start + have]
        self._start += have
        self._body, self._large, self._target = memory, memory.view, have

    def _shift(self) -> None:
        """Move the unfinished rest to the front of the small buffer, so that there is room behind it."""
        rest = self._filled - self._start
        if self._start:
            self._small[:rest] = bytes(self._small[self._start : self._filled])
        self._start, self._filled = 0, rest


def _check_greeting(header: FrameHeader) -> None:
    if header.type not in (FrameType.HELLO, FrameType.CLOSING):
        raise ProtocolError(f"the first frame of a connection is HELLO, not {header.type.name}")
    if header.meta_bytes > GREETING_META_BYTES_MAX or header.body_bytes:
        raise ProtocolError("the first frame of a connection is small and has no body", status=Status.TOO_LARGE)
