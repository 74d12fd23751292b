"""What a worker has done since it started, as plain numbers: cheap to count, shown by /metrics, /status and heartbeats.

Rules: counters only grow; the names here are the names everywhere, with `holdfast_worker_` before and `_total` behind
them in /metrics. metric_help.py says what each means, of which docs/metrics.md is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from holdfast.common.statuses import Status


@dataclass(slots=True)
class Counters:
    """Counted on the loop thread only."""

    #: MAP_PUSH, PUSH and REPLICATE frames written, and their body bytes
    push_frames: int = 0
    push_bytes: int = 0
    #: batches of REDUCE partitions decided, and those of them whose status was not OK
    push_batches: int = 0
    push_batches_refused: int = 0
    #: pushes beyond their window; windows granted, and those to primaries for which an idle one had to be taken back
    pushes_busy: int = 0
    push_grants: int = 0
    replica_grants_late: int = 0
    #: pushes repeated to a replica, and those that it did not keep whole
    forwards: int = 0
    forwards_failed: int = 0
    #: epochs begun and sealed (with their bytes); SEAL requests that ended well, and how long they took altogether
    epochs_opened: int = 0
    epochs_sealed: int = 0
    epoch_bytes: int = 0
    epoch_seals: int = 0
    epoch_seal_microseconds: int = 0
    #: epochs that were split because their directory was filling up and they were the largest there
    epochs_split_for_room: int = 0
    #: requests answered with an error status
    refusals: int = 0
    #: files begun, sealed (with their bytes), and dropped unsealed
    files_opened: int = 0
    files_sealed: int = 0
    sealed_bytes: int = 0
    files_dropped: int = 0
    #: seals that ended well, and how long they took altogether
    seals: int = 0
    seal_microseconds: int = 0
    #: streams opened, data frames and body bytes queued for them
    streams_opened: int = 0
    stream_frames: int = 0
    stream_bytes: int = 0
    #: streams that ended with an error
    streams_failed: int = 0
    #: shuffles deleted because the masters do not know them, and unsealed files of earlier starts
    shuffles_forgotten: int = 0
    leftovers_removed: int = 0
    #: answers of masters that were refused because the cluster was restored, or is another
    forgetting_refused: int = 0
    #: of refusals and refused batches: how often for which reason; in /metrics alone
    request_causes: dict[int, int] = field(default_factory=dict)
    batch_causes: dict[int, int] = field(default_factory=dict)

    def refused(self, status: int) -> None:
        """Count a request that is answered with an error status."""
        self.refusals += 1
        status = status if status in _NAMES else int(Status.INTERNAL)
        self.request_causes[status] = self.request_causes.get(status, 0) + 1

    def batches_refused(self, statuses: Iterable[int]) -> None:
        """Count batches whose status is not OK."""
        for status in statuses:
            self.push_batches_refused += 1
            status = status if status in _NAMES else int(Status.INTERNAL)
            self.batch_causes[status] = self.batch_causes.get(status, 0) + 1

    def causes(self) -> Mapping[str, Mapping[str, int]]:
        """By metric, how often for which status, by its name."""
        told = {"requests_refused": self.request_causes, "batches_refused": self.batch_causes}
        return {name: {_NAMES[status]: count for status, count in found.items()} for name, found in told.items()}

    def as_dict(self) -> dict[str, int]:
        """Every counter by name."""
        return {name: getattr(self, name) for name in _NUMBERS}


_NUMBERS = tuple(each.name for each in fields(Counters) if not each.name.endswith("_causes"))
_NAMES = {int(status): status.name for status in Status}
