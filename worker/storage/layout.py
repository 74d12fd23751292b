"""Ids to file names and back: with names.py the only place that knows where anything lies in a storage directory.

    m-<map>-<attempt>-<epoch>.map           a sealed map file; also .<incarnation>.<level>.open and .failed
    p-<partition>-<epoch>.part              a sealed partition file; also .open, .failed and .lost
    k-<incarnation>-<number>.pack           what was small when it was sealed, many epochs in one file
    log/<incarnation>-<number>.push         a segment of the push log

The name of an unsealed map file is its note: epoch, level and incarnation are on the disk, in the folder, before
anything in it is acknowledged. Pure: builds and parses names, touches no disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from holdfast.common.errors import CorruptError
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Generation,
    Incarnation,
    Instance,
    MapFileKey,
    MapId,
    PartitionId,
    ShuffleId,
    ShuffleKey,
    StateId,
)
from holdfast.common.limits import U32_MAX
from holdfast.common.statuses import Status
from holdfast.worker.storage.names import (
    DATA,
    FAILED_SUFFIX,
    LOG,
    LOG_SUFFIX,
    LOST_SUFFIX,
    OPEN_SUFFIX,
    PACK_SUFFIX,
    PART_SUFFIX,
    SEALED_SUFFIX,
    parse_instance,
    parse_shuffle,
)

_NUMBER = r"(0|[1-9]\d{0,9})"
_MAP = re.compile(
    rf"m-{_NUMBER}-(0|[1-9]\d{{0,19}})-{_NUMBER}\.(?:(map|failed)|(\d{{1,10}})\.(memory|written|synced)\.open)",
    re.ASCII,
)
_PART = re.compile(rf"p-{_NUMBER}-{_NUMBER}\.(part|open|failed|lost)", re.ASCII)
_PACK = re.compile(rf"k-{_NUMBER}-{_NUMBER}\.pack", re.ASCII)
_SEGMENT = re.compile(rf"{_NUMBER}-{_NUMBER}\.push", re.ASCII)
_U64_MAX = 2**64 - 1
#: Shuffles whose folders are kept: every epoch that begins or ends asks for one.
_FOLDERS_KEPT = 256


class EpochKey(NamedTuple):
    """One epoch of one REDUCE partition."""

    shuffle: ShuffleKey
    partition: PartitionId
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.shuffle} partition {self.partition} epoch {self.epoch}"


@dataclass(frozen=True, slots=True, order=True)
class PackKey:
    """One pack file."""

    shuffle: ShuffleKey
    incarnation: Incarnation
    number: int

    def __str__(self) -> str:
        return f"{self.shuffle} pack {self.incarnation}-{self.number}"


#: A sealed file of REDUCE partitions, and any sealed file.
DataKey = EpochKey | PackKey
FileKey = MapFileKey | DataKey
#: What is written bit by bit under a name of its own until it is sealed.
OpenKey = MapFileKey | EpochKey


class FileKind(Enum):
    """What the name of a data file says it is."""

    SEALED = "map"
    OPEN = "open"
    FAILED = "failed"
    LOST = "lost"


_KINDS = {each.value: each for each in FileKind} | {"part": FileKind.SEALED}
#: What a copy that is given up is answered, by the kind of its mark.
MARKS = {FileKind.FAILED: Status.FAILED_COPY, FileKind.LOST: Status.DATA_LOST}


@dataclass(frozen=True, slots=True)
class OpenNote:
    """What is known of an unsealed map file: who opened it, and at which acknowledgement level."""

    incarnation: Incarnation
    ack: Ack


@dataclass(frozen=True, slots=True)
class FileName:
    """A parsed data file name; `note` is there for an OPEN map file."""

    key: FileKey
    kind: FileKind
    note: OpenNote | None = None


@lru_cache(_FOLDERS_KEPT)
def shuffle_folder(key: ShuffleKey) -> str:
    """Path of a shuffle's folder below the storage directory."""
    return f"{DATA}/{key.instance.hex()}/{key.shuffle}-{key.generation}-{key.state:016x}"


@lru_cache(_FOLDERS_KEPT)
def folder_in(root: Path, key: ShuffleKey) -> Path:
    """The same, of a storage directory."""
    return root / shuffle_folder(key)


def parse_folder(above: str, name: str) -> ShuffleKey | None:
    """The shuffle of a folder, by its name and that of the one above; None if they are no names of ours."""
    instance, numbers = parse_instance(above), parse_shuffle(name)
    return None if instance is None or numbers is None else shuffle_of(Instance(instance), *numbers)


def instance_folder(instance: Instance) -> str:
    """Path of an application instance's folder below the storage directory."""
    return f"{DATA}/{instance.hex()}"


def _stem(key: OpenKey) -> str:
    name = f"m-{key.map}-{key.attempt}" if isinstance(key, MapFileKey) else f"p-{key.partition}"
    return f"{shuffle_folder(key.shuffle)}/{name}-{key.epoch}"


def sealed_name(key: FileKey) -> str:
    """Name of a sealed file in its folder."""
    if isinstance(key, MapFileKey):
        return f"m-{key.map}-{key.attempt}-{key.epoch}{SEALED_SUFFIX}"
    if isinstance(key, PackKey):
        return f"k-{key.incarnation}-{key.number}{PACK_SUFFIX}"
    return f"p-{key.partition}-{key.epoch}{PART_SUFFIX}"


def sealed_path(key: FileKey) -> str:
    """Path of a sealed file below the storage directory."""
    return f"{shuffle_folder(key.shuffle)}/{sealed_name(key)}"


def open_path(key: OpenKey, note: OpenNote | None = None) -> str:
    """Path of an unsealed file below the storage directory; a map file has a note."""
    told = f".{note.incarnation}.{note.ack.name.lower()}" if note is not None else ""
    return f"{_stem(key)}{told}{OPEN_SUFFIX}"


def mark_path(key: OpenKey, status: Status) -> str:
    """Path that marks a copy as given up, with that answer: FAILED_COPY or DATA_LOST."""
    return f"{_stem(key)}{LOST_SUFFIX if status is Status.DATA_LOST else FAILED_SUFFIX}"


def segment_path(incarnation: int, number: int) -> str:
    """Path of a log segment below the storage directory."""
    return f"{LOG}/{incarnation}-{number}{LOG_SUFFIX}"


def parse_segment(name: str) -> tuple[int, int] | None:
    """Incarnation and number of a log segment; None if it is no name of ours."""
    found = _SEGMENT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def parse_file(shuffle: ShuffleKey, name: str) -> FileName | None:
    """What a file of a shuffle's folder is; None if it is no name of ours."""
    if name.startswith("m-"):
        return _parse_map(shuffle, name)
    found = _PART.fullmatch(name) or _PACK.fullmatch(name)
    if found is None or max(int(found[1]), int(found[2])) > U32_MAX:
        return None
    first, second = int(found[1]), int(found[2])
    if name.startswith("k-"):
        return FileName(PackKey(shuffle, Incarnation(first), second), FileKind.SEALED)
    return FileName(EpochKey(shuffle, PartitionId(first), Epoch(second)), _KINDS[found[3]])


def _parse_map(shuffle: ShuffleKey, name: str) -> FileName | None:
    found = _MAP.fullmatch(name)
    if not found:
        return None
    map_id, attempt, epoch = int(found[1]), int(found[2]), int(found[3])
    if max(map_id, epoch) > U32_MAX or attempt > _U64_MAX:
        return None
    key = MapFileKey(shuffle, MapId(map_id), AttemptId(attempt), Epoch(epoch))
    if found[4]:
        return FileName(key, _KINDS[found[4]])
    note = OpenNote(Incarnation(int(found[5])), Ack[found[6].upper()])
    return FileName(key, FileKind.OPEN, note) if note.incarnation <= U32_MAX else None


def shuffle_of(instance: Instance, shuffle: int, generation: int, state: int) -> ShuffleKey:
    """The key of which a folder, or an index key, has these numbers."""
    return ShuffleKey(instance, ShuffleId(shuffle), Generation(generation), StateId(state))


def parse_path(path: str) -> FileName:
    """The opposite of the path functions, for whole paths below the storage directory; raises CorruptError."""
    parts = path.split("/")
    if len(parts) == 4 and parts[0] == DATA:
        shuffle = parse_folder(parts[1], parts[2])
        if shuffle is not None:
            name = parse_file(shuffle, parts[3])
            if name is not None:
                return name
    raise CorruptError(f"{path} is not the name of a data file")
