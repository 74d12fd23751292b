"""What a stream reads, frame by frame: regions of map files, or chunks of REDUCE epochs. Bytes stay in the page cache.

Rules: a source is always one piece ahead, so that it knows its last frame. What takes long to find is found in steps, a
turn of the loop each, so that nobody else waits. Pieces of files go by sendfile; small ones,
and those that are cut out of a chunk for a range of maps, through memory. Called by stream_service.py.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.common.errors import CorruptError, DataLostError, HoldfastError, RerouteError, Status
from holdfast.common.frame import FrameHeader, FrameType
from holdfast.common.limits import KIB
from holdfast.common.messages import DataFlag, StreamData
from holdfast.common.net.frames import Times
from holdfast.common.reduce_messages import ChunkFlag, ChunksData, ChunksOpen
from holdfast.worker.core.cut import Cutter
from holdfast.worker.storage.handles import Handle, OpenFiles
from holdfast.worker.storage.map_view import MapViews, join, scan, select
from holdfast.worker.storage.places import SealedPlace
from holdfast.worker.storage.reduce_records import ChunkRow
from holdfast.worker.storage.store import Piece

if TYPE_CHECKING:
    from holdfast.worker.storage.away import Away, Fetched

#: What is fetched of the next piece; within a piece the kernel reads ahead by itself.
READ_AHEAD_BYTES = 256 * KIB
#: What is looked through for wanted batches before the loop turns: at most 13,000 headers, about 4 ms.
SCAN_BYTES = 512 * KIB
#: How long a stream that waits for the DFS lets others go first.
DISTANT_SECONDS = 0.005
#: Pieces of a chunk in one frame: each is a read of its own.
RANGES_MAX = 4_096


class Sending(NamedTuple):
    """One frame: its meta section, and the ranges of a file that make up its body."""

    meta: bytes
    #: descriptor, and what keeps it open
    fileno: int
    owner: object
    #: (offset, length); one, unless it was cut for a range of maps
    ranges: Sequence[tuple[int, int]]
    size: int
    #: how long reads from where it lies take
    fetches: Times | None


class Source(Protocol):
    """Where the frames of a stream come from. `take` raises what storage raises."""

    #: of the request that opened the stream, whose id all data frames carry
    header: FrameHeader
    #: of the data frames
    type: FrameType

    @property
    def done(self) -> bool:
        """Nothing more comes."""

    @property
    def pause(self) -> float:
        """Seconds until it makes sense to ask again after `take` gave None."""

    def take(self, stream: int, allowance: int) -> Sending | None:
        """The next frame, of at most `allowance` body bytes; None: not yet, ask in another turn, or, if it is `done`
        now, nothing was to be sent. Not if it was `done` before."""

    def end(self, stream: int) -> bytes:
        """The meta section of the only frame of an empty stream."""


class MapSource:
    """Regions of map files: the piece being sent, and the one after it."""

    type = FrameType.STREAM_DATA
    pause = 0.0

    def __init__(self, header: FrameHeader, pieces: Iterator[Piece]) -> None:
        self.header = header
        self._pieces = pieces
        self._sequence = 0
        self._piece: Piece | None = None
        self._cutter = Cutter(0, [])
        self._next: Piece | None = next(pieces, None)
        self._advance()

    @property
    def done(self) -> bool:
        return self._piece is None

    def take(self, stream: int, allowance: int) -> Sending:
        piece = self._piece
        assert piece is not None
        offset, size, runs = self._cutter.cut(allowance)
        flags = int(DataFlag.BROADCAST) if piece.flags else 0
        if self._cutter.done:
            self._advance()
        if self.done:
            flags |= DataFlag.END
        data = StreamData(
            stream=stream, sequence=self._sequence, file=piece.file, region=piece.region, flags=flags, runs=runs
        )
        self._sequence += 1
        return Sending(data.encode(), piece.fileno, piece, [(offset, size)], size, piece.fetches)

    def end(self, stream: int) -> bytes:
        return StreamData(stream=stream, sequence=0, file=0, region=0, flags=DataFlag.END, runs=[]).encode()

    def _advance(self) -> None:
        """Go to the next piece; `done` behind the last."""
        self._piece = self._next
        if self._piece is not None:
            self._cutter = Cutter(self._piece.offset, self._piece.runs)
            self._next = next(self._pieces, None)
        if self._next is not None:
            _read_ahead(self._next.fileno, self._next.offset, self._next.length)


class _Chunk(NamedTuple):
    """What is sent of one chunk."""

    #: index into the files that were asked for, and of the chunk in its epoch
    file: int
    chunk: int
    #: where its bytes are, or come from
    body: Handle | Distant
    ranges: list[tuple[int, int]]
    size: int
    fetches: Times | None


class Distant:
    """A chunk on the DFS: it is fetched when it is about to be sent, and its bytes are let go of after that."""

    __slots__ = ("_away", "_fetched", "_length", "_offset", "name", "what")

    def __init__(self, away: Away, name: str, row: ChunkRow, what: str) -> None:
        self._away = away
        self.name = name
        self._offset, self._length = row.offset, row.length
        #: for errors
        self.what = what
        self._fetched: Fetched | None = None

    def begin(self) -> bool:
        """Have it fetched; False if there is no room."""
        if self._fetched is None:
            self._fetched = self._away.fetch(self.name, self._offset, self._length)
        return self._fetched is not None

    @property
    def fetched(self) -> Fetched | None:
        """What was fetched, or is on its way: it counts for as long as anybody has this."""
        return self._fetched

    def let_go(self) -> None:
        """Have others take the room; `handle` has it fetched again."""
        self._fetched = None

    def handle(self) -> Handle | None:
        """The bytes of the chunk; None: not yet, ask later. Raises RerouteError DISK_FAILED if the DFS does not give
        them, DataLostError if it does not have them, CorruptError if it has less."""
        if not self.begin() or self._fetched is None or not self._fetched.future.done():
            return None
        try:
            return self._fetched.future.result()
        except (OSError, HoldfastError, CancelledError) as error:
            self._fetched = None
            why = f"{self.what}: {error}"
            if isinstance(error, FileNotFoundError):
                raise DataLostError(why) from error
            if isinstance(error, CorruptError):
                raise CorruptError(why) from error
            raise RerouteError(why, status=Status.DISK_FAILED) from error


class ChunkSearch:
    """Finds what a stream sends of sealed epochs: chunks, whole or cut to the range of maps that was asked for."""

    def __init__(
        self,
        request: ChunksOpen,
        places: Sequence[SealedPlace],
        open_files: OpenFiles,
        views: MapViews,
        away: Away | None = None,
    ) -> None:
        self._away = away
        self._begin, self._end = request.map_begin, request.map_end
        self._places = places
        #: of each place the first chunk that is wanted; the request itself is not kept: it may name many epochs
        self._firsts = array("I", [first for _, _, first in request.files])
        self._open_files = open_files
        self._views = views
        #: the next step is to fetch something, and there is no room
        self.waits_for_room = False

    @property
    def distant(self) -> bool:
        """Whether some of it is on the DFS."""
        return any(place.away for place in self._places)

    def size(self, file: int) -> int:
        """What will be sent of an epoch; with a range of maps at most so much."""
        return sum([row.length for _, row in self._rows(file)])

    def chunks(self) -> Iterator[_Chunk | None]:
        """Find one after the other; None: some work was done, which is enough for one turn of the loop.

        Raises DataLostError and CorruptError, which name the chunk.
        """
        for file, place in enumerate(self._places):
            rows = self._rows(file)
            cut = [number for number, row in rows if not self._is_whole(row)]
            # Whoever comes back for the rest of an epoch gets it from the file itself, whatever went wrong before.
            fresh = len(cut) > 1 and not self._firsts[file] and not place.away
            view = self._views.find(place.path, place.record.chunks) if fresh else None
            for number, row in rows:
                body = self._open(place, number, row)
                # A chunk that was fetched lies at the start of what it was fetched into.
                base = 0 if isinstance(body, Distant) else row.offset
                if self._is_whole(row):
                    yield _Chunk(file, number, body, [(base, row.length)], row.length, place.fetches)
                    continue
                some: list[tuple[int, int]] = []
                if view is not None:
                    assert isinstance(body, Handle), "views are made of local files"
                    body = view.copy or body
                    some = view.ranges(number, self._begin, self._end)
                else:
                    while (handle := body.handle() if isinstance(body, Distant) else body) is None:
                        self.waits_for_room = isinstance(body, Distant) and body.fetched is None
                        yield None
                    self.waits_for_room = False
                    at = 0
                    while at < row.length:
                        at = self._cut(place, number, handle, base, at, some)
                        yield None
                    del handle  # else it is held, and not counted, while the next one is waited for
                if some:
                    ranges = [(base + start, length) for start, length in some]
                    yield _Chunk(file, number, body, ranges, sum([length for _, length in ranges]), place.fetches)
            if not rows:
                yield None

    def _rows(self, file: int) -> list[tuple[int, ChunkRow]]:
        """Number and row of the chunks that may have something to send."""
        chunks, first = self._places[file].record.chunks, self._firsts[file]
        return [
            (number, row)
            for number, row in enumerate(chunks[first:], first)
            if row.map_min < self._end and row.map_max >= self._begin
        ]

    def _is_whole(self, row: ChunkRow) -> bool:
        """Whether all of a chunk is wanted."""
        return self._begin <= row.map_min and row.map_max < self._end

    def _open(self, place: SealedPlace, number: int, row: ChunkRow) -> Handle | Distant:
        if place.away:
            assert self._away is not None, "places on the DFS are given out by stores that have one"
            return Distant(self._away, place.path, row, f"{place.key} chunk {number}")
        try:
            handle = self._open_files.open(place.path)
            size = os.fstat(handle.fd).st_size
        except OSError as error:
            raise DataLostError(f"{place.key} chunk {number}: {place.path} cannot be read: {error.strerror}") from error
        if size < row.offset + row.length:
            raise CorruptError(f"{place.key} chunk {number}: {place.path} is cut to {size} bytes")
        return handle

    def _cut(
        self, place: SealedPlace, number: int, handle: Handle, base: int, at: int, some: list[tuple[int, int]]
    ) -> int:
        """Look through the batches of a chunk from `at` on, the headers are the index; add those of the wanted maps to
        `some` and return where the next look begins."""
        row = place.record.chunks[number]
        data = os.pread(handle.fd, min(SCAN_BYTES, row.length - at), base + at)
        runs = scan(data, at, row.length, f"{place.key} chunk {number}")
        join(some, select(runs, self._begin, self._end))
        return runs.starts[-1]


class ChunkSource:
    """Chunks of sealed epochs, always known one ahead."""

    type = FrameType.CHUNKS_DATA

    @property
    def pause(self) -> float:
        """Chunks on the DFS take a while."""
        return DISTANT_SECONDS if self.distant else 0.0

    @property
    def distant(self) -> bool:
        """Whether some of it is on the DFS, so that what comes is not known before there is room for it."""
        return self._search.distant

    def __init__(self, header: FrameHeader, search: ChunkSearch) -> None:
        self.header = header
        self._search = search
        self._found = search.chunks()
        #: nothing comes behind what is known
        self._over = False
        self._sequence = 0
        self._chunk: _Chunk | None = None
        self._next: _Chunk | None = None
        #: first range of the chunk that is not sent whole, what is sent of it, and what is left of all
        self._range = self._sent = self._left = 0

    @property
    def done(self) -> bool:
        return self._chunk is None and self._over

    def look(self) -> bool:
        """Look for what comes; False: ask again in another turn. Raises what ChunkSearch.chunks raises.

        Who waits for room to fetch holds nothing that was fetched: streams that each held one chunk, and waited for
        another one, would wait for ever.
        """
        while not self._over and (self._chunk is None or self._next is None):
            try:
                found = next(self._found)
            except StopIteration:
                self._over = True
                return True
            if found is None:
                if self._search.waits_for_room:
                    self.let_go()
                return False
            if self._chunk is None:
                self._chunk, self._left = found, found.size
                continue
            self._next = found
            if not isinstance(found.body, Distant):
                _read_ahead(found.body.fd, *found.ranges[0])
            elif not isinstance(self._chunk.body, Distant) or self._chunk.body.begin():
                found.body.begin()
        return True

    def let_go(self) -> None:
        """Keep nothing of what was fetched: this stream does not go on now. It is fetched again."""
        for chunk in (self._chunk, self._next):
            if chunk is not None and isinstance(chunk.body, Distant):
                chunk.body.let_go()

    def take(self, stream: int, allowance: int) -> Sending | None:
        if not self.look() or self._chunk is None:
            return None
        chunk = self._chunk
        handle = chunk.body.handle() if isinstance(chunk.body, Distant) else chunk.body
        if handle is None:
            if isinstance(chunk.body, Distant) and chunk.body.fetched is None:
                self.let_go()
            return None
        left = min(allowance, self._left)
        ranges: list[tuple[int, int]] = []
        size = left
        while left and len(ranges) < RANGES_MAX:
            offset, length = chunk.ranges[self._range]
            some = min(length - self._sent, left)
            ranges.append((offset + self._sent, some))
            left -= some
            self._sent += some
            if self._sent == length:
                self._range, self._sent = self._range + 1, 0
        size -= left
        self._left -= size
        flags, rest = 0, self._left
        if not rest:
            flags = int(ChunkFlag.END_OF_CHUNK)
            self._chunk, self._next, self._range = self._next, None, 0
            self._left = self._chunk.size if self._chunk is not None else 0
        if self.done:
            flags |= ChunkFlag.END
        data = ChunksData(
            stream=stream, sequence=self._sequence, file=chunk.file, chunk=chunk.chunk, flags=flags, left_bytes=rest
        )
        self._sequence += 1
        # What is fetched counts until its last frame is sent.
        owner = chunk.body.fetched if isinstance(chunk.body, Distant) else handle
        return Sending(data.encode(), handle.fd, owner, ranges, size, chunk.fetches)

    def end(self, stream: int) -> bytes:
        return ChunksData(stream=stream, sequence=0, file=0, chunk=0, flags=ChunkFlag.END).encode()


def _read_ahead(fileno: int, offset: int, length: int) -> None:
    """Have the kernel fetch the beginning of a piece while the one before it is sent; costs 1 µs if it is in memory."""
    os.posix_fadvise(fileno, offset, min(length, READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
