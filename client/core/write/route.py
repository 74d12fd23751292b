"""Where a map attempt writes, and what a refusal means for it.

Rules: pure. The ring of the assignment answers "which worker", common/statuses.py what a refusal means; waiting
grows with the failures since the last accepted frame. Called by map_write.py and fetch.py.
"""

from __future__ import annotations

from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.ids import Epoch, MapId, WorkerId
from holdfast.common.statuses import Status

#: Pauses start here and double, up to PAUSE_NS_MAX.
PAUSE_NS_MIN = 50_000_000
PAUSE_NS_MAX = 2_000_000_000
#: Statuses of a worker without room.
FULL = frozenset({Status.NO_ROOM, Status.DISK_FULL})


def locations(assignment: MapAssignment, map_id: MapId, epoch: Epoch) -> tuple[WorkerId, ...]:
    """Return the workers of an attempt's copies in `epoch`, the first copy first."""
    return tuple(assignment.worker_for(map_id, epoch + copy) for copy in range(assignment.copies))


def pause_ns(failures: int, ring: int) -> int:
    """Return how long to wait after `failures` in a row; nothing while the ring has untried workers."""
    if failures < ring:
        return 0
    return min(PAUSE_NS_MAX, PAUSE_NS_MIN << min(failures - ring, 10))
