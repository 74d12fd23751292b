"""Which partitions of a push session wait for a new place, and when the masters are asked for it.

Rules: pure. One Revive is under way at a time and names everything refused until then. Partitions that were asked for
again and again without an accepted batch in between wait longer each time, and fail in the end. Lack of room
is different, whether the masters report that no worker has any or a worker does so before them: it leaves that
budget as it was at first. The masters are asked again after pauses, until the sum of these since the last accepted
batch is the grace. A soft split is asked about in passing: its place is good still. Copies that lack what was
acknowledged are told in the same call, until it is answered. Called by push.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.core.write.locations import Destination, PartitionLocations
from holdfast.client.core.write.route import FULL, pause_ns
from holdfast.common.errors import HoldfastError, NoRoomError, RetryError
from holdfast.common.formats.reduce_messages import IncompleteCopy
from holdfast.common.ids import Epoch, PartitionId, WorkerId
from holdfast.common.statuses import Status

#: Revives of a partition without an accepted batch of it in between; with the pauses that is about a minute.
REVIVES_MAX = 32
#: Partitions in one Revive.
REVIVE_PARTITIONS_MAX = 16_384
#: How long is waited while no worker has room: to move some GiB to another tier, or to drop the shuffles of a job that
#: has ended, takes a minute or so.
NO_ROOM_GRACE_NS = 120 * 10**9


@dataclass(frozen=True, slots=True)
class AskRevive:
    """Ask the masters for new places: (partition, epoch, status); and tell them of copies that lack something. Answer
    with `revived` or `revive_failed`."""

    failed: list[tuple[PartitionId, Epoch, Status]]
    unusable: tuple[WorkerId, ...]
    incomplete: list[IncompleteCopy]


class Revivals:
    """The waiting partitions of one attempt."""

    def __init__(self, locations: PartitionLocations, revives_max: int, no_room_grace_ns: int) -> None:
        self._current = locations.current
        self._revives_max = revives_max
        self._grace_ns = no_room_grace_ns
        #: batches of partitions that wait for a new place
        self.parked: dict[PartitionId, deque[int]] = {}
        #: why they wait: the epoch, its place and what was said of it
        self._refused: dict[PartitionId, tuple[Epoch, Destination, Status]] = {}
        #: replicas that did not keep a batch of them
        self._failed: dict[PartitionId, tuple[WorkerId, ...]] = {}
        #: those of them whose place had no room
        self._crowded: set[PartitionId] = set()
        #: soft-split epochs that take batches still
        self._soft: dict[PartitionId, Epoch] = {}
        #: copies that the masters are to be told of; those that the Revive under way names; and how often they were
        self._incomplete: dict[IncompleteCopy, None] = {}
        self._reporting: list[IncompleteCopy] = []
        self._reports = 0
        #: revives since the last accepted batch
        self._rounds: dict[PartitionId, int] = {}
        self._asked = False
        self._pausing = False
        #: what the Revive under way names that cannot go anywhere
        self._asking: list[PartitionId] = []
        #: which limits were met where no worker has room, "" while some has
        self._limits_met = ""
        #: partitions that waited for room since the last accepted batch of one of them, how often, and how long in all
        self._starved: set[PartitionId] = set()
        self._starvations = 0
        self._starved_ns = 0
        #: what was said last, for the error
        self.cause = ""

    @property
    def waiting(self) -> bool:
        """Whether any batch cannot go anywhere, or the masters are to be told of a copy."""
        return bool(self._refused or self._incomplete)

    @property
    def lacks(self) -> bool:
        """Whether the masters are to be told of a copy."""
        return bool(self._incomplete)

    def refuse(
        self, partition: PartitionId, epoch: Epoch, destination: Destination, status: Status, failed: int = 0
    ) -> None:
        """The epoch takes nothing: the partition waits, unless it has another place by now. `failed` as in a
        PushAnswer."""
        if self._current[partition].epoch <= epoch and partition not in self.parked:
            self.parked[partition] = deque()
            self._refused[partition] = (epoch, destination, status)
            if status is Status.REPLICA_FAILED:
                self._failed[partition] = destination.failed(failed)
            if status in FULL:
                self._crowded.add(partition)
                self._starve(partition)

    def split(self, partition: PartitionId, epoch: Epoch) -> None:
        """The epoch takes batches still, and asks for the next."""
        self._soft.setdefault(partition, epoch)

    def lacking(self, copies: Iterable[IncompleteCopy]) -> None:
        """The masters are to be told of these copies."""
        self._incomplete.update(dict.fromkeys(copies))

    def recorded(self) -> None:
        """The masters have recorded what the Revive under way tells."""
        for copy in self._reporting:
            self._incomplete.pop(copy, None)
        self._reports = 0

    def accepted(self, partitions: Iterable[PartitionId]) -> None:
        """Batches of these were kept."""
        if self._rounds or self._starved:
            for partition in partitions:
                self._rounds.pop(partition, None)
                if partition in self._starved:
                    self._starved.clear()
                    self._starvations = self._starved_ns = 0

    def placed(self) -> list[int]:
        """Return the batches that need not wait any more: their partitions have a new place."""
        current = self._current
        freed: list[int] = []
        for partition in [each for each, (epoch, *_) in self._refused.items() if current[each].epoch > epoch]:
            del self._refused[partition]
            self._failed.pop(partition, None)
            self._crowded.discard(partition)
            freed += self.parked.pop(partition)
        for partition in [each for each, epoch in self._soft.items() if current[each].epoch > epoch]:
            del self._soft[partition]
        return freed

    def spent(self, where: str) -> HoldfastError | None:
        """Return why the attempt should fail, None while it should not: NoRoomError for lack of room, RetryError
        for places that break or cannot be reached. `where` begins the sentence."""
        waits = self._asked or self._pausing
        if self._hungry and self._starved_ns >= self._grace_ns and not waits:
            reason = self._limits_met or f"{self.cause}. See `holdfast workers`."
            waited = f"waited {self._starved_ns / 1e9:.0f} s for room for {len(self._refused)} partitions. {reason}"
            return NoRoomError(f"{where}: {waited} (NO_ROOM; how long is waited: no_room_grace of the session)")
        if self._reports >= self._revives_max and not waits:
            text = f"the masters do not record {len(self._incomplete)} copies that may lack something ({self.cause})"
            return RetryError(f"{where}: {text}")
        rounds, partition = max(((self._rounds.get(each, 0), each) for each in self._refused), default=(0, None))
        if partition is None or rounds < self._revives_max or self._asked:
            return None
        epoch, destination, status = self._refused[partition]
        return RetryError(
            f"{where}: partition {partition} was moved {rounds} times and no place took a batch; the last one was "
            f"epoch {epoch} on worker {destination.primary}: {status.name} ({self.cause}). {len(self._refused)} "
            "partitions wait. See `holdfast workers`."
        )

    def pause_ns(self) -> int:
        """Return how long to wait before the next Revive, 0 if one may be asked now or none is due."""
        if self._asked or self._pausing or not self.waiting:
            return 0
        pause = pause_ns(max([self._reports, *[self._rounds.get(each, 0) for each in self._refused]]), 2)
        if self._hungry:
            pause = max(pause, pause_ns(self._starvations, 1))
            self._starved_ns += pause
        self._pausing = pause > 0
        return pause

    def woken(self) -> None:
        """The pause is over."""
        self._pausing = False

    def ask(self, unreachable: Iterable[WorkerId]) -> AskRevive | None:
        """Return what to ask for now."""
        if self._asked or self._pausing or not (self.waiting or self._soft):
            return None
        rows = [(partition, epoch, status) for partition, (epoch, _, status) in self._refused.items()]
        soft = ((partition, epoch) for partition, epoch in self._soft.items() if partition not in self._refused)
        rows += [(partition, epoch, Status.SOFT_SPLIT) for partition, epoch in soft]
        # Asked about once: the next answer of the place repeats it.
        self._soft.clear()
        rows = rows[:REVIVE_PARTITIONS_MAX]
        self._asking = [partition for partition, _, status in rows if status is not Status.SOFT_SPLIT]
        for partition in self._asking:
            if partition not in self._crowded:
                self._rounds[partition] = self._rounds.get(partition, 0) + 1
        self._asked = True
        self._reporting = list(self._incomplete)[:REVIVE_PARTITIONS_MAX]
        self._reports += bool(self._reporting)
        return AskRevive(rows, self._unusable(unreachable), self._reporting)

    def answered(self, limits_met: str = "") -> None:
        """The Revive is answered, whatever the answer is; `limits_met` names them where no worker has room.

        Places that it names are learnt before.
        """
        self._asked = False
        self._limits_met = limits_met
        self._starvations += self._hungry
        for partition in self._asking if limits_met else ():
            refused = self._refused.get(partition)
            if refused is not None and self._current[partition].epoch <= refused[0]:
                self._starve(partition)

    @property
    def _hungry(self) -> bool:
        """Whether some partition waits for room."""
        return bool(self._crowded) or bool(self._limits_met and self._refused)

    def _starve(self, partition: PartitionId) -> None:
        """What keeps the partition waiting is want of room, and no place that breaks."""
        self._rounds.pop(partition, None)
        self._starved.add(partition)

    def _unusable(self, unreachable: Iterable[WorkerId]) -> tuple[WorkerId, ...]:
        """The workers that this client cannot use now."""
        found = set(unreachable).union(*self._failed.values())
        for _, destination, status in self._refused.values():
            if status is Status.UNAVAILABLE:
                found.add(destination.primary)
        return tuple(sorted(found))

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        assert self.parked.keys() == self._refused.keys() >= self._crowded | self._failed.keys()
