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
from holdfast.common.ids import Epoch, Incarnation, PartitionId, WorkerId


class Destination(NamedTuple):
    """Who takes a push: batches of one destination may share a frame."""

    primary: WorkerId
    incarnation: Incarnation
    #: worker and incarnation of each other copy
    replicas: tuple[tuple[WorkerId, Incarnation], ...] = ()

    def failed(self, mask: int) -> tuple[WorkerId, ...]:
        """Return the replicas of an answer's `failed`."""
        return tuple([worker for number, (worker, _) in enumerate(self.replicas) if mask >> number & 1])


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
        (primary, incarnation), *replicas = [(one, incarnations.get(one, Incarnation(0))) for one in location.workers]
        found = Destination(primary, incarnation, tuple(replicas))
        # One object for each, whatever number of partitions is there: a million places take little memory.
        return CurrentEpoch(location.epoch, self._destinations.setdefault(found, found), location.hint)
