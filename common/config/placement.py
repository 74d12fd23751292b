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
    """What the shuffles of one user are confined to, instead of `user_tags`."""

    user: str = required("The user's name, as the application gave it.")
    tags: tuple[Tag, ...] = setting((), "Workers need all of these; none: any worker will do.")

    def __post_init__(self) -> None:
        if problem := tags_problem(self.tags):
            raise ConfigError(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSection:
    """Which worker gets what, and where workers are. Read by masters, the same on all; `holdfast reload`."""

    policy: str = setting(
        "rackaware",
        "What two copies never share beside a host, as far as there are two: random (nothing), rackaware, regionaware,"
        " or the name of an installed holdfast.policies class.",
    )
    order: Literal["roundrobin", "loadaware", "weighted"] = setting(
        "roundrobin", "Who gets how much: all the same, more where disks are fast, or more where more is free."
    )
    min_racks: int = setting(
        2, "So many racks, or as many as there are copies, hold the copies of a partition. 1: any."
    )
    enforce_racks: bool = setting(False, "Refuse to place copies on fewer racks, or on a host without a known rack.")
    max_multiple: float = setting(3.0, "weighted: a worker counts as at most so many medians; 0: no cap.")
    disk_groups: int = setting(5, "loadaware: disks are ranked by their times and cut into so many groups.")
    gradient: float = setting(0.1, "loadaware: so much more is placed on each group than on the next slower one.")
    flush_weight: float = setting(0.0, "loadaware: how much the time of a write counts.")
    fetch_weight: float = setting(1.0, "loadaware: how much the time of a read counts.")
    write_regions: tuple[str, ...] = setting((), "regionaware: the regions that are written to. Empty: all there are.")
    refused: tuple[str, ...] = setting(
        (), "Workers, hosts and places (/region/rack, /region) that take nothing new, even where there is nobody else."
    )
    user_tags: tuple[Tag, ...] = setting(
        (), "Shuffles go to workers that have all of these tags, and those that their application asks for."
    )
    users: tuple[UserTags, ...] = setting((), "Users with other tags.")
    refused_regions: tuple[str, ...] = setting((), "regionaware: regions that take nothing new; for maintenance.")
    durable_regions: int = setting(
        0,
        "regionaware: 2 or more: copies are in so many regions or nowhere, and all copies acknowledge a push. All of"
        " these regions but one may be lost.",
    )
    equal_regions: bool = setting(
        False, "regionaware: regions have equal parts of all copies, whatever workers they have."
    )
    durable_in_replace: bool = setting(True, "Whether that holds, too, when one copy is replaced.")
    local_region: str = setting("", "regionaware: the region whose workers hold the first copy. Empty: no preference.")
    avoid_holds: bool = setting(
        False,
        "Workers that clients could not use get nothing of theirs, even where there is nobody else: rather no room.",
    )
    repair: bool = setting(
        False, "Open partitions whose copies do not stand as wished go on in places that do, as soon as there are such."
    )
    default_place: str = setting(
        "/default-region/default-rack",
        "Where a worker is whose host nobody can resolve: /region/rack. All places have as many parts.",
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
