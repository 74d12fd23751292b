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

from holdfast.common.config import FaultsSection
from holdfast.worker.storage.disk import Disk


@dataclass(slots=True)
class Faults:
    """What goes wrong."""

    delay_seconds: float = 0.0
    bytes_per_second: int = 0
    error_rate: float = 0.0
    #: when a narrow disk has done all that it was given
    _free_at: float = 0.0
    _random: random.Random = field(default_factory=random.Random)

    @classmethod
    def of(cls, section: FaultsSection) -> Faults:
        """Read the settings; none unless they are enabled."""
        if not section.enabled:
            return cls()
        return cls(section.disk_delay.seconds, int(section.disk_rate), float(section.disk_error_rate))

    def active(self) -> list[str]:
        """What is switched on, for people."""
        told = []
        if self.delay_seconds:
            told.append(f"disk_delay={self.delay_seconds}s")
        if self.bytes_per_second:
            told.append(f"disk_rate={self.bytes_per_second}B/s")
        if self.error_rate:
            told.append(f"disk_error_rate={self.error_rate}")
        return told

    def disk(self) -> Disk:
        """The door to the disk that fails and delays as asked."""
        return FaultyDisk(self) if self.active() else Disk()

    def wait_for(self, size: int) -> float:
        """Seconds until `size` bytes more have passed, behind all that came before them."""
        if not self.bytes_per_second:
            return self.delay_seconds
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size / self.bytes_per_second
        return self.delay_seconds + self._free_at - now

    def strike(self) -> None:
        """Raise OSError at the rate asked for."""
        if self.error_rate and self._random.random() < self.error_rate:
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} (asked for by [faults])")


class FaultyDisk(Disk):
    """A disk whose writes and syncs fail now and then, and whose syncs are slow."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write, or fail."""
        self._faults.strike()
        super().write(fd, data, offset)

    def write_parts(self, fd: int, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        """Write, or fail."""
        self._faults.strike()
        super().write_parts(fd, parts, size, offset)

    def sync_data(self, fd: int) -> None:
        """Sync late, or fail."""
        time.sleep(self._faults.delay_seconds)
        self._faults.strike()
        super().sync_data(fd)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace without faults: a worker that cannot count its own starts would never start."""
        Disk().replace(path, data)

    def overwrite(self, path: Path, data: bytes) -> None:
        """The same."""
        Disk().overwrite(path, data)
