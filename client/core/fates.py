"""What a status means for a pushed batch: one table. Pure. Called by push.py."""

from __future__ import annotations

from enum import Enum, unique

from holdfast.common.errors import Status


@unique
class Fate(Enum):
    """What a push session does about a batch, or about a frame whose status stands for all of them."""

    KEPT = "the worker has it"
    MOVE = "another place will take it: revive"
    AGAIN = "not now: send it again to the same place, later and less at a time"
    DAMAGED = "it did not arrive as it was sent: send it again to the same place, then elsewhere"
    UNKNOWN = "nobody knows whether the worker has it: send it again to the same place, then elsewhere"
    STOP = "nobody will take it; the task has to decide"


_FATES: dict[int, Fate] = {
    Status.OK: Fate.KEPT,
    Status.SOFT_SPLIT: Fate.KEPT,
    Status.SLOW_DOWN: Fate.KEPT,
    Status.HARD_SPLIT: Fate.MOVE,
    Status.STALE_INCARNATION: Fate.MOVE,
    Status.SEALED: Fate.MOVE,
    Status.FAILED_COPY: Fate.MOVE,
    Status.REPLICA_FAILED: Fate.MOVE,
    Status.DISK_FULL: Fate.MOVE,
    Status.DISK_FAILED: Fate.MOVE,
    Status.NO_ROOM: Fate.MOVE,
    # A mistake over there; another worker may do better.
    Status.INTERNAL: Fate.MOVE,
    Status.BUSY: Fate.AGAIN,
    # Of masters: a commit is under way, and says COMMITTED or opens the way again in the end.
    Status.NOT_COMMITTED: Fate.AGAIN,
    Status.NOT_LEADER: Fate.AGAIN,
    Status.CORRUPT: Fate.DAMAGED,
    Status.UNAVAILABLE: Fate.UNKNOWN,
    Status.OUTCOME_UNKNOWN: Fate.UNKNOWN,
}


def fate_of(status: int) -> Fate:
    """Return what to do about `status`; what the table does not name cannot be helped by another place."""
    return _FATES.get(status, Fate.STOP)
