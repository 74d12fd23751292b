"""How the readers of a session choose between copies: settings of users, checked when they are given.

Rules: plain values; travels to tasks with the session's ticket. The own region is a matter of the process that reads:
where it is not given, the variable HOLDFAST_REGION of that process names it. Called by users and session.py; read by
reads.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from holdfast.client.checks import seconds, text, whole
from holdfast.client.core.read.read_book import OrderBy
from holdfast.client.core.read.read_order import Interleave
from holdfast.common.errors import ConfigError
from holdfast.common.limits import NAME_BYTES_MAX

#: Names the region of a process whose settings do not.
REGION_VARIABLE = "HOLDFAST_REGION"
_PENDING_MAX = 1_000_000
_EXPIRE_SECONDS_MAX = 86_400.0
_DELAY_SECONDS_MIN, _DELAY_SECONDS_MAX = 0.01, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """Which copy is read first, and when a second one is opened (docs/use/spark.md). Raises ConfigError."""

    #: "given": as the shuffle was committed; "health": by what is known of the workers; "region": the same, and those
    #: of the own region first
    order: str = "health"
    #: the first copy gives way where its worker has so many more streams of this process open than the least loaded
    #: one; 0: never
    pending_threshold: int = 0
    #: seconds for which a worker counts as slow that lost to a speculative read
    slow_expire: float = 60.0
    #: seconds for which a failed read counts against a worker
    failure_expire: float = 60.0
    #: "once" or "every": one copy of another region behind two local ones, or one behind every two; matters from
    #: three copies on
    remote_interleave: str = "once"
    #: of this process, as in the worker's place "/region/rack"; "": from HOLDFAST_REGION, else not known
    region: str = ""
    #: open another copy where the first one is late, and take what comes first
    speculative: bool = False
    #: seconds after which it is late; None: from what was observed
    speculative_delay: float | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        _word("order", self.order, OrderBy)
        _word("remote_interleave", self.remote_interleave, Interleave)
        whole("pending_threshold", self.pending_threshold, 0, _PENDING_MAX)
        seconds("slow_expire", self.slow_expire, 0, _EXPIRE_SECONDS_MAX)
        seconds("failure_expire", self.failure_expire, 0, _EXPIRE_SECONDS_MAX)
        check_region("`region`", text("region", self.region, "as in the worker's place /region/rack"))
        if not isinstance(self.speculative, bool):
            raise ConfigError(f"`speculative` is True or False, not {self.speculative!r}")
        if self.speculative_delay is not None:
            seconds("speculative_delay", self.speculative_delay, _DELAY_SECONDS_MIN, _DELAY_SECONDS_MAX)


def check_region(name: str, region: str) -> str:
    """Return the name of a region; raises ConfigError if it is none."""
    if "/" in region or region != region.strip() or len(region.encode()) > NAME_BYTES_MAX:
        raise ConfigError(
            f"{name} is the region alone, eu-west of a place /eu-west/rack-7, at most {NAME_BYTES_MAX} bytes, "
            f"not {region!r}"
        )
    return region


def _word(name: str, value: Any, known: type[Enum]) -> None:
    words = [each.value for each in known]
    if value not in words:
        raise ConfigError(f"`{name}` is {', '.join(map(repr, words))}, not {value!r}")
