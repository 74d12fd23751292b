"""Ids to file names and back: with names.py the only place that knows where anything lies in a storage directory.

The name of an unsealed file is its note: epoch, level and incarnation are on the disk, in the folder, before anything
in it is acknowledged. Pure: builds and parses names, touches no disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

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
    ShuffleId,
    ShuffleKey,
    StateId,
)
from holdfast.common.limits import U32_MAX
from holdfast.worker.storage.names import (
    DATA,
    FAILED_SUFFIX,
    OPEN_SUFFIX,
    SEALED_SUFFIX,
    parse_instance,
    parse_shuffle,
)

_FILE = re.compile(
    r"m-(0|[1-9]\d{0,9})-(0|[1-9]\d{0,19})-(0|[1-9]\d{0,9})\.(?:(map)|(failed)|(\d{1,10})\.(memory|written|synced)\.open)",
    re.ASCII,
)
_U64_MAX = 2**64 - 1


class FileKind(Enum):
    """What the name of a data file says it is."""

    SEALED = "map"
    OPEN = "open"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OpenNote:
    """What is known of an unsealed file: who opened it, and at which acknowledgement level."""

    incarnation: Incarnation
    ack: Ack


@dataclass(frozen=True, slots=True)
class FileName:
    """A parsed data file name; `note` is there if the kind is OPEN."""

    key: MapFileKey
    kind: FileKind
    note: OpenNote | None = None


def shuffle_folder(key: ShuffleKey) -> str:
    """Path of a shuffle's folder below the storage directory."""
    return f"{DATA}/{key.instance.hex()}/{key.shuffle}-{key.generation}-{key.state:016x}"


def parse_folder(above: str, name: str) -> ShuffleKey | None:
    """The shuffle of a folder, by its name and that of the one above; None if they are no names of ours."""
    instance, numbers = parse_instance(above), parse_shuffle(name)
    return None if instance is None or numbers is None else shuffle_of(Instance(instance), *numbers)


def instance_folder(instance: Instance) -> str:
    """Path of an application instance's folder below the storage directory."""
    return f"{DATA}/{instance.hex()}"


def _stem(key: MapFileKey) -> str:
    return f"{shuffle_folder(key.shuffle)}/m-{key.map}-{key.attempt}-{key.epoch}"


def sealed_name(key: MapFileKey) -> str:
    """Name of a sealed file in its folder."""
    return f"m-{key.map}-{key.attempt}-{key.epoch}{SEALED_SUFFIX}"


def sealed_path(key: MapFileKey) -> str:
    """Path of a sealed file below the storage directory."""
    return f"{shuffle_folder(key.shuffle)}/{sealed_name(key)}"


def open_path(key: MapFileKey, note: OpenNote) -> str:
    """Path of an unsealed file below the storage directory."""
    return f"{_stem(key)}.{note.incarnation}.{note.ack.name.lower()}{OPEN_SUFFIX}"


def failed_path(key: MapFileKey) -> str:
    """Path that marks a copy as given up."""
    return f"{_stem(key)}{FAILED_SUFFIX}"


def parse_file(shuffle: ShuffleKey, name: str) -> FileName | None:
    """What a file of a shuffle's folder is; None if it is no name of ours."""
    found = _FILE.fullmatch(name)
    if not found:
        return None
    map_id, attempt, epoch = int(found[1]), int(found[2]), int(found[3])
    if max(map_id, epoch) > U32_MAX or attempt > _U64_MAX:
        return None
    key = MapFileKey(shuffle, MapId(map_id), AttemptId(attempt), Epoch(epoch))
    if found[4]:
        return FileName(key, FileKind.SEALED)
    if found[5]:
        return FileName(key, FileKind.FAILED)
    note = OpenNote(Incarnation(int(found[6])), Ack[found[7].upper()])
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
