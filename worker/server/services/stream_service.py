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
from holdfast.common.formats.frame import FrameHeader
from holdfast.common.formats.messages import StreamCredit, StreamOpen, StreamOpened
from holdfast.common.formats.reduce_messages import ChunksOpen, ChunksOpened
from holdfast.common.ids import Incarnation
from holdfast.common.limits import KIB
from holdfast.common.log_events import LogEvent
from holdfast.common.net.frames.connection import TURN_BYTES
from holdfast.common.net.frames.server import ServerConnection
from holdfast.common.net.frames.wire import FileRange
from holdfast.common.system.log import log_event
from holdfast.worker.core.read.streams import Streams, check_rows
from holdfast.worker.server.membership.worker_identity import WorkerIdentity
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.server.services.refusal import refusal
from holdfast.worker.server.services.stream_sources import ChunkSearch, ChunkSource, FrameSource, MapSource, Sending
from holdfast.worker.storage.engine.answers import UnreadableError, unreadable
from holdfast.worker.storage.read.reader import FILE_ROWS
from holdfast.worker.storage.read.sealed_locations import SealedLocation
from holdfast.worker.storage.store import Plan, Store

#: Files that are looked up for a new stream before the loop turns: about 3 ms.
PLAN_FILES = 128
#: Epochs and chunks that are looked up for a new stream before the loop turns: the same.
PLAN_ROWS = 1_024
#: Frames that one connection may queue before the others of the loop get their turn.
TURN_FRAMES = 64
#: Streams of a connection that are asked in one turn of the loop and have nothing to send yet.
PASSED_MAX = 512
#: Bodies up to this are copied through memory (docs/adr/0007-data-plane.md), while a connection holds little of them.
SMALL_BYTES = 16 * KIB
SMALL_HELD_BYTES_MAX = 128 * KIB


class StreamService:
    """All reading. Loop thread only."""

    def __init__(self, store: Store, standing: WorkerIdentity, counters: Counters, faults: Faults) -> None:
        self._store = store
        self._counters = counters
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._frame_sources: dict[int, FrameSource] = {}
        #: connections whose pump will run
        self._scheduled: set[ServerConnection] = set()
        self.streams = Streams(standing.incarnation)

    def open(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> None:
        """Take a STREAM_OPEN. Raises ProtocolError for a malformed one; all else is answered."""
        request = StreamOpen.decode(meta)
        plan = self._store.plan(request.shuffle, request.begin, request.end, ())
        self._open_on(connection, header, self._open_files(connection, header, request, plan))

    def _open_files(
        self, connection: ServerConnection, header: FrameHeader, request: StreamOpen, plan: Plan
    ) -> Iterator[float]:
        """Plan all files, begin the stream; yields seconds for which others go first."""
        number, files = connection.number, request.files
        rows = FILE_ROWS * len(files)
        check_rows(rows, len(files))
        # The room for its plan is taken before anything is planned: others plan at the same time.
        owner = connection.owner_of(request.shuffle.instance)
        stream = self.streams.open(number, 0, rows, owner=owner, own=True)
        try:
            for first in range(0, len(files), PLAN_FILES):
                if first:
                    yield 0.0
                some, before = files[first : first + PLAN_FILES], plan.rows
                self._store.extend(plan, some)
                self.streams.grow(number, stream, plan.rows - before - FILE_ROWS * len(some))
            source = MapSource(header, iter(plan.pieces()))
            self.streams.credit(number, stream, request.credit_bytes)
        except Exception:
            self.streams.close(number, stream)
            raise
        self._begin(connection, stream, source, StreamOpened(stream=stream, total_bytes=plan.total_bytes).encode())

    def open_chunks(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> None:
        """Take a CHUNKS_OPEN. Raises ProtocolError for a malformed one; all else is answered."""
        opening = self._open_chunks(connection, header, ChunksOpen.decode(meta))
        self._open_on(connection, header, opening)

    def _open_on(self, connection: ServerConnection, header: FrameHeader, opening: Iterator[float]) -> None:
        """Go on with the opening of a stream. Meanwhile nothing is read."""
        if connection.closed:
            return
        try:
            for pause in opening:
                connection.hold()
                self._loop.call_later(pause, self._open_on, connection, header, opening)
                return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered, and the connection read again
            self._refuse(connection, header, self._refusal(error))
        connection.unhold()

    def _unread(self, fileno: int, error: OSError) -> None:
        self._store.unread(_path_of(fileno), error)

    def _refusal(self, error: Exception) -> HoldfastError:
        """What is answered; a disk that cannot be read hears of it."""
        if isinstance(error, UnreadableError):
            self._store.unread(error.path, error.cause)
        return refusal(error)

    def _refuse(self, connection: ServerConnection, header: FrameHeader, error: HoldfastError) -> None:
        self._counters.refused(error.status)
        connection.refuse(header, error)

    def _open_chunks(self, connection: ServerConnection, header: FrameHeader, request: ChunksOpen) -> Iterator[float]:
        """Look up the epochs, find the first chunk, begin the stream; yields seconds for which others go first."""
        locations: list[SealedLocation] = []
        owner = connection.owner_of(request.shuffle.instance)
        rows = done = 0
        for partition, epoch, _ in request.files:
            location = self._store.reduce.chunks(request.shuffle, partition, epoch, owner)
            locations.append(location)
            rows += len(location.record.chunks)
            check_rows(rows + len(locations), len(request.files))
            if rows + len(locations) - done >= PLAN_ROWS:
                done = rows + len(locations)
                yield 0.0
        search = ChunkSearch(request, locations, self._store.open_files, self._store.views, self._store.away, owner)
        total = 0
        for file in range(len(locations)):
            total += search.size(file)
            if file % PLAN_FILES == PLAN_FILES - 1:
                yield 0.0
        source = ChunkSource(header, search)
        # Not for the DFS: nothing is read of this connection meanwhile, and who has a lease may wait for credit.
        while not search.distant and not source.look():
            yield 0.0
        stream = self.streams.open(connection.number, request.credit_bytes, rows + len(locations), owner=owner)
        chunks = [len(location.record.chunks) for location in locations]
        opened = ChunksOpened(stream=stream, total_bytes=total, chunks=chunks)
        self._begin(connection, stream, source, opened.encode())

    def _begin(self, connection: ServerConnection, stream: int, source: FrameSource, opened: bytes) -> None:
        self._counters.streams_opened += 1
        connection.reply(source.header, opened)
        if source.done:
            self._send_end(connection, stream, source)
        else:
            self._frame_sources[stream] = source
            self.pump(connection)

    def credit(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> None:
        """Take a STREAM_CREDIT; answered only if it is refused."""
        request = StreamCredit.decode(meta)
        try:
            starts = self.streams.credit(connection.number, request.stream, request.credit_bytes)
        except HoldfastError as error:
            self._refuse(connection, header, error)
            return
        if starts:
            self.pump(connection)

    def close(self, connection: ServerConnection, meta: bytes) -> None:
        """Take a STREAM_CLOSE; never answered."""
        self._forget(connection, StreamCredit.decode(meta).stream)

    def lost(self, connection: ServerConnection) -> None:
        for stream in self.streams.lost(connection.number):
            self._drop(stream)
        self._scheduled.discard(connection)

    def begin(self, incarnation: Incarnation) -> None:
        for stream in self.streams.begin(incarnation):
            self._drop(stream)

    def tick(self, now_ns: int) -> None:
        """Forget streams whose readers did nothing for long, and views that are not used."""
        self._store.views.tick()
        for connection_number, stream in self.streams.tick(now_ns):
            self.streams.close(connection_number, stream)
            self._drop(stream)

    def pump(self, connection: ServerConnection) -> None:
        """Queue frames of this connection's streams until enough waits to be sent, then leave the loop to others."""
        if connection in self._scheduled:
            return
        connection.cork()
        try:
            self._pump(connection)
        finally:
            connection.uncork()
        # A connection that is crowded calls back. One that has sent what was queued does not, so we call ourselves.
        more = not connection.crowded and self.streams.turn(connection.number) is not None
        if more and connection not in self._scheduled:
            self._pump_later(connection, 0.0)

    def _pump(self, connection: ServerConnection) -> None:
        size = frames = passed = 0
        pause = math.inf
        while frames < TURN_FRAMES and size < TURN_BYTES and not connection.crowded and not connection.closed:
            turn = self.streams.turn(connection.number)
            if turn is None:
                return
            source = self._frame_sources[turn.stream]
            sent = self._send_next(connection, turn.stream, turn.allowance)
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

    def _send_next(self, connection: ServerConnection, stream: int, allowance: int) -> int | None:
        """Send one frame of a stream; return its body bytes, None if it is not known yet."""
        source = self._frame_sources[stream]
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
            self._drop(stream)
            return 0
        self._counters.stream_frames += 1
        self._counters.stream_bytes += sending.size
        if connection.closed:  # sending failed; lost() has forgotten or will forget everything
            return sending.size
        self.streams.sent(stream, sending.size)
        if source.done:
            self._forget(connection, stream)
        return sending.size

    def _send(self, connection: ServerConnection, source: FrameSource, sending: Sending) -> None:
        """Send a frame: one in pieces, a small one, or one of what was fetched, through memory; others by sendfile,
        unless a disk is not well: what cannot be read ends the connection then, with all that others do on it."""
        request_id, fileno, ranges = source.header.request_id, sending.fileno, sending.ranges
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
        file_range = FileRange(fileno, sending.owner, *ranges[0], sending.fetches)
        file_range.failed = partial(self._unread, fileno)
        connection.send_range(source.type, request_id, sending.meta, file_range)

    def _send_end(self, connection: ServerConnection, stream: int, source: FrameSource) -> None:
        connection.send(source.type, source.header.request_id, source.end(stream), response=True)
        self.streams.close(connection.number, stream)

    def _fail(self, connection: ServerConnection, stream: int, source: FrameSource, error: HoldfastError) -> None:
        log_event(LogEvent.STREAM_FAILED, peer=connection.peer, status=error.status.name, reason=error)
        self._counters.streams_failed += 1
        self._forget(connection, stream)
        words = str(error).encode()[:4_096]
        connection.send(source.type, source.header.request_id, words, response=True, status=error.status)

    def _forget(self, connection: ServerConnection, stream: int) -> None:
        if self.streams.close(connection.number, stream):
            self._drop(stream)

    def _drop(self, stream: int) -> None:
        source = self._frame_sources.pop(stream, None)
        if source is not None:
            source.close()


def _path_of(fileno: int) -> str:
    """Where the file of a descriptor is; "" where the system does not say."""
    try:
        return os.readlink(f"/proc/self/fd/{fileno}")
    except OSError:
        return ""
