"""The client side of a framed connection: requests matched with their answers, streams with their sinks.

Rules: everything on one loop thread, no locks. A lost connection fails every unanswered request and every stream at
once with one typed error. Unanswered requests and queued bytes are bounded: `start` waits. Called by client and tests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError, error_for
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import (
    DataFlag,
    Hello,
    HelloOk,
    StreamCredit,
    StreamData,
    StreamOpen,
    StreamOpened,
)
from holdfast.common.formats.reduce_messages import ChunkFlag, ChunksData, ChunksOpen, ChunksOpened
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.connection import SWEEP_SECONDS, Buffer, FrameConnection
from holdfast.common.net.frames.reader import Frame
from holdfast.common.net.lookups import connect
from holdfast.common.net.tls import TlsPipe
from holdfast.common.security.credentials import CredentialsProvider
from holdfast.common.statuses import Status

#: Requests without an answer that one connection may have.
INFLIGHT_MAX = 64
#: Nothing more comes: the same bit in both kinds of data frames.
_END = int(DataFlag.END)
assert int(ChunkFlag.END) == _END, "one test serves both"


class Reply(NamedTuple):
    """The answer to a request whose status was OK."""

    meta: bytes


Data_contra = TypeVar("Data_contra", StreamData, ChunksData, contravariant=True)


class StreamSink(Protocol[Data_contra]):
    """Takes what a stream brings, on the loop thread; must neither block nor raise."""

    def data(self, data: Data_contra, body: Body | None) -> None:
        """Take the next frame; the body is the sink's to release. After the END flag nothing is called any more."""

    def failed(self, error: HoldfastError) -> None:
        """The stream ended before its END. Nothing is called any more."""


@dataclass(frozen=True, slots=True)
class ClientStream:
    """A stream that was opened; gives credit and closes."""

    client: FrameClient
    request_id: int
    opened: StreamOpened | ChunksOpened

    def credit(self, size: int) -> None:
        """Allow `size` more body bytes."""
        if self.request_id in self.client.sinks:
            meta = StreamCredit(stream=self.opened.stream, credit_bytes=size).encode()
            self.client.post(FrameType.STREAM_CREDIT, self.request_id, meta)

    def close(self) -> None:
        """Forget the stream; what is still on its way is dropped."""
        if self.client.sinks.pop(self.request_id, None) is not None and not self.client.closed:
            meta = StreamCredit(stream=self.opened.stream, credit_bytes=0).encode()
            self.client.post(FrameType.STREAM_CLOSE, self.request_id, meta)


class FrameClient(FrameConnection):
    """A connection to a worker. Make one with `connect`."""

    def __init__(self, pool: BufferPool, inflight_max: int = INFLIGHT_MAX, tls: TlsPipe | None = None) -> None:
        super().__init__(pool, tls)
        self._inflight_max = inflight_max
        self._answers: dict[int, asyncio.Future[Reply]] = {}
        self._line: deque[asyncio.Future[None]] = deque()
        self._next_id = 1
        self._look: asyncio.TimerHandle | None = None
        #: sinks of open streams by the request id of their STREAM_OPEN
        self.sinks: dict[int, StreamSink[Any]] = {}
        #: identity of the worker
        self.hello: HelloOk

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        hello: Hello,
        pool: BufferPool,
        *,
        timeout_seconds: float = 5.0,
        inflight_max: int = INFLIGHT_MAX,
        credentials: CredentialsProvider | None = None,
    ) -> Self:
        """Connect and say HELLO. `credentials`: of a secured cluster; the connection is then under TLS.

        Raises RetryError if no answer comes in time, or the certificate is not that of `host`; ProtocolError or
        the error of the status if the connection is refused.
        """
        client: Self | None = None
        pipe: TlsPipe | None = None
        if credentials is not None:
            pipe = TlsPipe(credentials.context, host)
            hello = replace(hello, token=credentials.token.encode())
        try:
            async with asyncio.timeout(timeout_seconds):
                client = await connect(lambda: cls(pool, inflight_max, pipe), host, port)
                reply = await client.request(FrameType.HELLO, hello.encode())
                client.hello = HelloOk.decode(reply.meta)
        except TimeoutError:
            if client is not None:
                client.abort()
            raise RetryError(f"{host}:{port} did not answer within {timeout_seconds} s") from None
        except (OSError, ValueError, OverflowError) as error:  # the last two: no system call takes such an address
            raise RetryError(f"cannot connect to {host}:{port}: {error}") from error
        except BaseException:
            if client is not None:
                client.abort()
            raise
        client._reader.greeted = True
        return client

    @property
    def idle(self) -> bool:
        """Whether no request is pending here."""
        return not self._answers and not self.sinks and not self._line

    # Requests.

    async def request(self, frame_type: FrameType, meta: bytes = b"", *body: Buffer) -> Reply:
        """Send a request and return its answer; raises the error of its status."""
        return await (await self.start(frame_type, meta, *body))

    async def start(self, frame_type: FrameType, meta: bytes = b"", *body: Buffer) -> asyncio.Future[Reply]:
        """Queue a request, after waiting for room, and return the future of its answer.

        `body` is not copied: it must not change before the future is done.
        """
        await self._wait_for_turn()
        _, future = self._start_now(frame_type, meta, *body)
        return future

    def post(self, frame_type: FrameType, request_id: int, meta: bytes) -> None:
        """Queue a frame that is not answered."""
        if not self.closed:
            self.send(frame_type, request_id, meta)

    async def open_stream(self, request: StreamOpen, sink: StreamSink[StreamData]) -> ClientStream:
        """Open a stream into `sink`; raises as `request` does, and then the sink is never called."""
        return await self._open(FrameType.STREAM_OPEN, request.encode(), sink, StreamOpened.decode)

    async def open_chunks(self, request: ChunksOpen, sink: StreamSink[ChunksData]) -> ClientStream:
        """Open a stream of chunks into `sink`; raises as `open_stream` does."""
        return await self._open(FrameType.CHUNKS_OPEN, request.encode(), sink, ChunksOpened.decode)

    async def _open(
        self,
        frame_type: FrameType,
        meta: bytes,
        sink: StreamSink[Any],
        decode: Callable[[bytes], StreamOpened | ChunksOpened],
    ) -> ClientStream:
        await self._wait_for_turn()
        request_id, future = self._start_now(frame_type, meta)
        self.sinks[request_id] = sink
        try:
            reply = await future
            return ClientStream(self, request_id, decode(reply.meta))
        except BaseException as error:
            self.sinks.pop(request_id, None)
            if isinstance(error, asyncio.CancelledError):
                if future.cancelled() and request_id in self._answers:
                    future = self._answers[request_id] = self._loop.create_future()
                future.add_done_callback(partial(self._close_unwanted, request_id, decode))
            raise

    def _close_unwanted(
        self, request_id: int, decode: Callable[[bytes], StreamOpened | ChunksOpened], answer: asyncio.Future[Reply]
    ) -> None:
        """The worker has opened a stream that nobody waits for any more: it would keep it for long."""
        if answer.cancelled() or answer.exception() is not None:
            return
        with contextlib.suppress(ProtocolError):
            meta = StreamCredit(stream=decode(answer.result().meta).stream, credit_bytes=0).encode()
            self.post(FrameType.STREAM_CLOSE, request_id, meta)

    def _start_now(self, frame_type: FrameType, meta: bytes, *body: Buffer) -> tuple[int, asyncio.Future[Reply]]:
        if self.closed:
            raise self._failure()
        request_id = self._next_id
        self._next_id += 1
        try:
            self.send(frame_type, request_id, meta, *body)
        except BaseException:
            self._wake_next()  # nothing was sent, and nothing will be answered: the next one's turn
            raise
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._answers[request_id] = future
        return request_id, future

    async def _wait_for_turn(self) -> None:
        while not self.closed and (len(self._answers) >= self._inflight_max or self.crowded):
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._line.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._line:
                    self._line.remove(waiter)
                self._wake_next()  # the turn may have been ours already: it is the next one's
                raise
        if self.closed:
            raise self._failure()

    def _wake_next(self) -> None:
        """Wake waiters: as many as answers are missing to the bound."""
        free = self._inflight_max - len(self._answers)
        while self._line and free > 0:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def _failure(self) -> HoldfastError:
        """A fresh exception of the same kind, so that tracebacks of several waiters do not mix."""
        error = self.error or RetryError("the connection is closed")
        if self._reader.greeted and isinstance(error, ProtocolError):
            # Both sides spoke frames before: what is none was damaged on its way, and costs the connection alone.
            return RetryError(f"connection to {self.peer} was lost: {error}")
        return error.reworded(str(error))

    # What comes.

    def buffer_updated(self, nbytes: int) -> None:
        """Take the next bytes (called by asyncio); a frame that they leave unfinished is looked at again."""
        super().buffer_updated(nbytes)
        if self._look is None and self._reader.inside_frame:
            self._look = self._loop.call_later(SWEEP_SECONDS, self._look_at_frame)

    def _look_at_frame(self) -> None:
        self._look = None
        if self.closed:
            return
        reason = self.slow_reason(hurried=False)
        if reason is not None:
            self.abort(RetryError(f"{self.peer}: {reason}"))
        elif self._reader.inside_frame:
            self._look = self._loop.call_later(SWEEP_SECONDS, self._look_at_frame)

    def _on_frame(self, frame: Frame) -> None:
        header = frame.header
        if header.type == FrameType.CLOSING:
            self._release(frame)
            status = header.status
            if status == Status.TOKEN_EXPIRED and self._reader.greeted:
                # It was valid when it was sent. The next connection sends a newer one, or fails because it has expired.
                status = Status.UNAVAILABLE
            self.error = error_for(status, f"{self.peer}: {_text(frame.meta)}")
            self.abort()
        elif not header.is_response:
            self._release(frame)
            raise ProtocolError(f"a worker sends answers only, not {header.type.name}")
        elif header.type in (FrameType.STREAM_DATA, FrameType.CHUNKS_DATA):
            self._on_stream_data(frame)
        else:
            self._release(frame)
            self._on_answer(header, frame.meta)

    def _on_answer(self, header: FrameHeader, meta: bytes) -> None:
        if header.type == FrameType.STREAM_CREDIT:
            self._fail_stream(header, meta)
            return
        future = self._answers.pop(header.request_id, None)
        if future is None:
            raise ProtocolError(f"an answer to request {header.request_id}, which is not open")
        if not future.done():
            if header.status == Status.OK:
                future.set_result(Reply(meta))
            else:
                future.set_exception(error_for(header.status, _text(meta)))
        self._wake_next()

    def _on_stream_data(self, frame: Frame) -> None:
        header = frame.header
        if header.status != Status.OK:
            self._release(frame)
            self._fail_stream(header, frame.meta)
            return
        sink = self.sinks.get(header.request_id)
        if sink is None:  # closed by us while this was on its way
            self._release(frame)
            return
        data: StreamData | ChunksData
        try:
            data = (StreamData if header.type == FrameType.STREAM_DATA else ChunksData).decode(frame.meta)
        except ProtocolError:
            self._release(frame)
            raise
        if data.flags & _END:
            del self.sinks[header.request_id]
        sink.data(data, frame.body)

    def _fail_stream(self, header: FrameHeader, meta: bytes) -> None:
        sink = self.sinks.pop(header.request_id, None)
        if sink is not None:
            sink.failed(error_for(header.status, _text(meta)))

    @staticmethod
    def _release(frame: Frame) -> None:
        if frame.body is not None:
            frame.body.release()

    def _on_writable(self) -> None:
        self._wake_next()

    def _on_lost(self, error: HoldfastError) -> None:
        if self._look is not None:
            self._look.cancel()
        answers, self._answers = self._answers, {}
        sinks, self.sinks = self.sinks, {}
        for future in answers.values():
            if not future.done():
                future.set_exception(self._failure())
                future.exception()  # an owner that has ended is no reason for a warning
        for sink in sinks.values():
            sink.failed(self._failure())
        self._wake_next()
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)


def _text(meta: bytes) -> str:
    """The words that come with a status; for people only."""
    return meta.decode("utf-8", "replace")
