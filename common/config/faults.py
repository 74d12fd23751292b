"""The section [faults] of the configuration: faults on purpose, for drills. See config.py for its rules.

A server without `enabled` does none of it. Called by config.py, and by the edges that carry the faults out.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

from holdfast.common.config.settings import Duration, Ratio, SignedDuration, Size, duration, setting, size
from holdfast.common.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsSection:
    """Faults for drills."""

    enabled: bool = setting(False, "Switch for all below.")
    disk_delay: Duration = duration("0", "Added to every write, sync and read.")
    disk_rate: Size = size("0", "Bytes a second that a directory takes; 0: unlimited.")
    disk_error_rate: Ratio = setting(Ratio(0.0), "Share of writes and syncs that fail.")
    disk_error: Literal["EIO", "ENOSPC", "EROFS"] = setting("EIO", "Kind; ENOSPC spares syncs, EROFS no change.")
    disk_error_after: Size = size("0", "Bytes before the first failure; with ENOSPC the disk's size.")
    disk_error_count: int = setting(0, "Failures until the disk works again; 0: never.")
    clock_offset: SignedDuration = setting(
        SignedDuration(Duration(0)),
        "Added to a master's clocks; negative by less than the uptime.",
    )
    clock_jump: SignedDuration = setting(
        SignedDuration(Duration(0)), "Jump of the wall clock, forward and back in turn."
    )
    clock_jump_every: Duration = duration("0", "Interval of jumps. 0: never.")
    detour: str = setting("", "Loopback address of a proxy to all other servers, on their ports.")

    def __post_init__(self) -> None:
        disks = self.disk_delay.ns or self.disk_rate or self.disk_error_rate or self.disk_error_after
        disks = disks or self.disk_error_count or self.disk_error != "EIO"
        clocks = self.clock_offset.ns or self.clock_jump.ns or self.clock_jump_every.ns
        if (disks or clocks or self.detour) and not self.enabled:
            raise ConfigError("asks for faults, but enabled is false: set it to true, or take the faults out")
        if bool(self.clock_jump.ns) != bool(self.clock_jump_every.ns):
            raise ConfigError("clock_jump and clock_jump_every go together")
        if self.detour and not _loopback(self.detour):
            raise ConfigError("detour is a loopback address, as in 127.0.0.11: nothing leaves this machine by a fault")

    def jumped_ns(self, running_ns: int) -> int:
        """What jumps make of the clock of the day in a server that has run for so long, in nanoseconds."""
        if not self.enabled or not self.clock_jump_every.ns:
            return 0
        return self.clock_jump.ns if running_ns // self.clock_jump_every.ns % 2 else 0

    def others(self) -> list[str]:
        """What is switched on beside faults of disks, for people."""
        if not self.enabled:
            return []
        described = [f"clock_offset={self.clock_offset}"] if self.clock_offset.ns else []
        if self.clock_jump.ns:
            described.append(f"clock_jump={self.clock_jump} every {self.clock_jump_every}")
        return [*described, f"detour={self.detour}"] if self.detour else described


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
