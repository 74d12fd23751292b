"""Faults on purpose, for drills: a slow, narrow or failing disk.

Rules: built from [faults] of the configuration, and harmless without it; shown in /status; refused once security is on.
Failures come out of the real door to the disk, so that everything behind it is tested. Waiting for writes and reads is
left to the services, so that a slow disk never blocks the loop; syncs run in threads and just take longer.
Called by main.py, map_service.py and stream_service.py.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.config.faults import FaultsSection
from holdfast.worker.storage import names
from holdfast.worker.storage.env.interfaces import Data, Env, FileSystem, Handle, Name
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.env.system_index import SystemIndexes


@dataclass(slots=True)
class Faults:
    """What goes wrong."""

    delay_seconds: float = 0.0
    bytes_per_second: int = 0
    error_rate: float = 0.0
    error: int = errno.EIO
    #: bytes that are written before anything fails
    error_after: int = 0
    #: failures after which the disk is well again; 0: it stays as it is
    error_count: int = 0
    _failed: int = 0
    _written: int = 0
    #: faults of clock and network, for people
    others: tuple[str, ...] = ()
    #: when a narrow disk has done all that it was given
    _free_at: float = 0.0
    _random: random.Random = field(default_factory=random.Random)

    @classmethod
    def of(cls, section: FaultsSection) -> Faults:
        if not section.enabled:
            return cls()
        return cls(
            section.disk_delay.seconds,
            int(section.disk_rate),
            float(section.disk_error_rate),
            getattr(errno, section.disk_error),
            int(section.disk_error_after),
            section.disk_error_count,
            others=tuple(section.others()),
        )

    def active(self) -> list[str]:
        return [*self._of_disks(), *self.others]

    def _of_disks(self) -> list[str]:
        problems = []
        if self.delay_seconds:
            problems.append(f"disk_delay={self.delay_seconds}s")
        if self.bytes_per_second:
            problems.append(f"disk_rate={self.bytes_per_second}B/s")
        if self.error_rate:
            after = f" after {self.error_after} B" if self.error_after else ""
            times = f", {self.error_count} times" if self.error_count else ""
            problems.append(f"disk_error_rate={self.error_rate} ({errno.errorcode[self.error]}{after}{times})")
        return problems

    def door(self, env: Env) -> Env:
        """The door with disks that fail and delay as asked."""
        if not self._of_disks():
            return env
        return env._replace(files=FaultyFiles(self), indexes=FaultyIndexes(self))

    def wait_for(self, size: int) -> float:
        """Seconds until `size` bytes more have passed, behind all that came before them."""
        if not self.bytes_per_second:
            return self.delay_seconds
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size / self.bytes_per_second
        return self.delay_seconds + self._free_at - now

    def strike(self, size: int = 0) -> None:
        """Raise OSError at the rate asked for, once so much is written; `size` bytes more are about to be."""
        if not self.error_rate or self._healed:
            return
        if self._written + size <= self.error_after:
            self._written += size
            return
        if self.error != errno.ENOSPC:  # what is full takes what still fits; what broke, broke for small writes too
            self._written = self.error_after
        if self._random.random() < self.error_rate:
            self._failed += 1
            raise OSError(self.error, f"{os.strerror(self.error)} (asked for by [faults])")

    def change(self) -> None:
        """Names and indexes change without room of their own, and not at all on a disk that is read-only."""
        if self.error == errno.EROFS:
            self.strike(1)

    @property
    def _healed(self) -> bool:
        return 0 < self.error_count <= self._failed

    def capacity_and_free(self, size: int, free: int) -> tuple[int, int]:
        """Capacity and free bytes: what is there, or what the settings leave of it."""
        if not self.error_rate or self._healed or self.error != errno.ENOSPC:
            return size, free
        return min(size, self.error_after), max(0, min(free, self.error_after - self._written))


class FaultyFiles(SystemFiles):
    """Files whose writes and syncs fail now and then, and whose syncs are slow."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def create(self, path: Name) -> Handle:
        self._faults.strike(1)
        return super().create(path)

    def write(self, handle: Handle, data: Data, offset: int) -> None:
        self._faults.strike(len(data))
        super().write(handle, data, offset)

    def write_parts(self, handle: Handle, parts: Sequence[Data], size: int, offset: int) -> None:
        self._faults.strike(size)
        super().write_parts(handle, parts, size, offset)

    def sync(self, handle: Handle) -> None:
        time.sleep(self._faults.delay_seconds)
        if self._faults.error != errno.ENOSPC:
            self._faults.strike(1)
        super().sync(handle)

    def sync_folder(self, path: Name) -> None:
        """Sync late, but for a storage directory itself and its index, as every start does: a worker whose disk hangs
        has to start to tell of it."""
        path = Path(path)
        if path.name != names.INDEX and not self.exists(path / names.IDENTITY):
            time.sleep(self._faults.delay_seconds)
        super().sync_folder(path)

    def make_folder(self, path: Name) -> bool:
        self._faults.change()
        return super().make_folder(path)

    def rename(self, source: Name, target: Name) -> None:
        self._faults.change()
        super().rename(source, target)

    def remove(self, path: Name) -> None:
        self._faults.change()
        super().remove(path)

    def truncate(self, path: Name, size: int) -> None:
        self._faults.change()
        super().truncate(path, size)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace without faults: a worker that cannot count its own starts would never start."""
        SystemFiles().replace(path, data)

    def overwrite(self, path: Path, data: bytes) -> None:
        SystemFiles().overwrite(path, data)

    def file_system(self, path: Name) -> FileSystem:
        return FileSystem(*self._faults.capacity_and_free(*super().file_system(path)))


class FaultyIndexes(SystemIndexes):
    """Indexes that take no change on a disk that is read-only."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults

    def before_commit(self, path: Name) -> None:
        """Fail."""
        self._faults.change()
