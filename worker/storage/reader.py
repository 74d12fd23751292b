"""What a stream sends: for every file and region in order, the bytes of a range of partitions.

`plan` finds every file and adds up what will come; `Plan.pieces` then goes through the index as the stream advances, so
that a stream over ten thousand partitions of a thousand files never holds more than one piece. Opening one partition
costs one lookup per file and region, however much else the directory holds. Runs on the loop thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from holdfast.common.errors import CorruptError, DataLostError
from holdfast.common.ids import BROADCAST_PARTITION, MapFileKey
from holdfast.worker.storage import layout
from holdfast.worker.storage.directory import StorageDirectory
from holdfast.worker.storage.handles import Handle, OpenFiles
from holdfast.worker.storage.index import Found, Reader
from holdfast.worker.storage.records import Chunk, RegionFlag, encode_key, find_chunk

_T = TypeVar("_T")
#: Runs in one piece; a region with more comes as several pieces.
PIECE_RUNS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Piece:
    """Contiguous bytes of one region of one file. Hold it as long as its descriptor is used."""

    #: index into the files of the plan
    file: int
    region: int
    flags: int
    handle: Handle
    offset: int
    length: int
    #: (partition, length in bytes), in order
    runs: list[tuple[int, int]]

    @property
    def fileno(self) -> int:
        return self.handle.fd


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file of a plan and the directory it is in."""

    key: MapFileKey
    directory: StorageDirectory


class RegionChunks:
    """Finds chunks of one file, stored inline or each on its own."""

    def __init__(self, key: bytes, found: Found, reader: Reader | None) -> None:
        self._key = key
        self._inline = found.chunks
        self._reader = reader

    def at(self, region: int, partition: int) -> Chunk | None:
        """The first chunk of the region whose last partition is `partition` or behind it."""
        if self._inline is not None:
            return find_chunk(self._inline, region, partition)
        assert self._reader is not None, "chunks that are not inline come from a snapshot"
        return self._reader.chunk(self._key, region, partition)


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


class Plan:
    """One stream's way through its files; made by Store.plan."""

    def __init__(self, begin: int, end: int, open_files: OpenFiles) -> None:
        self._begin = begin
        self._end = end
        self._open_files = open_files
        self._files: list[PlannedFile] = []
        self.total_bytes = 0

    def add(self, key: MapFileKey, directory: StorageDirectory, found: Found) -> None:
        """Add a sealed file; raises CorruptError if its region records are wrong."""
        self._files.append(PlannedFile(key, directory))
        regions = range(found.head.totals.regions)

        def add_up(chunks: RegionChunks) -> int:
            return sum([span_bytes(chunks, region, self._begin, self._end) for region in regions])

        self.total_bytes += with_chunks(directory, key, found, add_up)

    def pieces(self) -> Iterator[Piece]:
        """Yield what is to be sent. Raises CorruptError or DataLostError naming file and region."""
        for number, file in enumerate(self._files):
            found = file.directory.find(file.key)
            if found is None:
                raise DataLostError(f"{file.key} was forgotten while it was read")
            for region in range(found.head.totals.regions):
                yield from self._region(number, file, found, region)

    def _region(self, number: int, file: PlannedFile, found: Found, region: int) -> Iterator[Piece]:
        at: int | None = self._begin
        while at is not None:
            start, at, runs, flags = self._runs(file, found, region, at)
            length = sum([size for _, size in runs])
            if length:
                handle = self._open(file, region, start + length)
                yield Piece(number, region, flags, handle, start, length, runs)

    def _runs(
        self, file: PlannedFile, found: Found, region: int, begin: int
    ) -> tuple[int, int | None, list[tuple[int, int]], int]:
        """Return (offset in the file, partition to go on from or None, runs, flags) of the next piece of a region."""

        def collect(chunks: RegionChunks) -> tuple[int, int | None, list[tuple[int, int]], int]:
            runs: list[tuple[int, int]] = []
            start, flags, at = 0, 0, begin
            while (chunk := chunks.at(region, at)) is not None:
                flags = chunk.flags
                if flags & RegionFlag.BROADCAST:
                    return chunk.region_offset, None, [(BROADCAST_PARTITION, chunk.region_length)], flags
                first, past = chunk.span(at, self._end)
                if not runs:
                    start = chunk.region_offset + chunk.offset_of(first)
                offset = chunk.offset_of(first)
                for entry in range(first, past):
                    runs.append((chunk.partitions[entry], chunk.ends[entry] - offset))
                    offset = chunk.ends[entry]
                at = chunk.last + 1
                if at >= self._end:
                    break
                if len(runs) >= PIECE_RUNS_MAX:
                    return start, at, runs, flags
            return start, None, runs, flags

        return with_chunks(file.directory, file.key, found, collect)

    def _open(self, file: PlannedFile, region: int, end: int) -> Handle:
        path = f"{file.directory.root_text}/{layout.sealed_path(file.key)}"
        try:
            handle = self._open_files.open(path)
            size = os.fstat(handle.fd).st_size
        except OSError as error:
            raise DataLostError(f"{file.key} region {region}: {path} cannot be read: {error.strerror}") from error
        if size < end:
            raise CorruptError(f"{file.key} region {region}: {path} is cut to {size} bytes, the region needs {end}")
        return handle


def with_chunks(directory: StorageDirectory, key: MapFileKey, found: Found, use: Callable[[RegionChunks], _T]) -> _T:
    """Run `use` with the chunks of a file; from the file's footer if those in the index are damaged."""
    if found.chunks is None:
        try:
            with directory.index.reading() as reader:
                return use(RegionChunks(encode_key(key), found, reader))
        except CorruptError as error:
            found = directory.from_footer(key, error)
    return use(RegionChunks(b"", found, None))
