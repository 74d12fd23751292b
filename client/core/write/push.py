"""Pushes the batches of one map attempt: decides where and when each is sent, and what a refusal means.

Rules: pure; events in, effects out; time is a number that comes with the events. Batches are known by number and size
only, the edge (push_writer.py) keeps their bytes until they are `Settled`. A batch keeps its number whatever happens to
it. Batches wait per destination and leave in merged frames; a batch whose partition has moved meanwhile is sorted
anew when its turn comes. What is refused waits for one Revive over all partitions refused at that time. Where it is not
known whether a worker kept a frame, the same batches go to the same place again, and only when it cannot be reached
elsewhere: readers drop what is there twice. A batch may be acknowledged before all of its copies have it; the attempt
ends when all have everything, or the masters know which do not. Called by push_writer.py.

    queued --Ask, room--> on its way --kept--> settled
       ^---again----------/     \\--refused--> parked --revived--> queued
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.client.core.write.laggards import Laggards, Settle
from holdfast.client.core.write.locations import Destination, PartitionLocations
from holdfast.client.core.write.revivals import NO_ROOM_GRACE_NS, REVIVES_MAX, AskRevive, Revivals
from holdfast.client.core.write.route import pause_ns
from holdfast.client.core.write.window import Window
from holdfast.common.errors import HoldfastError, RetryError, error_for
from holdfast.common.formats.reduce_layouts import Location
from holdfast.common.formats.reduce_messages import IncompleteCopy, PushEntry
from holdfast.common.ids import Epoch, Incarnation, PartitionId, WorkerId
from holdfast.common.limits import KIB, MIB, PUSH_BATCHES_MAX
from holdfast.common.statuses import MEANINGS, PushDisposition, Status

#: A destination with so much waiting is worth a frame of its own, and the largest frame of several batches.
FRAME_BYTES_MIN = 256 * KIB
FRAME_BYTES_MAX = 4 * MIB
#: On its way to all workers together.
UNANSWERED_BYTES_MAX = 64 * MIB
#: When so much waits for its turn the fullest destination is served, however little it has.
PRESS_BYTES = 32 * MIB
#: Times in a row that a worker may be lost before its batches go elsewhere: a connection may break for other reasons.
LOSSES_MAX = 2
#: Refusals for the moment, in a row: with the pauses that is about a minute, then the batches go elsewhere.
BUSY_MAX = 32
#: Frames in a row that may arrive damaged before the batches of their worker go elsewhere.
DAMAGES_MAX = 3


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for room for a push; answer with `granted` or `unreachable`."""

    worker: WorkerId
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Return:
    """Room that is not needed after all."""

    worker: WorkerId
    size: int


@dataclass(frozen=True, slots=True)
class Send:
    """Push these batches, in this order; answer with `answered` or `failed`."""

    frame: int
    destination: Destination
    entries: list[PushEntry]
    #: what `added` called them, one for each entry
    batches: list[int]
    size: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Call `woken` after so long, for a worker or for the next Revive."""

    after_ns: int
    worker: WorkerId | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """These batches are kept: their bytes are not needed any more."""

    batches: list[int]


@dataclass(frozen=True, slots=True)
class AllKept:
    """Every batch is kept, at the level asked for, and the masters know of every copy that lacks any."""


@dataclass(frozen=True, slots=True)
class PushFailed:
    """The attempt is over."""

    error: HoldfastError


Effect = Ask | Return | Send | AskRevive | Wake | Settled | Settle | AllKept | PushFailed


@dataclass(slots=True, eq=False)
class _Queue:
    """Batches that wait for one destination."""

    destination: Destination
    batches: deque[int] = field(default_factory=deque)
    size: int = 0


@dataclass(slots=True, eq=False)
class _Worker:
    """The state of one primary for this attempt."""

    window: Window = field(default_factory=Window)
    queues: dict[Destination, _Queue] = field(default_factory=dict)
    #: bytes of room that were asked for
    asked: int = 0
    #: nothing is pushed until the Wake
    paused: bool = False
    #: in a row: losses, and refusals for the moment
    losses: int = 0
    busy: int = 0
    damages: int = 0


class PushSession:
    """The state of one attempt. Methods named after events return effects, in the order to carry them out."""

    def __init__(
        self,
        locations: PartitionLocations,
        *,
        where: str,
        press_bytes: int = PRESS_BYTES,
        unanswered_bytes_max: int = UNANSWERED_BYTES_MAX,
        revives_max: int = REVIVES_MAX,
        no_room_grace_ns: int = NO_ROOM_GRACE_NS,
    ) -> None:
        """`where` names shuffle, map and attempt in errors; `no_room_grace_ns` is how long no worker may have room."""
        self._locations = locations
        self._where = where
        self._press_bytes = press_bytes
        self._unanswered_max = unanswered_bytes_max
        self._next_batch = 0
        self._next_frame = 0
        #: not settled: partition, number, size
        self._batches: dict[int, tuple[PartitionId, int, int]] = {}
        self._workers: dict[WorkerId, _Worker] = {}
        self._queued_bytes = 0
        self._unanswered_bytes = 0
        #: of room asked for, by all workers together
        self._asked_bytes = 0
        self._frames: dict[int, Send] = {}
        self._revivals = Revivals(locations, revives_max, no_room_grace_ns)
        self._laggards = Laggards()
        self._finishing = False
        self.over = False

    # Events.

    def added(self, batches: Iterable[tuple[PartitionId, int, int]]) -> list[Effect]:
        """The caller has more batches (partition, number, size); they are numbered on from 0 over all calls."""
        assert not self._finishing, "batches are added before the end"
        for batch in batches:
            self._batches[self._next_batch] = batch
            self._enqueue(self._next_batch)
            self._next_batch += 1
        return self._advance()

    def finished(self) -> list[Effect]:
        """No more batches: done when all are kept."""
        self._finishing = True
        return self._advance() if self._batches else self._end()

    def granted(self, worker: WorkerId, size: int) -> list[Effect]:
        """The worker has room for `size` bytes."""
        state = self._workers[worker]
        self._asked(state, 0)
        queue = self._fullest(state)
        if self.over or state.paused or queue is None:
            return [Return(worker, size)]
        effects: list[Effect] = []
        frame = self._compose(queue, size)
        left = size
        if frame is not None:
            left -= frame.size
            effects.append(frame)
        if left:
            effects.append(Return(worker, left))
        return effects + self._advance()

    def unreachable(self, worker: WorkerId, error: HoldfastError) -> list[Effect]:
        """Room could not even be asked for."""
        self._asked(self._workers[worker], 0)
        return [] if self.over else self._lost(worker, error) + self._advance()

    def answered(
        self, frame: int, statuses: Sequence[tuple[int, int]], failed: int = 0, behind: int = 0
    ) -> list[Effect]:
        """The worker has decided: all batches are kept, except (index, status) of those it names; `failed` are the
        replicas that did not keep some, `behind` those that may lack some that are kept, as in a PushAnswer."""
        sent = self._take(frame, kept=True)
        if sent is None:
            return []
        worker = self._workers[sent.destination.primary]
        worker.losses = worker.busy = worker.damages = 0
        if not statuses:
            return self._settle(sent.destination, sent.batches, sent.entries, behind)
        refused: set[int] = set()
        congested = False
        for index, status in statuses:
            if index >= len(sent.batches):
                return self._stop(error_for(Status.BAD_FRAME, f"{self._where}: a status for a batch that was not sent"))
            disposition = MEANINGS[Status(status)].push
            if disposition is PushDisposition.STOP:
                return self._stop(self._over_because(status, sent.entries[index]))
            congested |= status == Status.SLOW_DOWN or disposition is PushDisposition.AGAIN
            if disposition is PushDisposition.KEPT:
                if status == Status.SOFT_SPLIT:
                    self._revivals.split(sent.entries[index].partition, sent.entries[index].epoch)
                continue
            refused.add(index)
            if disposition is PushDisposition.MOVE:
                self._revivals.cause = f"worker {sent.destination.primary} answered {Status(status).name}"
                epoch = sent.entries[index].epoch
                self._refuse(sent.batches[index], epoch, sent.destination, Status(status), failed)
            else:
                self._enqueue(sent.batches[index])
        effects = self._pause(sent.destination.primary) if self._shrink(worker, congested, refused) else []
        kept = [index for index in range(len(sent.batches)) if index not in refused]
        batches, entries = [sent.batches[index] for index in kept], [sent.entries[index] for index in kept]
        return [*effects, *self._settle(sent.destination, batches, entries, behind)]

    def failed(self, frame: int, error: HoldfastError) -> list[Effect]:
        """A push was refused as a whole, or its connection was lost (UNAVAILABLE) or silent (OUTCOME_UNKNOWN)."""
        sent = self._take(frame, kept=False)
        if sent is None:
            return []
        worker = sent.destination.primary
        state = self._workers[worker]
        disposition = MEANINGS[error.status].push
        effects: list[Effect] = []
        if disposition is PushDisposition.STOP or disposition is PushDisposition.KEPT:
            return self._stop(error)
        if disposition is PushDisposition.MOVE:
            self._revivals.cause = str(error)
            for batch, entry in zip(sent.batches, sent.entries, strict=True):
                self._refuse(batch, entry.epoch, sent.destination, error.status)
            return self._advance()
        for batch in reversed(sent.batches):
            self._enqueue(batch, first=True)
        if disposition is PushDisposition.AGAIN:
            state.busy += 1
            state.window.congested()
            effects = self._pause(worker)
            if state.busy >= BUSY_MAX:
                self._leave(state, str(error))
        elif disposition is PushDisposition.DAMAGED:
            state.damages += 1
            if state.damages >= DAMAGES_MAX:
                state.damages = 0
                self._leave(state, f"worker {worker}: {error}")
        else:
            effects = self._lost(worker, error)
        return effects + self._advance()

    def revived(
        self,
        locations: Sequence[tuple[PartitionId, Location]],
        incarnations: Mapping[WorkerId, Incarnation],
        limits_met: str = "",
    ) -> list[Effect]:
        """The masters name the places of now, and where no worker has room which limits were met."""
        for partition, location in locations:
            self._locations.learn(partition, location, incarnations)
        self._revivals.recorded()
        self._revivals.answered(limits_met)
        if self.over:
            return []
        return self._end() if self._finishing and not self._batches else self._advance()

    def revive_failed(self, error: HoldfastError) -> list[Effect]:
        """The masters refuse, or do not answer."""
        self._revivals.answered()
        if self.over or not self._revivals.waiting:
            return []  # only soft splits were asked about: the old places are good still
        if MEANINGS[error.status].push is PushDisposition.STOP:
            return self._stop(error)
        if error.status is Status.REPLICA_FAILED:
            return self._stop(RetryError(f"{self._where}: {error}; run the map again"))
        self._revivals.cause = f"the masters answered: {error}"
        return self._advance()

    def settled(self, settle: Settle, incomplete: Iterable[IncompleteCopy]) -> list[Effect]:
        """A primary says which copies are incomplete."""
        self._laggards.settled(settle)
        self._revivals.lacking(incomplete)
        return [] if self.over else self._end()

    def unsettled(self, settle: Settle) -> list[Effect]:
        """A primary does not say which copies are incomplete."""
        self._revivals.lacking(self._laggards.unsettled(settle))
        return [] if self.over else self._end()

    def woken(self, worker: WorkerId | None) -> list[Effect]:
        """The time of a Wake has come."""
        if self.over:
            return []
        if worker is None:
            self._revivals.woken()
            return self._ask_revive() + self._advance()
        self._workers[worker].paused = False
        return self._advance()

    def waits_for(self) -> str:
        """What the batches that are not kept wait for, for people."""
        parts = []
        for worker, state in self._workers.items():
            batches = sum(len(queue.batches) for queue in state.queues.values())
            if batches or state.window.unanswered:
                reason = " for room" if state.asked else " for the end of a pause" if state.paused else ""
                unanswered = state.window.unanswered
                parts.append(f"worker {worker} has not answered {unanswered} bytes, {batches} batches wait{reason}")
        if self._laggards.waiting:
            parts.append(f"replicas of {self._laggards.waiting} epochs are behind")
        if self._revivals.waiting:
            waiting = len(self._revivals.parked)
            parts.append(f"{waiting} partitions wait for another place ({self._revivals.cause})")
        return "; ".join(parts)

    def aborted(self) -> None:
        """The caller gives the attempt up. What was pushed is a loser's, and readers drop it."""
        self.over = True

    # Decisions.

    def _enqueue(self, batch: int, *, first: bool = False) -> None:
        """Put a batch in line for the place its partition has now."""
        partition, _, size = self._batches[batch]
        parked = self._revivals.parked.get(partition)
        if parked is not None:
            parked.append(batch)
            return
        destination = self._locations.current[partition].destination
        worker = self._workers.get(destination.primary)
        if worker is None:
            worker = self._workers[destination.primary] = _Worker()
        queue = worker.queues.get(destination)
        if queue is None:
            queue = worker.queues[destination] = _Queue(destination)
        if first:
            queue.batches.appendleft(batch)
        else:
            queue.batches.append(batch)
        queue.size += size
        self._queued_bytes += size

    def _advance(self) -> list[Effect]:
        """Ask for what is due: new places, room for pushes."""
        effects = self._plan_revive()
        if self.over:
            return effects
        for worker, state in self._workers.items():
            if state.asked or state.paused:
                continue
            queue = self._fullest(state)
            if queue is None:
                continue
            least = self._batches[queue.batches[0]][2]
            free = min(state.window.free, self._unanswered_max - self._unanswered_bytes - self._asked_bytes)
            if state.window.unanswered and free < max(least, min(queue.size, FRAME_BYTES_MIN)):
                continue  # an answer comes first
            self._asked(state, max(least, min(queue.size, free, FRAME_BYTES_MAX)))
            effects.append(Ask(worker, least, state.asked))
        return effects

    def _asked(self, state: _Worker, size: int) -> None:
        self._asked_bytes += size - state.asked
        assert self._asked_bytes >= 0, "a request is counted once"
        state.asked = size

    def _fullest(self, state: _Worker) -> _Queue | None:
        """The queue that should go next, if one is worth a frame or there is a reason not to wait for more."""
        queue = max(state.queues.values(), key=lambda each: each.size, default=None)
        if queue is None or not queue.batches:
            return None
        due = self._finishing or queue.size >= FRAME_BYTES_MIN or self._queued_bytes >= self._press_bytes
        return queue if due else None

    def _compose(self, queue: _Queue, limits_met: int) -> Send | None:
        """Make the next frame of a queue; batches whose partition has another place by now are put in line there."""
        locations = self._locations.current
        entries: list[PushEntry] = []
        batches: list[int] = []
        size = 0
        while queue.batches and len(batches) < PUSH_BATCHES_MAX:
            batch = queue.batches[0]
            partition, number, length = self._batches[batch]
            place = locations[partition]
            stays = place.destination is queue.destination and partition not in self._revivals.parked
            if stays and size + length > limits_met:
                break
            queue.batches.popleft()
            queue.size -= length
            self._queued_bytes -= length
            assert self._queued_bytes >= queue.size >= 0, "each batch waits in one place"
            if not stays:
                self._enqueue(batch)
                continue
            entries.append(PushEntry(partition, place.epoch, number, length, place.hint))
            batches.append(batch)
            size += length
        if not batches:
            return None
        send = Send(self._next_frame, queue.destination, entries, batches, size)
        self._next_frame += 1
        self._frames[send.frame] = send
        self._workers[queue.destination.primary].window.sent(size)
        self._unanswered_bytes += size
        return send

    def _take(self, frame: int, *, kept: bool) -> Send | None:
        """Take a frame off the books; None if it does not matter any more."""
        sent = self._frames.pop(frame, None)
        if sent is None:
            return None
        self._workers[sent.destination.primary].window.answered(sent.size, kept=kept)
        self._unanswered_bytes -= sent.size
        assert self._unanswered_bytes >= 0, "each frame is answered once"
        return None if self.over else sent

    def _settle(
        self, destination: Destination, batches: list[int], entries: list[PushEntry], behind: int
    ) -> list[Effect]:
        for batch in batches:
            del self._batches[batch]
        self._revivals.accepted(entry.partition for entry in entries)
        self._laggards.acknowledged(destination, entries, behind)
        ended = self._finishing and not self._batches
        return [Settled(batches), *(self._end() if ended else self._advance())]

    def _end(self) -> list[Effect]:
        """Every batch is kept: it is over when it is known what all copies have, and the masters know it, too."""
        asks = self._laggards.settle()
        if asks or self._laggards.waiting:
            return [*asks]
        if self._revivals.lacks:
            return self._plan_revive()
        self.over = True
        return [AllKept()]

    def _shrink(self, worker: _Worker, congested: bool, refused: set[int]) -> bool:
        """The worker has too much; return whether to leave it alone for a moment."""
        if congested:
            worker.window.congested()
            worker.busy += bool(refused)
        return worker.busy > 0

    def _pause(self, worker: WorkerId) -> list[Effect]:
        state = self._workers[worker]
        if state.paused:
            return []
        state.paused = True
        return [Wake(pause_ns(state.busy + state.losses, 1), worker)]

    def _lost(self, worker: WorkerId, error: HoldfastError) -> list[Effect]:
        """The worker cannot be reached: try again at once, then go elsewhere."""
        state = self._workers[worker]
        if state.paused and error.status is not Status.OUTCOME_UNKNOWN:
            return []  # the same loss, from another frame
        state.losses += 1
        if state.losses < LOSSES_MAX and error.status is not Status.OUTCOME_UNKNOWN:
            return self._pause(worker)
        self._leave(state, str(error))
        return []

    def _leave(self, state: _Worker, cause: str) -> None:
        """Whatever waits for this worker asks for another place."""
        self._revivals.cause = cause
        for queue in list(state.queues.values()):  # a restarted worker may become a queue of its own
            waiting, queue.batches = queue.batches, deque()
            self._queued_bytes -= queue.size
            queue.size = 0
            for batch in waiting:
                place = self._locations.current[self._batches[batch][0]]
                if place.destination is queue.destination:
                    self._refuse(batch, place.epoch, place.destination, Status.UNAVAILABLE)
                else:
                    self._enqueue(batch)

    # Revives.

    def _refuse(self, batch: int, epoch: Epoch, destination: Destination, status: Status, failed: int = 0) -> None:
        """A worker refused a batch: it waits for another location, or is sent there if one is known."""
        self._revivals.refuse(self._batches[batch][0], epoch, destination, status, failed)
        self._enqueue(batch)

    def _plan_revive(self) -> list[Effect]:
        """Send on what has a new place by now, then ask for the others, all at once, or after a pause."""
        for batch in self._revivals.placed():
            self._enqueue(batch)
        spent = self._revivals.spent(self._where)
        if spent is not None:
            return self._stop(spent)
        pause = self._revivals.pause_ns()
        return [Wake(pause)] if pause else self._ask_revive()

    def _ask_revive(self) -> list[Effect]:
        revive = self._revivals.ask(worker for worker, state in self._workers.items() if state.losses)
        return [revive] if revive is not None else []

    # Ends.

    def _stop(self, error: HoldfastError) -> list[Effect]:
        self.over = True
        return [PushFailed(error)]

    def _over_because(self, status: int, entry: PushEntry) -> HoldfastError:
        return error_for(status, f"{self._where}: partition {entry.partition} epoch {entry.epoch}: {_name(status)}")

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        queued = [
            batch for state in self._workers.values() for queue in state.queues.values() for batch in queue.batches
        ]
        parked = [batch for batches in self._revivals.parked.values() for batch in batches]
        sent = [batch for frame in self._frames.values() for batch in frame.batches]
        where = queued + parked + ([] if self.over else sent)
        assert self.over or sorted(where) == sorted(self._batches), "every batch is in one place"
        assert self._queued_bytes == sum(self._batches[batch][2] for batch in queued)
        assert self._unanswered_bytes == sum(frame.size for frame in self._frames.values())
        assert self._asked_bytes == sum(state.asked for state in self._workers.values())
        self._revivals.check()
        for worker, state in self._workers.items():
            state.window.check()
            mine = [frame for frame in self._frames.values() if frame.destination.primary == worker]
            assert state.window.unanswered == sum(frame.size for frame in mine)
            for queue in state.queues.values():
                assert queue.size == sum(self._batches[batch][2] for batch in queue.batches)


def _name(status: int) -> str:
    try:
        return Status(status).name
    except ValueError:
        return f"status {status}"
