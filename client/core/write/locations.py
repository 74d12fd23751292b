"""Where the REDUCE partitions of one shuffle take batches now, in the view of this process.

Rules: pure. Epochs only grow, so what is learnt twice or late changes nothing. A place carries the incarnations it was
given with: a worker that restarted is another place, whose own epochs it never appends to. One object per process and
shuffle, shared by all its attempts: the answer to one attempt serves the others. Called by push.py and
push_writer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.common.formats.reduce_layouts import Location
from holdfast.common.ids import NO_WORKER, Epoch, Incarnation, PartitionId, WorkerId


class Destination(NamedTuple):
    """Who takes a push: batches of one destination may share a frame."""

    primary: WorkerId
    incarnation: Incarnation
    #: NO_WORKER where there is one copy
    replica: WorkerId
    replica_incarnation: Incarnation


class CurrentEpoch(NamedTuple):
    """The newest epoch of a partition, where it is, and the directory the masters advise."""

    epoch: Epoch
    destination: Destination
    hint: int


class PartitionLocations:
    """The place of every partition, by index."""

    def __init__(self, partitions: Sequence[Location], incarnations: Mapping[WorkerId, Incarnation]) -> None:
        self._destinations: dict[Destination, Destination] = {}
        self.current = [self._current(location, incarnations) for location in partitions]

    def learn(self, partition: PartitionId, location: Location, incarnations: Mapping[WorkerId, Incarnation]) -> bool:
        """Take note of a new location; returns whether it is newer than the one known."""
        if location.epoch <= self.current[partition].epoch:
            return False
        self.current[partition] = self._current(location, incarnations)
        return True

    def _current(self, location: Location, incarnations: Mapping[WorkerId, Incarnation]) -> CurrentEpoch:
        replica = location.replica
        found = Destination(
            location.primary,
            incarnations.get(location.primary, Incarnation(0)),
            replica,
            incarnations.get(replica, Incarnation(0)) if replica != NO_WORKER else Incarnation(0),
        )
        # One object for each, whatever number of partitions is there: a million places take little memory.
        return CurrentEpoch(location.epoch, self._destinations.setdefault(found, found), location.hint)
