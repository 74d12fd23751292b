"""One epoch of one REDUCE partition on its way: what waits in the push log, its file, and the chunks made so far.

Rules: the loop thread adds and flushes; a seal has the copy for itself, and the loop a note of it (HandedOver). Nothing
is checked here but lengths: the frame's checksum was right, readers and recovery check every batch. A file is made with
its first flush, and its head goes with the first bytes, in one write. Called by unsealed.py.
"""

from __future__ import annotations

import errno
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

from holdfast.common.formats.batch import HEADER_BYTES
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import Incarnation
from holdfast.common.limits import CHUNK_BYTES, MIB
from holdfast.worker.core.write.epochs import EpochState
from holdfast.worker.storage.env.interfaces import Files, Handle
from holdfast.worker.storage.index.records import FILE_HEAD_BYTES, ChunkRow, FileHead
from holdfast.worker.storage.layout import EpochKey, open_path
from holdfast.worker.storage.log.push_log import SEGMENT_BYTES_MAX, SEGMENT_SHIFT
from holdfast.worker.storage.read.handles import OpenFiles

#: The kernel is asked to begin writing a partition file every time so much has come. What is left is written while its
#: seal waits: for 2 GB in 32 files two cores are idle for 1.3 s with 16 MiB, for 0.5 s with 4 MiB and what seals start
#: themselves. Less would have disks that turn seek too often.
WRITE_BACK_BYTES = 4 << 20
#: Without a file and below this at its seal, an epoch goes into a pack file.
PACKED_BYTES_MAX = 1 * MIB
#: map and CRC of a batch header.
_MAP_AND_CRC = struct.Struct("<4xI16xI")
_CRC_SUM_MASK = 0xFFFF_FFFF_FFFF_FFFF

assert _MAP_AND_CRC.size == HEADER_BYTES, "the map is at 4, the CRC ends the header"


class Gathered(NamedTuple):
    """Batches taken out of the log: their bytes and what their headers say."""

    parts: list[memoryview]
    size_bytes: int
    crc_sum: int
    maps: list[int]


class Pending:
    """Where batches lie in the push log that are nowhere else yet, in their order.

    Two arrays, not a list of pairs: objects of this many batches would be out of every cache when their turn comes.
    """

    __slots__ = ("positions", "sizes")

    def __init__(self) -> None:
        self.positions: array[int] = array("Q")
        self.sizes: array[int] = array("I")

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def size_bytes(self) -> int:
        """Bytes of them all."""
        return sum(self.sizes)

    def add(self, position: int, size: int) -> None:
        """Note one batch."""
        self.positions.append(position)
        self.sizes.append(size)

    def clear(self) -> None:
        """They lie in the file now."""
        del self.positions[:]
        del self.sizes[:]


class HandedOver(NamedTuple):
    """What the loop still knows of a copy that a seal has, and of what an earlier start left of one."""

    #: of its file
    size_bytes: int
    #: where its oldest batch lies in the log that is nowhere else, or on the disk nowhere else; -1 if none does
    first: int


class PartitionCopy:
    """This worker's copy of one epoch."""

    __slots__ = (
        "ack",
        "batches",
        "crc_sum",
        "file_bytes",
        "head",
        "key",
        "path_text",
        "pending",
        "rows",
        "state",
        "views",
        "write_back_from",
    )
    #: its name is brought to the disk with each sync of the file
    noted = False

    def __init__(self, root: Path, head: FileHead, views: Mapping[int, memoryview]) -> None:
        self.key: EpochKey = head.key
        #: what is decided on while it is open; None of what an earlier start left
        self.state: EpochState | None = None
        self.ack: Ack = head.ack
        self.head = head
        self.path_text = f"{root}/{open_path(head.key)}"
        #: batches that are in the log only
        self.pending = Pending()
        self.views = views
        #: length of the file; 0 while there is none
        self.file_bytes = 0
        #: what the file has: the fields of its chunks, the last of them still growing
        self.rows: list[list[int]] = []
        self.batches = 0
        self.crc_sum = 0
        self.write_back_from = 0

    @property
    def path(self) -> Path:
        """Its file, which is only made when it is large; else it goes from the log into a pack."""
        return Path(self.path_text)

    @property
    def incarnation(self) -> Incarnation:
        return self.head.incarnation

    @property
    def chunks(self) -> tuple[ChunkRow, ...]:
        """The chunks of the file."""
        return tuple([ChunkRow(*row) for row in self.rows])

    @property
    def size_bytes(self) -> int:
        """Data bytes in the file."""
        return max(0, self.file_bytes - FILE_HEAD_BYTES)

    @property
    def write_back_bytes(self) -> int:
        """How much comes before the kernel is asked to begin writing it."""
        return WRITE_BACK_BYTES

    def opened(self, writers: OpenFiles) -> Handle | None:
        """Its file, if that is open."""
        return writers.known(self.path_text)

    def hand_over(self) -> HandedOver:
        """From here on a thread has it, with those parts of the log that it needs, whatever becomes of the log."""
        first = self.pending.positions[0] if self.pending else -1
        self.views = {number: self.views[number] for number in self.segments()}
        return HandedOver(self.file_bytes, first)

    def segments(self) -> list[int]:
        """The segments of the log in which something pending lies; their order is that of the positions."""
        positions, found, at = self.pending.positions, [], 0
        while at < len(positions):  # one or two
            found.append(positions[at] >> SEGMENT_SHIFT)
            at = bisect_left(positions, (found[-1] << SEGMENT_SHIFT) + SEGMENT_BYTES_MAX, at)
        return found

    def needs(self, segment: int) -> bool:
        """Whether something pending lies in this segment of the log."""
        return segment in self.segments()

    def gather(self) -> Gathered:
        """What is pending, as views of the log."""
        parts: list[memoryview] = []
        positions, sizes = self.pending.positions, self.pending.sizes
        first = 0
        while first < len(positions):  # segment by segment, of which there are one or two
            number = positions[first] >> SEGMENT_SHIFT
            base = number << SEGMENT_SHIFT
            past = bisect_left(positions, base + SEGMENT_BYTES_MAX, first)
            view = self.views[number]
            some = zip(positions[first:past], sizes[first:past], strict=True)
            parts += [view[(start := at - base) : start + size] for at, size in some]
            first = past
        heads = list(map(_MAP_AND_CRC.unpack_from, parts))
        return Gathered(parts, sum(sizes), sum([crc for _, crc in heads]), [map_id for map_id, _ in heads])

    def flush(self, files: Files, writers: OpenFiles) -> int:
        """Append what is pending to the file; return its bytes. Raises OSError, and then it is still pending."""
        if not self.pending:
            return 0
        found = self.gather()
        self.append(files, writers, found.parts, found.size_bytes, found.maps, found.crc_sum)
        self.pending.clear()
        return found.size_bytes

    def append(
        self,
        files: Files,
        writers: OpenFiles,
        parts: Sequence[memoryview],
        size_bytes: int,
        maps: Sequence[int],
        crc_sum: int,
    ) -> None:
        """Append whole batches, one a part, to the file. Raises OSError, and then nothing has changed."""
        self._write(files, writers, parts, size_bytes)
        if size_bytes <= CHUNK_BYTES:
            self._extend(self.file_bytes, size_bytes, len(maps), min(maps), max(maps))
        else:
            self._extend_by_each(map(len, parts), maps)
        self._grew(size_bytes, len(maps), crc_sum)

    def take_in(self, sizes: Sequence[int], maps: Sequence[int]) -> None:
        """Index the batches that the file has already: those of an earlier start."""
        self.file_bytes = FILE_HEAD_BYTES
        self._extend_by_each(sizes, maps)
        self.file_bytes += sum(sizes)
        self.batches = len(sizes)

    def append_run(self, files: Files, writers: OpenFiles, body: memoryview, sizes: Sequence[int], map_id: int) -> None:
        """Append batches of one map that lie back to back in `body`. Raises as `append`."""
        self._write(files, writers, [body], len(body))
        if len(body) <= CHUNK_BYTES:
            self._extend(self.file_bytes, len(body), len(sizes), map_id, map_id)
        else:
            self._extend_by_each(sizes, repeat(map_id, len(sizes)))
        crc_sum = offset = 0
        for size in sizes:
            crc_sum += _MAP_AND_CRC.unpack_from(body, offset)[1]
            offset += size
        self._grew(offset, len(sizes), crc_sum)

    def _write(self, files: Files, writers: OpenFiles, parts: Sequence[memoryview], size_bytes: int) -> None:
        """Write at the end of the file, which is made with its first bytes. Raises OSError."""
        if self.file_bytes:
            handle = writers.open(
                self.path_text
            )  # without descriptors nothing was written, and there is nothing to cut
            try:
                files.write_parts(handle, parts, size_bytes, self.file_bytes)
            except OSError:
                # Part of it may be there. Whatever is written next is shorter maybe, and what sticks out behind it
                # would look like damage to a later start. If this fails, too, its error gives the copy up.
                try:
                    files.truncate(self.path, self.file_bytes)
                except OSError as error:
                    raise OSError(errno.EIO, f"{self.path} cannot be cut: {error.strerror}") from error
                raise
            return
        if files.exists(self.path):  # of a try to make it that failed
            files.remove(self.path)
        handle = files.create(self.path)
        try:
            files.write_parts(handle, [self.head.encode(), *parts], FILE_HEAD_BYTES + size_bytes, 0)
        except OSError:
            with suppress(OSError):  # part of it may be there, and takes room that nobody counts
                files.remove(self.path)
            raise
        writers.keep(self.path_text, handle)
        self.file_bytes = FILE_HEAD_BYTES

    def _grew(self, size_bytes: int, batches: int, crc_sum: int) -> None:
        self.file_bytes += size_bytes
        self.batches += batches
        self.crc_sum = (self.crc_sum + crc_sum) & _CRC_SUM_MASK

    def _extend_by_each(self, sizes: Iterable[int], maps: Iterable[int]) -> None:
        """Chunks hold whole batches, and are not longer than they should be."""
        at = self.file_bytes
        for size, map_id in zip(sizes, maps, strict=True):
            self._extend(at, size, 1, map_id, map_id)
            at += size

    def _extend(self, at: int, length: int, batches: int, map_min: int, map_max: int) -> None:
        """Extend the last chunk, or begin another."""
        if self.rows:
            last = self.rows[-1]
            if last[1] + length <= CHUNK_BYTES:
                last[1] += length
                last[2] += batches
                if map_min < last[3]:
                    last[3] = map_min
                if map_max > last[4]:
                    last[4] = map_max
                return
        self.rows.append([at, length, batches, map_min, map_max])
