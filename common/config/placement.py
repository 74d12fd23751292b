"""The section [placement] of the configuration: which worker gets what, and where workers are. See config.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.common.config import settings
from holdfast.common.config.settings import Duration, Ratio, duration, setting
from holdfast.common.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSection:
    """Which worker gets what, and where workers are. Read by masters, the same on all; `holdfast reload`."""

    policy: Literal["random", "rackaware", "regionaware"] = setting(
        "rackaware", "What two copies never share beside a host: nothing, a rack, or a region; as far as there are two."
    )
    order: Literal["roundrobin", "loadaware", "weighted"] = setting(
        "roundrobin", "How partitions are shared out: evenly, more to fast disks, or more to free disks."
    )
    enforce_racks: bool = setting(False, "Refuse to place two copies on one rack, or on a host without a known rack.")
    max_multiple: float = setting(3.0, "weighted: a worker counts as at most so many medians; 0: no cap.")
    disk_groups: int = setting(5, "loadaware: disks are ranked by their times and cut into so many groups.")
    gradient: float = setting(0.1, "loadaware: so much more is placed on each group than on the next slower one.")
    flush_weight: float = setting(0.0, "loadaware: how much the time of a write counts.")
    fetch_weight: float = setting(1.0, "loadaware: how much the time of a read counts.")
    write_regions: tuple[str, ...] = setting((), "regionaware: the regions that are written to. Empty: all there are.")
    refused_regions: tuple[str, ...] = setting((), "regionaware: regions that take nothing new; for maintenance.")
    durable_regions: int = setting(
        0, "regionaware: 2: two copies are in two regions or nowhere, so that losing one region loses nothing."
    )
    durable_in_replace: bool = setting(True, "Whether that holds, too, when one copy is replaced.")
    local_region: str = setting("", "regionaware: the region whose workers hold the first copy. Empty: no preference.")
    default_place: str = setting(
        "/default-region/default-rack", "The place of a worker whose host cannot be resolved: /region/rack."
    )
    resolver: str = setting(
        "static", "static (worker.rack), table, script, hostname, or the name of an installed holdfast.resolvers class."
    )
    resolver_path: str = setting("", "The table (a host and a place in each line) or the script, absolute.")
    resolver_argument: str = setting(
        "", "hostname: host:region;host:region. Else what an installed class is made with."
    )
    script_hosts: int = setting(100, "script: hosts in one call at most.")
    script_timeout: Duration = duration("10s", "script: a call that takes longer resolves none of its hosts.")
    refresh: Duration = duration("30s", "How often hosts that could not be resolved are asked for again.")
    stabilise: Duration = duration(
        "0s",
        "A lost worker is only away this long before its epochs move; one heartbeat is good. 0: at once.",
    )
    flap_starts: int = setting(3, "A worker that started so often within flap_window gets data only if it is needed.")
    flap_window: Duration = duration("60s", "The window; it ends when the worker has been up that long.")
    quarantine_errors: int = setting(0, "Errors in an interval that put a worker into quarantine; 0: no quarantine.")
    quarantine_interval: Duration = duration("60s", "Over which errors are counted.")
    quarantine_duration: Duration = duration("30m", "How long a worker in quarantine gets data only if it is needed.")
    quarantine_ratio: Ratio = setting(Ratio(1.0), "The share of such workers that go into quarantine, by lot.")

    def __post_init__(self) -> None:
        if self.policy != "regionaware" and (
            self.write_regions or self.refused_regions or self.durable_regions or self.local_region
        ):
            raise ConfigError(
                'write_regions, refused_regions, durable_regions and local_region need policy = "regionaware"'
            )
        if self.policy == "random" and self.enforce_racks:
            raise ConfigError('enforce_racks needs policy = "rackaware" or "regionaware": random ignores racks')
        self._check_regions()
        if self.durable_regions not in (0, 2):
            raise ConfigError("durable_regions must be 0 or 2: there are two copies at most")
        head, *parts = self.default_place.split("/")
        if head or len(parts) != 2 or not all(parts):
            raise ConfigError("default_place needs a region and a rack, as in /default-region/default-rack")
        self._check_numbers()
        self._check_resolver()

    def _check_regions(self) -> None:
        named = (*self.write_regions, *self.refused_regions, *filter(None, [self.local_region]))
        if wrong := [each for each in named if not each or "/" in each]:
            raise ConfigError(f"a region is the first part of a place, without slashes, not {settings.shown(wrong[0])}")
        left = set(self.write_regions) - set(self.refused_regions)
        if self.write_regions and len(left) < max(1, self.durable_regions):
            raise ConfigError(
                f"{len(left)} of write_regions are not refused, and durable_regions = {self.durable_regions} needs"
                f" {max(1, self.durable_regions)}: nothing could be placed"
            )
        if self.local_region and (
            self.local_region in self.refused_regions or (self.write_regions and self.local_region not in left)
        ):
            raise ConfigError(f"local_region {self.local_region} takes nothing, by write_regions and refused_regions")

    def _check_numbers(self) -> None:
        for name, most in (("max_multiple", 1e6), ("gradient", 10.0), ("flush_weight", 1e6), ("fetch_weight", 1e6)):
            if not 0 <= getattr(self, name) <= most:  # nor is what is not a number
                raise ConfigError(f"{name} must be from 0 to {most:g}")
        if not 1 <= self.disk_groups <= 100:
            raise ConfigError("disk_groups must be from 1 to 100")
        if self.flap_starts < 2 or not self.flap_window.ns:
            raise ConfigError("flap_starts must be at least 2, flap_window more than 0: starting once is no flapping")
        if self.order == "loadaware" and not self.flush_weight and not self.fetch_weight:
            raise ConfigError("flush_weight and fetch_weight are both 0: loadaware could not compare disks")
        if not self.refresh.ns:
            raise ConfigError("refresh must be more than 0")
        if self.quarantine_errors < 0 or not self.quarantine_interval.ns:
            raise ConfigError("quarantine_errors must be 0 or more, quarantine_interval more than 0")
        if self.script_hosts < 1 or not self.script_timeout.ns:
            raise ConfigError("script_hosts must be at least 1, script_timeout more than 0")

    def _check_resolver(self) -> None:
        wants_path = self.resolver in ("table", "script")
        if wants_path and not self.resolver_path.startswith("/"):
            raise ConfigError(f'resolver = "{self.resolver}" needs an absolute resolver_path')
        if self.resolver_path and not wants_path:
            raise ConfigError(f'resolver_path means nothing to resolver = "{self.resolver}"; take it out')
        if self.resolver_argument and self.resolver in ("static", "table", "script"):
            raise ConfigError(f'resolver_argument means nothing to resolver = "{self.resolver}"; take it out')
