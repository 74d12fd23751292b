"""Opens storage directories: locks, compares disk and index, carries out what the tables of recovery.py decide.

`prepare` starts one child process per directory that checks its index and returns at once, so that a worker can load
its other modules meanwhile; `Pending.open` does the rest. Nothing that acknowledged data could hang on is deleted here.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.errors import ConfigError, CorruptError
from holdfast.common.ids import Incarnation
from holdfast.worker.storage import layout
from holdfast.worker.storage.check import IndexReport, decode_report
from holdfast.worker.storage.directory import StorageDirectory
from holdfast.worker.storage.disk import Disk
from holdfast.worker.storage.handles import Handle
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index import META_KEY, STARTS_KEY, Index
from holdfast.worker.storage.listing import Listing, list_data
from holdfast.worker.storage.pages import IndexDamagedError, PageCounts
from holdfast.worker.storage.reconcile import Reconciler, put_aside
from holdfast.worker.storage.recovery import DirectoryFacts, Opening, Part, decide_opening

_NO_PAGES = PageCounts(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """One directory of a worker; capacity 0 is all that the file system has."""

    path: str
    tier: str = "SSD"
    capacity_bytes: int = 0


def lock_directory(root: Path) -> Handle:
    """Take the directory for this process; raises ConfigError if another one has it, OSError."""
    handle = Handle(os.open(root / layout.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    try:
        fcntl.flock(handle.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(handle.fd, 32, 0).decode(errors="replace").strip() or "unknown"
        raise ConfigError(f"the storage directory {root} is in use by process {owner}: stop it first") from None
    os.ftruncate(handle.fd, 0)
    os.pwrite(handle.fd, f"{os.getpid()}\n".encode(), 0)
    return handle


@dataclass(slots=True)
class Candidate:
    """A directory on its way to being opened."""

    settings: DirectorySettings
    root: Path
    lock: Handle
    child: subprocess.Popen[str] | None
    listing: Listing = field(default_factory=Listing)
    report: IndexReport = field(default_factory=lambda: IndexReport(_NO_PAGES))
    index_state: Part = Part.ABSENT
    identity_state: Part = Part.ABSENT
    identity: Identity | None = None
    starts: list[Starts] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Nothing is there that could be anybody's."""
        return not set(os.listdir(self.root)) - layout.NOBODYS


def start_candidate(settings: DirectorySettings) -> Candidate:
    """Lock a directory (made if missing) and start the check of its index. Raises ConfigError."""
    root = Path(settings.path)
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = lock_directory(root)
    except OSError as error:
        raise ConfigError(f"the storage directory {root} cannot be used: {error.strerror}") from error
    child = None
    if (root / layout.INDEX_DATA).exists():
        command = [sys.executable, "-P", "-m", "holdfast.worker.storage.check", str(root)]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return Candidate(settings, root, lock, child)


def examine(candidate: Candidate) -> None:
    """List the directory, read its small files, and take in what the child found."""
    root = candidate.root
    candidate.listing = list_data(root)
    if candidate.child is not None:
        answer, _ = candidate.child.communicate()
        try:
            candidate.report = decode_report(answer)
            candidate.index_state = Part.GOOD
        except IndexDamagedError as error:
            candidate.index_state = Part.DAMAGED
            candidate.notes.append(f"{root}: {error}")
    elif (root / layout.INDEX).exists():
        candidate.index_state = Part.DAMAGED
    _read_identity(candidate)
    _read_starts(candidate)


def _read_identity(candidate: Candidate) -> None:
    path = candidate.root / layout.IDENTITY
    if path.exists():
        try:
            candidate.identity = Identity.decode(path.read_bytes())
            candidate.identity_state = Part.GOOD
            if candidate.report.identity not in (b"", candidate.identity.encode()):
                candidate.index_state = Part.DAMAGED
                candidate.notes.append(f"{candidate.root}: the index is that of another directory")
            return
        except CorruptError as error:
            candidate.identity_state = Part.DAMAGED
            candidate.notes.append(f"{path}: {error}")
    if candidate.report.identity:
        candidate.identity = Identity.decode(candidate.report.identity)


def _read_starts(candidate: Candidate) -> None:
    path = candidate.root / layout.STARTS
    copies = [candidate.report.starts] if candidate.report.starts else []
    if path.exists():
        copies.append(path.read_bytes())
    for copy in copies:
        try:
            candidate.starts.append(Starts.decode(copy))
        except CorruptError as error:
            candidate.notes.append(f"{path}: {error}")


def decide_all(candidates: Iterable[Candidate], cluster_id: str, worker_name: str) -> list[Opening]:
    """Decide how each directory is opened; raises ConfigError with one sentence for those that are refused."""
    known = [candidate for candidate in candidates if candidate.identity is not None]
    uids = {candidate.identity.worker_uid: candidate.root for candidate in known if candidate.identity}
    if len(uids) > 1:
        first, second = list(uids.values())[:2]
        raise ConfigError(f"the storage directories {first} and {second} belong to different workers")
    openings = []
    for candidate in candidates:
        identity = candidate.identity
        ours = None if identity is None else (identity.cluster_id, identity.worker_name) == (cluster_id, worker_name)
        facts = DirectoryFacts(candidate.empty, candidate.identity_state, candidate.index_state, ours)
        opening = decide_opening(facts)
        if opening is Opening.REFUSE_OTHER and identity is not None:
            raise ConfigError(
                f"the storage directory {candidate.root} belongs to worker {identity.worker_name} of cluster "
                f"{identity.cluster_id}, not to {worker_name} of {cluster_id}: name another directory"
            )
        if opening is Opening.REFUSE_UNKNOWN:
            raise ConfigError(
                f"the storage directory {candidate.root} is not empty and nothing readable in it says whose it is: "
                "name an empty directory, or look at it with `holdfast verify`"
            )
        openings.append(opening)
    return openings


def open_directory(
    candidate: Candidate,
    opening: Opening,
    *,
    identity: Identity,
    disk: Disk,
    pool: Executor,
    index_bytes_max: int,
    notes: list[str],
) -> StorageDirectory:
    """Open one directory as decided and reconcile its files. Raises OSError or lmdb.Error."""
    root = candidate.root
    if opening in (Opening.CREATE, Opening.RESTORE):
        disk.replace(root / layout.IDENTITY, identity.encode())
    for folder in (layout.DATA, layout.QUARANTINE):
        disk.make_folder(root / folder)
    if opening is Opening.REBUILD:
        if candidate.index_state is not Part.ABSENT:
            put_aside(disk, root, root / layout.INDEX)
        candidate.report = IndexReport(_NO_PAGES)
    disk.make_folder(root / layout.INDEX)
    index = Index(root / layout.INDEX, disk, index_bytes_max)
    if not candidate.report.identity:
        index.put(META_KEY, identity.encode())
    disk.sync_folder(root)
    tables = Reconciler(root, disk, index, candidate.listing, candidate.report, notes).run()
    return StorageDirectory(
        root=root,
        tier=candidate.settings.tier,
        capacity_bytes=candidate.settings.capacity_bytes,
        identity=identity,
        lock=candidate.lock,
        disk=disk,
        index=index,
        pool=pool,
        tables=tables,
    )


def new_identity(cluster_id: str, worker_name: str, worker_uid: bytes) -> Identity:
    """The identity of a directory that is being made."""
    return Identity(
        cluster_id=cluster_id,
        worker_name=worker_name,
        worker_uid=worker_uid,
        directory_id=secrets.token_bytes(16),
    )


def next_start(candidates: Iterable[Candidate], boot_id: bytes) -> Starts:
    """The start that is about to be recorded: one more than any directory knows of."""
    last = max((starts.incarnation for candidate in candidates for starts in candidate.starts), default=0)
    return Starts(Incarnation(last + 1), boot_id)


def record_start(directory: StorageDirectory, disk: Disk, starts: Starts) -> None:
    """Bring the counter to the disk, in the file and in the index. Raises OSError or lmdb.Error."""
    disk.replace(directory.root / layout.STARTS, starts.encode())
    directory.index.put(STARTS_KEY, starts.encode())
