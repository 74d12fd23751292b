"""Opens storage directories: takes in what the checks found, decides by the tables of recovery.py, and carries it out.

Nothing that acknowledged data could hang on is deleted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.ids import Incarnation
from holdfast.common.lmdb_pages import LmdbDamagedError, PageCounts
from holdfast.worker.storage import names
from holdfast.worker.storage.check import DataReport, IndexReport, decode_data, decode_index
from holdfast.worker.storage.dfs.away_note import DfsNotes
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.owner import DirectoryThreads
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.interfaces import Env, Files
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index.index import META_KEY, STARTS_KEY, Index
from holdfast.worker.storage.index.records import FILE_HEAD_BYTES, decode_shuffle
from holdfast.worker.storage.layout import folder_in, parse_segment
from holdfast.worker.storage.log.log_recovery import find_segments, scan_log, scan_segment
from holdfast.worker.storage.prepare import Candidate
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.recovery.inventory import Inventory
from holdfast.worker.storage.recovery.reconcile import Reconciler, put_aside
from holdfast.worker.storage.recovery.recovery import DirectoryFacts, Opening, Part, decide_opening
from holdfast.worker.storage.recovery.reduce_recovery import find_left, read_start
from holdfast.worker.storage.settings import StoreSettings

_NO_INDEX = IndexReport(PageCounts(0, 0, 0, 0, 0), b"", b"", {})


@dataclass(slots=True)
class Examined:
    """A directory and everything that decides how it is opened."""

    candidate: Candidate
    root: Path
    data: DataReport
    #: the names in it
    listed: list[str]
    index: IndexReport = _NO_INDEX
    index_part: Part = Part.ABSENT
    identity_part: Part = Part.ABSENT
    identity: Identity | None = None
    starts: list[Starts] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing is there that could be anybody's."""
        return not set(self.listed) - names.NOBODYS - names.STRAYS


def examine(files: Files, candidate: Candidate) -> Examined:
    """Wait for the checks of a directory and read its small files. Raises OSError if it cannot be read."""
    root = Path(candidate.settings.path)
    index_answer = candidate.index_check.report() if candidate.index_check else None
    data_answer = candidate.data_check.report()
    try:
        examined = Examined(candidate, root, decode_data(data_answer), files.names(root))
    except LmdbDamagedError as error:
        raise OSError(f"{root} cannot be listed: {error}") from error
    if index_answer is None:
        examined.index_part = Part.DAMAGED if files.exists(root / names.INDEX) else Part.ABSENT
    else:
        try:
            examined.index = decode_index(index_answer)
            examined.index_part = Part.GOOD
        except LmdbDamagedError as error:
            examined.index_part = Part.DAMAGED
            examined.notes.append(f"{root}: {error}")
    _read_identity(files, examined)
    _read_starts(files, examined)
    return examined


def _read_identity(files: Files, examined: Examined) -> None:
    path = examined.root / names.IDENTITY
    if files.exists(path):
        try:
            examined.identity = Identity.decode(files.read_whole(path))
            examined.identity_part = Part.GOOD
            if examined.index.identity not in (b"", examined.identity.encode()):
                examined.index_part = Part.DAMAGED
                examined.notes.append(f"{examined.root}: the index is that of another directory")
            return
        except ConfigError as error:
            raise ConfigError(f"{examined.root}: {error}") from None
        except CorruptError as error:
            examined.identity_part = Part.DAMAGED
            examined.notes.append(f"{path}: {error}")
    if examined.index.identity:
        examined.identity = Identity.decode(examined.index.identity)


def _read_starts(files: Files, examined: Examined) -> None:
    path = examined.root / names.STARTS
    copies = [examined.index.starts] if examined.index.starts else []
    if files.exists(path):
        copies.append(files.read_whole(path))
    for copy in copies:
        try:
            examined.starts.append(Starts.decode(copy))
        except CorruptError as error:
            examined.notes.append(f"{path}: {error}")


def decide_all(directories: Sequence[Examined], cluster_id: str, worker_name: str) -> list[Opening]:
    """Decide how each directory is opened; raises ConfigError with one sentence for those that are refused."""
    uids = {found.identity.worker_uid: found.root for found in directories if found.identity is not None}
    if len(uids) > 1:
        first, second = list(uids.values())[:2]
        raise ConfigError(f"the storage directories {first} and {second} belong to different workers")
    _refuse_copies(directories)
    openings: list[Opening] = []
    for found in directories:
        identity = found.identity
        ours = None if identity is None else (identity.cluster_id, identity.worker_name) == (cluster_id, worker_name)
        facts = DirectoryFacts(found.empty, found.identity_part, found.index_part, ours)
        opening = decide_opening(facts)
        if opening is Opening.REFUSE_OTHER and identity is not None:
            raise ConfigError(
                f"the storage directory {found.root} belongs to worker {identity.worker_name} of cluster "
                f"{identity.cluster_id}, not to {worker_name} of {cluster_id}: name another directory"
            )
        if opening is Opening.REFUSE_UNKNOWN:
            raise ConfigError(
                f"the storage directory {found.root} is not empty and has no readable identity: "
                "name an empty directory, or look at it with `holdfast verify`"
            )
        openings.append(opening)
    return openings


def remove_strays(files: Files, found: Examined) -> None:
    """Remove them from a directory that is about to be made: they may be another worker's. Raises OSError, and
    ConfigError for a folder."""
    for name in sorted(names.STRAYS.intersection(found.listed)):
        try:
            files.remove(found.root / name)
        except IsADirectoryError:
            raise ConfigError(
                f"{found.root / name} is a folder, and Holdfast keeps a file of that name in each of "
                "worker.directories: move it elsewhere"
            ) from None


def _refuse_copies(directories: Sequence[Examined]) -> None:
    """Raise ConfigError if one directory was copied from another: their files have the same names, so each would be
    taken for one that a kill left in two places while it moved, and would be removed from the first."""
    known: dict[bytes, Path] = {}
    for found in directories:
        if found.identity is None:
            continue
        first = known.setdefault(found.identity.directory_id, found.root)
        if first != found.root:
            raise ConfigError(
                f"the storage directory {found.root} is a copy of {first}, or that of this one: both have the id "
                f"{found.identity.directory_id.hex()}. Keep the one that was used last in worker.directories and take "
                "the other one out; for more room name an empty directory. Nothing in them was changed"
            )


def _remove_empty(files: Files, root: Path, data: DataReport) -> None:
    """Remove folders of shuffles that have nothing in them: of files that were all aborted, or that a kill left. One
    that is made meanwhile, or cannot be removed, stays."""
    for key, total in data.shuffles.items():
        if not total.files:
            with suppress(OSError):
                folder = folder_in(root, decode_shuffle(key))
                files.remove_folder(folder)
                files.remove_folder(folder.parent)


def _reconcile(found: Examined, files: Files, index: Index) -> Inventory:
    """Make files and index agree; adds to the notes."""
    _remove_empty(files, found.root, found.data)
    reconciler = Reconciler(found.root, files, index, found.data, found.index)
    inventory = reconciler.run()
    found.notes += reconciler.notes
    return inventory


def open_directory(
    found: Examined,
    opening: Opening,
    *,
    identity: Identity,
    env: Env,
    threads: DirectoryThreads,
    writers: OpenFiles,
    starts: Starts,
    settings: StoreSettings,
    dfs: DfsNotes,
) -> StorageDirectory:
    """Open one directory as decided and reconcile its files; adds to its notes. Raises OSError."""
    root, files = found.root, env.files
    if opening in (Opening.CREATE, Opening.RESTORE):
        files.replace(root / names.IDENTITY, identity.encode())
    for folder in (names.DATA, names.LOG, names.QUARANTINE):
        files.make_folder(root / folder)
    if opening is Opening.REBUILD:
        if found.index_part is not Part.ABSENT:
            put_aside(files, root, root / names.INDEX)
        found.index = _NO_INDEX
    files.make_folder(root / names.INDEX)
    index = Index(env, root / names.INDEX, settings.index_bytes_max)
    if not found.index.identity:
        dfs.lost_index(root)
        _record_logs(files, index, root, starts.boot_id)
    for place in (root / names.INDEX, root):  # LMDB syncs its file, and not the name of it
        files.sync_folder(place)
    inventory = _reconcile(found, files, index)
    if not found.index.identity:  # last: an index that has none is rebuilt
        index.put(META_KEY, identity.encode())
    with index.reading() as reader:
        logs = reader.logs()
    segments = scan_log(files, root, starts.boot_id, logs)
    unsealed = inventory.unsealed_epochs()
    _cut_unwritten(files, found.starts, starts, unsealed.values())
    left = find_left(files, segments, unsealed)
    found.notes += [f"{segment.path}: {bad.why}" for segment in segments for bad in segment.bad]
    # A log that lost nobody knows what stays recorded: the next start in this boot knows no better.
    doubtful = {segment.incarnation for segment in segments if segment.unnamed}
    with index.reading() as reader:  # what is sealed has its answer, whatever is still in the log of it
        inventory.left = {key: one for key, one in left.items() if not reader.has_epoch(key)}
    for key, path in unsealed.items():
        if key not in inventory.left:
            inventory.aside[key.shuffle] += files.held_bytes(path)
    inventory.old_segments = find_segments(files, root)
    inventory.old_logs = {number for number, boot in logs.items() if number not in doubtful or boot != starts.boot_id}
    inventory.unnamed = any(segment.unnamed for segment in segments)
    return StorageDirectory(
        found.candidate.settings,
        settings,
        identity=identity,
        lock=found.candidate.lock,
        env=env,
        index=index,
        threads=threads,
        found=inventory,
        writers=writers,
        starts=starts,
    )


def _record_logs(files: Files, index: Index, root: Path, boot_id: bytes) -> None:
    """An index is made anew: note the logs that are there, so that what it does not have was let go of. Of which boot
    a damaged segment is nobody knows: it is taken for one of this boot. Raises OSError."""
    boots: dict[int, bytes] = {}
    for path in find_segments(files, root):
        name = parse_segment(path.name)
        assert name is not None, "find_segments returns no other names"
        segment = scan_segment(files, path, boot_id, {name[0]: None})
        if segment.head is not None and segment.head.number:
            boots[segment.incarnation] = segment.head.boot_id
        elif segment.bad:
            boots.setdefault(segment.incarnation, boot_id)
    for incarnation, boot in boots.items():
        index.put_log(incarnation, boot)


def _cut_unwritten(files: Files, before: Sequence[Starts], now: Starts, unsealed: Iterable[Path]) -> None:
    """In the first start of a boot: a partition file may be there without its head, which was not synced then, and so
    nothing behind it was. Later starts would take it for damage. Raises OSError."""
    if any(each.boot_id == now.boot_id for each in before):
        return
    for path in unsealed:
        if files.stat(path).size >= FILE_HEAD_BYTES and not read_start(files, path).strip(b"\0"):
            files.truncate(path, 0)


def new_identity(settings: StoreSettings, worker_uid: bytes, directory_id: bytes) -> Identity:
    """The identity of a directory that is being made."""
    return Identity(
        cluster_id=settings.cluster_id,
        worker_name=settings.worker_name,
        worker_uid=worker_uid,
        directory_id=directory_id,
    )


def next_start(directories: Iterable[Examined], boot_id: bytes) -> Starts:
    """The start that is about to be recorded: one more than any directory knows of."""
    last = max((starts.incarnation for found in directories for starts in found.starts), default=0)
    return Starts(Incarnation(last + 1), boot_id)


def record_start(directory: StorageDirectory, files: Files, starts: Starts) -> None:
    """Bring the counter to the disk, in the file and in the index. Raises OSError.

    A file system that others have filled has room for neither a new file nor a new page, and what is sealed must be
    served all the same: then the file is written over in place, and it alone has the number.
    """
    path = directory.root / names.STARTS
    try:
        files.replace(path, starts.encode())
    except OSError as error:
        if not is_shortage(error) or not files.exists(path):
            raise
        files.overwrite(path, starts.encode())
    try:
        directory.index.put(STARTS_KEY, starts.encode())
    except OSError as error:
        if files.file_system(directory.root).free > 0:
            raise
        directory.condition.isolate(f"no room for the index: {error}", counts=False)
