"""Decides when a push is answered and with what: what it waits for, which copies go with it, and what is still owed.

Rules
* A push is answered once: when every batch of it is as safe as it asked for on as many copies, or refused. What other
  replicas lack then is followed until they have it (replicas.py).
* At level MEMORY it is answered before it is written, but for first writes, which are the notes of their epochs. What
  then finds no room is owed: one push at most, since until it is written others are written before they are answered.
  Its epochs take nothing more. After any other error nobody may take the rest of such a copy for all.
* At level SYNCED it waits for the disk of every directory that it wrote to; with more copies for enough replicas; and
  for the first arrival of a batch that came before.
* No push waits for a disk without an end: after SYNC_SECONDS it is answered that it must go elsewhere. By then its
  client has not given up the connection, and with it the pushes to all other disks here.

Pure; times are monotonic nanoseconds. Driven by services/push_service.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

from holdfast.common.formats.messages import Ack
from holdfast.common.statuses import Status
from holdfast.worker.core.write.epochs import LEGAL, EpochState, Life
from holdfast.worker.core.write.reduce import Reduce
from holdfast.worker.core.write.replicas import Forwards, Replicas, Settling
from holdfast.worker.core.write.seen_batches import PushDecision

#: A push that its disk has not synced by then is answered.
SYNC_SECONDS = 20.0


class When(Enum):
    """When a push is answered."""

    PROMISED = "before it is written"
    WRITTEN = "when it is written"
    LATER = "when what it waits for is there"


@dataclass(slots=True, eq=False)
class PendingPush:
    """A frame on its way to its answer."""

    decision: PushDecision
    #: it comes from the primary of its epochs
    replicated: bool = False
    #: statuses that came after the decision, by entry
    failures: dict[int, int] = field(default_factory=dict)
    #: bit r is set if its replica r is to blame for what is REPLICA_FAILED, or is behind when it is answered
    failed: int = 0
    behind: int = 0
    #: its way to its replicas, if anything of it was sent to them
    forwards: Forwards | None = None
    #: what the answer waits for: syncs, replicas, first arrivals; and since when
    waits: int = 0
    since_ns: int = 0
    #: directories whose sync it waits for
    syncing: set[int] = field(default_factory=set)
    #: (push, entry) of the batches that came again meanwhile
    repeated: list[tuple[PendingPush, int]] = field(default_factory=list)
    answered: bool = False

    @property
    def taken(self) -> bool:
        return self.decision.whole or any(state is not None for state in self.decision.states)


class Steps(NamedTuple):
    """What the answer to a push waits for."""

    #: directories to be synced, in the order of their first batch
    directories: list[int]
    #: entries to be repeated to every replica
    chosen: list[int]


class PendingPushes:
    """The pushes of one worker whose answers wait."""

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        self.replicas = Replicas(reduce)
        #: as they came
        self._pushes: dict[PushDecision, PendingPush] = {}
        #: what was answered from memory and found no room
        self.owed: PendingPush | None = None

    def __len__(self) -> int:
        return len(self._pushes)

    # Writing.

    def not_opened(self, push: PendingPush, state: EpochState, status: Status) -> None:
        """The note of a new epoch could not be written: its copy is given up before it held anything."""
        self._reduce.broke(state)
        for index, taken in enumerate(push.decision.states):
            if taken is state:
                push.failures[index] = status
                push.decision.states[index] = None
        push.decision.whole = False

    def when(self, push: PendingPush, *, slow: bool) -> When:
        """Say when a push is answered; `slow`: it is to wait for the time, too."""
        decision = push.decision
        request = decision.push
        if slow or decision.waits or request.replicas or request.ack is Ack.SYNCED:
            return When.LATER
        promised = request.ack is Ack.MEMORY and not (decision.opened or self.owed) and push.taken
        return When.PROMISED if promised else When.WRITTEN

    def written(
        self, push: PendingPush, failures: Iterable[tuple[int, Status]], flushed: Iterable[tuple[EpochState, Status]]
    ) -> None:
        """It was written, but for these entries, and what was due of these epochs could not be flushed."""
        for index, status in failures:
            self._fail(push, index, status)
        for state, status in flushed:
            self._close(state, status)
            if status is Status.FAILED_COPY:
                for index, taken in enumerate(push.decision.states):
                    if taken is state:
                        self._fail(push, index, status)

    def promised(self, push: PendingPush, *, unforeseen: bool) -> list[EpochState]:
        """What was answered before was written as far as it could be, or met an `unforeseen` error; return the copies
        that are given up. What found no room is owed from now on."""
        states = push.decision.states
        if unforeseen:
            push.failures = dict.fromkeys(range(len(states)), int(Status.FAILED_COPY))
        lost = self._give_up([states[index] for index, status in push.failures.items() if status != Status.NO_ROOM])
        owed = {index for index, status in push.failures.items() if status == Status.NO_ROOM}
        left = [state if index in owed and _may_grow(state) else None for index, state in enumerate(states)]
        for state in filter(None, states):
            state.owed = state in left
        if any(left):
            assert self.owed is None, "one push at most is owed"
            push.decision.states, self.owed = left, push
        return lost

    def retried(self) -> PendingPush | None:
        """What is owed is written again, but for what was dropped or given up meanwhile."""
        push, self.owed = self.owed, None
        if push is not None:
            decision = push.decision
            decision.states = [state if _may_grow(state) else None for state in decision.states]
            decision.whole, decision.marked = False, []
            push.failures.clear()
        return push

    # What an answer waits for.

    def begin(self, push: PendingPush, now_ns: int, *, slow: bool, all_copies: bool = False) -> Steps | None:
        """Say what is to be done for a push that was written; None: nothing of it was taken, and it is answered now.
        Where it waits for nothing `ready` follows."""
        decision, steps = push.decision, Steps([], [])
        states = decision.states
        if decision.push.ack is Ack.SYNCED:
            steps.directories.extend(dict.fromkeys([state.directory for state in states if state is not None]))
            push.syncing.update(steps.directories)
        if decision.push.replicas:
            wanted = (index for index, state in enumerate(states) if state is not None and index not in push.failures)
            steps.chosen.extend(wanted)
        push.waits = len(steps.directories) + slow
        if steps.chosen:
            push.forwards = self.replicas.begin(decision, steps.chosen, all_copies=all_copies)
            push.waits += not push.forwards.decided
        for index, first in decision.waits:
            self._wait_for(push, index, first)
        if not (push.waits or steps.chosen):
            return None
        push.since_ns = now_ns
        self._reduce.flying(decision)
        self._pushes[decision] = push
        return steps

    def _wait_for(self, push: PendingPush, index: int, first: PushDecision) -> None:
        """A batch that came before, whose first arrival is not answered yet: it gets the same outcome."""
        other = self._pushes.get(first)
        if other is None:
            return
        if push.replicated and first.push.replicas:
            # This worker is the primary of that epoch, so nobody replicates it here, unless a client has named two
            # workers as each other's replicas: they would wait for one another until both gave up.
            push.failures.setdefault(index, Status.BAD_ORDER)
            return
        push.waits += 1
        other.repeated.append((push, index))

    def synced(self, push: PendingPush, directory: int, lost: Collection[EpochState]) -> list[PendingPush]:
        """A directory's part of a push is on its disk, but for these epochs: their copies are given up, and no others.
        What was dropped meanwhile is refused as any batch that comes after that. Returns what is answered now."""
        push.syncing.discard(directory)
        for index, state in enumerate(push.decision.states):
            if state is None or state.directory != directory:
                continue
            if state in lost:
                self._fail(push, index, Status.FAILED_COPY)
            elif state.life is Life.GONE:
                push.failures.setdefault(index, Status.SEALED)
        return self.waited(push)

    def ready(self, push: PendingPush) -> list[PendingPush]:
        """Everything is done for a push. Returns what is answered now, if it waits for nothing."""
        return self._end(push) if not (push.waits or push.answered) else []

    def forwarded(
        self, push: PendingPush, replica: int, refused: Collection[int]
    ) -> tuple[list[PendingPush], list[Settling]]:
        """This replica of a push has what it was sent, but for these entries. Returns what is answered now, and whose
        wait for replicas is over."""
        assert push.forwards is not None, "it was sent to its replicas"
        decided, settled = self.replicas.ended(push.forwards, replica, refused)
        answered: list[PendingPush] = []
        for forwards in decided:
            one = self._pushes[forwards.decision]
            one.failed |= self.replicas.blamed(forwards)
            for index in forwards.missing:
                one.failures.setdefault(index, Status.REPLICA_FAILED)
            answered += self.waited(one)
        return answered, settled

    def waited(self, push: PendingPush) -> list[PendingPush]:
        """One thing that a push waited for is there. Returns what is answered now: it, and those that waited for it."""
        if push.answered:
            return []
        push.waits -= 1
        assert push.waits >= len(push.syncing), "each thing is waited for once"
        return [] if push.waits else self._end(push)

    def stuck(self, now_ns: int, seconds: float) -> tuple[int, set[int]] | None:
        """Return for how many nanoseconds the first push waits for a disk that waits for so long, and for which
        directories; None if there is none."""
        push = next((one for one in self._late(now_ns, seconds) if one.syncing), None)
        return (now_ns - push.since_ns, push.syncing) if push is not None else None

    def leave_disks(self, now_ns: int) -> list[PendingPush]:
        """Return pushes that are answered now though their disks have not synced them. What they wrote stays, and is
        sealed if the disks go on: readers drop what comes twice. Their epochs there take nothing more."""
        answered = []
        for push in self._late(now_ns, SYNC_SECONDS):
            if push.answered or push.waits != len(push.syncing):
                continue
            for index, state in enumerate(push.decision.states):
                if state is not None and state.directory in push.syncing:
                    self._reduce.split(state)
                    push.failures.setdefault(index, Status.DISK_FAILED)
            answered += self._end(push)
        return answered

    def _late(self, now_ns: int, seconds: float) -> list[PendingPush]:
        return list(takewhile(lambda push: now_ns - push.since_ns >= seconds * 1e9, self._pushes.values()))

    # Answers.

    def answer(self, push: PendingPush) -> list[tuple[int, int]]:
        """Return the statuses of its entries that are not plain OK, ascending."""
        push.answered = True
        request, short = push.decision.push, push.decision.short
        push.failed |= sum((place.worker in short) << number for number, place in enumerate(request.replicas))
        push.behind = self.replicas.behind(request)
        self._reduce.landed(push.decision, list(push.failures))
        if not push.failures:
            return push.decision.statuses
        return sorted({**dict(push.decision.statuses), **push.failures}.items())

    def abandon(self, push: PendingPush) -> tuple[list[EpochState], list[PendingPush]]:
        """A mistake of ours: nobody knows what came of a push. Returns the copies that are given up with it, and the
        pushes that are answered now."""
        if push.answered:
            return [], []
        states = push.decision.states
        for index, state in enumerate(states):
            if state is not None:
                push.failures[index] = Status.FAILED_COPY
        return self._give_up(states), self._end(push)

    def _end(self, push: PendingPush) -> list[PendingPush]:
        """It is answered, and with it all that waited for nothing else."""
        ended = [push]
        for one in ended:
            assert not one.answered, "a push is answered once"
            one.answered = True
            self._pushes.pop(one.decision, None)
            if one.forwards is not None:
                self.replicas.given_up(one.forwards)
            for other, index in one.repeated:
                entry = other.decision.push.entries[index][:3]
                at = next(number for number, each in enumerate(one.decision.push.entries) if each[:3] == entry)
                if at in one.failures:
                    other.failures.setdefault(index, one.failures[at])
                    other.failed |= one.failed
                other.waits -= 1
                if not other.waits and not other.answered:
                    ended.append(other)
        return ended

    def _fail(self, push: PendingPush, index: int, status: Status) -> None:
        state = push.decision.states[index]
        if state is not None:
            self._close(state, status)
        push.failures.setdefault(index, status)

    def _close(self, state: EpochState, status: Status) -> None:
        if status is Status.FAILED_COPY:
            self._reduce.broke(state)
        else:
            self._reduce.split(state)

    def _give_up(self, states: Iterable[EpochState | None]) -> list[EpochState]:
        """Nobody may take these copies for all any more; return those that were not given up, sealed or dropped yet."""
        lost = [one for one in dict.fromkeys(states) if one is not None and Life.FAILED in LEGAL[one.life]]
        for state in lost:
            self._reduce.broke(state)
        return lost


def _may_grow(state: EpochState | None) -> bool:
    """Whether what was answered may still be written to this epoch: it takes nothing new and is not sealed."""
    return state is not None and state.life is Life.HARD
