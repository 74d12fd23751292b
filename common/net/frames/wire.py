"""How bytes of a framed connection go to the kernel and come from it: as they are. tls_wire.py is the same with TLS.

Rules: no policy and no queue of its own; everything on the loop thread. asyncio's transport would join and copy what it
cannot send at once, so a wire sends by itself, on a duplicate of the socket: memory as it is, by sendmsg, and ranges of
files by sendfile. BlockingIOError means that the kernel takes no more now. Called by connection.py.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.common.net.frames.reader import FrameReader

#: Buffers in one sendmsg (the kernel takes 1,024).
GATHER_MAX = 64


class Times(Protocol):
    """Takes down how long something took."""

    def add(self, now_ns: int, took_ns: int) -> None:
        """It ended now, by `time.perf_counter_ns`."""


@dataclass(slots=True)
class FileRange:
    """A part of an open file that is to be sent."""

    #: descriptor, and what keeps it open: referenced until the last byte was sent
    fileno: int
    owner: object
    offset: int
    count: int
    #: called with the time that the kernel took to send all of it, disk reads included
    times: Times | None = None
    took_ns: int = 0
    #: called if it cannot be read, which ends the connection: its frame was begun
    failed: Callable[[OSError], None] | None = None


Queue = deque[memoryview | FileRange]


class Wire:
    """A way to the kernel and back: bytes as they are."""

    #: after `received`: the reader's buffer was filled, so `read_into` may have more
    more = False
    #: something waits to be sent that is of no frame
    unsent = False

    def __init__(self, out: socket.socket, reader: FrameReader) -> None:
        self._out, self._reader = out, reader
        #: size of the buffer that asyncio receives into
        self._asked = 0

    @property
    def ready(self) -> bool:
        """Frames can be sent."""
        return True

    @property
    def ended(self) -> bool:
        """The other side has said in words of its own that nothing more comes."""
        return False

    @property
    def holds(self) -> bool:
        """Bytes came that the reader was not given yet."""
        return False

    def begin(self) -> None:
        """The connection is open."""

    def buffer(self) -> memoryview:
        """Where to receive: the reader's own."""
        buffer = self._reader.buffer()
        self._asked = len(buffer)
        return buffer

    def received(self, count: int) -> int:
        """Take note of what came into `buffer`; return how much of it is in the reader's buffer now."""
        self.more = count == self._asked
        return count

    def read_into(self, buffer: memoryview) -> int:
        """Receive more into the reader's buffer, if it is here; return how much. Raises OSError or HoldfastError."""
        return self._out.recv_into(buffer)

    def settle(self) -> None:
        """All was read that is wanted now; what `buffer` returned may change from here on."""

    def send_memory(self, queue: Queue) -> int:
        """Send some of the first buffers of the queue; return how much of them has left. Raises OSError."""
        parts: list[memoryview] = []
        flags = 0
        for item in queue:
            if isinstance(item, FileRange) or len(parts) == GATHER_MAX:
                flags = socket.MSG_MORE  # the rest of this segment follows at once
                break
            parts.append(item)
        return self._out.sendmsg(parts, [], flags)

    def send_file(self, item: FileRange) -> int:
        """Send some of a range, uncopied from the page cache; return how much of it has left. Raises OSError."""
        sent = os.sendfile(self._out.fileno(), item.fileno, item.offset, item.count)
        if sent == 0:
            raise too_short()
        return sent

    def send_rest(self) -> None:
        """Send what is `unsent`. Raises OSError."""

    def end(self) -> None:
        """Tell the other side that nothing more comes. Raises OSError."""
        self._out.shutdown(socket.SHUT_WR)


def too_short() -> OSError:
    """What is wrong when a range has no more bytes to give."""
    return OSError(errno.EIO, "a file is shorter than in its index")
