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
    #: None if there is no index
    index_check: Check | None
    data_check: Check
    lock: Handle

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
    """Lock the directories (made if missing), start the checks, and look through the names of data files meanwhile,
    which may be 100,000. Raises ConfigError."""
    env = env or system()
    files = env.files
    locks: list[Handle] = []
    started: list[Candidate] = []
    try:
        refuse_shared([directory.path for directory in settings.directories], settings.dfs_folder)
        for number, directory in enumerate(settings.directories):
            locks.append(_lock(files, number, directory.path))
        for number, directory in enumerate(settings.directories):
            started.append(Candidate(*_start(env, number, directory), locks[number]))
        for number, directory in enumerate(settings.directories):
            _refuse_foreign(files, number, directory.path, _data(directory.path))
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
        _refuse_foreign(files, number, root, root, but=_data(root))
        return lock_directory(files, root)
    except OSError as error:
        raise unusable(number, root, error) from error


def _refuse_foreign(files: Files, number: int, root: str, below: str, but: str = "") -> None:
    """Raise ConfigError if a link or a special file is where this worker keeps data."""
    try:
        foreign = files.first_foreign(below, partial(names.is_data_file, root), but)
    except OSError as error:
        raise unusable(number, root, error) from error
    if foreign is not None:
        raise ConfigError(f"worker.directories[{number}].path {root} is not used: {sentence(foreign)}")


def _data(root: str) -> str:
    return f"{root.rstrip('/')}/{names.DATA}"


def _start(env: Env, number: int, configured: DirectorySettings) -> tuple[DirectorySettings, Check | None, Check]:
    """Start the checks of a directory, of the index if there is one."""
    data_check = None
    try:
        # A directory may be reached by a link; nothing in it is one.
        root = env.files.real_path(configured.path)
        data_check = env.checks.start("data", root)  # takes longer as a rule
        index_check = env.checks.start("index", root) if env.files.exists(f"{root}/{names.INDEX_DATA}") else None
    except OSError as error:
        if data_check is not None:
            data_check.report()
        raise unusable(number, configured.path, error) from error
    return replace(configured, path=root), index_check, data_check
