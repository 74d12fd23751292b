"""What `holdfast inspect DIR` shows: everything in a storage directory, as plain values that can be made into JSON.

Read-only, for a directory that no worker uses. Ids are hex text, levels are names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.errors import CorruptError
from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.index.records import EpochRecord
from holdfast.worker.storage.index.region_chunks import RegionFlag
from holdfast.worker.storage.layout import DataKey, EpochKey, sealed_path
from holdfast.worker.storage.log.log_recovery import scan_log
from holdfast.worker.storage.offline.offline import Offline, open_offline
from holdfast.worker.storage.recovery.reduce_recovery import find_left


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Bytes of one partition in one region; the offset counts from the start of the file."""

    partition: int
    offset: int
    length: int
    batches: int


@dataclass(frozen=True, slots=True)
class RegionReport:
    """One region of a sealed file."""

    region: int
    offset: int
    length: int
    broadcast: bool
    partitions: list[PartitionReport]


@dataclass(slots=True)
class FileReport:
    """One data file. Of a file that is not sealed only name and length are known."""

    path: str
    state: str  #: sealed, open, failed, or damaged
    map: int
    attempt: int
    epoch: int
    file_bytes: int
    indexed: bool = False
    size_bytes: int = 0
    batches: int = 0
    crc_sum: int = 0
    partitions: int = 0
    ack: str = ""
    incarnation: int = 0
    problem: str = ""
    regions: list[RegionReport] = field(default_factory=list)


@dataclass(slots=True)
class EpochReport:
    """One epoch of a REDUCE partition: as the index has it, or what is left of an unsealed one.

    Of the latter only `size_bytes` is known: of its file, or of its batches in the push log where it has none yet.
    """

    path: str  #: of the file that has it, which may have others; its name on the DFS if `dfs`; "" if none has
    state: str  #: sealed, open, failed, lost or unknown
    partition: int
    epoch: int
    size_bytes: int = 0
    batches: int = 0
    chunks: int = 0
    crc_sum: int = 0
    ack: str = ""
    incarnation: int = 0
    dfs: bool = False  #: its file is on the DFS


@dataclass(frozen=True, slots=True)
class DataFileReport:
    """One sealed file of REDUCE partitions. Of one on the DFS only what the index says is known: nobody looks there."""

    path: str
    kind: str  #: partition (one epoch) or pack (many)
    file_bytes: int
    indexed: bool
    problem: str = ""
    dfs: bool = False  #: it is on the DFS, and `path` is its name there


@dataclass(slots=True)
class ShuffleReport:
    """One generation of a shuffle."""

    instance: str
    shuffle: int
    generation: int
    #: which state of the masters registered it, in hex
    state: str
    files: list[FileReport] = field(default_factory=list)
    epochs: list[EpochReport] = field(default_factory=list)
    data_files: list[DataFileReport] = field(default_factory=list)


@dataclass(slots=True)
class DirectoryReport:
    """A storage directory."""

    path: str
    cluster_id: str
    worker_name: str
    worker_uid: str
    directory_id: str
    #: the last start that the directory knows of
    incarnation: int
    index_records: int
    index_pages: int
    index_free_pages: int
    shuffles: list[ShuffleReport]
    #: paths below the directory that have no name of ours
    unknown: list[str]
    problems: list[str]
    #: what the index has on the DFS, and which DFS that is
    dfs_files: int = 0
    dfs_bytes: int = 0
    dfs_url: str = ""


def inspect_directory(path: str, *, regions: bool = True) -> DirectoryReport:
    """Report on a directory; `regions` False leaves out what is inside files.

    Raises ConfigError if it is in use or is not a storage directory.
    """
    offline = open_offline(path)
    shuffles: dict[ShuffleKey, ShuffleReport] = {}
    unknown = []
    #: of REDUCE partitions, by what their names say
    sealed, others = dict[DataKey, str](), list[tuple[EpochKey, layout.FileKind, str]]()
    for below, name in offline.files():
        if name is None:
            unknown.append(below)
        elif isinstance(name.key, MapFileKey):
            _shuffle(shuffles, name.key.shuffle).files.append(_file(offline, below, name, name.key, regions))
        elif name.kind is layout.FileKind.SEALED:
            sealed[name.key] = below
        elif isinstance(name.key, EpochKey) and name.key not in offline.epochs:
            others.append((name.key, name.kind, below))
    present = {(report.path) for shuffle in shuffles.values() for report in shuffle.files}
    for key, epoch in offline.maps.items():
        if layout.sealed_path(key) not in present:
            _shuffle(shuffles, key.shuffle).files.append(_missing(key, epoch))
    _epochs(offline, shuffles, others)
    _data_files(offline, shuffles, sealed)
    problems = [f"{where}: {sentence}" for where, sentence in offline.problems]
    for shuffle in shuffles.values():
        problems += [f"{each.path}: {each.problem}" for each in shuffle.files if each.problem]
        problems += [f"{each.path}: {each.problem}" for each in shuffle.data_files if each.problem]
    identity, starts, index = offline.identity, offline.starts, offline.report
    return DirectoryReport(
        path=path,
        cluster_id=identity.cluster_id if identity else "",
        worker_name=identity.worker_name if identity else "",
        worker_uid=identity.worker_uid.hex() if identity else "",
        directory_id=identity.directory_id.hex() if identity else "",
        incarnation=starts.incarnation if starts else 0,
        index_records=index.pages.records if index else 0,
        index_pages=index.pages.used_pages if index else 0,
        index_free_pages=index.pages.free_pages if index else 0,
        shuffles=[shuffles[key] for key in sorted(shuffles)],
        unknown=unknown,
        problems=problems,
        dfs_files=len(offline.away),
        dfs_bytes=sum(size for size, _ in offline.away.values()),
        dfs_url=offline.dfs_url,
    )


def _epochs(
    offline: Offline,
    shuffles: dict[ShuffleKey, ShuffleReport],
    others: list[tuple[EpochKey, layout.FileKind, str]],
) -> None:
    """Add every recorded epoch, and every file of one that is not sealed."""
    for key, record in sorted(offline.epochs.items()):
        _shuffle(shuffles, key.shuffle).epochs.append(
            EpochReport(
                path=_path(offline, record.place(key)) if record.status == Status.OK else "",
                state=_STATES.get(record.status, record.status.name.lower()),
                partition=key.partition,
                epoch=key.epoch,
                size_bytes=record.size_bytes,
                batches=record.batches,
                chunks=len(record.chunks),
                crc_sum=record.crc_sum,
                ack=record.ack.name,
                incarnation=record.incarnation,
                dfs=record.status == Status.OK and _is_away(offline, record.place(key)),
            )
        )
    unsealed: dict[EpochKey, Path] = {}
    for file, kind, below in others:
        if kind in layout.MARKS:
            report = EpochReport(
                below, _STATES[layout.MARKS[kind]], file.partition, file.epoch, _size(offline, offline.root / below)
            )
            _shuffle(shuffles, file.shuffle).epochs.append(report)
        else:
            unsealed[file] = offline.root / below
    segments = scan_log(offline.env.files, offline.root, offline.boot_id, offline.logs)
    for key, left in sorted(find_left(offline.env.files, segments, unsealed).items()):
        if key not in offline.epochs:
            path = left.path or (left.pieces[0][0] if left.pieces else offline.root / names.LOG)
            size = _size(offline, left.path) if left.path is not None else sum(length for _, _, length in left.pieces)
            report = EpochReport(str(path.relative_to(offline.root)), "open", key.partition, key.epoch, size)
            _shuffle(shuffles, key.shuffle).epochs.append(report)


def _data_files(offline: Offline, shuffles: dict[ShuffleKey, ShuffleReport], found: dict[DataKey, str]) -> None:
    """Add every sealed file of REDUCE partitions that is on the disk or in the index."""
    recorded = {key for key in offline.sealed if not isinstance(key, MapFileKey)}
    for key in sorted(recorded | found.keys(), key=sealed_path):
        kind = "partition" if isinstance(key, EpochKey) else "pack"
        size = _size(offline, offline.root / found[key]) if key in found else 0
        problem = "" if key in found else "the index has it, the disk does not"
        report = DataFileReport(sealed_path(key), kind, size, key in offline.sealed, problem)
        _shuffle(shuffles, key.shuffle).data_files.append(report)

    for key, (size, _) in sorted(offline.away.items(), key=lambda item: str(item[0])):
        if _is_away(offline, key):
            kind = "partition" if isinstance(key, EpochKey) else "pack"
            report = DataFileReport(offline.away_name(key), kind, size, indexed=True, dfs=True)
            _shuffle(shuffles, key.shuffle).data_files.append(report)


def _is_away(offline: Offline, key: DataKey) -> bool:
    """Whether the file is on the DFS, and not here: killed in the middle of a move it may be in both places."""
    return key in offline.away and key not in offline.sealed


def _path(offline: Offline, key: DataKey) -> str:
    return offline.away_name(key) if _is_away(offline, key) else sealed_path(key)


def _size(offline: Offline, path: Path) -> int:
    return offline.env.files.stat(path).size


_STATES = {Status.OK: "sealed", Status.FAILED_COPY: "failed", Status.DATA_LOST: "lost", Status.UNKNOWN_FILE: "unknown"}


def _shuffle(shuffles: dict[ShuffleKey, ShuffleReport], owner: ShuffleKey) -> ShuffleReport:
    report = ShuffleReport(owner.instance.hex(), owner.shuffle, owner.generation, f"{owner.state:016x}")
    return shuffles.setdefault(owner, report)


def _blank(key: MapFileKey, path: str, state: str, size: int) -> FileReport:
    return FileReport(path, state, key.map, key.attempt, key.epoch, size)


def _missing(key: MapFileKey, epoch: EpochRecord) -> FileReport:
    report = _blank(key, layout.sealed_path(key), "damaged", 0)
    report.problem = "the index has it, the disk does not"
    _fill(report, epoch, regions=False)
    return report


def _file(offline: Offline, below: str, name: layout.FileName, key: MapFileKey, regions: bool) -> FileReport:
    path = offline.root / below
    report = _blank(key, below, name.kind.name.lower(), _size(offline, path))
    if name.note is not None:
        report.ack, report.incarnation = name.note.ack.name, name.note.incarnation
    if name.kind is not layout.FileKind.SEALED:
        return report
    report.indexed = key in offline.maps
    try:
        _fill(report, offline.map_epoch(key, path), regions)
    except (CorruptError, OSError) as error:
        report.state, report.problem = "damaged", str(error)
    return report


def _fill(report: FileReport, epoch: EpochRecord, regions: bool) -> None:
    report.size_bytes, report.batches = epoch.size_bytes, epoch.batches
    report.crc_sum, report.partitions = epoch.crc_sum, epoch.partitions
    report.ack, report.incarnation = epoch.ack.name, epoch.incarnation
    for chunk in epoch.decoded() if regions else ():
        if not report.regions or report.regions[-1].region != chunk.region:
            broadcast = bool(chunk.flags & RegionFlag.BROADCAST)
            region = RegionReport(chunk.region, chunk.region_offset, chunk.region_length, broadcast, [])
            report.regions.append(region)
        report.regions[-1].partitions.extend(
            PartitionReport(entry.partition, chunk.region_offset + entry.offset, entry.length, entry.batches)
            for entry in chunk.entries()
        )
