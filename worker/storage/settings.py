"""What the storage of a worker is made of: its directories and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.common.config.config import TiersSection
from holdfast.worker.core.health import SECOND_NS, HealthLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.worker.storage.dfs.away import Away
    from holdfast.worker.storage.env.interfaces import Env


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """One directory of a worker; capacity 0 is all that the file system has."""

    path: str
    tier: str = "SSD"
    capacity_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What a store is made of."""

    cluster_id: str
    worker_name: str
    directories: tuple[DirectorySettings, ...]
    #: files that readers keep open
    open_files_max: int = 512
    #: threads for syncs and commits
    sync_threads: int = 4
    #: bound of each index; it grows up to here
    index_bytes_max: int = 16 << 30
    #: a segment of the push log
    segment_bytes: int = 64 << 20
    #: which directory a new epoch begins in, and which files move between tiers
    tiers: TiersSection = field(default_factory=TiersSection)
    #: the folder of the DFS, where that is a local one; else ""
    dfs_folder: str = ""
    #: where worker.directories is written, as errors tell it; "" if that is not known
    source: str = ""
    #: makes the worker's part of the DFS, by its uid and the door; None without one
    open_away: Callable[[bytes, Env], Away] | None = None
    #: room kept free in each directory, so that seals and the index never lack it; a tenth of it if that is less
    reserve_bytes: int = 64 << 20
    #: when a directory is isolated, and when it returns
    health: HealthLimits = HealthLimits()
    #: window of the mean times of writes and reads
    average_ns: int = 10 * SECOND_NS
