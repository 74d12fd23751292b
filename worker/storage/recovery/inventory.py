"""What a start finds in one storage directory, of maps and of REDUCE partitions alike: one table, filled by opening.py
and reconcile.py, and taken over by the engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.common.ids import MapFileKey, ShuffleKey
from holdfast.common.statuses import Status
from holdfast.worker.storage.check import ShuffleSum
from holdfast.worker.storage.layout import DataKey, EpochKey, OpenKey
from holdfast.worker.storage.recovery.reduce_recovery import Left


@dataclass(slots=True)
class Inventory:
    """What a start finds. Nothing is appended to any of it."""

    #: sealed files are only added up; each is looked up when it is asked for
    sealed: dict[ShuffleKey, ShuffleSum] = field(default_factory=dict)
    #: unsealed files: of maps they are deleted later, of partitions they are sealed, or set aside
    unsealed: dict[OpenKey, Path] = field(default_factory=dict)
    #: copies that are given up for good, and what they are answered
    failed: dict[OpenKey, Status] = field(default_factory=dict)
    #: files on the DFS whose epochs are in the index here, with the tokens of their names; and their bytes
    away: dict[ShuffleKey, dict[DataKey, bytes]] = field(default_factory=dict)
    away_bytes: Counter[ShuffleKey] = field(default_factory=Counter)
    #: epochs that are not sealed, in the log or in files
    left: dict[EpochKey, Left] = field(default_factory=dict)
    #: bytes of unsealed files whose epochs have their answer, and that nobody will read; they go with their shuffle
    aside: Counter[ShuffleKey] = field(default_factory=Counter)
    #: the log of earlier starts, and the incarnations whose logs need not be there once nothing of them is left
    old_segments: list[Path] = field(default_factory=list)
    old_logs: set[int] = field(default_factory=set)
    #: that log lost records of which nobody knows what epochs were in them: what is unknown here may have been there
    unnamed: bool = False

    def unsealed_maps(self) -> dict[MapFileKey, Path]:
        """The unsealed files of maps."""
        return {key: path for key, path in self.unsealed.items() if isinstance(key, MapFileKey)}

    def unsealed_epochs(self) -> dict[EpochKey, Path]:
        """Those of partitions."""
        return {key: path for key, path in self.unsealed.items() if isinstance(key, EpochKey)}
