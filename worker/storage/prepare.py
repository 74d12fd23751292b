"""The first step of opening a store: lock the directories and start the checks, each in a process of its own.

Apart from the rest so that it loads quickly: a worker calls `prepare` before it imports anything heavy, and the indexes
are checked and the data listed meanwhile. `open_store` of store.py waits for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.errors import ConfigError
from holdfast.common.system.links import first_foreign, sentence
from holdfast.common.system.locks import HeldError, acquire
from holdfast.common.system.modes import FOLDER_MODE
from holdfast.worker.storage import names
from holdfast.worker.storage.directory_paths import refuse_shared, unusable
from holdfast.worker.storage.handles import Handle
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings

if TYPE_CHECKING:
    from holdfast.worker.storage.disk import Disk


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
        foreign = first_foreign(root, partial(names.is_data_file, root))
        if foreign is not None:
            raise ConfigError(f"worker.directories[{number}].path {root} is not used: {sentence(foreign)}")
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
