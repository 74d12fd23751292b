"""The section [placement] of the configuration: which worker gets what, and where workers are. See config.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.common.config import settings
from holdfast.common.config.settings import Duration, Ratio, Tag, duration, required, setting
from holdfast.common.errors import ConfigError
from holdfast.common.tags import tags_problem

#: Those that need not be installed.
POLICIES = ("random", "rackaware", "regionaware")
#: No partition has more copies.
MIN_RACKS_MAX = 16
#: Of a place: region, what is between, rack.
PLACE_PARTS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTags:
    """One user's tags instead of user_tags."""

    user: str = required("User's name.")
    tags: tuple[Tag, ...] = setting((), "Workers need all of these.")

    def __post_init__(self) -> None:
        if problem := tags_problem(self.tags):
            raise ConfigError(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSection:
    """Which worker gets what; for masters, the same on all; `holdfast reload` reads it again (placement.md)."""

    policy: str = setting(
        "rackaware",
        "What copies avoid sharing besides a host: random (nothing), rackaware, regionaware, or an installed "
        "holdfast.policies class.",
    )
    order: Literal["roundrobin", "loadaware", "weighted"] = setting(
        "roundrobin", "Shares of workers: equal, by speed of disks, or by free bytes."
    )
    min_racks: int = setting(2, "Racks for a partition's copies, at most one per copy.")
    enforce_racks: bool = setting(False, "Refuse fewer racks, or a host of unknown rack.")
    max_multiple: float = setting(3.0, "weighted: a worker's most, in medians; 0: no cap.")
    disk_groups: int = setting(5, "loadaware: groups of disks, ranked by times.")
    gradient: float = setting(0.1, "loadaware: how much more a group gets than the next slower.")
    flush_weight: float = setting(0.0, "loadaware: weight of write times.")
    fetch_weight: float = setting(1.0, "loadaware: weight of read times.")
    write_regions: tuple[str, ...] = setting((), "regionaware: regions to write to. Empty: all.")
    refused: tuple[str, ...] = setting((), "Workers, hosts, /region/rack or /region that take no new data.")
    user_tags: tuple[Tag, ...] = setting((), "Shuffles use workers with all of these tags.")
    users: tuple[UserTags, ...] = setting((), "Users with other tags.")
    refused_regions: tuple[str, ...] = setting((), "regionaware: regions that take no new data.")
    durable_regions: int = setting(
        0,
        "regionaware: from 2: copies are in this many regions or nowhere, and all acknowledge a push: all "
        "regions but one may be lost.",
    )
    equal_regions: bool = setting(False, "regionaware: regions get equal parts, whatever workers they have.")
    durable_in_replace: bool = setting(True, "Whether durable_regions also holds when one copy is replaced.")
    local_region: str = setting("", "regionaware: region of the first copy. Empty: any.")
    avoid_holds: bool = setting(
        False,
        "Workers that a client could not use never get its data.",
    )
    repair: bool = setting(False, "Move misplaced open partitions once better places exist.")
    default_place: str = setting(
        "/default-region/default-rack",
        "/region/rack of unresolved hosts. All places have this many parts.",
    )
    resolver: str = setting(
        "static", "static (worker.rack), table, script, hostname, or an installed holdfast.resolvers class."
    )
    resolver_path: str = setting("", "Absolute path of the table or script.")
    resolver_argument: str = setting(
        "", "hostname: host:region;host:region. Or an installed class's argument.", secret="value"
    )
    script_hosts: int = setting(100, "script: most hosts in a call.")
    script_timeout: Duration = duration("10s", "script: time limit.")
    refresh: Duration = duration("30s", "Interval to retry unresolved hosts.")
    stabilise: Duration = duration(
        "0s",
        "Time before a lost worker's epochs move; a heartbeat cancels it.",
    )
    flap_starts: int = setting(3, "A worker with this many starts in the window gets data only if needed.")
    flap_window: Duration = duration("60s", "The window, or this long without a restart.")
    quarantine_errors: int = setting(0, "Errors in an interval that quarantine a worker; 0: never.")
    quarantine_interval: Duration = duration("60s", "Interval of counting.")
    quarantine_duration: Duration = duration("30m", "How long it gets data only if needed.")
    quarantine_ratio: Ratio = setting(Ratio(1.0), "Share of them to quarantine, at random.")

    def __post_init__(self) -> None:
        if self.policy != "regionaware" and (
            self.write_regions
            or self.refused_regions
            or self.durable_regions
            or self.local_region
            or self.equal_regions
        ):
            raise ConfigError(
                "write_regions, refused_regions, durable_regions, local_region and equal_regions want"
                ' policy = "regionaware"'
            )
        if not self.policy:
            raise ConfigError("policy is random, rackaware, regionaware, or the name of an installed class")
        if self.policy not in ("rackaware", "regionaware") and self.enforce_racks:
            raise ConfigError(f'enforce_racks needs policy = "rackaware" or "regionaware": {self.policy} ignores it')
        self._check_regions()
        self._check_tags()
        if self.durable_regions == 1 or not 0 <= self.durable_regions <= MIN_RACKS_MAX:
            raise ConfigError(f"durable_regions must be 0, or from 2 to {MIN_RACKS_MAX}: one region is no durability")
        self._check_depth()
        self._check_numbers()
        self._check_resolver()

    def _check_depth(self) -> None:
        head, *parts = self.default_place.split("/")
        if head or not 1 <= len(parts) <= PLACE_PARTS_MAX or not all(parts):
            raise ConfigError(
                f"default_place wants 1 to {PLACE_PARTS_MAX} parts, as in /default-region/default-rack, not"
                f" {settings.shown(self.default_place)}; all places have as many"
            )
        if len(parts) < 2 and self.policy == "regionaware":
            raise ConfigError("regionaware wants places of two parts or more: default_place names a rack alone")
        if len(parts) != 2 and self.resolver == "hostname":
            raise ConfigError("hostname makes places of a region and a rack: default_place wants two parts, too")

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

    def _check_tags(self) -> None:
        if problem := tags_problem(self.user_tags):
            raise ConfigError(problem)
        names = [each.user for each in self.users]
        if len(set(names)) < len(names):
            raise ConfigError(f"names a user twice: {', '.join(sorted(names))}")

    def tags_of(self, user: str) -> tuple[Tag, ...]:
        """What the shuffles of a user are confined to."""
        return next((each.tags for each in self.users if each.user == user), self.user_tags)

    def _check_numbers(self) -> None:
        for name, most in (("max_multiple", 1e6), ("gradient", 10.0), ("flush_weight", 1e6), ("fetch_weight", 1e6)):
            if not 0 <= getattr(self, name) <= most:  # nor is what is not a number
                raise ConfigError(f"{name} must be from 0 to {most:g}")
        if not 1 <= self.min_racks <= MIN_RACKS_MAX:
            raise ConfigError(f"min_racks must be from 1 to {MIN_RACKS_MAX}")
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
