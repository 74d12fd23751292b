"""What a stream sends: for every file and region in order, the bytes of a range of partitions.

A plan finds every file and adds up what will come. What is short it keeps: opening one partition costs one lookup per
file and region, however much else the directory holds. For the rest `Plan.pieces` goes through the index again as the
stream advances, so that a stream over ten thousand partitions of a thousand files never holds more than one piece and
KEPT_RUNS_MAX runs a file. Runs on the loop thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.common.errors import CorruptError, DataLostError
from holdfast.common.ids import BROADCAST_PARTITION, MapFileKey, ShuffleKey
from holdfast.worker.core.health import WindowMean
from holdfast.worker.storage import layout
from holdfast.worker.storage.engine.answers import unreadable
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.env.interfaces import Files, Handle
from holdfast.worker.storage.index.index import Found, Reader
from holdfast.worker.storage.index.records import encode_key
from holdfast.worker.storage.index.region_chunks import Chunk, RegionFlag, find_chunk
from holdfast.worker.storage.read.handles import OpenFiles

#: Runs in one piece; a region with more comes as several pieces.
PIECE_RUNS_MAX = 4_096
#: What a stream reads of a file is remembered from its plan on if it has no more runs.
KEPT_RUNS_MAX = 8
#: What a file of a plan takes in memory, in rows of 240 bytes; each run that is remembered of it is one more.
FILE_ROWS = 4


class Stretch(NamedTuple):
    """Contiguous bytes of one region: all of a range of partitions, or PIECE_RUNS_MAX runs and a little more of it."""

    region: int
    flags: int
    #: in the file
    offset: int
    length: int
    #: (partition, length in bytes), in order
    runs: list[tuple[int, int]]


class Piece(NamedTuple):
    """Contiguous bytes of one region of one file."""

    #: index into the files of the plan
    file: int
    region: int
    flags: int
    handle: Handle
    offset: int
    length: int
    #: (partition, length in bytes), in order
    runs: list[tuple[int, int]]
    #: how long reads from its directory take
    fetches: WindowMean


class PlannedFile(NamedTuple):
    """One file of a plan and the directory it is in."""

    key: MapFileKey
    directory: StorageDirectory
    #: all that is to be sent; None if that is too much to be remembered
    stretches: list[Stretch] | None


class RegionChunks:
    """Finds chunks of one file: each in the index, or among all of them, where those are stored with its head. Where
    the index is damaged they are taken from the file's footer."""

    def __init__(
        self, directory: StorageDirectory, key: MapFileKey, found: Found, reader: Reader | None = None
    ) -> None:
        """`reader`: the snapshot in which it was found; without it a new one is taken if it is needed."""
        self._directory = directory
        self._key = key
        self._inline = found.chunks
        #: what they are looked up by
        self._encoded = encode_key(key) if found.chunks is None else b""
        self._reader = reader

    def at(self, region: int, partition: int) -> Chunk | None:
        """The first chunk of the region whose last partition is `partition` or behind it."""
        if self._inline is None:
            try:
                if self._reader is not None:
                    return self._reader.chunk(self._encoded, region, partition)
                with self._directory.index.reading() as snapshot:
                    return snapshot.chunk(self._encoded, region, partition)
            except CorruptError as error:
                self._inline = self._directory.from_footer(self._key, error).chunks
                assert self._inline is not None, "a footer has all chunks"
        return find_chunk(self._inline, region, partition)


def span_bytes(chunks: RegionChunks, region: int, begin: int, end: int) -> int:
    """Bytes of partitions [begin, end) in a region; all of it if it is broadcast."""
    first = chunks.at(region, begin)
    if first is None:
        return 0
    if first.flags & RegionFlag.BROADCAST:
        return first.region_length
    past = first if first.last >= end else chunks.at(region, end)
    stop = first.region_length if past is None else past.offset_of(past.span(0, end)[1])
    return stop - first.offset_of(first.span(0, begin)[1])


def next_stretch(chunks: RegionChunks, region: int, begin: int, end: int) -> tuple[Stretch, int | None]:
    """Return the first stretch of partitions [begin, end) in a region, and the partition to go on from, or None."""
    runs: list[tuple[int, int]] = []
    start = flags = 0
    at, more = begin, None
    while (chunk := chunks.at(region, at)) is not None:
        flags = chunk.flags
        if flags & RegionFlag.BROADCAST:
            runs = [(BROADCAST_PARTITION, chunk.region_length)]
            return Stretch(region, flags, chunk.region_offset, chunk.region_length, runs), None
        first, past = chunk.span(at, end)
        offset = chunk.offset_of(first)
        if not runs:
            start = chunk.region_offset + offset
        for entry in range(first, past):
            runs.append((chunk.partitions[entry], chunk.ends[entry] - offset))
            offset = chunk.ends[entry]
        at = chunk.last + 1
        if at >= end:
            break
        if len(runs) >= PIECE_RUNS_MAX:
            more = at
            break
    return Stretch(region, flags, start, sum([size for _, size in runs]), runs), more


def all_stretches(chunks: RegionChunks, regions: int, begin: int, end: int) -> list[Stretch]:
    """Everything that partitions [begin, end) have in a file; for narrow ranges."""
    found = []
    for region in range(regions):
        at: int | None = begin
        while at is not None:
            stretch, at = next_stretch(chunks, region, at, end)
            if stretch.length:
                found.append(stretch)
    return found


class Plan:
    """One stream's way through its files; made by Store.plan."""

    def __init__(self, shuffle: ShuffleKey, begin: int, end: int, files: Files, open_files: OpenFiles) -> None:
        self.shuffle = shuffle
        self._begin = begin
        self._end = end
        self._sizes_of = files.size
        self._open_files = open_files
        self._files: list[PlannedFile] = []
        self.total_bytes = 0
        #: what is remembered takes so much, in rows of read/streams.py
        self.rows = 0

    def add(self, key: MapFileKey, directory: StorageDirectory, found: Found, reader: Reader | None = None) -> None:
        """Add a sealed file; raises CorruptError if its region records are wrong. `reader` is that of the lookup, if
        that was in the index."""
        begin, end = self._begin, self._end
        chunks = RegionChunks(directory, key, found, reader)
        stretches: list[Stretch] | None = None
        if end - begin <= KEPT_RUNS_MAX:
            stretches = all_stretches(chunks, found.regions, begin, end)
            self.total_bytes += sum([stretch.length for stretch in stretches])
            runs = sum([len(stretch.runs) for stretch in stretches])
            if runs > KEPT_RUNS_MAX:
                stretches = None
            else:
                self.rows += runs
        else:
            self.total_bytes += sum([span_bytes(chunks, region, begin, end) for region in range(found.regions)])
        self.rows += FILE_ROWS
        self._files.append(PlannedFile(key, directory, stretches))

    def pieces(self) -> Iterator[Piece]:
        """Yield what is to be sent. Raises CorruptError, DataLostError or DISK_FAILED naming file and region."""
        for number, file in enumerate(self._files):
            stretches = self._look_up(file) if file.stretches is None else file.stretches
            for region, flags, offset, length, runs in stretches:
                handle = self._open(file, region, offset + length)
                yield Piece(number, region, flags, handle, offset, length, runs, file.directory.fetches)

    def _look_up(self, file: PlannedFile) -> Iterator[Stretch]:
        """Everything that is to be sent of a file, a lookup for each stretch: between two the stream may wait."""
        found = file.directory.found(file.key)
        if found is None:
            raise DataLostError(f"{file.key} was forgotten while it was read")
        chunks = RegionChunks(file.directory, file.key, found)
        for region in range(found.regions):
            at: int | None = self._begin
            while at is not None:
                stretch, at = next_stretch(chunks, region, at, self._end)
                if stretch.length:
                    yield stretch

    def _open(self, file: PlannedFile, region: int, end: int) -> Handle:
        path = f"{file.directory.root_text}/{layout.sealed_path(file.key)}"
        try:
            handle = self._open_files.open(path)
            size = self._sizes_of(handle)
        except OSError as error:
            raise unreadable(f"{file.key} region {region}", path, error) from error
        if size < end:
            raise CorruptError(f"{file.key} region {region}: {path} is cut to {size} bytes, the region needs {end}")
        return handle
