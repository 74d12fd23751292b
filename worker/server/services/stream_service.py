"""Serves streams: plans from storage, turns from read/streams.py, bytes from the page cache to the socket by sendfile.

Rules: a connection gets the next frame when little of the earlier ones waits to be sent; between connections the loop
takes turns. What goes wrong in the middle of a stream ends it with a status. Called by data_server.py.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterator
from functools import partial

from holdfast.common.errors import CorruptError, HoldfastError
from holdfast.common.formats.messages import StreamCredit, StreamOpen, StreamOpened
from holdfast.common.formats.reduce_messages import ChunksOpen, ChunksOpened
from holdfast.common.limits import KIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.connection import TURN_BYTES
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.net.frames.wire import FileRange
from holdfast.common.system.log import log_event
from holdfast.worker.core.read.streams import Streams, check_rows
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.services.request import Request, refusal
from holdfast.worker.server.services.stream_sources import ChunkSearch, ChunkSource, FrameSource, MapSource, Sending
from holdfast.worker.storage.engine.answers import UnreadableError, unreadable
from holdfast.worker.storage.read.reader import FILE_ROWS
from holdfast.worker.storage.read.sealed_locations import SealedLocation
from holdfast.worker.storage.store import Plan

#: Files that are looked up for a new stream before the loop turns: about 3 ms.
PLAN_FILES = 128
#: Epochs and chunks that are looked up for a new stream before the loop turns: the same.
PLAN_ROWS = 1_024
#: Frames that one connection may queue before the others of the loop get their turn.
TURN_FRAMES = 64
#: Streams of a connection that are asked in one turn of the loop and have nothing to send yet.
PASSED_MAX = 512
#: Bodies up to this are copied through memory (ADR 7), while a connection holds little of them.
SMALL_BYTES = 16 * KIB
SMALL_HELD_BYTES_MAX = 128 * KIB


class StreamService:
    """All reading. Loop thread only."""

    def __init__(self, context: WorkerContext) -> None:
        self._store = context.store
        self._counters = context.counters
        self._faults = context.faults
        self._loop = asyncio.get_running_loop()
        #: connections whose pump will run
        self._scheduled: set[ServerConnection] = set()
        self.streams = Streams[FrameSource](context.standing.incarnation)

    def open(self, request: Request) -> None:
        """Take a STREAM_OPEN. Raises ProtocolError for a malformed one; all else is answered."""
        asked = StreamOpen.decode(request.meta)
        plan = self._store.plan(asked.shuffle, asked.begin, asked.end, ())
        self._open_on(request, self._open_files(request, asked, plan))

    def _open_files(self, request: Request, asked: StreamOpen, plan: Plan) -> Iterator[float]:
        """Plan all files, begin the stream; yields seconds for which others go first."""
        number, files = request.connection.number, asked.files
        rows = FILE_ROWS * len(files)
        check_rows(rows, len(files))
        # The room for its plan is taken before anything is planned: others plan at the same time.
        owner = request.owner_of(asked.shuffle.instance)
        stream = self.streams.open(number, 0, rows, owner=owner, own=True)
        try:
            for first in range(0, len(files), PLAN_FILES):
                if first:
                    yield 0.0
                some, before = files[first : first + PLAN_FILES], plan.rows
                self._store.extend(plan, some)
                self.streams.grow(number, stream, plan.rows - before - FILE_ROWS * len(some))
            source = MapSource(request.header, iter(plan.pieces()))
            self.streams.credit(number, stream, asked.credit_bytes)
        except Exception:
            self.streams.close(number, stream)
            raise
        self._begin(request, stream, source, StreamOpened(stream=stream, total_bytes=plan.total_bytes).encode())

    def open_chunks(self, request: Request) -> None:
        """Take a CHUNKS_OPEN. Raises ProtocolError for a malformed one; all else is answered."""
        self._open_on(request, self._open_chunks(request, ChunksOpen.decode(request.meta)))

    def _open_on(self, request: Request, opening: Iterator[float]) -> None:
        """Go on with the opening of a stream. Meanwhile nothing is read."""
        if request.connection.closed:
            return
        try:
            for pause in opening:
                request.connection.hold()
                self._loop.call_later(pause, self._open_on, request, opening)
                return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered, and the connection read again
            request.refuse(self._refusal(error))
        request.connection.unhold()

    def _unread(self, fileno: int, error: OSError) -> None:
        self._store.unread(_path_of(fileno), error)

    def _refusal(self, error: Exception) -> HoldfastError:
        """What is answered; a disk that cannot be read hears of it."""
        if isinstance(error, UnreadableError):
            self._store.unread(error.path, error.cause)
        return refusal(error)

    def _open_chunks(self, request: Request, asked: ChunksOpen) -> Iterator[float]:
        """Look up the epochs, find the first chunk, begin the stream; yields seconds for which others go first."""
        locations: list[SealedLocation] = []
        number = request.connection.number
        owner = request.owner_of(asked.shuffle.instance)
        rows = done = 0
        for partition, epoch, _ in asked.files:
            location = self._store.reduce.chunks(asked.shuffle, partition, epoch, owner)
            locations.append(location)
            rows += len(location.record.chunks)
            check_rows(rows + len(locations), len(asked.files))
            if rows + len(locations) - done >= PLAN_ROWS:
                done = rows + len(locations)
                yield 0.0
        search = ChunkSearch(asked, locations, self._store.open_files, self._store.views, self._store.away, owner)
        total = 0
        for file in range(len(locations)):
            total += search.size(file)
            if file % PLAN_FILES == PLAN_FILES - 1:
                yield 0.0
        source = ChunkSource(request.header, search)
        # Not for the DFS: nothing is read of this connection meanwhile, and who has a lease may wait for credit.
        while not search.distant and not source.look():
            yield 0.0
        stream = self.streams.open(number, asked.credit_bytes, rows + len(locations), owner=owner)
        chunks = [len(location.record.chunks) for location in locations]
        opened = ChunksOpened(stream=stream, total_bytes=total, chunks=chunks)
        self._begin(request, stream, source, opened.encode())

    def _begin(self, request: Request, stream: int, source: FrameSource, opened: bytes) -> None:
        self._counters.streams_opened += 1
        self.streams.begin_reading(stream, source)
        request.reply(opened)
        if source.done:
            self._send_end(request.connection, stream, source)
        else:
            self.pump(request.connection)

    def credit(self, request: Request) -> None:
        """Take a STREAM_CREDIT; answered only if it is refused."""
        given = StreamCredit.decode(request.meta)
        if self.streams.credit(request.connection.number, given.stream, given.credit_bytes):
            self.pump(request.connection)

    def close(self, request: Request) -> None:
        """Take a STREAM_CLOSE; never answered."""
        self.streams.close(request.connection.number, StreamCredit.decode(request.meta).stream)

    def lost(self, connection: ServerConnection) -> None:
        self.streams.lost(connection.number)
        self._scheduled.discard(connection)

    def tick(self, now_ns: int) -> None:
        """Forget streams whose readers did nothing for long, and views that are not used."""
        self._store.views.tick()
        self.streams.tick(now_ns)

    def pump(self, connection: ServerConnection) -> None:
        """Queue frames of this connection's streams until enough waits to be sent, then leave the loop to others."""
        if connection in self._scheduled:
            return
        connection.cork()
        try:
            self._pump(connection)
        finally:
            connection.uncork()
        # A connection that is crowded calls back. One that has sent what was queued does not, so we call ourselves. One
        # that closes takes nothing more, and `lost` follows.
        ready = not (connection.crowded or connection.closed)
        more = ready and self.streams.turn(connection.number) is not None
        if more and connection not in self._scheduled:
            self._pump_later(connection, 0.0)

    def _pump(self, connection: ServerConnection) -> None:
        size = frames = passed = 0
        pause = math.inf
        while frames < TURN_FRAMES and size < TURN_BYTES and not connection.crowded and not connection.closed:
            turn = self.streams.turn(connection.number)
            if turn is None:
                return
            source = self.streams.source(turn.stream)
            sent = self._send_next(connection, source, *turn)
            if sent is None:
                self.streams.passed(turn.stream)
                passed += 1
                pause = min(pause, source.pause)
                if not pause or passed == min(PASSED_MAX, self.streams.ready(connection.number)):
                    self._pump_later(connection, pause)
                    return
                continue
            size += sent
            frames += 1
            passed = 0
            slow = self._faults.wait_for(sent)
            if slow:
                self._pump_later(connection, slow)
                return

    def _pump_later(self, connection: ServerConnection, seconds: float) -> None:
        self._scheduled.add(connection)
        self._loop.call_later(seconds, self._pump_now, connection)

    def _pump_now(self, connection: ServerConnection) -> None:
        if connection in self._scheduled:
            self._scheduled.discard(connection)
            self.pump(connection)

    def _send_next(self, connection: ServerConnection, source: FrameSource, stream: int, allowance: int) -> int | None:
        """Send one frame of a stream; return its body bytes, None if it is not known yet."""
        try:
            sending = source.take(stream, allowance)
            if sending is not None:
                self._send(connection, source, sending)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this stream, and its reader is told
            self._fail(connection, stream, source, self._refusal(error))
            return 0
        if sending is None:
            if not source.done:
                return None
            self._send_end(connection, stream, source)
            return 0
        self._counters.stream_frames += 1
        self._counters.stream_bytes += sending.size
        if connection.closed:  # sending failed; lost() has forgotten or will forget everything
            return sending.size
        self.streams.sent(stream, sending.size)
        if source.done:
            self.streams.close(connection.number, stream)
        return sending.size

    def _send(self, connection: ServerConnection, source: FrameSource, sending: Sending) -> None:
        """Send a frame: one in pieces, a small one, or one of what was fetched, through memory; others by sendfile,
        unless a disk is not well: what cannot be read ends the connection then, with all that others do on it."""
        request_id, handle, ranges = source.header.request_id, sending.handle, sending.ranges
        fileno = handle.fd if handle is not None else -1
        small = sending.size <= SMALL_BYTES and connection.held_bytes < SMALL_HELD_BYTES_MAX
        if small or sending.fetched or len(ranges) != 1 or self._store.failing:
            began = time.perf_counter_ns()
            try:
                parts = [os.pread(fileno, length, offset) for offset, length in ranges]
            except OSError as error:
                path = _path_of(fileno)
                raise unreadable("a stream", path, error) from error
            ended = time.perf_counter_ns()
            if sending.fetches is not None:
                sending.fetches.add(ended, ended - began)
            if sum(map(len, parts)) == sending.size:
                connection.send(source.type, request_id, sending.meta, b"".join(parts), response=True)
                return
            if len(ranges) > 1:
                connection.abort(CorruptError("a file is shorter than in its index"))
                return
        # A file that was cut is left to sendfile, which ends the connection.
        file_range = FileRange(fileno, handle, *ranges[0], sending.fetches)
        file_range.failed = partial(self._unread, fileno)
        connection.send_range(source.type, request_id, sending.meta, file_range)

    def _send_end(self, connection: ServerConnection, stream: int, source: FrameSource) -> None:
        connection.send(source.type, source.header.request_id, source.end(stream), response=True)
        self.streams.close(connection.number, stream)

    def _fail(self, connection: ServerConnection, stream: int, source: FrameSource, error: HoldfastError) -> None:
        log_event(LogEvent.STREAM_FAILED, peer=connection.peer, status=error.status.name, reason=error)
        self._counters.streams_failed += 1
        self.streams.close(connection.number, stream)
        words = str(error).encode()[:4_096]
        connection.send(source.type, source.header.request_id, words, response=True, status=error.status)


def _path_of(fileno: int) -> str:
    """Where the file of a descriptor is; "" where the system does not say."""
    try:
        return os.readlink(f"/proc/self/fd/{fileno}")
    except OSError:
        return ""
