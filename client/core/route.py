"""Where a map attempt writes, and what a refusal means for it.

Rules: pure. The ring of the assignment answers "which worker"; one table answers "what now" for every status; waiting
grows with the failures since the last accepted frame. Called by map_write.py and fetch.py.
"""

from __future__ import annotations

from enum import Enum, unique

from holdfast.common.errors import Status
from holdfast.common.ids import Epoch, MapId, WorkerId
from holdfast.common.layouts import MapAssignment

#: Pauses start here and double, up to PAUSE_NS_MAX.
PAUSE_NS_MIN = 50_000_000
PAUSE_NS_MAX = 2_000_000_000
#: What a worker without room says.
FULL = frozenset({Status.NO_ROOM, Status.DISK_FULL})


@unique
class Move(Enum):
    """What a writer does about a status other than OK."""

    NEXT = "start again in the next epoch, on the next worker of the ring"
    STOP = "no place will take it; the task has to decide"


_MOVES: dict[Status, Move] = {
    Status.HARD_SPLIT: Move.NEXT,
    Status.STALE_INCARNATION: Move.NEXT,
    Status.SEALED: Move.NEXT,
    Status.FAILED_COPY: Move.NEXT,
    Status.REPLICA_FAILED: Move.NEXT,
    # The worker restarted and dropped the unsealed file, or never had it: everything has to be sent again.
    Status.UNKNOWN_FILE: Move.NEXT,
    Status.NOT_SEALED: Move.NEXT,
    Status.NO_ROOM: Move.NEXT,
    Status.DISK_FULL: Move.NEXT,
    Status.DISK_FAILED: Move.NEXT,
    # The totals at seal differed: the worker dropped the file, and what we hold is still right.
    Status.CORRUPT: Move.NEXT,
    # A lost or refused connection, or a worker that is starting or stopping.
    Status.UNAVAILABLE: Move.NEXT,
    Status.INTERNAL: Move.NEXT,
    Status.BUSY: Move.NEXT,
}


def move_for(status: Status) -> Move:
    """Return what to do about `status`; what the table does not name cannot be helped by another worker."""
    return _MOVES.get(status, Move.STOP)


def places(assignment: MapAssignment, map_id: MapId, epoch: Epoch) -> tuple[WorkerId, ...]:
    """Return the workers of an attempt's copies in `epoch`, the first copy first."""
    return tuple(assignment.worker_for(map_id, epoch + copy) for copy in range(assignment.copies))


def pause_ns(failures: int, ring: int) -> int:
    """Return how long to wait after `failures` in a row; nothing while the ring has untried workers."""
    if failures < ring:
        return 0
    return min(PAUSE_NS_MAX, PAUSE_NS_MIN << min(failures - ring, 10))
