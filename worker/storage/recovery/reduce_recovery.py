"""Finds what an earlier incarnation left of REDUCE epochs, in logs and unsealed files, and whether it is whole.

Rules (DESIGN, "What must hold"): an epoch left behind is vouched for if its level was SYNCED, or WRITTEN in this very
boot; else it is DATA_LOST. With the boot unchanged only an incomplete end may be cut: a bad batch or record with more
behind it is damage, and DATA_LOST too. After a power loss everything from the first bad byte on was never synced, so
it was never acknowledged at SYNCED. Nothing is appended: what is left is only sealed. Reads only. Called by
opening.py, by the seal (files and batches) and by `verify`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.errors import CorruptError
from holdfast.common.formats.batch import HEADER_BYTES, MAGIC, VERSION, parse_batch, whole_batch_bytes
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import PUSH_ENTRY
from holdfast.common.ids import Epoch, Incarnation, PartitionId, ShuffleKey
from holdfast.worker.storage.engine.scan import Seeds
from holdfast.worker.storage.env.interfaces import Files
from holdfast.worker.storage.index.records import FILE_HEAD_BYTES, FileHead, begins_footer, decode_file_head
from holdfast.worker.storage.layout import EpochKey
from holdfast.worker.storage.log.log_records import RECORD_BYTES, rows_of
from holdfast.worker.storage.log.log_recovery import Segment, find_all, map_file, pieces

#: What every batch begins with.
_BATCH_BEGIN = MAGIC.to_bytes(2, "little") + bytes((VERSION,))
#: How often what may be the rest of a cut batch is read, at most, to find a whole one in it.
_LOOKS = 4


@dataclass(slots=True)
class Left:
    """What is left of one epoch in a directory."""

    key: EpochKey
    ack: Ack = Ack.SYNCED
    #: incarnations that wrote any of it (one: a later one never appends), and their boots
    writers: set[int] = field(default_factory=set)
    boots: set[bytes] = field(default_factory=set)
    #: its unsealed file, if there is one
    path: Path | None = None
    file_bytes: int = 0
    #: (segment, offset, length) of its batches in the log
    pieces: list[tuple[Path, int, int]] = field(default_factory=list)
    #: why it cannot be whole; "" if nothing is known against it
    damage: str = ""
    #: its file has a part of its head and zeros: after a power cut none of the file was ever synced
    torn: str = ""

    def doubt(self, boot_id: bytes) -> str:
        """Why this worker cannot vouch for it now; "" if it can."""
        if self.damage:
            return self.damage
        if self.torn and boot_id in self.boots:
            return self.torn
        if self.ack is Ack.MEMORY:
            return "it was acknowledged from memory, by an earlier start"
        if self.ack is Ack.WRITTEN and self.boots - {boot_id}:
            return "it was acknowledged unsynced, and the machine was started anew since"
        return ""


def find_left(files: Files, segments: list[Segment], unsealed: dict[EpochKey, Path]) -> dict[EpochKey, Left]:
    """What is left of every epoch, from the segments and the unsealed files of a directory."""
    left: dict[EpochKey, Left] = {}
    for segment in segments:
        data = map_file(files, segment.path) if segment.records else memoryview(b"")
        for at, record in segment.records:
            for key, offset, size in pieces(data, at, record):
                one = left.get(key)
                if one is None:
                    one = left[key] = Left(key)
                one.ack = min(one.ack, record.ack)
                one.pieces.append((segment.path, offset, size))
                if segment.head is not None:
                    one.boots.add(segment.head.boot_id)
                    one.writers.add(segment.incarnation)
    for key, path in unsealed.items():
        _note(files, left.setdefault(key, Left(key)), path)
    for segment in segments:
        _mark_damage(files, segment, left)
    return left


def _note(files: Files, one: Left, path: Path) -> None:
    """Take in the head of an unsealed partition file."""
    one.path, one.file_bytes = path, files.stat(path).size
    start = read_start(files, path)
    try:
        head = decode_file_head(start)
    except CorruptError as error:
        if _is_torn(start, one):
            one.torn = f"{path.name}: {error}"
        elif len(start) == FILE_HEAD_BYTES:
            one.damage = f"{path.name}: {error}"
        elif not one.pieces:
            one.ack = Ack.WRITTEN  # the first write was cut: nothing of it was acknowledged
        return
    if head.key != one.key:
        one.damage = f"{path.name} has the head of {head.key}"
    one.ack = min(one.ack, head.ack)
    one.boots.add(head.boot_id)
    one.writers.add(head.incarnation)


def _is_torn(start: bytes, one: Left) -> bool:
    """Whether each byte of a head is zero or as the log's word of this epoch says that it should be."""
    heads = [FileHead(one.key, one.ack, Incarnation(writer), boot) for writer in one.writers for boot in one.boots]
    bytes_due = [zip(start, head.encode(), strict=True) for head in heads if len(start) == FILE_HEAD_BYTES]
    return any(all(have in (0, due) for have, due in pairs) for pairs in bytes_due)


def read_start(files: Files, path: Path) -> bytes:
    """The head of a partition file, as far as it is there."""
    return files.read(files.open(path), FILE_HEAD_BYTES, 0)


def _mark_damage(files: Files, segment: Segment, left: dict[EpochKey, Left]) -> None:
    """Damage hurts the epochs whose batches may have been there, and no others: those that the record names; or those
    of the shuffle that its head names; or those of the partitions to which its batches belong by their checksums; or
    all that this incarnation wrote."""
    mine = [one for one in left.values() if not one.writers or segment.incarnation in one.writers]
    for bad in segment.bad:
        named, suspects = set(bad.hurt), mine
        if named:
            suspects = []
        elif bad.record is not None:
            suspects = [one for one in mine if one.key.shuffle == bad.record.shuffle]
        elif bad.past is not None:
            stretch = map_file(files, segment.path)[bad.offset + RECORD_BYTES : bad.past]
            named = _owners(stretch, {one.key.shuffle for one in mine})
            owners = {(key.shuffle, key.partition) for key in named}
            suspects = [one for one in mine if not owners or (one.key.shuffle, one.key.partition) in owners]
        segment.unnamed = segment.unnamed or not named
        for one in [*suspects, *[left.setdefault(key, Left(key)) for key in named]]:
            one.damage = one.damage or f"{segment.path.name}: {bad.why}"


def _owners(data: memoryview, shuffles: set[ShuffleKey]) -> set[EpochKey]:
    """The epochs of a record without a head: its entries name partitions, and each batch's checksum says of which
    shuffle it is. Nothing unless that can be told of every batch."""
    places: list[tuple[int, int]] = []
    at = 0
    while at + len(places) * PUSH_ENTRY.size < len(data):
        try:
            size = whole_batch_bytes(data, at)
        except CorruptError:
            return set()
        if size is None:
            return set()
        places.append((at, size))
        at += size
    if at + len(places) * PUSH_ENTRY.size != len(data):
        return set()
    owners = set()
    for (start, size), (partition, epoch, *_) in zip(places, rows_of(data[at:]), strict=True):
        batch = data[start : start + size]
        shuffle = next((one for one in shuffles if _is_batch(batch, Seeds(one).of(PartitionId(partition)))), None)
        if shuffle is None:
            return set()
        owners.add(EpochKey(shuffle, PartitionId(partition), Epoch(epoch)))
    return owners


def _is_batch(data: memoryview, seed: int) -> bool:
    try:
        return parse_batch(data, 0, seed)[1] == len(data)
    except CorruptError:
        return False


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


def recover(files: Files, left: Left, boot_id: bytes) -> Recovered:
    """Read everything that is left of an epoch, each batch once. Raises CorruptError if it is damaged, OSError."""
    seed = Seeds(left.key.shuffle).of(left.key.partition)
    found = Recovered()
    logged = _recover_log(files, left, seed)
    if left.path is not None and not left.torn:
        _recover_file(map_file(files, left.path), left.path.name, seed, boot_id, found, logged)
    found.extra = list(logged.values())
    return found


def _recover_log(files: Files, left: Left, seed: int) -> dict[_Name, memoryview]:
    """Its batches in the log, which is bounded, each once, in order."""
    logged: dict[_Name, memoryview] = {}
    views: dict[Path, memoryview] = {}
    for path, offset, size in left.pieces:
        view = views.get(path)
        if view is None:
            view = views[path] = map_file(files, path)
        piece = view[offset : offset + size]
        try:
            batch, end = parse_batch(piece, 0, seed)
        except CorruptError as error:
            raise CorruptError(f"{left.key}: {path.name} at {offset}: {error}") from None
        if end != size:
            raise CorruptError(f"{left.key}: {path.name} at {offset}: a batch of {end} bytes where {size} were pushed")
        logged.setdefault((batch.map, batch.attempt, batch.number), piece)
    return logged


def _recover_file(
    data: memoryview, name: str, seed: int, boot_id: bytes, found: Recovered, logged: dict[_Name, memoryview]
) -> None:
    """Read the file's valid part, and drop from `logged` what it has."""
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
            if same_boot and not is_cut(data, at, seed) and not begins_footer(data, at, found.head.key):
                raise CorruptError(f"{name}: {error}") from None
            break
        found.sizes.append(end - at)
        found.maps.append(batch.map)
        found.crc_sum += batch.crc
        logged.pop((batch.map, batch.attempt, batch.number), None)
        at = end
    found.file_bytes = at


def is_cut(data: memoryview, at: int, seed: int) -> bool:
    """Whether what stands at `at` is the beginning of a batch that ends behind the file, and nothing whole is in it:
    its length may be what is damaged."""
    try:
        size = whole_batch_bytes(data, at)
    except CorruptError:
        return False
    return size is None or (at + size > len(data) and not _has_batch(data, at + 1, seed))


def _has_batch(data: memoryview, start: int, seed: int) -> bool:
    """Whether a whole batch may stand at or behind `start`; where too much looks like one, too."""
    left = _LOOKS * len(data[start:])
    for at in find_all(data, _BATCH_BEGIN, start):
        try:
            size = whole_batch_bytes(data, at)
            left -= HEADER_BYTES if size is None or at + size > len(data) else size
            if left < 0:
                return True
            parse_batch(data, at, seed)
        except CorruptError:
            continue
        return True
    return False
