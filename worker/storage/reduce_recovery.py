"""Finds what an earlier incarnation left of REDUCE epochs, in logs and unsealed files, and whether it is whole.

Rules (DESIGN, "What must hold"): an epoch left behind is vouched for if its level was SYNCED, or WRITTEN in this very
boot; else it is DATA_LOST. With the boot unchanged only an incomplete end may be cut: a bad batch or record with more
behind it is damage, and DATA_LOST too. After a power loss everything from the first bad byte on was never synced, so
it was never acknowledged at SYNCED. Nothing is appended: what is left is only sealed. Reads only. Called by
opening.py (segments), by the seal (files and batches) and by `verify`.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.batch import parse_batch, whole_batch_bytes
from holdfast.common.checksum import crc32c
from holdfast.common.errors import CorruptError
from holdfast.common.ids import Epoch, PartitionId
from holdfast.common.messages import Ack
from holdfast.common.reduce_messages import PUSH_ENTRY
from holdfast.worker.storage import names
from holdfast.worker.storage.handles import Handle
from holdfast.worker.storage.reduce_layout import EpochKey, parse_segment
from holdfast.worker.storage.reduce_records import (
    FILE_HEAD_BYTES,
    RECORD_BYTES,
    RECORD_MAGIC,
    SEGMENT_HEAD_BYTES,
    FileHead,
    RecordHead,
    SegmentHead,
    begins_footer,
    decode_file_head,
    decode_record_head,
    decode_segment_head,
    rows_of,
)
from holdfast.worker.storage.scan import Seeds


@dataclass(slots=True)
class Left:
    """What is left of one epoch in a directory."""

    key: EpochKey
    ack: Ack = Ack.SYNCED
    #: boots of the incarnations that wrote any of it
    boots: set[bytes] = field(default_factory=set)
    #: its unsealed file, if there is one
    path: Path | None = None
    #: (segment, offset, length) of its batches in the log
    pieces: list[tuple[Path, int, int]] = field(default_factory=list)
    #: why it cannot be whole; "" if nothing is known against it
    damage: str = ""

    def doubt(self, boot_id: bytes) -> str:
        """Why this worker cannot vouch for it now; "" if it can."""
        if self.damage:
            return self.damage
        if self.ack is Ack.MEMORY:
            return "it was acknowledged from memory, by an earlier start"
        if self.ack is Ack.WRITTEN and self.boots - {boot_id}:
            return "it was acknowledged unsynced, and the machine was started anew since"
        return ""


@dataclass(slots=True)
class Segment:
    """One segment of an earlier start."""

    path: Path
    head: SegmentHead | None
    #: (offset of the record, head) of every whole record
    records: list[tuple[int, RecordHead]] = field(default_factory=list)
    #: (offset, sentence) of what is bad, with whole records behind it; offset of the record whose epochs suffer
    bad: list[tuple[int, str]] = field(default_factory=list)
    #: epochs named by damaged records whose entries can be read
    hurt: list[EpochKey] = field(default_factory=list)
    #: where the whole records end
    end: int = SEGMENT_HEAD_BYTES


def map_file(path: Path) -> memoryview:
    """A file as it lies in the page cache, read-only; raises OSError."""
    handle = Handle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    size = os.fstat(handle.fd).st_size
    if not size:
        return memoryview(b"")
    return memoryview(mmap.mmap(handle.fd, size, access=mmap.ACCESS_READ))


def scan_segment(path: Path) -> Segment:
    """Read a segment from its start: whole records, and what is bad in between. Raises OSError."""
    data = map_file(path)
    try:
        head = decode_segment_head(bytes(data[:SEGMENT_HEAD_BYTES]))
    except CorruptError as error:
        bad = [(0, str(error))] if bytes(data[:SEGMENT_HEAD_BYTES]).strip(b"\0") else []
        return Segment(path, None, bad=bad)
    segment = Segment(path, head)
    if not head.number:
        return segment
    at = SEGMENT_HEAD_BYTES
    while at < len(data):
        record = decode_record_head(data, at, head.number)
        if record is not None and _is_whole(data, at, record):
            segment.records.append((at, record))
            at += record.size_bytes
            segment.end = at
            continue
        behind = _find_record(data, at + 1, head.number)
        if behind is None:
            break
        why = "a record of the push log is damaged" if record else "the head of a record of the push log is damaged"
        segment.bad.append((at, why))
        if record is not None:
            segment.hurt += [key for key, _, _ in _pieces(data, at, record)]
        at = behind
    return segment


def _is_whole(data: memoryview, at: int, record: RecordHead) -> bool:
    body = at + RECORD_BYTES
    rows = body + record.body_bytes
    end = at + record.size_bytes
    return crc32c(data[rows:end]) == record.entries_crc and crc32c(data[body:rows]) == record.body_crc


def _find_record(data: memoryview, start: int, number: int) -> int | None:
    """The first whole record at or behind `start`."""
    mapped = data.obj
    at = start
    while isinstance(mapped, mmap.mmap) and (at := mapped.find(RECORD_MAGIC, at)) >= 0:
        record = decode_record_head(data, at, number)
        if record is not None and _is_whole(data, at, record):
            return at
        at += 1
    return None


def _pieces(data: memoryview, at: int, record: RecordHead) -> Iterator[tuple[EpochKey, int, int]]:
    """(epoch, offset, length) of every batch of a record."""
    offset = at + RECORD_BYTES
    rows = offset + record.body_bytes
    for partition, epoch, _, size, _ in rows_of(data[rows : rows + record.entries * PUSH_ENTRY.size]):
        yield EpochKey(record.shuffle, PartitionId(partition), Epoch(epoch)), offset, size
        offset += size


def find_segments(root: Path) -> list[Path]:
    """The log segments of a directory, oldest first."""
    folder = root / names.LOG
    found = [
        (number, path) for path in (folder.iterdir() if folder.is_dir() else ()) if (number := parse_segment(path.name))
    ]
    return [path for _, path in sorted(found)]


def find_left(segments: list[Segment], unsealed: dict[EpochKey, Path]) -> dict[EpochKey, Left]:
    """What is left of every epoch, from the segments and the unsealed files of a directory."""
    left: dict[EpochKey, Left] = {}
    for segment in segments:
        data = map_file(segment.path)
        for at, record in segment.records:
            for key, offset, size in _pieces(data, at, record):
                one = left.get(key)
                if one is None:
                    one = left[key] = Left(key)
                one.ack = min(one.ack, record.ack)
                one.pieces.append((segment.path, offset, size))
                if segment.head is not None:
                    one.boots.add(segment.head.boot_id)
    for key, path in unsealed.items():
        _note(left.setdefault(key, Left(key)), path)
    for segment in segments:
        _mark_damage(segment, left)
    return left


def _note(one: Left, path: Path) -> None:
    """Take in the head of an unsealed partition file."""
    one.path = path
    try:
        head = decode_file_head(path.read_bytes()[:FILE_HEAD_BYTES] if path.stat().st_size < 4096 else _start(path))
    except CorruptError as error:
        if path.stat().st_size >= FILE_HEAD_BYTES:
            one.damage = f"{path.name}: {error}"
        elif not one.pieces:
            one.ack = Ack.WRITTEN  # the first write was cut: nothing of it was acknowledged
        return
    if head.key != one.key:
        one.damage = f"{path.name} has the head of {head.key}"
    one.ack = min(one.ack, head.ack)
    one.boots.add(head.boot_id)


def _start(path: Path) -> bytes:
    handle = Handle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return os.pread(handle.fd, FILE_HEAD_BYTES, 0)


def _mark_damage(segment: Segment, left: dict[EpochKey, Left]) -> None:
    """Damage of a record whose entries can be read hurts its epochs; any other may have hurt every one."""
    for key in segment.hurt:
        left.setdefault(key, Left(key)).damage = f"{segment.path.name}: a record of the push log is damaged"
    if len(segment.bad) > 0 and (segment.head is None or any("head" in why for _, why in segment.bad)):
        for one in left.values():
            one.damage = one.damage or f"{segment.path.name}: {segment.bad[0][1]}"


@dataclass(slots=True)
class Recovered:
    """The whole batches of one epoch: a prefix of its file, and what only the log has."""

    head: FileHead | None = None
    #: length of the valid part of the file; 0 if there is none
    file_bytes: int = 0
    #: length and map of each batch in the file; arrays, since a file may have millions
    sizes: array[int] = field(default_factory=lambda: array("I"))
    maps: array[int] = field(default_factory=lambda: array("I"))
    #: the sum of their checksums
    crc_sum: int = 0
    #: views of the batches that are only in the log
    extra: list[memoryview] = field(default_factory=list)


#: (map, attempt, number): what makes two batches of an epoch the same.
_Name = tuple[int, int, int]


def recover(left: Left, boot_id: bytes) -> Recovered:
    """Read everything that is left of an epoch, each batch once. Raises CorruptError if it is damaged, OSError."""
    seed = Seeds(left.key.shuffle).of(left.key.partition)
    found = Recovered()
    logged = _recover_log(left, seed)
    if left.path is not None:
        _recover_file(left.path, seed, boot_id, found, logged)
    found.extra = list(logged.values())
    return found


def _recover_log(left: Left, seed: int) -> dict[_Name, memoryview]:
    """Its batches in the log, which is bounded, each once, in order."""
    logged: dict[_Name, memoryview] = {}
    views: dict[Path, memoryview] = {}
    for path, offset, size in left.pieces:
        view = views.get(path)
        if view is None:
            view = views[path] = map_file(path)
        piece = view[offset : offset + size]
        try:
            batch, end = parse_batch(piece, 0, seed)
        except CorruptError as error:
            raise CorruptError(f"{left.key}: {path.name} at {offset}: {error}") from None
        if end != size:
            raise CorruptError(f"{left.key}: {path.name} at {offset}: a batch of {end} bytes where {size} were pushed")
        logged.setdefault((batch.map, batch.attempt, batch.number), piece)
    return logged


def _recover_file(path: Path, seed: int, boot_id: bytes, found: Recovered, logged: dict[_Name, memoryview]) -> None:
    """Read the file's valid part, and drop from `logged` what it has."""
    data = map_file(path)
    if len(data) < FILE_HEAD_BYTES:
        return
    found.head = decode_file_head(bytes(data[:FILE_HEAD_BYTES]))
    same_boot = found.head.boot_id == boot_id
    at = FILE_HEAD_BYTES
    while at < len(data):
        try:
            batch, end = parse_batch(data, at, seed)
        except CorruptError as error:
            # A seal that was killed before the file got its name left a footer, or a part of one.
            if same_boot and not is_cut(data, at) and not begins_footer(data, at, found.head.key):
                raise CorruptError(f"{path.name}: {error}") from None
            break
        found.sizes.append(end - at)
        found.maps.append(batch.map)
        found.crc_sum += batch.crc
        logged.pop((batch.map, batch.attempt, batch.number), None)
        at = end
    found.file_bytes = at


def is_cut(data: memoryview, at: int) -> bool:
    """Whether what stands at `at` is the beginning of a batch that ends behind the file."""
    try:
        size = whole_batch_bytes(data, at)
    except CorruptError:
        return False
    return size is None or at + size > len(data)
