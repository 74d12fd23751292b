"""The first step of opening a store: lock the directories and start the checks, each in a process of its own.

Apart from the rest so that it loads quickly: a worker calls `prepare` before it imports anything heavy, and the indexes
are checked and the data listed meanwhile. `open_store` of store.py waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from holdfast.common.errors import ConfigError
from holdfast.common.system.links import sentence
from holdfast.common.system.locks import HeldError
from holdfast.worker.storage import names
from holdfast.worker.storage.env.directory_paths import refuse_shared, unusable
from holdfast.worker.storage.env.interfaces import Check, Env, Files, Handle
from holdfast.worker.storage.env.system import system
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings


@dataclass(slots=True)
class Candidate:
    """A directory that is locked and being looked at."""

    settings: DirectorySettings
    lock: Handle
    #: None if there is no index
    index_check: Check | None
    data_check: Check

    def wait(self) -> None:
        """Wait for the checks to end; what they found is of no use."""
        for check in (self.index_check, self.data_check):
            if check is not None:
                check.report()


@dataclass(slots=True)
class Pending:
    """Directories on their way to being opened."""

    settings: StoreSettings
    candidates: list[Candidate]
    env: Env


def prepare(settings: StoreSettings, env: Env | None = None) -> Pending:
    """Lock the directories (made if missing), start the checks, and refuse what is neither file nor folder meanwhile,
    which is a look at every name. Raises ConfigError."""
    env = env or system()
    files = env.files
    locks: list[Handle] = []
    started: list[Candidate] = []
    try:
        refuse_shared([directory.path for directory in settings.directories], settings.dfs_folder)
        locks += [_lock(files, number, directory.path) for number, directory in enumerate(settings.directories)]
        # A directory may be reached by a link; nothing in it is one.
        real = [replace(directory, path=files.real_path(directory.path)) for directory in settings.directories]
        started += [_start(env, directory, lock) for directory, lock in zip(real, locks, strict=True)]
        for number, directory in enumerate(settings.directories):
            _refuse_foreign(files, number, directory.path)
    except ConfigError as error:
        locks.clear()  # the error, and with it this frame, may be kept
        while started:
            started.pop().wait()
        raise ConfigError(f"{settings.source}: {error}" if settings.source else str(error)) from error
    return Pending(settings, started, env)


def lock_directory(files: Files, root: str) -> Handle:
    """Take the directory for this process; raises ConfigError if another one has it, OSError."""
    try:
        return files.lock(Path(root, names.LOCK))
    except HeldError as error:
        raise ConfigError(f"the storage directory {root} is in use by {error}: stop it first") from None


def _lock(files: Files, number: int, root: str) -> Handle:
    try:
        files.make_folders(root)
        return lock_directory(files, root)
    except OSError as error:
        _refuse_foreign(files, number, root)  # the lock itself may be a link
        raise unusable(number, root, error) from error


def _refuse_foreign(files: Files, number: int, root: str) -> None:
    """Raise ConfigError if a link or a special file is where this worker keeps data."""
    try:
        foreign = files.first_foreign(root, partial(names.is_data_file, root))
    except OSError as error:
        raise unusable(number, root, error) from error
    if foreign is not None:
        raise ConfigError(f"worker.directories[{number}].path {root} is not used: {sentence(foreign)}")


def _start(env: Env, settings: DirectorySettings, lock: Handle) -> Candidate:
    root = settings.path
    data_check = env.checks.start("data", root)  # takes longer as a rule
    index_check = env.checks.start("index", root) if env.files.exists(f"{root}/{names.INDEX_DATA}") else None
    return Candidate(settings, lock, index_check, data_check)
