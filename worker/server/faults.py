"""Faults on purpose, for drills: a slow, narrow or failing disk in front of the real one.

Rules: built from [faults] of the configuration, nothing otherwise; shown in /status; refused once security is on.
Waiting is left to the caller, so that a slow disk never blocks the loop. Called by map_service and stream_service.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from holdfast.common.config import FaultsSection
from holdfast.common.errors import RerouteError, Status


@dataclass(slots=True)
class Faults:
    """What goes wrong."""

    delay_seconds: float = 0.0
    bytes_per_second: int = 0
    error_rate: float = 0.0
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

    def wait_for(self, size: int) -> float:
        """Seconds that `size` bytes take longer than they would."""
        return self.delay_seconds + (size / self.bytes_per_second if self.bytes_per_second else 0.0)

    def strike(self) -> None:
        """Raise RerouteError DISK_FAILED at the rate asked for."""
        if self.error_rate and self._random.random() < self.error_rate:
            raise RerouteError("a disk failure was asked for by [faults]", status=Status.DISK_FAILED)
