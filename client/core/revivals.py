"""Which partitions of a push session wait for a new place, and when the masters are asked for it.

Rules: pure. One Revive is under way at a time and names everything refused until then. Partitions that were asked for
again and again without an accepted batch in between are waited for ever longer, and given up in the end. A soft split
is asked about in passing: its place is good still. Called by push.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.core.locations import Destination, Locations
from holdfast.client.core.route import pause_ns
from holdfast.common.errors import Status
from holdfast.common.ids import NO_WORKER, Epoch, PartitionId, WorkerId

#: Revives of a partition without an accepted batch of it in between; with the pauses that is about a minute.
REVIVES_MAX = 32
#: Partitions in one Revive.
REVIVE_PARTITIONS_MAX = 16_384


@dataclass(frozen=True, slots=True)
class Revive:
    """Ask the masters for new places: (partition, epoch, status); answer with `revived` or `revive_failed`."""

    failed: list[tuple[PartitionId, Epoch, Status]]
    unusable: tuple[WorkerId, ...]


class Revivals:
    """The waiting partitions of one attempt."""

    def __init__(self, locations: Locations, revives_max: int) -> None:
        self._places = locations.places
        self._revives_max = revives_max
        #: batches of partitions that wait for a new place
        self.parked: dict[PartitionId, deque[int]] = {}
        #: why they wait: the epoch, its place and what was said of it
        self._refused: dict[PartitionId, tuple[Epoch, Destination, Status]] = {}
        #: soft-split epochs that take batches still
        self._soft: dict[PartitionId, Epoch] = {}
        #: revives since the last accepted batch
        self._rounds: dict[PartitionId, int] = {}
        self._asked = False
        self._pausing = False
        #: what was said last, for the error
        self.cause = ""

    @property
    def waiting(self) -> bool:
        """Whether any batch cannot go anywhere."""
        return bool(self._refused)

    def refuse(self, partition: PartitionId, epoch: Epoch, destination: Destination, status: Status) -> None:
        """The epoch takes nothing: the partition waits, unless it has another place by now."""
        if self._places[partition].epoch <= epoch and partition not in self.parked:
            self.parked[partition] = deque()
            self._refused[partition] = (epoch, destination, status)

    def split(self, partition: PartitionId, epoch: Epoch) -> None:
        """The epoch takes batches still, and asks for the next."""
        self._soft.setdefault(partition, epoch)

    def accepted(self, partitions: Iterable[PartitionId]) -> None:
        """Batches of these were kept."""
        if self._rounds:
            for partition in partitions:
                self._rounds.pop(partition, None)

    def placed(self) -> list[int]:
        """Return the batches that need not wait any more: their partitions have a new place."""
        places = self._places
        freed: list[int] = []
        for partition in [each for each, (epoch, *_) in self._refused.items() if places[each].epoch > epoch]:
            del self._refused[partition]
            freed += self.parked.pop(partition)
        for partition in [each for each, epoch in self._soft.items() if places[each].epoch > epoch]:
            del self._soft[partition]
        return freed

    def spent(self) -> str:
        """Return why the attempt should be given up, "" while it should not."""
        rounds, partition = max(((self._rounds.get(each, 0), each) for each in self._refused), default=(0, None))
        if partition is None or rounds < self._revives_max or self._asked:
            return ""
        epoch, destination, status = self._refused[partition]
        return (
            f"partition {partition} was moved {rounds} times and no place took a batch; the last one was epoch {epoch} "
            f"on worker {destination.primary}: {status.name} ({self.cause}). {len(self._refused)} partitions wait. "
            "See `holdfast workers`."
        )

    def pause_ns(self) -> int:
        """Return how long to wait before the next Revive, 0 if one may be asked now or none is due."""
        if self._asked or self._pausing or not self._refused:
            return 0
        pause = pause_ns(max(self._rounds.get(each, 0) for each in self._refused), 2)
        self._pausing = pause > 0
        return pause

    def woken(self) -> None:
        """The pause is over."""
        self._pausing = False

    def ask(self, unreachable: Iterable[WorkerId]) -> Revive | None:
        """Return what to ask for now."""
        if self._asked or self._pausing or not (self._refused or self._soft):
            return None
        rows = [(partition, epoch, status) for partition, (epoch, _, status) in self._refused.items()]
        soft = ((partition, epoch) for partition, epoch in self._soft.items() if partition not in self._refused)
        rows += [(partition, epoch, Status.SOFT_SPLIT) for partition, epoch in soft]
        # Asked about once: the next answer of the place says so again.
        self._soft.clear()
        rows = rows[:REVIVE_PARTITIONS_MAX]
        for partition, _, status in rows:
            if status is not Status.SOFT_SPLIT:
                self._rounds[partition] = self._rounds.get(partition, 0) + 1
        self._asked = True
        return Revive(rows, self._unusable(unreachable))

    def answered(self) -> None:
        """The Revive is answered, whatever the answer is."""
        self._asked = False

    def _unusable(self, unreachable: Iterable[WorkerId]) -> tuple[WorkerId, ...]:
        """The workers that this client cannot use now."""
        found = set(unreachable)
        for _, destination, status in self._refused.values():
            if status is Status.REPLICA_FAILED and destination.replica != NO_WORKER:
                found.add(destination.replica)
            elif status is Status.UNAVAILABLE:
                found.add(destination.primary)
        return tuple(sorted(found))

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        assert self.parked.keys() == self._refused.keys()
