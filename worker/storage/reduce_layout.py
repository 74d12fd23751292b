"""Names of the files of REDUCE partitions; the same folders as layout.py, whose sibling this is. Pure.

data/<instance hex>/<shuffle>-<generation>/
    p-<partition>-<epoch>.open          a partition file that is being written, or was left behind
    p-<partition>-<epoch>.part          a sealed partition file
    p-<partition>-<epoch>.failed        a copy that is given up for good
    k-<incarnation>-<number>.pack       what was small when it was sealed, many epochs in one file
log/<incarnation>-<number>.push         a segment of the push log
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.common.ids import Epoch, Incarnation, PartitionId, ShuffleKey
from holdfast.common.limits import U32_MAX
from holdfast.worker.storage.layout import FileKind, parse_folder, shuffle_folder
from holdfast.worker.storage.names import (
    DATA,
    FAILED_SUFFIX,
    LOG,
    LOG_SUFFIX,
    OPEN_SUFFIX,
    PACK_SUFFIX,
    PART_SUFFIX,
)

_NUMBER = r"(0|[1-9]\d{0,9})"
_PART = re.compile(rf"p-{_NUMBER}-{_NUMBER}\.(part|open|failed)", re.ASCII)
_PACK = re.compile(rf"k-{_NUMBER}-{_NUMBER}\.pack", re.ASCII)
_SEGMENT = re.compile(rf"{_NUMBER}-{_NUMBER}\.push", re.ASCII)
_KINDS = {"part": FileKind.SEALED, "open": FileKind.OPEN, "failed": FileKind.FAILED}


@dataclass(frozen=True, slots=True, order=True)
class EpochKey:
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


DataKey = EpochKey | PackKey


@dataclass(frozen=True, slots=True)
class ReduceName:
    """A parsed name in a shuffle's folder."""

    key: DataKey
    kind: FileKind


def _stem(key: EpochKey) -> str:
    return f"{shuffle_folder(key.shuffle)}/p-{key.partition}-{key.epoch}"


def open_path(key: EpochKey) -> str:
    """Path of an unsealed partition file below the storage directory."""
    return _stem(key) + OPEN_SUFFIX


def failed_path(key: EpochKey) -> str:
    """Path that marks a copy as given up."""
    return _stem(key) + FAILED_SUFFIX


def sealed_name(key: DataKey) -> str:
    """Name of a sealed file in its folder."""
    if isinstance(key, PackKey):
        return f"k-{key.incarnation}-{key.number}{PACK_SUFFIX}"
    return f"p-{key.partition}-{key.epoch}{PART_SUFFIX}"


def sealed_path(key: DataKey) -> str:
    """Path of a sealed file below the storage directory."""
    return f"{shuffle_folder(key.shuffle)}/{sealed_name(key)}"


def segment_path(incarnation: int, number: int) -> str:
    """Path of a log segment below the storage directory."""
    return f"{LOG}/{incarnation}-{number}{LOG_SUFFIX}"


def parse_name(shuffle: ShuffleKey, name: str) -> ReduceName | None:
    """What a file of a shuffle's folder is; None if it is no name of a REDUCE file."""
    found = _PART.fullmatch(name) or _PACK.fullmatch(name)
    if found is None or max(int(found[1]), int(found[2])) > U32_MAX:
        return None
    first, second = int(found[1]), int(found[2])
    if name.endswith(PACK_SUFFIX):
        return ReduceName(PackKey(shuffle, Incarnation(first), second), FileKind.SEALED)
    return ReduceName(EpochKey(shuffle, PartitionId(first), Epoch(second)), _KINDS[found[3]])


def parse_reduce(path: str) -> ReduceName | None:
    """What a whole path below the storage directory is; None if it is none of a REDUCE file."""
    parts = path.split("/")
    if len(parts) != 4 or parts[0] != DATA:
        return None
    shuffle = parse_folder(parts[1], parts[2])
    return None if shuffle is None else parse_name(shuffle, parts[3])


def parse_segment(name: str) -> tuple[int, int] | None:
    """Incarnation and number of a log segment; None if it is no name of ours."""
    found = _SEGMENT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None
