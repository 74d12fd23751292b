"""Reads the push logs of earlier starts: whole records, what is bad between them, and what is gone.

Rules: in the boot that wrote it a segment is whole up to the end that it noted before each acknowledgement; behind
that only what was cut while it was written may be bad. Of a log that the index has a record of, every segment from the
lowest noted one to the newest must be there. After another boot any part of what was not synced may be there or not:
a segment is whole up to where its note says that it was synced, and behind that it ends with the first bad record,
whatever stands behind. A file with the head of an earlier use was used again, and that never synced. Reads only. Called
by opening.py and `verify`; reduce_recovery.py says which epochs are hurt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.checksum import crc32c
from holdfast.common.formats.reduce_messages import PUSH_ENTRY
from holdfast.common.ids import Epoch, PartitionId
from holdfast.common.limits import MIB
from holdfast.worker.storage import names
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.layout import EpochKey, parse_segment
from holdfast.worker.storage.log.log_records import (
    RECORD_BYTES,
    RECORD_MAGIC,
    RECORDS_AT,
    SEGMENT_HEAD_BYTES,
    RecordHead,
    SegmentHead,
    SegmentNote,
    decode_record_head,
    decode_segment_head,
    decode_segment_note,
    rows_of,
)


class Bad(NamedTuple):
    """A damaged stretch of a segment, and what may have been in it."""

    offset: int
    why: str
    #: the bytes, up to what is looked at next; None if they are the head of the segment, or the segment is gone
    past: int | None = None
    #: the head of the record, if that is whole
    record: RecordHead | None = None
    #: epochs that the record's entries name, if those are whole too
    hurt: tuple[EpochKey, ...] = ()


@dataclass(slots=True)
class Segment:
    """One segment of an earlier start, or what is known of those that are gone."""

    path: Path
    #: that wrote it, and its number, by its name
    incarnation: int
    number: int
    head: SegmentHead | None = None
    note: SegmentNote | None = None
    #: (offset of the record, head) of every whole record
    records: list[tuple[int, RecordHead]] = field(default_factory=list)
    #: what is bad
    bad: list[Bad] = field(default_factory=list)
    #: something bad may have been of epochs that nothing else tells of; set by find_left
    unnamed: bool = False


def map_file(files: Files, path: Path) -> memoryview:
    """A file as it lies in the page cache, read-only, without a hole at its end; raises OSError.

    Segments begin as one hole. To look into it would take memory for all of it on a memory file system.
    """
    handle = files.open(path)
    size = files.data_end(handle)
    return files.map(handle, size) if size else memoryview(b"")


def find_segments(files: Files, root: Path) -> list[Path]:
    """The log segments of a directory, oldest first. Raises OSError."""
    folder = root / names.LOG
    found = [(number, name) for name in files.names_if_any(folder) if (number := parse_segment(name))]
    return [folder / name for _, name in sorted(found)]


def scan_log(files: Files, root: Path, boot_id: bytes, recorded: Mapping[int, bytes | None]) -> list[Segment]:
    """Every segment of a directory, and one more for each incarnation that has less than it should.

    `boot_id` is that of now; `recorded` has the incarnations whose logs must be there, with their boots (None where
    that cannot be read: then it is taken for this one). Raises OSError.
    """
    segments = [scan_segment(files, path, boot_id, recorded) for path in find_segments(files, root)]
    for incarnation, boot in sorted(recorded.items()):
        if boot not in (None, boot_id):
            continue
        why = _find_gap([segment for segment in segments if segment.incarnation == incarnation])
        if why:
            segments.append(Segment(root / names.LOG, incarnation, 0, bad=[Bad(0, f"start {incarnation}: {why}")]))
    return segments


def _find_gap(segments: list[Segment]) -> str:
    """What is missing of the log of an incarnation; "" if nothing is. What was let go of before is no damage."""
    live = {segment.number: segment for segment in segments if segment.head is not None and segment.head.number}
    if not live:
        return "no segment of the push log is left: they are missing, or an earlier start found damage and removed them"
    newest = live[max(live)]
    if newest.note is None:
        return ""  # that is damage already
    lowest = newest.note.lowest
    bad = {segment.number for segment in segments if segment.bad}
    for segment in segments:
        if segment.number < lowest:
            segment.bad.clear()
    if newest.note.closed:
        return f"the segments of the push log after number {newest.number} are missing"
    if any(number not in live and number not in bad for number in range(lowest, newest.number)):
        return f"segments of the push log between number {lowest} and {newest.number} are missing"
    return ""


def scan_segment(files: Files, path: Path, boot_id: bytes, boots: Mapping[int, bytes | None]) -> Segment:
    """Read a segment from its start: whole records, and what is bad in between. `boots` says in which boot an
    incarnation wrote, where the head does not; what it does not know was let go of. Raises OSError."""
    data = map_file(files, path)
    name = parse_segment(path.name)
    assert name is not None, "find_segments returns no other names"
    segment = Segment(path, *name)
    start = bytes(data[:RECORDS_AT])
    here = boots.get(segment.incarnation, b"") in (None, boot_id)
    try:
        head = decode_segment_head(start[:SEGMENT_HEAD_BYTES])
    except CorruptError as error:
        if start[:SEGMENT_HEAD_BYTES].strip(b"\0") or (here and not _is_blank(files, path)):
            segment.bad.append(Bad(0, str(error)))
        return segment
    if head.number and (head.incarnation, head.number) != name:
        if here:
            segment.bad.append(Bad(0, "the head of the log segment is that of another one"))
        return segment
    segment.head = head
    if not head.number:
        return segment
    segment.note = decode_segment_note(start)
    here = head.boot_id == boot_id
    if here and segment.note is None:
        segment.bad.append(Bad(SEGMENT_HEAD_BYTES, "the note of the log segment is damaged"))
    whole = 0
    if segment.note is not None:
        whole = segment.note.end if here else segment.note.synced
    # Without a note nobody knows how far it was synced: then what has whole records behind it is damage.
    _scan_records(segment, data, head.number, whole, search=here or segment.note is None)
    return segment


def _is_blank(files: Files, path: Path) -> bool:
    """Whether a file has no byte but zeros; its holes are not read."""
    handle = files.open(path)
    at, size = 0, files.size(handle)
    while (at := files.next_data(handle, at)) < size:
        part = files.read(handle, MIB, at)
        if part.strip(b"\0"):
            return False
        at += len(part)
    return True


def _scan_records(segment: Segment, data: memoryview, number: int, acknowledged: int, *, search: bool) -> None:
    """Find the records. What is not whole before `acknowledged` is bad; with `search`, so is what is not whole before a
    whole one, else they end there."""
    at, behind = RECORDS_AT, -1
    while at < max(len(data), acknowledged):
        record = decode_record_head(data, at, number)
        if record is not None and _is_whole(data, at, record):
            segment.records.append((at, record))
            at += record.size_bytes
            continue
        if at >= acknowledged and not search:
            break
        if behind <= at:
            behind = _find_record(data, at + 1, number)
        past = max(behind, acknowledged if behind < 0 else 0)
        if past <= at:
            break
        why = "a record of the push log is damaged" if record else "the head of a record of the push log is damaged"
        hurt: tuple[EpochKey, ...] = ()
        if record is not None:
            past = min(past, at + record.size_bytes)  # what stands behind it may be bad too, and of others
            hurt = tuple(key for key, _, _ in pieces(data, at, record)) if _rows_whole(data, at, record) else ()
        segment.bad.append(Bad(at, why, past, record, hurt))
        at = past


def _is_whole(data: memoryview, at: int, record: RecordHead) -> bool:
    body = at + RECORD_BYTES
    rows = body + record.body_bytes
    return _rows_whole(data, at, record) and crc32c(data[body:rows]) == record.body_crc


def _rows_whole(data: memoryview, at: int, record: RecordHead) -> bool:
    rows = at + RECORD_BYTES + record.body_bytes
    return crc32c(data[rows : at + record.size_bytes]) == record.entries_crc


def _find_record(data: memoryview, start: int, number: int) -> int:
    """The first whole record at or behind `start`; -1 if there is none."""
    for at in find_all(data, RECORD_MAGIC, start):
        record = decode_record_head(data, at, number)
        if record is not None and _is_whole(data, at, record):
            return at
    return -1


def find_all(data: memoryview, wanted: bytes, start: int) -> Iterator[int]:
    """Every place at or behind `start` where the wanted bytes are, in order.

    Looks at copies of MIB each: `mmap.find` of Python before 3.11.5 reads the byte behind the map, and the process is
    gone where no memory is (gh-105235); that is so for a file that ends with a page.
    """
    while len(data) - start >= len(wanted):
        piece = bytes(data[start : start + MIB])
        at = piece.find(wanted)
        while at >= 0:
            yield start + at
            at = piece.find(wanted, at + 1)
        start += len(piece) - len(wanted) + 1


def pieces(data: memoryview, at: int, record: RecordHead) -> Iterator[tuple[EpochKey, int, int]]:
    """(epoch, offset, length) of every batch of a record."""
    offset = at + RECORD_BYTES
    rows = offset + record.body_bytes
    for partition, epoch, _, size, _ in rows_of(data[rows : rows + record.entries * PUSH_ENTRY.size]):
        yield EpochKey(record.shuffle, PartitionId(partition), Epoch(epoch)), offset, size
        offset += size
