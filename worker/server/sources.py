"""What a stream reads, frame by frame: regions of map files, or chunks of REDUCE epochs. Bytes stay in the page cache.

Rules: a source is always one piece ahead, so that it knows its last frame. Pieces of files go by sendfile; small ones,
and those that are cut out of a chunk for a range of maps, through memory. Called by stream_service.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from holdfast.common.errors import CorruptError, DataLostError
from holdfast.common.frame import FrameHeader, FrameType
from holdfast.common.limits import KIB
from holdfast.common.messages import DataFlag, StreamData
from holdfast.common.reduce_messages import ChunkFlag, ChunksData, ChunksOpen
from holdfast.worker.core.cut import Cutter
from holdfast.worker.storage.handles import Handle, OpenFiles
from holdfast.worker.storage.map_view import MapViews, find_runs, select
from holdfast.worker.storage.reduce_records import ChunkRow
from holdfast.worker.storage.reduce_store import SealedPlace
from holdfast.worker.storage.store import Piece

#: What is fetched of the next piece; within a piece the kernel reads ahead by itself.
READ_AHEAD_BYTES = 256 * KIB


class Sending(NamedTuple):
    """One frame: its meta section, and the ranges of a file that make up its body."""

    meta: bytes
    #: descriptor, and what keeps it open
    fileno: int
    owner: object
    #: (offset, length); one, unless it was cut for a range of maps
    ranges: Sequence[tuple[int, int]]
    size: int


class Source(Protocol):
    """Where the frames of a stream come from. `take` raises what storage raises."""

    #: of the request that opened the stream, whose id all data frames carry
    header: FrameHeader
    #: of the data frames
    type: FrameType

    @property
    def done(self) -> bool:
        """Nothing more comes."""

    def take(self, stream: int, allowance: int) -> Sending:
        """The next frame, of at most `allowance` body bytes. Not if `done`."""

    def end(self, stream: int) -> bytes:
        """The meta section of the only frame of an empty stream."""


class MapSource:
    """Regions of map files: the piece being sent, and the one after it."""

    type = FrameType.STREAM_DATA

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
        return Sending(data.encode(), piece.fileno, piece, [(offset, size)], size)

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
    handle: Handle
    ranges: list[tuple[int, int]]
    size: int


class ChunkSource:
    """Chunks of sealed epochs, whole or cut to a range of maps."""

    type = FrameType.CHUNKS_DATA

    def __init__(
        self,
        header: FrameHeader,
        request: ChunksOpen,
        places: Sequence[SealedPlace],
        open_files: OpenFiles,
        views: MapViews,
    ) -> None:
        self.header = header
        self._request = request
        self._places = places
        self._open_files = open_files
        self._views = views
        self._sequence = 0
        self._chunks = self._all_chunks()
        self._chunk: _Chunk | None = None
        #: first range of the chunk that is not sent whole, what is sent of it, and what is left of all
        self._range = self._sent = self._left = 0
        self._next: _Chunk | None = next(self._chunks, None)
        self._advance()

    @property
    def done(self) -> bool:
        return self._chunk is None

    @property
    def total_bytes(self) -> int:
        """What will be sent; with a range of maps at most so much."""
        return sum(row.length for file, _ in enumerate(self._places) for _, row in self._rows(file))

    def take(self, stream: int, allowance: int) -> Sending:
        chunk = self._chunk
        assert chunk is not None
        ranges, left = [], min(allowance, self._left)
        size = left
        while left:
            offset, length = chunk.ranges[self._range]
            some = min(length - self._sent, left)
            ranges.append((offset + self._sent, some))
            left -= some
            self._sent += some
            if self._sent == length:
                self._range, self._sent = self._range + 1, 0
        self._left -= size
        flags, rest = 0, self._left
        if not rest:
            flags = int(ChunkFlag.END_OF_CHUNK)
            self._advance()
        if self.done:
            flags |= ChunkFlag.END
        data = ChunksData(
            stream=stream, sequence=self._sequence, file=chunk.file, chunk=chunk.chunk, flags=flags, left_bytes=rest
        )
        self._sequence += 1
        return Sending(data.encode(), chunk.handle.fd, chunk.handle, ranges, size)

    def end(self, stream: int) -> bytes:
        return ChunksData(stream=stream, sequence=0, file=0, chunk=0, flags=ChunkFlag.END).encode()

    def _advance(self) -> None:
        self._chunk = self._next
        if self._chunk is not None:
            self._range, self._sent, self._left = 0, 0, self._chunk.size
            self._next = next(self._chunks, None)
        if self._next is not None:
            offset, length = self._next.ranges[0]
            _read_ahead(self._next.handle.fd, offset, length)

    def _rows(self, file: int) -> Iterator[tuple[int, ChunkRow]]:
        """Number and row of the chunks that may have something to send."""
        begin, end = self._request.map_begin, self._request.map_end
        first = self._request.files[file][2]
        for number, row in enumerate(self._places[file].record.chunks[first:], first):
            if row.map_min < end and row.map_max >= begin:
                yield number, row

    def _all_chunks(self) -> Iterator[_Chunk]:
        for file, place in enumerate(self._places):
            cut = [number for number, row in self._rows(file) if not self._is_whole(row)]
            # Whoever comes back for the rest of an epoch gets it from the file itself, whatever went wrong before.
            fresh = len(cut) > 1 and not self._request.files[file][2]
            view = self._views.find(place.path, place.record.chunks) if fresh else None
            for number, row in self._rows(file):
                handle = self._open(file, number, place.path, row)
                if self._is_whole(row):
                    yield _Chunk(file, number, handle, [(row.offset, row.length)], row.length)
                    continue
                if view is not None:
                    handle = view.copy or handle
                    some = view.ranges(number, self._request.map_begin, self._request.map_end)
                else:
                    some = self._cut(file, number, handle, row)
                if some:
                    ranges = [(row.offset + start, length) for start, length in some]
                    yield _Chunk(file, number, handle, ranges, sum([length for _, length in ranges]))

    def _is_whole(self, row: ChunkRow) -> bool:
        """Whether all of a chunk is wanted."""
        return self._request.map_begin <= row.map_min and row.map_max < self._request.map_end

    def _open(self, file: int, number: int, path: str, row: ChunkRow) -> Handle:
        try:
            handle = self._open_files.open(path)
            size = os.fstat(handle.fd).st_size
        except OSError as error:
            raise DataLostError(f"{self._name(file, number)}: {path} cannot be read: {error.strerror}") from error
        if size < row.offset + row.length:
            raise CorruptError(f"{self._name(file, number)}: {path} is cut to {size} bytes")
        return handle

    def _cut(self, file: int, number: int, handle: Handle, row: ChunkRow) -> list[tuple[int, int]]:
        """The batches of the wanted maps in a chunk; the headers are the index."""
        data = os.pread(handle.fd, row.length, row.offset)
        return select(find_runs(data, self._name(file, number)), self._request.map_begin, self._request.map_end)

    def _name(self, file: int, chunk: int) -> str:
        partition, epoch, _ = self._request.files[file]
        return f"{self._request.shuffle} partition {partition} epoch {epoch} chunk {chunk}"


def _read_ahead(fileno: int, offset: int, length: int) -> None:
    """Have the kernel fetch the beginning of a piece while the one before it is sent; costs 1 µs if it is in memory."""
    os.posix_fadvise(fileno, offset, min(length, READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
