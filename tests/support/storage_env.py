"""The real door to the world for tests of storage, with files and indexes that a test can look into, delay or break."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from holdfast.worker.storage import check
from holdfast.worker.storage.env.interfaces import (
    Checks,
    Env,
    Files,
    Handle,
    IndexChange,
    Name,
    OpenIndex,
    Snapshot,
    Threads,
)
from holdfast.worker.storage.env.system import system
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.env.system_index import SystemIndexes
from holdfast.worker.storage.tiers.moving import FileMove, FileMover, Steps

__all__ = ["ChecksHere", "Disk", "Handle", "Name", "carry_out", "drive", "env_of"]


class Disk(SystemFiles):
    """Real files, whose indexes commit through them."""

    def commit(self, transaction: Callable[[], None]) -> None:
        """Run the synced commit of an index transaction."""
        transaction()

    def commit_at(self, path: Name, transaction: Callable[[], None]) -> None:
        """The same, of the index in this folder."""
        self.commit(transaction)

    def look_into_index(self) -> None:
        """Somebody is about to read in an index."""


class _Index:
    def __init__(self, inner: OpenIndex, disk: Disk, path: Name) -> None:
        self._inner = inner
        self._disk = disk
        self._path = path

    def reading(self) -> AbstractContextManager[Snapshot]:
        self._disk.look_into_index()
        return self._inner.reading()

    def commit(self, change: IndexChange) -> None:
        self._disk.commit_at(self._path, lambda: self._inner.commit(change))

    def enlarge(self, map_bytes: int) -> None:
        self._inner.enlarge(map_bytes)

    def close(self) -> None:
        self._inner.close()


class _Indexes(SystemIndexes):
    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def open(self, path: Name, map_bytes: int) -> Any:
        return _Index(super().open(path, map_bytes), self._disk, path)


class ChecksHere:
    """In the place of the processes that check an index or list data: the same functions, in this process, when asked.

    For tests that open hundreds of directories, where starting two interpreters for each would take most of the time.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    def start(self, what: str, root: str) -> CheckHere:
        """Begin one."""
        return CheckHere(what, root, self._files)


class CheckHere:
    """One of them."""

    def __init__(self, what: str, root: str, files: Files | None = None) -> None:
        self._arguments = files or SystemFiles(), what, root

    def report(self) -> str:
        """What the process would have printed."""
        return check.report(*self._arguments)


def env_of(disk: Files | None = None, *, threads: Threads | None = None, checks: Checks | None = None) -> Env:
    """The door with some of it replaced."""
    env = system()
    if disk is not None:
        env = env._replace(files=disk)
    if isinstance(disk, Disk):
        env = env._replace(indexes=_Indexes(disk))
    return env._replace(threads=threads or env.threads, checks=checks or env.checks)


def carry_out(mover: FileMover, move: FileMove) -> None:
    """Take all steps of a move at once, in this thread; raises what stops it."""
    drive(mover.steps(move))


def drive(steps: Steps) -> None:
    """Do all that is yielded, in this thread."""
    with suppress(StopIteration):
        work = next(steps)
        while True:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - the move hears of whatever it is
                work = steps.throw(error)
            else:
                work = steps.send(result)
