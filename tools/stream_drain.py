"""Reads a data-plane stream to its end, handing every piece to a function: what drills and benchmarks share.

The client library does more: it verifies, retries and reads from other copies. Here one sees what the worker sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import DataFlag, StreamData, StreamOpen
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.client import ClientStream, FrameClient

#: Takes the runs' description and their bytes, which are valid during the call only.
Take = Callable[[StreamData, memoryview], None]


async def drain(client: FrameClient, request: StreamOpen, take: Take) -> None:
    """Open the stream and return at its end; raises what the worker or the wire says."""
    sink = _Drain(take, request.credit_bytes // 2)
    stream = await client.open_stream(request, sink)
    sink.begin(stream)
    try:
        await sink.ended
    finally:
        stream.close()


class _Drain:
    """A StreamSink that gives back the credit it used, in steps of `step_bytes`."""

    def __init__(self, take: Take, step_bytes: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # When the connection goes while the stream is being opened, nobody waits for the end any more.
        self.ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._take = take
        self._step_bytes = step_bytes
        self._stream: ClientStream | None = None
        self._owed = 0

    def begin(self, stream: ClientStream) -> None:
        """The stream is known; data may have come before."""
        self._stream = stream
        self._give_back()

    def data(self, data: StreamData, body: Body | None) -> None:
        """Take the next piece (called by the connection)."""
        if body is not None:
            self._take(data, body.view)
            self._owed += len(body)
            body.release()
            self._give_back()
        if data.flags & DataFlag.END and not self.ended.done():
            self.ended.set_result(None)

    def failed(self, error: HoldfastError) -> None:
        """The stream ended early (called by the connection)."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def _give_back(self) -> None:
        if self._stream is not None and self._owed >= self._step_bytes:
            self._stream.credit(self._owed)
            self._owed = 0
