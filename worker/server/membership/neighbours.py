"""One heartbeat for all workers of a host: one of them speaks for its neighbours, so that the masters hear from hosts
and not from 16 times as many workers.

Rules
* Who binds the socket of the host first speaks, the others connect to it: an abstract Unix socket, which ends with its
  process. Its name is made of cluster and host; both ends look whether the other one runs as the same user.
* When its heartbeat is due the speaker calls its neighbours, takes along what they hand over within a moment, and
  hands each its answer. Frames have their length before them; an empty one is a call.
* Nobody depends on it: a neighbour that is not called, or gets no answer in time, sends its heartbeat itself, and so
  does everybody who has something urgent. Whatever goes wrong closes the connection; the next heartbeat tries anew.

Loop thread only. Called by registration.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b

from google.protobuf.message import DecodeError

from holdfast.common.limits import MIB, NEIGHBOURS_MAX
from holdfast.common.proto import holdfast_pb2 as pb

#: Of the time between heartbeats: for neighbours to hand over theirs, for the masters' answer, and how much later than
#: the speaker a neighbour begins without being called.
_GATHER, _ANSWER, _LATER = 1 / 8, 1 / 2, 1 / 4
_CONNECT_SECONDS = 0.5
#: Of all heartbeats that are sent together, as one request may have.
_BYTES_MAX = 2 * MIB
_LENGTH = struct.Struct("<I")
_PEER = struct.Struct("3i")  # process, user and group of the other end

Send = Callable[[pb.HeartbeatRequest], Awaitable[pb.HeartbeatReply]]


class Neighbours:
    """The other workers of this host, as one of them sees them."""

    def __init__(self, cluster_id: str, host: str, wake: Callable[[], None]) -> None:
        """`wake` is called when the speaker calls."""
        name = blake2b(f"{cluster_id}\n{host}".encode(), digest_size=16).hexdigest()
        self._address = f"\0holdfast-{name}"
        self._wake = wake
        #: while this worker speaks
        self._server: asyncio.Server | None = None
        self._lines: dict[_Line, None] = {}
        #: while another one does
        self._speaker: _Line | None = None
        #: the speaker waits for a heartbeat
        self.called = False
        self._answered: asyncio.Future[bytes] | None = None

    def pause(self, seconds: float) -> float:
        """How long to wait for the next heartbeat, masters wanting one every so often."""
        return seconds if self._speaker is None else seconds * (1 + _LATER)

    async def meet(self) -> None:
        """Speak, or find who does. A worker that can do neither is alone."""
        if self._server is not None or self._speaker is not None:
            return
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_unix_server(lambda: _Line(self._joined, self._left), self._address)
        except OSError:  # somebody speaks
            with suppress(OSError):  # and has just ended, or accepts nobody
                async with asyncio.timeout(_CONNECT_SECONDS):
                    _, line = await loop.create_unix_connection(
                        lambda: _Line(lambda _: None, self._alone, self._heard), self._address
                    )
                self._speaker = None if line.lost else line

    def close(self) -> None:
        """Leave it to others."""
        if self._server is not None:
            self._server.close()
        for line in (*self._lines, *([self._speaker] if self._speaker is not None else [])):
            line.close()
        self._server = self._speaker = None

    async def beat(self, request: pb.HeartbeatRequest, send: Send, seconds: float) -> pb.HeartbeatReply:
        """Have the heartbeat of this worker sent, and return its answer. `seconds` are between two of them."""
        if self.called:
            self.called = False
            answer = await self._hand_over(request, seconds * _ANSWER)
            if answer is not None:
                return answer
        gathered = await self._gather(seconds * _GATHER)
        request.neighbours.extend(beat for _, beat in gathered)
        try:
            reply = await send(request)
        except BaseException:
            for line, _ in gathered:
                line.close()
            raise
        for (line, _), own in zip(gathered, reply.neighbours, strict=True):
            line.send(own.SerializeToString())
        return reply

    # Of the speaker.

    def _joined(self, line: _Line) -> None:
        if len(self._lines) < NEIGHBOURS_MAX:
            self._lines[line] = None
        else:
            line.close()

    def _left(self, line: _Line) -> None:
        self._lines.pop(line, None)

    async def _gather(self, seconds: float) -> list[tuple[_Line, pb.HeartbeatRequest]]:
        """Call all neighbours; return what they hand over in time. Those that do not are left alone."""
        calls = {line: line.call() for line in self._lines}
        if calls:
            await asyncio.wait(calls.values(), timeout=seconds)
        found, size = [], 0
        for line in calls:
            data = line.taken()
            size += len(data)
            try:
                if data and size <= _BYTES_MAX:
                    found.append((line, pb.HeartbeatRequest.FromString(data)))
                    continue
            except DecodeError:
                pass  # whoever this is, it is on its own
            line.close()
        return found

    # Of the others.

    def _heard(self, data: bytes) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(data)
        else:
            self.called = True
            self._wake()

    def _alone(self, line: _Line) -> None:
        self._speaker, self.called = None, False
        if self._answered is not None and not self._answered.done():
            self._answered.cancel()

    async def _hand_over(self, request: pb.HeartbeatRequest, seconds: float) -> pb.HeartbeatReply | None:
        """Give the heartbeat to the speaker; return the masters' answer to it, None if none comes in time."""
        speaker, self._answered = self._speaker, asyncio.get_running_loop().create_future()
        if speaker is None:
            return None
        speaker.send(request.SerializeToString())
        await asyncio.wait((self._answered,), timeout=seconds)
        with suppress(DecodeError):
            if self._answered.done() and not self._answered.cancelled():
                return pb.HeartbeatReply.FromString(self._answered.result())
        self._answered = None
        speaker.close()
        return None


class _Line(asyncio.Protocol):
    """A connection between two workers of a host."""

    def __init__(
        self,
        made: Callable[[_Line], None],
        lost: Callable[[_Line], None],
        heard: Callable[[bytes], None] | None = None,
    ) -> None:
        """Without `heard` it keeps what comes for `taken`."""
        self._made, self._lost = made, lost
        self._heard = heard or self._keep
        self._data = bytearray()
        self._transport: asyncio.Transport | None = None
        self._kept: asyncio.Future[bytes] | None = None
        #: hung up, also before who connects hears of it
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hang up on another user."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        found = transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(found)[1] == os.getuid():
            self._made(self)
        else:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Say so."""
        self.lost = True
        if self._kept is not None and not self._kept.done():
            self._kept.set_result(b"")
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        """Take what came; nothing longer than all heartbeats together is a frame."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            if size > _BYTES_MAX:
                self.close()
                return
            end = _LENGTH.size + size
            if len(self._data) < end:
                return
            frame = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            self._heard(frame)

    def send(self, data: bytes) -> None:
        """Send a frame."""
        assert self._transport is not None
        self._transport.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    # At the speaker.

    def call(self) -> asyncio.Future[bytes]:
        """Ask for a heartbeat; the future has it, or nothing if the connection is lost."""
        self._kept = asyncio.get_running_loop().create_future()
        self.send(b"")
        return self._kept

    def taken(self) -> bytes:
        """The heartbeat that came after the call; nothing if none did."""
        kept, self._kept = self._kept, None
        return kept.result() if kept is not None and kept.done() else b""

    def _keep(self, data: bytes) -> None:
        if self._kept is None or self._kept.done():
            self.close()  # nobody called
        else:
            self._kept.set_result(data)
