"""The first step of opening a store: lock the directories and start the checks, each in a process of its own.

Apart from the rest so that it loads quickly: a worker calls `prepare` before it imports anything heavy, and the indexes
are checked and the data listed meanwhile. `Pending.open` (store.py does the work) waits for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.config import TiersSection
from holdfast.common.errors import ConfigError
from holdfast.common.net.links import first_link, sentence
from holdfast.common.net.locks import HeldError, acquire
from holdfast.common.net.modes import FOLDER_MODE
from holdfast.worker.core.health import SECOND_NS, Limits
from holdfast.worker.storage import names
from holdfast.worker.storage.handles import Handle
from holdfast.worker.storage.paths import refuse_shared, unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.worker.storage.away import Away
    from holdfast.worker.storage.disk import Disk
    from holdfast.worker.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """One directory of a worker; capacity 0 is all that the file system has."""

    path: str
    tier: str = "SSD"
    capacity_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What a store is made of."""

    cluster_id: str
    worker_name: str
    directories: tuple[DirectorySettings, ...]
    #: files that readers keep open
    open_files_max: int = 512
    #: threads for syncs and commits
    sync_threads: int = 4
    #: bound of each index; it grows up to here
    index_bytes_max: int = 16 << 30
    #: a segment of the push log
    segment_bytes: int = 64 << 20
    #: which directory a new epoch begins in, and which files move between tiers
    tiers: TiersSection = field(default_factory=TiersSection)
    #: the folder of the DFS, where that is a local one; else ""
    dfs_folder: str = ""
    #: where worker.directories is written, as errors tell it; "" if that is not known
    source: str = ""
    #: makes the worker's part of the DFS, by its uid; None without one
    open_away: Callable[[bytes], Away] | None = None
    #: room kept free in each directory, so that seals and the index never lack it; a tenth of it if that is less
    reserve_bytes: int = 64 << 20
    #: when a directory is isolated, and when it returns
    health: Limits = Limits()
    #: window of the mean times of writes and reads
    average_ns: int = 10 * SECOND_NS


@dataclass(slots=True)
class Candidate:
    """A directory that is locked and being looked at."""

    settings: DirectorySettings
    lock: Handle
    #: None if there is no index
    index_check: subprocess.Popen[str] | None
    data_check: subprocess.Popen[str]


@dataclass(slots=True)
class Pending:
    """Directories on their way to being opened."""

    settings: StoreSettings
    candidates: list[Candidate]
    disk: Disk | None

    def open(self) -> Store:
        """Wait for the checks, recover, count this start, and return the store.

        Raises ConfigError if a directory belongs to somebody else, OSError or lmdb.Error if the disk fails.
        """
        from holdfast.worker.storage.store import open_store

        return open_store(self)


def prepare(settings: StoreSettings, disk: Disk | None = None) -> Pending:
    """Lock the directories (made if missing) and start the checks. Raises ConfigError."""
    try:
        refuse_shared([directory.path for directory in settings.directories], settings.dfs_folder)
        locks = [_lock(number, directory.path) for number, directory in enumerate(settings.directories)]
    except ConfigError as error:
        raise ConfigError(f"{settings.source}: {error}" if settings.source else str(error)) from error
    # A directory may be reached by a link; nothing in it is one.
    real = [replace(directory, path=os.path.realpath(directory.path)) for directory in settings.directories]
    started = [_start(directory, lock) for directory, lock in zip(real, locks, strict=True)]
    return Pending(settings, started, disk)


def lock_directory(root: str) -> Handle:
    """Take the directory for this process; raises ConfigError if another one has it, OSError."""
    try:
        return Handle(acquire(Path(root, names.LOCK)))
    except HeldError as error:
        raise ConfigError(f"the storage directory {root} is in use by {error}: stop it first") from None


def _lock(number: int, root: str) -> Handle:
    try:
        os.makedirs(root, FOLDER_MODE, exist_ok=True)
        link = first_link(root, partial(names.is_data_file, root))
        if link is not None:
            raise ConfigError(f"worker.directories[{number}].path {root} is not used: {sentence(link)}")
        return lock_directory(root)
    except OSError as error:
        raise unusable(number, root, error) from error


def _start(settings: DirectorySettings, lock: Handle) -> Candidate:
    root = settings.path
    data_check = _check("data", root)  # takes longer as a rule
    index_check = _check("index", root) if os.path.exists(f"{root}/{names.INDEX_DATA}") else None
    return Candidate(settings, lock, index_check, data_check)


def _check(what: str, root: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "holdfast.worker.storage.check", what, root]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
