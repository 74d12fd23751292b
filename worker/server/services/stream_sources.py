"""What a stream reads, frame by frame: regions of map files, or chunks of REDUCE epochs. Bytes stay in the page cache.

Rules: a source is always one piece ahead, so that it knows its last frame. What takes long to find is found in steps, a
turn of the loop each, so that nobody else waits. Pieces of files go by sendfile; small ones,
and those that are cut out of a chunk for a range of maps, through memory. Called by stream_service.py.
"""

from __future__ import annotations

import os
import time
import weakref
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast.common.errors import CorruptError, DataLostError, HoldfastError, RerouteError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import DataFlag, StreamData
from holdfast.common.formats.reduce_messages import ChunkFlag, ChunksData, ChunksOpen
from holdfast.common.limits import FRAME_RUNS_MAX, KIB, U32_MAX
from holdfast.common.net.frames.wire import Times
from holdfast.common.statuses import Status
from holdfast.common.steady import Steady
from holdfast.worker.core.read.cut import Cutter
from holdfast.worker.core.read.fetch_leases import FetchLease
from holdfast.worker.server.services.read_ahead import ReadAhead
from holdfast.worker.storage.engine.answers import unreadable
from holdfast.worker.storage.env.interfaces import Handle
from holdfast.worker.storage.index.records import ChunkRow
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.read.map_range_index import MapRangeIndexes, join, scan, select
from holdfast.worker.storage.read.sealed_locations import SealedLocation
from holdfast.worker.storage.store import Piece

if TYPE_CHECKING:
    from holdfast.worker.storage.dfs.away import Away, Fetched

#: What is looked through for wanted batches before the loop turns: at most 13,000 headers, about 4 ms.
SCAN_BYTES = 512 * KIB
#: How long a stream lets others go first that waits for the DFS, and one that waits for room to fetch.
DISTANT_SECONDS = 0.005
LEASE_SECONDS = 0.02
#: A stream that waits for either sends an empty frame so often: after 30 s of silence its reader takes it for lost.
ALIVE_SECONDS = 10.0
#: Pieces of a chunk in one frame: each is a read of its own.
RANGES_MAX = 4_096


class Sending(NamedTuple):
    """One frame: its meta section, and the ranges of a file that make up its body."""

    meta: bytes
    #: the file; None where there is nothing to read
    handle: Handle | None
    #: it goes as soon as nobody holds it: what waits to be sent must not
    fetched: bool
    #: (offset, length); one, unless it was cut for a range of maps, or nothing is wanted of the chunk
    ranges: Sequence[tuple[int, int]]
    size: int
    #: how long reads from where it lies take
    fetches: Times | None


class MapSource:
    """Regions of map files: the piece being sent, and the one after it."""

    type = FrameType.STREAM_DATA
    pause = 0.0

    def __init__(self, header: FrameHeader, pieces: Iterator[Piece]) -> None:
        self.header = header
        self._pieces = Steady(pieces)
        self._sequence = 0
        self._piece: Piece | None = None
        self._cutter = Cutter((), FRAME_RUNS_MAX)
        self._next: Piece | None = None
        self._ahead: ReadAhead | None = None
        self._next_ahead: ReadAhead | None = None
        self._look()
        self._advance()

    @property
    def done(self) -> bool:
        return self._piece is None

    def take(self, stream: int, allowance: int) -> Sending:
        piece = self._piece
        assert piece is not None
        at = self._cutter.taken_bytes
        runs = [(partition, length) for partition, _, length in self._cutter.cut(allowance)]
        size = self._cutter.taken_bytes - at
        flags = int(DataFlag.BROADCAST) if piece.flags else 0
        if self._cutter.done:
            self._advance()
        elif self._ahead is not None:
            self._ahead.sent(piece.length - at - size)
        if self.done:
            flags |= DataFlag.END
        data = StreamData(
            stream=stream, sequence=self._sequence, file=piece.file, region=piece.region, flags=flags, runs=runs
        )
        self._sequence += 1
        return Sending(data.encode(), piece.handle, False, [(piece.offset + at, size)], size, piece.fetches)

    def end(self, stream: int) -> bytes:
        return StreamData(stream=stream, sequence=0, file=0, region=0, flags=DataFlag.END, runs=[]).encode()

    def close(self) -> None:
        pass

    def _advance(self) -> None:
        """Go to the next piece; `done` behind the last."""
        self._piece, self._ahead = self._next, self._next_ahead
        if self._piece is not None:
            self._cutter = Cutter(self._piece.runs, FRAME_RUNS_MAX)
            self._look()

    def _look(self) -> None:
        """Find the piece after the one that is sent."""
        self._next, self._next_ahead = next(self._pieces, None), None
        if self._next is not None:
            self._next_ahead = ReadAhead(self._next.handle, self._next.offset, self._next.length, self._ahead)


class _Chunk(NamedTuple):
    """What is sent of one chunk."""

    #: index into the files that were asked for, and of the chunk in its epoch
    file: int
    chunk: int
    #: where its bytes are, or come from; None if nothing of it is wanted
    body: Handle | Distant | None
    ranges: list[tuple[int, int]]
    size: int
    fetches: Times | None


class Distant:
    """A chunk on the DFS: it is fetched when it is about to be sent, and its bytes are let go of after that."""

    __slots__ = ("_away", "_fetched", "_lease", "_length", "_offset", "name", "what")

    def __init__(self, away: Away, lease: FetchLease, name: str, row: ChunkRow, what: str) -> None:
        self._away = away
        self._lease = lease
        self.name = name
        self._offset, self._length = row.offset, row.length
        #: for errors
        self.what = what
        self._fetched: Fetched | None = None

    def begin(self) -> bool:
        """Have it fetched; False if the stream has no lease."""
        if self._lease.take() and self._fetched is None:
            self._lease.renew()
            self._fetched = self._away.fetch(self.name, self._offset, self._length)
        return self._fetched is not None

    @property
    def begun(self) -> bool:
        return self._fetched is not None

    def let_go(self) -> None:
        """Have others take the room; `handle` has it fetched again."""
        self._fetched = None

    def handle(self) -> Handle | None:
        """The bytes of the chunk; None: not yet, ask later. Raises RerouteError DISK_FAILED if the DFS does not give
        them, DataLostError if it does not have them, CorruptError if it has less."""
        if not self.begin() or self._fetched is None or not self._fetched.future.done():
            reason = self._away.given_up(self._fetched)
            if reason:
                self._fetched = None
                raise RerouteError(f"{self.what}: {reason}", status=Status.DISK_FAILED)
            if self._fetched is not None:
                self._lease.renew()
            return None
        try:
            return self._fetched.future.result()
        except (OSError, HoldfastError, CancelledError) as error:
            self._fetched = None
            reason = f"{self.what}: {error}"
            if isinstance(error, FileNotFoundError):
                raise DataLostError(reason) from error
            if isinstance(error, CorruptError):
                raise CorruptError(reason) from error
            raise RerouteError(reason, status=Status.DISK_FAILED) from error


class ChunkSearch:
    """Finds what a stream sends of sealed epochs: chunks, whole or cut to the range of maps that was asked for."""

    def __init__(
        self,
        request: ChunksOpen,
        locations: Sequence[SealedLocation],
        open_files: OpenFiles,
        views: MapRangeIndexes,
        away: Away | None = None,
        owner: Hashable = (),
    ) -> None:
        """`owner`: whose share fetches from the DFS are of."""
        self._away, self._owner = away, owner
        self._begin, self._end = request.map_begin, request.map_end
        self._locations = locations
        #: of each place the first chunk that is wanted; the request itself is not kept: it may name many epochs
        self._firsts = array("I", [first for _, _, first in request.files])
        self._open_files = open_files
        self._views = views
        #: of the stream; made by the first chunk on the DFS
        self.lease: FetchLease | None = None
        #: the chunk on the DFS that is looked through
        self._searched: Distant | None = None
        #: the longest chunk that is wanted
        self._longest = 0
        #: only some maps are wanted
        self.cuts = self._begin > 0 or self._end < U32_MAX
        #: the last step waited for the DFS, or for room to fetch
        self.waits = False

    @property
    def distant(self) -> bool:
        return any(location.away for location in self._locations)

    def size(self, file: int) -> int:
        """What will be sent of an epoch; with a range of maps less than this, so that a reader that gives no credit
        beyond it has left enough to hear that nothing of the last chunk is wanted."""
        lengths = [row.length for _, row in self._rows(file)]
        self._longest = max([self._longest, *lengths])
        return sum(lengths) + self.cuts

    @property
    def fetching(self) -> bool:
        return self._searched is not None and self._searched.begun

    def let_go(self) -> None:
        if self._searched is not None:
            self._searched.let_go()

    def chunks(self, revoke: Callable[[], None]) -> Iterator[_Chunk | None]:
        """Find one after the other; None: some work was done, which is enough for one turn of the loop. `revoke` gives
        back what was fetched, where others need its room.

        The last chunk of an epoch comes also if nothing of it is wanted, so that the reader knows that this is all.
        Raises DataLostError, CorruptError and RerouteError DISK_FAILED, which name the chunk.
        """
        for file, location in enumerate(self._locations):
            rows, last = self._rows(file), len(location.record.chunks) - 1
            cut = [number for number, row in rows if not self._is_whole(row)]
            # Whoever comes back for the rest of an epoch gets it from the file itself, whatever went wrong before.
            fresh = len(cut) > 1 and not self._firsts[file] and not location.away
            view = self._views.find(location.path, location.record.chunks) if fresh else None
            last_sent = self._firsts[file] - 1
            for number, row in rows:
                # The file may have moved since the view was found. The chunks are the same, wherever they lie.
                copy = view.copy if view is not None and not self._is_whole(row) else None
                body = copy or self._open(location, number, row, revoke)
                some: list[tuple[int, int]] = []
                if self._is_whole(row):
                    some = [(0, row.length)]
                elif view is not None:
                    some = view.ranges(number, self._begin, self._end)
                else:
                    yield from self._look_through(location, number, body, some)
                if some:
                    # A chunk that was fetched lies at the start of what it was fetched into.
                    base = 0 if isinstance(body, Distant) else row.offset
                    ranges = [(base + start, length) for start, length in some]
                    yield _Chunk(file, number, body, ranges, sum([length for _, length in ranges]), location.fetches)
                    last_sent = number
            if last_sent < last:
                yield _Chunk(file, last, None, [], 0, None)
            elif not rows:
                yield None

    def _look_through(
        self, location: SealedLocation, number: int, body: Handle | Distant, some: list[tuple[int, int]]
    ) -> Iterator[None]:
        """Add what is wanted of a chunk to `some`, step by step. What was fetched is not held between steps: others may
        get its room, and it comes again."""
        row, at = location.record.chunks[number], 0
        if not isinstance(body, Distant):
            while at < row.length:
                at = self._cut(location, number, body, row.offset, at, some)
                yield None
            return
        self._searched = body
        while at < row.length:
            handle = body.handle()
            self.waits = handle is None
            if handle is not None:
                at = self._cut(location, number, handle, 0, at, some)
                del handle
            yield None
        self._searched = None

    def _rows(self, file: int) -> list[tuple[int, ChunkRow]]:
        """Number and row of the chunks that may have something to send."""
        chunks, first = self._locations[file].record.chunks, self._firsts[file]
        return [
            (number, row)
            for number, row in enumerate(chunks[first:], first)
            if row.map_min < self._end and row.map_max >= self._begin
        ]

    def _is_whole(self, row: ChunkRow) -> bool:
        return self._begin <= row.map_min and row.map_max < self._end

    def _open(
        self, location: SealedLocation, number: int, row: ChunkRow, revoke: Callable[[], None]
    ) -> Handle | Distant:
        if location.away:
            assert self._away is not None, "places on the DFS are given out by stores that have one"
            if self.lease is None:
                self.lease = FetchLease(self._away.leases, revoke, 2 * self._longest, self._owner)
            return Distant(self._away, self.lease, location.path, row, f"{location.key} chunk {number}")
        try:
            handle = self._open_files.open(location.path)
            size = os.fstat(handle.fd).st_size
        except OSError as error:
            raise unreadable(f"{location.key} chunk {number}", location.path, error) from error
        if size < row.offset + row.length:
            raise CorruptError(f"{location.key} chunk {number}: {location.path} is cut to {size} bytes")
        return handle

    def _cut(
        self, location: SealedLocation, number: int, handle: Handle, base: int, at: int, some: list[tuple[int, int]]
    ) -> int:
        """Look through the batches of a chunk from `at` on, the headers are the index; add those of the wanted maps to
        `some` and return where the next look begins."""
        row = location.record.chunks[number]
        try:
            data = os.pread(handle.fd, min(SCAN_BYTES, row.length - at), base + at)
        except OSError as error:
            raise unreadable(f"{location.key} chunk {number}", location.path, error) from error
        runs = scan(data, at, row.length, f"{location.key} chunk {number}")
        join(some, select(runs, self._begin, self._end))
        return runs.starts[-1]


class ChunkSource:
    """Chunks of sealed epochs, always known one ahead."""

    type = FrameType.CHUNKS_DATA

    @property
    def pause(self) -> float:
        """Seconds until it makes sense to ask again after `take` gave None."""
        if not self._waits:
            return 0.0
        fetching = self._search.fetching or (self._chunk is not None and _begun(self._chunk))
        return DISTANT_SECONDS if fetching else LEASE_SECONDS

    def __init__(self, header: FrameHeader, search: ChunkSearch) -> None:
        self.header = header
        self._search = search
        # Not held by what it holds, which would keep all of it until the next collection of cycles.
        me = weakref.WeakMethod(self.let_go)

        def revoke() -> None:
            if (let_go := me()) is not None:
                let_go()

        self._found = Steady(search.chunks(revoke))
        #: nothing comes behind what is known
        self._over = False
        self._sequence = 0
        self._chunk: _Chunk | None = None
        self._next: _Chunk | None = None
        #: of either, if it is on a disk here
        self._ahead: ReadAhead | None = None
        self._next_ahead: ReadAhead | None = None
        #: the last look or take waited for the DFS, or for room to fetch
        self._waits = False
        #: when the last frame was taken
        self._taken_ns = time.monotonic_ns()
        #: what is left of the chunk
        self._cutter = Cutter((), RANGES_MAX)

    @property
    def done(self) -> bool:
        return self._chunk is None and self._over

    def look(self) -> bool:
        """Look for what comes; False: ask again in another turn. Raises what ChunkSearch.chunks raises."""
        while not self._over and (self._chunk is None or self._next is None):
            try:
                found = next(self._found)
            except StopIteration:
                self._over = True
                return True
            if found is None:
                self._waits = self._search.waits
                return False
            ahead = ReadAhead(found.body, *found.ranges[0], self._ahead) if isinstance(found.body, Handle) else None
            if self._chunk is None:
                self._take_up(found, ahead)
                continue
            self._next, self._next_ahead = found, ahead
            if not isinstance(found.body, Distant):
                continue
            if not isinstance(self._chunk.body, Distant) or self._chunk.body.begin():
                self._begin_next(found.body)
        return True

    def _take_up(self, chunk: _Chunk | None, ahead: ReadAhead | None) -> None:
        """Send this one next."""
        self._chunk, self._ahead = chunk, ahead
        self._cutter = Cutter(chunk.ranges if chunk is not None else (), RANGES_MAX)

    def _begin_next(self, body: Distant) -> None:
        """Have the next chunk fetched while this one is sent, unless others go first after this one."""
        if self._search.lease is None or not self._search.lease.turn_over:
            body.begin()

    def let_go(self) -> None:
        """Keep nothing of what was fetched, and no lease: this stream does not go on now. It is fetched again."""
        for chunk in (self._chunk, self._next):
            if chunk is not None and isinstance(chunk.body, Distant):
                chunk.body.let_go()
        self._search.let_go()
        if self._search.lease is not None:
            self._search.lease.leave()

    close = let_go

    def take(self, stream: int, allowance: int) -> Sending | None:
        """The next frame, of at most `allowance` body bytes; None: not yet, ask in another turn, or, if it is `done`
        now, nothing was to be sent. Not if it was `done` before. Raises what storage raises."""
        self._waits = False
        sending, now_ns = self._take(stream, allowance), time.monotonic_ns()
        if sending is None and self._waits and now_ns - self._taken_ns >= ALIVE_SECONDS * 1e9:
            data = ChunksData(stream=stream, sequence=self._sequence, file=0, chunk=0, flags=0)
            self._sequence += 1
            sending = Sending(data.encode(), None, False, [], 0, None)
        if sending is not None:
            self._taken_ns = now_ns
        return sending

    def _take(self, stream: int, allowance: int) -> Sending | None:
        if not self.look() or self._chunk is None:
            return None
        chunk = self._chunk
        handle = chunk.body.handle() if isinstance(chunk.body, Distant) else chunk.body
        if handle is None and chunk.body is not None:
            self._waits = True
            return None
        sent = self._cutter.taken_bytes
        ranges = [(offset + at, length) for offset, at, length in self._cutter.cut(allowance)]
        rest = chunk.size - self._cutter.taken_bytes
        size, flags = self._cutter.taken_bytes - sent, 0
        if self._ahead is not None and len(chunk.ranges) == 1:
            self._ahead.sent(rest)
        if not rest:
            flags = int(ChunkFlag.END_OF_CHUNK)
            self._take_up(self._next, self._next_ahead)
            self._next = self._next_ahead = None
        if self.done:
            flags |= ChunkFlag.END
        data = ChunksData(
            stream=stream, sequence=self._sequence, file=chunk.file, chunk=chunk.chunk, flags=flags, left_bytes=rest
        )
        self._sequence += 1
        fetched = isinstance(chunk.body, Distant)
        if fetched and not rest:
            self._end_chunk()
        return Sending(data.encode(), handle, fetched, ranges, size, chunk.fetches)

    def _end_chunk(self) -> None:
        """A chunk of the DFS is on its way to the reader: when its turn is over this stream lets others go first, and
        sends what it has fetched already before that. One that cuts chunks always has: it stops all the same."""
        lease = self._search.lease
        assert lease is not None, "who fetched has one"
        lease.renew()
        ready = self._chunk is not None and _begun(self._chunk) and not self._search.cuts
        if self.done or (lease.turn_over and not ready):
            self.let_go()

    def end(self, stream: int) -> bytes:
        """The meta section of the only frame of an empty stream."""
        self.let_go()
        return ChunksData(stream=stream, sequence=0, file=0, chunk=0, flags=ChunkFlag.END).encode()


#: Where the frames of a stream come from.
FrameSource: TypeAlias = MapSource | ChunkSource


def _begun(chunk: _Chunk) -> bool:
    """Whether a chunk was fetched, or is on its way."""
    return isinstance(chunk.body, Distant) and chunk.body.begun
