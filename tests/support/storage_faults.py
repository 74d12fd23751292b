"""A disk for stories about a worker's storage: killed at a step, full, failing, or looked into between two steps."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from holdfast.worker.storage.disk import Disk

PAGE_BYTES = 4_096


class KilledError(BaseException):
    """The process is gone."""


class StoryDisk(Disk):
    """Every call that changes something is a step."""

    def __init__(self) -> None:
        #: steps until the kill; None: none is coming
        self.kill_after: int | None = None
        self.killed = False
        #: below these nothing more can be written: it is full, or it fails
        self.full: Path | None = None
        self.broken: Path | None = None
        #: steps until something else happens, and what; it is told whether files may be changed then
        self.meanwhile: tuple[int, Callable[[bool], None]] | None = None
        self.steps = 0

    def step(
        self,
        path: Path | None,
        *,
        torn: Callable[[], object] | None = None,
        writes: bool = True,
        alone: bool = False,
    ) -> None:
        """Something is about to happen at `path`; `torn` does half of it. `writes`: it needs room; `alone`: all others
        wait for it."""
        if self.killed:
            raise KilledError
        self.steps += 1
        if not alone:
            self._meanwhile(path)
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after < 0:
                self.killed = True
                if torn is not None:
                    torn()
                raise KilledError
        for below, number in ((self.broken, errno.EIO), (self.full if writes else None, errno.ENOSPC)):
            if path is not None and below is not None and path.is_relative_to(below):
                if torn is not None and self.steps % 2:
                    torn()
                raise OSError(number, os.strerror(number))

    def _meanwhile(self, path: Path | None) -> None:
        if self.meanwhile is None:
            return
        left, act = self.meanwhile
        if left:
            self.meanwhile = left - 1, act
            return
        self.meanwhile = None
        act(path is not None and path.name != "index")

    def create(self, path: Path) -> int:
        self.step(path)
        return super().create(path)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self.step(_path_of(fd), torn=lambda: _half(fd, data, offset))
        super().write(fd, data, offset)

    def write_parts(self, fd: int, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        self.step(_path_of(fd), torn=lambda: _half(fd, b"".join(parts), offset))
        super().write_parts(fd, parts, size, offset)

    def sync_data(self, fd: int) -> None:
        self.step(_path_of(fd), writes=False)
        super().sync_data(fd)

    def sync_folder(self, path: Path) -> None:
        self.step(path, writes=False)
        super().sync_folder(path)

    def make_folder(self, path: Path) -> bool:
        if path.exists():
            return False
        self.step(path, alone=True)
        return super().make_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        self.step(target, writes=False)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        if path.exists():
            self.step(path, writes=False)
        super().remove(path)

    def truncate(self, path: Path, size: int) -> None:
        self.step(path, writes=False)
        super().truncate(path, size)

    def commit(self, transaction: Callable[[], None]) -> None:
        self.commit_at(None, transaction)

    def commit_at(self, root: Path | None, transaction: Callable[[], None]) -> None:
        """Commit to the index of a directory."""
        self.step(root / "index" if root is not None else None)
        super().commit(transaction)


def _half(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write about half, up to the end of a page: that is where a kill or a full disk cuts a write."""
    end = (offset + len(data) // 2) // PAGE_BYTES * PAGE_BYTES
    os.pwrite(fd, data[: max(0, end - offset)], offset)


def _path_of(fd: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{fd}"))


class IndexDisk(Disk):
    """The disk of one directory's index, whose commits do not say where they are."""

    def __init__(self, disk: StoryDisk, root: Path) -> None:
        self._story_disk = disk
        self._root = root

    def commit(self, transaction: Callable[[], None]) -> None:
        self._story_disk.commit_at(self._root, transaction)


class Inline:
    """An executor that works at once, so that what ends a step ends the caller."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Do it now."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:  # noqa: BLE001 - as executors do
            future.set_exception(error)
        return future

    def shutdown(self, **_: object) -> None:
        """Nothing runs."""
