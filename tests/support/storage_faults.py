"""A disk for stories about a worker's storage: killed at a step, full, failing, or looked into between two steps."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from holdfast.worker.storage.env.interfaces import Handle, Name
from holdfast.worker.storage.env.system import SystemThreads
from tests.support.storage_env import Disk

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

    def create(self, path: Name) -> Handle:
        self.step(Path(path))
        return super().create(path)

    def write(self, handle: Handle, data: bytes | memoryview, offset: int) -> None:
        self.step(_path_of(handle), torn=lambda: _half(handle, data, offset))
        super().write(handle, data, offset)

    def write_parts(self, handle: Handle, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        self.step(_path_of(handle), torn=lambda: _half(handle, b"".join(parts), offset))
        super().write_parts(handle, parts, size, offset)

    def sync(self, handle: Handle) -> None:
        self.step(_path_of(handle), writes=False)
        super().sync(handle)

    def sync_folder(self, path: Name) -> None:
        self.step(Path(path), writes=False)
        super().sync_folder(path)

    def make_folder(self, path: Name) -> bool:
        if self.exists(path):
            return False
        self.step(Path(path), alone=True)
        return super().make_folder(path)

    def rename(self, source: Name, target: Name) -> None:
        self.step(Path(target), writes=False)
        super().rename(source, target)

    def remove(self, path: Name) -> None:
        if self.exists(path):
            self.step(Path(path), writes=False)
        super().remove(path)

    def truncate(self, path: Name, size: int) -> None:
        self.step(Path(path), writes=False)
        super().truncate(path, size)

    def commit_at(self, path: Name, transaction: Callable[[], None]) -> None:
        """Commit to the index of a directory."""
        self.step(Path(path))
        super().commit(transaction)


def _half(handle: Handle, data: bytes | memoryview, offset: int) -> None:
    """Write about half, up to the end of a page: that is where a kill or a full disk cuts a write."""
    end = (offset + len(data) // 2) // PAGE_BYTES * PAGE_BYTES
    os.pwrite(handle.fd, data[: max(0, end - offset)], offset)


def _path_of(handle: Handle) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{handle.fd}"))


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


class Later(Inline):
    """One that works when it is told to."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], object]] = deque()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Do it when `run_one` is called."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = work(*arguments)
            except Exception as error:  # noqa: BLE001 - as executors do
                future.set_exception(error)
            else:
                future.set_result(result)

        self._work.append(run)
        return future

    def run_one(self) -> bool:
        """Do what waits longest; False if nothing does."""
        if not self._work:
            return False
        self._work.popleft()()
        return True


class InlineThreads(SystemThreads):
    """Pools that work at once, but for that of the mover."""

    def __init__(self) -> None:
        self.moves = Later()

    def pool(self, threads: int, name: str) -> Any:
        """One of them."""
        return self.moves if name == "holdfast-move" else Inline()
