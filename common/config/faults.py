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
    """Faults made on purpose, for drills. Shown in status."""

    enabled: bool = setting(False, "Nothing below does anything unless this is true.")
    disk_delay: Duration = duration("0", "Added to every write, sync and read.")
    disk_rate: Size = size("0", "Bytes a second that a directory takes; 0 is no bound.")
    disk_error_rate: Ratio = setting(Ratio(0.0), "Share of writes and syncs that fail.")
    disk_error: Literal["EIO", "ENOSPC", "EROFS"] = setting(
        "EIO", "How they fail; ENOSPC spares syncs, EROFS spares nothing that changes the disk."
    )
    disk_error_after: Size = size("0", "Bytes that are written before any fails; with ENOSPC what the disk holds.")
    disk_error_count: int = setting(0, "Failures after which the disk works again; 0: it never does.")
    clock_offset: SignedDuration = setting(
        SignedDuration(Duration(0)),
        "Added to a master's clocks; may be negative, by less than its machine has been up. Workers read none.",
    )
    clock_jump: SignedDuration = setting(
        SignedDuration(Duration(0)), "By so much the clock of the day jumps, and back at the next time."
    )
    clock_jump_every: Duration = duration("0", "How often it jumps. 0: never.")
    detour: str = setting(
        "", "A loopback address through which this server reaches all others, on their ports: a proxy listens there."
    )

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
