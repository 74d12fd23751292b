"""Ids to file names and back: the only place that knows where anything lies in a storage directory.

    identity                                     whose directory this is, written once
    starts                                       the incarnation counter, replaced at every start
    standing                                     what the masters last told the worker, replaced now and then
    lock                                         held by the process that uses the directory
    index/data.mdb, index/lock.mdb               the LMDB environment
    data/<instance hex>/<shuffle>-<generation>/  one folder for each shuffle generation
        m-<map>-<attempt>-<epoch>.map            a sealed map file
        m-<map>-<attempt>-<epoch>.<incarnation>.<level>.open    one that is being written, or was left behind
        m-<map>-<attempt>-<epoch>.failed         a copy that is given up for good
    quarantine/<number>-<name>                   what was found damaged, for people to look at

The name of an unsealed file is its note: epoch, level and incarnation are on the disk, in the folder, before anything
in it is acknowledged. Pure: builds and parses names, touches no disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from holdfast.common.errors import CorruptError
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
)
from holdfast.common.limits import U32_MAX
from holdfast.common.messages import Ack

IDENTITY = "identity"
STARTS = "starts"
STANDING = "standing"
LOCK = "lock"
INDEX = "index"
INDEX_DATA = "index/data.mdb"
DATA = "data"
QUARANTINE = "quarantine"
#: Names that say nothing about whose a directory is: the lock, what a first start may leave that was killed at once, and
#: what file systems have at their root.
NOBODYS = frozenset({LOCK, "identity.new", "lost+found"})

SEALED_SUFFIX = ".map"
_INSTANCE = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SHUFFLE = re.compile(r"(0|[1-9]\d{0,9})-(0|[1-9]\d{0,9})", re.ASCII)
_FILE = re.compile(
    r"m-(0|[1-9]\d{0,9})-(0|[1-9]\d{0,19})-(0|[1-9]\d{0,9})\.(?:(map)|(failed)|(\d{1,10})\.(memory|written|synced)\.open)",
    re.ASCII,
)
_U64_MAX = 2**64 - 1


class Kind(Enum):
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
    kind: Kind
    note: OpenNote | None = None


def shuffle_folder(key: ShuffleKey) -> str:
    """Path of a shuffle's folder below the storage directory."""
    return f"{DATA}/{key.instance.hex()}/{key.shuffle}-{key.generation}"


def instance_folder(instance: Instance) -> str:
    """Path of an application instance's folder below the storage directory."""
    return f"{DATA}/{instance.hex()}"


def _stem(key: MapFileKey) -> str:
    return f"{shuffle_folder(key.shuffle)}/m-{key.map}-{key.attempt}-{key.epoch}"


def sealed_path(key: MapFileKey) -> str:
    """Path of a sealed file below the storage directory."""
    return f"{_stem(key)}{SEALED_SUFFIX}"


def open_path(key: MapFileKey, note: OpenNote) -> str:
    """Path of an unsealed file below the storage directory."""
    return f"{_stem(key)}.{note.incarnation}.{note.ack.name.lower()}.open"


def failed_path(key: MapFileKey) -> str:
    """Path that marks a copy as given up."""
    return f"{_stem(key)}.failed"


def parse_instance(name: str) -> Instance | None:
    """The instance that a folder below data/ stands for; None if it is no name of ours."""
    return Instance(bytes.fromhex(name)) if _INSTANCE.fullmatch(name) else None


def parse_shuffle(instance: Instance, name: str) -> ShuffleKey | None:
    """The shuffle that a folder of an instance stands for; None if it is no name of ours."""
    found = _SHUFFLE.fullmatch(name)
    if not found:
        return None
    shuffle, generation = int(found[1]), int(found[2])
    if max(shuffle, generation) > U32_MAX:
        return None
    return ShuffleKey(instance, ShuffleId(shuffle), Generation(generation))


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
        return FileName(key, Kind.SEALED)
    if found[5]:
        return FileName(key, Kind.FAILED)
    note = OpenNote(Incarnation(int(found[6])), Ack[found[7].upper()])
    return FileName(key, Kind.OPEN, note) if note.incarnation <= U32_MAX else None


def parse_sealed(name: str) -> tuple[int, int, int]:
    """(map, attempt, epoch) of a sealed file's name, without further checks; the quick form for long listings."""
    map_id, attempt, epoch = name[2 : -len(SEALED_SUFFIX)].split("-")
    return int(map_id), int(attempt), int(epoch)


def parse_path(path: str) -> FileName:
    """The opposite of the path functions, for whole paths below the storage directory; raises CorruptError."""
    parts = path.split("/")
    if len(parts) == 4 and parts[0] == DATA:
        instance = parse_instance(parts[1])
        shuffle = parse_shuffle(instance, parts[2]) if instance is not None else None
        name = parse_file(shuffle, parts[3]) if shuffle is not None else None
        if name is not None:
            return name
    raise CorruptError(f"{path} is not the name of a data file")
