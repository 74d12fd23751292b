"""Decides what happens to pushed batches of REDUCE partitions: shuffles, their epochs on this worker, and seals.

Rules: one fixed order of questions. For a frame: if it is for this start, have the masters accepted that? is the
shuffle forgotten or committed? is the incarnation ours? For each batch: is its epoch open? was it seen before? is there
room? An epoch that was closed, by a seal, a hard split, a failure or a restart, never accepts again. Payload never
comes here, nor does any object of a batch outlive the frame: `decide` is the hot path, and most batches cost one lookup
and three comparisons. Called by services/push_service.py and seal_service.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.common.errors import HoldfastError, NoRoomError, RetryError, error_for
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import Push
from holdfast.common.ids import Epoch, Incarnation, PartitionId, ShuffleKey
from holdfast.common.limits import GIB, KIB
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.bounded import remember
from holdfast.worker.core.write.epochs import LEGAL, EpochState, Life
from holdfast.worker.core.write.seen_batches import Attempts, BatchSequence, PushDecision

#: Small batches of a partition go to its file when so much of them has come.
FLUSH_BYTES = 256 * KIB
#: Epochs that accept or are being sealed, of all applications; one takes some 1.9 kB, with all that other parts
#: keep of it.
EPOCHS_MAX = 131_072
#: Shuffles remembered as committed or forgotten, so that a late writer is refused.
PAST_MAX = 65_536
#: Epochs remembered that were sealed before their shuffle came; one takes some 100 bytes.
SEALED_FIRST_MAX = 131_072


#: What a batch is told that comes for an epoch in this state.
_REFUSED = {
    Life.HARD: Status.HARD_SPLIT,
    Life.SEALING: Status.SEALED,
    Life.SEALED: Status.SEALED,
    Life.FAILED: Status.FAILED_COPY,
    Life.GONE: Status.SEALED,
}
#: Lives in which an epoch accepts.
_OPEN = (Life.OPEN, Life.SOFT)


class SplitLimits(NamedTuple):
    """Sizes at which an epoch is split."""

    soft_bytes: int = 1 * GIB
    hard_bytes: int = 2 * GIB


@dataclass(slots=True)
class OpenShuffle:
    """What this worker knows of one generation of a shuffle."""

    key: ShuffleKey
    #: whose share its epochs are of
    owner: tuple[bytes, ...]
    #: the level of the first push of which something was taken
    ack: Ack | None = None
    #: by (partition << 32 | epoch)
    epochs: dict[int, EpochState] = field(default_factory=dict)
    #: epochs that never accept again: sealed, or of an earlier incarnation
    closed: set[int] = field(default_factory=set)
    #: by epoch of which this is the primary: replicas that lack something that was acknowledged
    incomplete: dict[int, frozenset[int]] = field(default_factory=dict)


def epoch_key(partition: int, epoch: int) -> int:
    """Partition and epoch as one number."""
    return partition << 32 | epoch


@dataclass(slots=True)
class Reduce:
    """All REDUCE partitions that this incarnation writes."""

    incarnation: Incarnation
    #: the number of the directory for a new epoch, by the hint of the masters (a number plus one, or 0) and the level;
    #: None where none has room
    choose: Callable[[int, Ack], int | None]
    limits: SplitLimits = SplitLimits()
    #: why nothing is accepted; "" if it is
    closed_because: str = "this worker is starting"
    #: for each directory whether it takes more
    has_room: list[bool] = field(default_factory=lambda: [True])
    draining: bool = False
    shuffles: dict[ShuffleKey, OpenShuffle] = field(default_factory=dict)
    #: epochs with a state, by user and application
    shares: Shares = field(default_factory=lambda: Shares(EPOCHS_MAX))
    attempts: Attempts = field(default_factory=Attempts)
    _committed: dict[ShuffleKey, None] = field(default_factory=dict)
    _forgotten: dict[ShuffleKey, None] = field(default_factory=dict)
    #: epochs that were sealed before any batch of their shuffle came here, as a hard-split one's replica may be
    _sealed_first: dict[ShuffleKey, set[int]] = field(default_factory=dict)
    #: how many those are, over all shuffles
    sealed_first: int = 0

    # Pushes.

    def knows(self, shuffle: ShuffleKey) -> bool:
        """Whether `introduce` was called for it, or it is past; else the edge looks into storage and introduces it."""
        return shuffle in self.shuffles or shuffle in self._committed or shuffle in self._forgotten

    def may_introduce(self, push: Push) -> bool:
        """Whether this push, if nothing else is wrong with it, begins a shuffle here."""
        return not self.knows(push.shuffle) and push.incarnation == self.incarnation and not self.closed_because

    def forgot(self, shuffle: ShuffleKey) -> bool:
        return shuffle in self._forgotten

    def introduce(self, push: Push, final: bool, closed: Iterable[tuple[int, int]]) -> None:
        """Begin to take pushes of the shuffle of `push`; `final` and `closed` (partition, epoch) are what storage
        remembers. A push that will be refused for its incarnation introduces nothing."""
        key = push.shuffle
        if final:
            self._drop_sealed_first(key)
            remember(self._committed, key, None, PAST_MAX)
        elif push.incarnation == self.incarnation and not self.closed_because:
            earlier = self._drop_sealed_first(key)
            self.shuffles[key] = OpenShuffle(key, push.owner, closed={epoch_key(*one) for one in closed} | earlier)

    def refuse(self, push: Push) -> HoldfastError | None:
        """The questions about the frame, in their order."""
        key = push.shuffle
        shuffle = self.shuffles.get(key)
        if self.closed_because and push.incarnation == self.incarnation:
            return error_for(Status.UNAVAILABLE, self.closed_because)
        if shuffle is None and key in self._forgotten:  # what is known was not forgotten
            return error_for(Status.APPLICATION_GONE, f"the masters have forgotten {key}")
        if key in self._committed:
            return error_for(Status.COMMITTED, f"{key} is committed")
        if push.incarnation != self.incarnation:
            return error_for(
                Status.STALE_INCARNATION, f"this is incarnation {self.incarnation}, not {push.incarnation}"
            )
        assert shuffle is not None, f"{key} was introduced"
        if shuffle.ack is not None and push.ack != shuffle.ack:
            return error_for(Status.CONFLICT, f"{key} is pushed at level {shuffle.ack.name}, not {push.ack.name}")
        return None

    def decide(self, push: Push) -> PushDecision:
        """Decide every batch of a frame that was not refused as a whole, and note those taken as seen."""
        shuffle = self.shuffles[push.shuffle]
        attempt = self.attempts.get((push.shuffle, push.map, push.attempt))
        sequences = attempt.sequences
        before = len(sequences)
        decision = PushDecision(push, attempt)
        sequence_of, keep, marked = sequences.get, decision.states.append, decision.marked
        for partition, epoch, number, size, hint in push.entries:
            sequence = sequence_of(partition)
            if sequence is not None and sequence.next == number and sequence.epoch == epoch:
                state = sequence.state
                if state.plain:
                    sequence.next = number + 1
                    state.size_bytes = grown = state.size_bytes + size
                    if grown >= state.mark:
                        marked.append(state)
                    keep(state)
                    continue
            keep(self._odd(shuffle, decision, (partition, epoch, number, size, hint)))
        if len(sequences) > before or not before:
            self.attempts.pushed(attempt, len(sequences) - before)
            if not shuffle.epochs and not shuffle.closed:
                del self.shuffles[shuffle.key]  # nothing of it was taken: the next push introduces it again
        for state in marked:
            self._look_at(state)
        assert len(decision.states) == len(push.entries), "every batch is decided"
        return decision

    def _odd(
        self, shuffle: OpenShuffle, decision: PushDecision, entry: tuple[int, int, int, int, int]
    ) -> EpochState | None:
        """Decide a batch that is not simply the next of an open epoch; return the epoch that takes it."""
        partition, epoch, number, size, hint = entry
        index, key = len(decision.states), epoch_key(partition, epoch)
        state = shuffle.epochs.get(key)
        sequence = decision.attempt.sequences.get(partition)
        status = Status.SEALED if key in shuffle.closed else _REFUSED.get(state.life) if state is not None else None
        if status is None and state is not None and state.short:
            status = Status.REPLICA_FAILED
            decision.short |= shuffle.incomplete[key]
        if status is None and sequence is not None and sequence.epoch == epoch and sequence.seen(number):
            self._seen(decision, index, entry, sequence.state)
            return None
        if status is None and state is None:
            state = self._open(shuffle, decision, partition, epoch, hint)
        if state is None or status is not None:
            decision.statuses.append((index, status or (Status.HARD_SPLIT if self.draining else Status.NO_ROOM)))
            decision.whole = False
            return None
        if sequence is None or sequence.epoch != epoch:
            sequence = decision.attempt.sequences[partition] = BatchSequence(state, number)
        sequence.take(number)
        state.size_bytes += size
        if state.size_bytes >= state.mark:
            decision.marked.append(state)
        if state.life is Life.SOFT:
            decision.statuses.append((index, Status.SOFT_SPLIT))
        return state

    def _seen(
        self, decision: PushDecision, index: int, entry: tuple[int, int, int, int, int], state: EpochState
    ) -> None:
        """A batch that came before gets the outcome of its first arrival."""
        decision.whole = False
        partition, epoch, number, _, _ = entry
        for mine, taken in zip(decision.push.entries, decision.states, strict=False):
            if taken is not None and (mine[0], mine[1], mine[2]) == (partition, epoch, number):
                decision.statuses.append((index, Status.BAD_ORDER))  # twice in one frame: no client of ours
                return
        flight = decision.attempt.flight_of(partition, epoch, number)
        if flight is not None:
            decision.waits.append((index, flight))
        elif state.life is Life.SOFT:
            decision.statuses.append((index, Status.SOFT_SPLIT))

    def _open(
        self, shuffle: OpenShuffle, decision: PushDecision, partition: int, epoch: int, hint: int
    ) -> EpochState | None:
        directory = self._directory(hint, decision.push.ack)
        if directory is None or not self.shares.take(shuffle.owner, 1):
            return None
        assert epoch_key(partition, epoch) not in shuffle.closed, "what was closed never accepts again"
        mark = min(FLUSH_BYTES, self.limits.soft_bytes)
        shuffle.ack = ack = decision.push.ack
        state = EpochState(shuffle.key, PartitionId(partition), Epoch(epoch), ack, directory, mark)
        shuffle.epochs[epoch_key(partition, epoch)] = state
        decision.opened.append(state)
        return state

    def _directory(self, hint: int, ack: Ack) -> int | None:
        """The directory for a new epoch, among those that have room."""
        if self.draining:
            return None
        chosen = self.choose(hint if hint <= len(self.has_room) else 0, ack)
        return chosen if chosen is not None and self.has_room[chosen] else None

    def _look_at(self, state: EpochState) -> None:
        """An epoch has reached its mark: split it if it is due, and set the next mark."""
        soft, hard = self.limits
        if state.size_bytes >= hard and state.life in _OPEN:
            state.become(Life.HARD)
        elif state.size_bytes >= soft and state.life is Life.OPEN:
            state.become(Life.SOFT)
        limit = soft if state.size_bytes < soft else hard
        due = state.size_bytes + FLUSH_BYTES
        state.mark = min(due, limit) if state.size_bytes < hard else due

    # Outcomes.

    @staticmethod
    def flying(decision: PushDecision) -> None:
        """The outcome of this decision is not known yet; `landed` must follow."""
        decision.attempt.flights.append(decision)

    @staticmethod
    def landed(decision: PushDecision, failed: Sequence[int]) -> None:
        """The outcome is known: these entries failed and may come again."""
        flights = decision.attempt.flights
        if decision in flights:
            flights.remove(decision)
        for index in failed:
            if decision.states[index] is not None:
                partition, epoch, number = decision.push.entries[index][:3]
                sequence = decision.attempt.sequences.get(partition)
                if sequence is not None and sequence.epoch == epoch:
                    sequence.untake(number)

    def broke(self, state: EpochState) -> None:
        """A write or sync of this copy failed: it is given up for good. One that is sealed or dropped by now is not in
        that any more: what failed was its file before."""
        if Life.FAILED in LEGAL[state.life]:
            state.become(Life.FAILED)
            state.owed = False

    def split(self, state: EpochState) -> None:
        if state.life in _OPEN:
            state.become(Life.HARD)

    def fell_short(self, state: EpochState, replica: int) -> None:
        """This replica lacks a batch of the epoch that was acknowledged: what comes next goes to another epoch."""
        shuffle = self.shuffles.get(state.shuffle)
        if shuffle is None:
            return  # it is committed, or dropped
        key = epoch_key(state.partition, state.epoch)
        shuffle.incomplete[key] = shuffle.incomplete.get(key, frozenset()) | {replica}
        state.short, state.plain = True, False

    def incomplete(self, shuffle: ShuffleKey, epochs: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Return (partition, epoch, replica) of those of these epochs that lack something that was acknowledged."""
        found = self.shuffles.get(shuffle)
        known = found.incomplete if found is not None else {}
        return [(*one, replica) for one in epochs for replica in sorted(known.get(epoch_key(*one), ()))]

    # Seals.

    def seal(self, shuffle: ShuffleKey, final: bool, epochs: Sequence[tuple[int, int]]) -> list[EpochState | None]:
        """Close epochs; return for each its state to be sealed (or asked), None where only storage can tell.

        Raises RetryError (BUSY) for one that is not final, if too many epochs were sealed before their shuffle;
        NoRoomError (DISK_FULL) while the disk has no room for what was acknowledged from memory.
        """
        found = self.shuffles.get(shuffle)
        known = found.epochs if found is not None else dict[int, EpochState]()
        states = [known.get(epoch_key(*one)) for one in epochs]
        if any(state is not None and state.owed for state in states):
            text = f"{shuffle}: no room yet for data that was acknowledged from memory"
            raise NoRoomError(text, status=Status.DISK_FULL)
        past = final or shuffle in self._committed or shuffle in self._forgotten
        closed = found.closed if found is not None else set[int]()
        if found is None and not past:
            closed = self._seal_first(shuffle, epochs)
        for one, state in zip(epochs, states, strict=True):
            if state is not None and state.life in (Life.OPEN, Life.SOFT, Life.HARD):
                state.become(Life.SEALING)
            elif state is None:
                closed.add(epoch_key(*one))
        if past:
            self._drop_sealed_first(shuffle)  # nothing of it is taken any more
        if final and shuffle not in self._forgotten:
            remember(self._committed, shuffle, None, PAST_MAX)
            self.attempts.drop([shuffle])
            if found is not None and not found.epochs:
                del self.shuffles[shuffle]
        return states

    def _seal_first(self, shuffle: ShuffleKey, epochs: Iterable[tuple[int, int]]) -> set[int]:
        """Remember epochs of a shuffle that has not come here; return all of it that was sealed."""
        sealed = self._sealed_first.get(shuffle, set())
        whole = sealed | {epoch_key(*one) for one in epochs}
        if self.sealed_first + len(whole) - len(sealed) > SEALED_FIRST_MAX:
            raise RetryError(f"{SEALED_FIRST_MAX} epochs were sealed before their shuffle", status=Status.BUSY)
        self.sealed_first += len(whole) - len(sealed)
        self._sealed_first[shuffle] = whole
        return whole

    def _drop_sealed_first(self, shuffle: ShuffleKey) -> set[int]:
        sealed = self._sealed_first.pop(shuffle, set())
        self.sealed_first -= len(sealed)
        assert self.sealed_first >= 0, "each of them is counted once"
        return sealed

    def sealed_only(self) -> list[ShuffleKey]:
        """Shuffles of which nothing is here but seals; they, too, may have been dropped meanwhile."""
        return [*self._sealed_first, *[key for key, shuffle in self.shuffles.items() if not shuffle.epochs]]

    def sealed(self, state: EpochState) -> None:
        """The answer for this epoch is kept by storage: the state is of no more use."""
        found = self.shuffles.get(state.shuffle)
        if state.life is Life.SEALING:
            state.become(Life.SEALED)
        if found is not None and found.epochs.pop(epoch_key(state.partition, state.epoch), None) is not None:
            self.shares.give(found.owner, 1)
            found.closed.add(epoch_key(state.partition, state.epoch))
            if not found.epochs and state.shuffle in self._committed:
                del self.shuffles[state.shuffle]

    @staticmethod
    def not_sealed(state: EpochState) -> None:
        """Sealing met a full disk: nothing is lost, and it is asked for again."""
        if state.life is Life.SEALING:
            state.become(Life.HARD)

    # What happens around them.

    def forget(self, shuffle: ShuffleKey) -> list[EpochState]:
        """The masters do not know it any more; return the epochs whose copies are to be dropped."""
        remember(self._forgotten, shuffle, None, PAST_MAX)
        self._committed.pop(shuffle, None)
        self._drop_sealed_first(shuffle)
        found = self.shuffles.pop(shuffle, None)
        if found is None:
            return []
        states = list(found.epochs.values())
        self.shares.give(found.owner, len(states))
        for state in states:
            if state.life is not Life.SEALING:
                state.become(Life.GONE)
        self.attempts.drop([shuffle])
        return states

    def begin(self, incarnation: Incarnation) -> None:
        """This worker has a new incarnation: nothing is added to what an earlier one opened."""
        assert incarnation > self.incarnation, f"{incarnation} comes behind {self.incarnation}"
        self.incarnation = incarnation
        for state in self._states(*_OPEN):
            state.become(Life.HARD)

    def set_has_room(self, has_room: list[bool]) -> None:
        """Say which directories take more; the epochs in the others are split for good."""
        if has_room == self.has_room:
            return
        self.has_room = has_room
        for state in self._states(*_OPEN):
            if not has_room[state.directory]:
                state.become(Life.HARD)

    def split_largest(self, directory: int, size_bytes: int) -> int:
        """Split the largest open epochs of a directory for good, until what is split and not yet sealed there holds
        `size_bytes`, so that it can be sealed and moved. Returns how many were split."""
        waiting = [state for state in self._states(Life.HARD, Life.SEALING) if state.directory == directory]
        missing = size_bytes - sum(state.size_bytes for state in waiting)
        growing = [state for state in self._states(*_OPEN) if state.directory == directory and state.size_bytes]
        count = 0
        for state in sorted(growing, key=lambda state: state.size_bytes, reverse=True):
            if missing <= 0:
                break
            state.become(Life.HARD)
            missing -= state.size_bytes
            count += 1
        return count

    def split_states(self, directory: int | None = None) -> list[EpochState]:
        """Return the epochs, of a directory or of all, that accept nothing more and that nobody has sealed yet."""
        return [state for state in self._states(Life.HARD) if directory in (None, state.directory)]

    def drain(self, yes: bool) -> None:
        """Take no new epochs and split those that are open, or go back to normal."""
        self.draining = yes
        for state in self._states(*_OPEN) if yes else ():
            state.become(Life.HARD)

    def split_memory(self) -> list[EpochState]:
        """Split what is acknowledged from memory; return all of it that nobody has sealed yet."""
        for state in self._states(*_OPEN):
            if state.ack is Ack.MEMORY:
                state.become(Life.HARD)
        return [state for state in self._states(Life.HARD) if state.ack is Ack.MEMORY]

    @property
    def full(self) -> bool:
        """Nobody may open an epoch, not even an application that has none."""
        return not self.shares.fits(b"nobody", 1)

    @property
    def writing(self) -> int:
        return self.shares.total - len(self._states(Life.FAILED))

    def _states(self, *lives: Life) -> list[EpochState]:
        every = (state for shuffle in self.shuffles.values() for state in shuffle.epochs.values())
        return [state for state in every if state.life in lives]

    def check(self) -> None:
        assert max(len(self._committed), len(self._forgotten)) <= PAST_MAX
        assert not self.shuffles.keys() & self._forgotten.keys()
        assert not self.shuffles.keys() & self._sealed_first.keys()
        assert self.sealed_first == sum(map(len, self._sealed_first.values())) <= SEALED_FIRST_MAX
        assert self.shares.total == sum(len(shuffle.epochs) for shuffle in self.shuffles.values())
        self.shares.check()
        for key, shuffle in self.shuffles.items():
            assert shuffle.key == key
            assert not shuffle.closed & shuffle.epochs.keys()
            for packed, state in shuffle.epochs.items():
                assert (state.shuffle, epoch_key(state.partition, state.epoch)) == (key, packed)
                assert state.plain == (state.life is Life.OPEN and not state.short)
                assert state.short == (packed in shuffle.incomplete), state
                assert state.life not in (Life.SEALED, Life.GONE), state
                assert state.size_bytes < state.mark or state.life is not Life.OPEN, state
        self.attempts.check()
