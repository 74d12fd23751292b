"""The push log of one directory: small batches of many partitions, one write for a frame.

Rules: segments are appended by the loop thread only. A position is one number, segment << 26 | offset within it. What
is in the log is read back through read-only mappings, straight from the page cache, until it lies in a partition or
pack file; then its segment is removed. A segment's head names incarnation and boot, its records epochs and level:
that is the note that exists before the first acknowledgement. So that a later start sees what is gone, a segment's note
says how far it was acknowledged and which others there are, and a record of the index that there is a log at all. The
newest segment of an incarnation stays as long as that record does. Called by unsealed.py.

The order of steps, so that a kill between any two is no damage: a segment begins with its note; the first of an
incarnation is recorded; the one before is marked closed. What is needed least is told before segments go.

A power cut leaves any part of what was not synced. A segment that was never synced may be used again at once: nobody
was promised anything of it. One that was has a note that says so, and what is written over it would look like damage:
it is used again when its free head is on the disk.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.common.errors import NoRoomError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.ids import Incarnation
from holdfast.common.limits import MIB
from holdfast.worker.core.health import WindowMean
from holdfast.worker.storage.env.futures import Executor, Future
from holdfast.worker.storage.env.interfaces import Env, Handle
from holdfast.worker.storage.index.index import Index
from holdfast.worker.storage.layout import segment_path
from holdfast.worker.storage.log.log_records import RECORDS_AT, SEGMENT_HEAD_BYTES, SegmentHead, SegmentNote

SEGMENT_SHIFT = 26
SEGMENT_BYTES_MAX = 1 << SEGMENT_SHIFT
#: Batches of one segment: each pending one costs 12 bytes of memory.
SEGMENT_BATCHES_MAX = 131_072
#: Segments of a directory: 256 MiB. The oldest is emptied once there are more than three.
SEGMENTS_MAX = 4
SEGMENTS_KEPT = 3
#: Segments that are kept for reuse.
SPARES_MAX = 2

assert SEGMENT_BYTES_MAX == 64 * MIB, "a position is split at 64 MiB"


@dataclass(slots=True, eq=False)
class Segment:
    """One file of the log."""

    number: int
    path: Path
    handle: Handle
    map: memoryview
    incarnation: Incarnation
    #: checksum of its head
    seed: int
    #: its note: the oldest segment of this incarnation that is needed, and whether a later one was begun
    lowest: int
    closed: bool = False
    end: int = RECORDS_AT
    batches: int = 0
    #: its name is on the disk
    noted: bool = False
    #: bytes up to here were synced, and so much of them its note says
    synced: int = 0
    told_synced: int = 0
    #: a sync failed: never tried again
    failed: bool = False
    #: what the file takes on the disk from an earlier use, or with a record that was not written whole
    taken_bytes: int = 0
    #: the sync after which it may be used again; None if it needs none
    freed: Future[None] | None = None

    @property
    def held_bytes(self) -> int:
        """What the file takes on the disk."""
        return max(self.end, self.taken_bytes)


class PushLog:
    """The segments of this start."""

    def __init__(
        self,
        env: Env,
        index: Index,
        root: Path,
        incarnation: Incarnation,
        boot_id: bytes,
        flushes: WindowMean,
        pool: Executor,
        segment_bytes: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self._files = env.files
        self._now_ns = env.clock.now_ns
        self._pool = pool
        self._index = index
        self._root = root
        self.incarnation = incarnation
        self._boot_id = boot_id
        self._flushes = flushes
        self._segment_bytes = segment_bytes
        #: by number, oldest first
        self.segments: dict[int, Segment] = {}
        #: what copies read from: views of the mappings by segment number
        self.views: dict[int, memoryview] = {}
        self._current: Segment | None = None
        self._spares: list[Segment] = []
        self._next = 1
        #: the index has the record of the log of this incarnation
        self._recorded: Incarnation | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of records in all segments."""
        return sum(segment.end - RECORDS_AT for segment in list(self.segments.values()))  # the mover asks, too

    @property
    def held_bytes(self) -> int:
        """What all files take on the disk, those that are kept for reuse, too."""
        return sum(segment.held_bytes for segment in (*self.segments.values(), *self._spares))

    @property
    def crowded(self) -> bool:
        """The oldest segments should be emptied."""
        return len(self.segments) > SEGMENTS_KEPT

    @property
    def full(self) -> bool:
        """Twice as many segments as there should be: seals hold them. Take nothing for the moment."""
        return len(self.segments) >= 2 * SEGMENTS_MAX

    def room(self, size: int) -> Segment:
        """The segment that takes a record of `size` bytes next; raises OSError."""
        segment = self._current
        if (
            segment is None
            or segment.end + size > self._segment_bytes
            or segment.batches >= SEGMENT_BATCHES_MAX
            or segment.failed
        ):
            segment = self._begin()
        return segment

    def append(self, segment: Segment, parts: Sequence[bytes | memoryview], size: int, batches: int) -> int:
        """Write one record of `size` bytes with one call, then how far the segment goes now; return the record's
        position. Raises OSError."""
        began = self._now_ns()
        try:
            self._files.write_parts(segment.handle, parts, size, segment.end)
            self._write_note(segment, segment.end + size)
        except OSError:
            self._current = None  # what is there now is nobody's: the next record begins a new segment
            segment.taken_bytes = self._files.held_bytes(segment.path)
            raise
        position = segment.number << SEGMENT_SHIFT | segment.end
        segment.end += size
        segment.batches += batches
        ended = self._now_ns()
        self._flushes.add(ended, ended - began)
        return position

    def _write_note(self, segment: Segment, end: int, *, lowest: int = 0, closed: bool = False) -> None:
        """`lowest` and `closed`: what is new in it, which counts once it is written."""
        synced, lowest, closed = segment.synced, lowest or segment.lowest, closed or segment.closed
        note = SegmentNote(end, lowest, closed, synced).encode(segment.seed)
        self._files.write(segment.handle, note, SEGMENT_HEAD_BYTES)
        segment.told_synced, segment.lowest, segment.closed = synced, lowest, closed

    def tell_synced(self) -> None:
        """Note how far segments are synced of which nobody writes; raises OSError."""
        for segment in self.segments.values():
            if segment.synced > segment.told_synced:
                self._write_note(segment, segment.end)

    def _begin(self) -> Segment:
        number = self._next
        path = self._root / segment_path(self.incarnation, number)
        head = SegmentHead(self.incarnation, number, self._boot_id).encode()
        mine = [old for old, segment in self.segments.items() if segment.incarnation == self.incarnation]
        lowest, seed = min(mine, default=number), crc32c(head)
        taken = 0
        spare = next(filter(_may_be_used, reversed(self._spares)), None)
        if spare is not None:
            handle, mapped, taken = spare.handle, spare.map, spare.held_bytes
            self._files.rename(spare.path, path)
            self._spares.remove(spare)
        else:
            if self._files.exists(path):  # of a try to begin it that failed
                self._files.remove(path)
            handle = self._files.create(path)
            self._files.set_size(handle, SEGMENT_BYTES_MAX)  # a hole: takes no room, and is mapped once
            mapped = self._files.map(handle, SEGMENT_BYTES_MAX)
        try:
            self._files.write(handle, head + SegmentNote(RECORDS_AT, lowest, closed=False, synced=0).encode(seed), 0)
            if self._recorded != self.incarnation:
                with _as_os_error():
                    self._index.put_log(self.incarnation, self._boot_id)
                self._recorded = self.incarnation
            if mine:
                before = self.segments[mine[-1]]
                self._write_note(before, before.end, closed=True)
        except OSError:
            self._files.remove(path)  # its note would go on to say that segments are needed which go meanwhile
            raise
        segment = Segment(number, path, handle, mapped, self.incarnation, seed, lowest, taken_bytes=taken)
        self._next += 1
        self.segments[number] = self._current = segment
        self.views[number] = mapped
        return segment

    def restart(self, incarnation: Incarnation) -> None:
        """What follows is of another incarnation."""
        self.incarnation = incarnation
        self._current = None

    def renew(self) -> None:
        """What follows goes into a new file: neither into one that was written to, nor into one that is kept for reuse.
        Raises OSError."""
        self._current = None
        self.remove_spares()

    def remove_before(self, number: int) -> None:
        """Let go of the segments before this one, which is there: nothing refers to them any more. Some are kept for
        reuse, which saves a page allocation and a page fault for every 4 KiB; raises OSError."""
        self._tell_lowest(number)
        self._remove_failed_spares()
        for old in [old for old in self.segments if old < number]:
            segment = self.segments[old]
            if len(self._spares) < SPARES_MAX and not segment.failed:
                self._files.write(segment.handle, SegmentHead(self.incarnation, 0, self._boot_id).encode(), 0)
                if segment.synced:
                    segment.freed = self._pool.submit(self._files.sync, segment.handle)
                self._spares.append(segment)
            else:
                self._files.remove(segment.path)
            del self.segments[old], self.views[old]  # the mapping goes with the last view of it

    def _remove_failed_spares(self) -> None:
        """Let go of spares whose sync failed; raises what it said."""
        for spare in list(self._spares):
            if spare.freed is not None and spare.freed.done() and spare.freed.exception() is not None:
                self._spares.remove(spare)
                self._files.remove(spare.path)
                spare.freed.result()

    def _tell_lowest(self, number: int) -> None:
        """Note in the newest segment of each incarnation which ones stay; where none does, the record goes first."""
        newest = {segment.incarnation: segment for segment in self.segments.values()}
        leaving = [incarnation for incarnation, segment in newest.items() if segment.number < number]
        if leaving:
            with _as_os_error():
                self._index.remove_logs(leaving)
        for incarnation, segment in newest.items():
            stay = [one for one in self.segments.values() if one.incarnation == incarnation and one.number >= number]
            if stay and stay[0].number != segment.lowest:
                self._write_note(segment, segment.end, lowest=stay[0].number)

    def rest(self) -> None:
        """Nothing refers to any record: begin an empty segment, so that the others can go. Raises OSError."""
        if self.segments and self.segments[self.newest].end > RECORDS_AT:
            self.remove_spares()  # their room is taken already
            self._begin()

    def remove_spares(self) -> None:
        """Give the room of unused segments back."""
        while self._spares:
            self._files.remove(self._spares.pop().path)

    @property
    def newest(self) -> int:
        """The number of the newest segment; 0 if there is none yet."""
        return next(reversed(self.segments), 0)


def _may_be_used(spare: Segment) -> bool:
    """Whether a power cut that leaves any part of what is written next shows the segment as free, or as begun."""
    return spare.freed is None or (spare.freed.done() and spare.freed.exception() is None)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """An index that may not grow is as full as a disk."""
    try:
        yield
    except NoRoomError as error:
        raise OSError(errno.ENOSPC, str(error)) from error
