"""What a worker has done since it started, as plain numbers: cheap to count, shown by /metrics, /status and heartbeats.

Rules: counters only grow; the names here are the names everywhere, with `holdfast_worker_` before and `_total` behind
them in /metrics. What each means stands with it, and docs/operate/metrics.md is made of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from holdfast.common.statuses import Status


def counted(meaning: str) -> int:
    """A counter, and the help text of it."""
    return field(default=0, metadata={"meaning": meaning})


@dataclass(slots=True)
class Counters:
    """Counted on the loop thread only."""

    push_frames: int = counted("MAP_PUSH, PUSH and REPLICATE frames written")
    push_bytes: int = counted("body bytes of those")
    push_batches: int = counted("batches of REDUCE partitions decided")
    push_batches_refused: int = counted("those of them whose status was not OK")
    pushes_busy: int = counted("pushes refused before their body was received")
    push_grants: int = counted("windows granted to clients that push")
    replica_grants_late: int = counted(
        "windows for primaries that had to wait for an unused one; 0 unless a primary hangs"
    )
    forwards: int = counted("pushes repeated to a replica")
    forwards_failed: int = counted("those that it did not keep whole")
    epochs_opened: int = counted("epochs begun")
    epochs_sealed: int = counted("epochs sealed")
    epoch_bytes: int = counted("bytes of sealed epochs")
    epochs_restored: int = counted("epochs copied here from other workers")
    restored_bytes: int = counted("bytes of those")
    epoch_seals: int = counted("successful SEAL requests")
    epoch_seal_microseconds: int = counted("how long those took together")
    epochs_split_for_room: int = counted(
        "epochs split because their directory was filling up and they were the largest there"
    )
    refusals: int = counted("requests answered with an error status")
    files_opened: int = counted("map files begun")
    files_sealed: int = counted("map files sealed")
    sealed_bytes: int = counted("bytes of sealed map files")
    files_dropped: int = counted("map files dropped unsealed")
    seals: int = counted("successful seals of map files")
    seal_microseconds: int = counted("how long those took together, from request to answer")
    streams_opened: int = counted("streams opened by readers")
    stream_frames: int = counted("data frames queued for readers")
    stream_bytes: int = counted("body bytes of those")
    streams_failed: int = counted("streams that ended with an error")
    shuffles_forgotten: int = counted("shuffles deleted because the masters dropped them")
    leftovers_removed: int = counted("unsealed files of earlier starts removed")
    forgetting_refused: int = counted("answers of masters about what may be deleted that were not believed")
    #: by metric and status, how often for which reason; in /metrics alone
    _causes: dict[str, dict[str, int]] = field(default_factory=lambda: {"requests_refused": {}, "batches_refused": {}})

    def refused(self, status: int) -> None:
        self.refusals += 1
        self._count("requests_refused", status)

    def batches_refused(self, statuses: Iterable[int]) -> None:
        for status in statuses:
            self.push_batches_refused += 1
            self._count("batches_refused", status)

    def _count(self, metric: str, status: int) -> None:
        causes, name = self._causes[metric], _NAMES.get(status, Status.INTERNAL.name)
        causes[name] = causes.get(name, 0) + 1

    def causes(self) -> Mapping[str, Mapping[str, int]]:
        """By metric, how often for which status, by its name."""
        return self._causes

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTER_HELP}


#: What each means.
COUNTER_HELP: dict[str, str] = {each.name: each.metadata["meaning"] for each in fields(Counters) if each.metadata}
_NAMES = {int(status): status.name for status in Status}
