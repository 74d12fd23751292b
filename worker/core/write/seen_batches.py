"""Remembers which batches of an attempt were seen, so that one sent twice is kept once.

Rules: a sequence is one partition of one (map, attempt) in its newest epoch here: the number that is due, and a few
exceptions below it. An attempt of which nothing was taken is not remembered. What is forgotten only lets a duplicate
in, which readers drop; so everything here is bounded and the attempts that were silent longest go first. A batch whose
first arrival is still on its way waits for that one's outcome. Pure. Called by reduce.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.common.formats.reduce_messages import Push
from holdfast.common.ids import ShuffleKey
from holdfast.worker.core.write.epochs import EpochState

#: Sequences of all attempts together; one takes some 200 bytes.
SEQUENCES_MAX = 262_144
#: Attempts; one takes some 600 bytes.
ATTEMPTS_MAX = 65_536
#: Numbers below the one that is due that a sequence remembers as missing.
HOLES_MAX = 64

AttemptKey = tuple[ShuffleKey, int, int]


class BatchSequence:
    """Numbers of one partition in one epoch: seen are those in [base, next) that are not holes."""

    __slots__ = ("base", "epoch", "holes", "next", "state")

    def __init__(self, state: EpochState, number: int) -> None:
        self.state = state
        self.epoch = state.epoch
        self.base = number
        self.next = number
        self.holes: set[int] = set()

    def seen(self, number: int) -> bool:
        return self.base <= number < self.next and number not in self.holes

    def take(self, number: int) -> None:
        assert not self.seen(number), f"batch {number} is taken once"
        if number >= self.next:
            if number - self.next + len(self.holes) <= HOLES_MAX:
                self.holes.update(range(self.next, number))
            else:
                self.base, self.holes = number, set()
            self.next = number + 1
        elif number in self.holes:
            self.holes.discard(number)
        elif number == self.base - 1:
            self.base = number

    def untake(self, number: int) -> None:
        """Its first arrival failed: another one is decided anew."""
        if not self.seen(number):
            return
        if number == self.next - 1:
            self.next = number
        elif len(self.holes) < HOLES_MAX:
            self.holes.add(number)
        else:
            self.base, self.holes = self.next, set()


@dataclass(slots=True, eq=False)
class Attempt:
    """What is known of one (map, attempt)."""

    key: AttemptKey
    #: by partition
    sequences: dict[int, BatchSequence] = field(default_factory=dict)
    #: decisions whose outcome is not known yet
    flights: list[PushDecision] = field(default_factory=list)

    def flight_of(self, partition: int, epoch: int, number: int) -> PushDecision | None:
        """The decision on its way that holds the first arrival of a batch."""
        for flight in self.flights:
            for entry, state in zip(flight.push.entries, flight.states, strict=True):
                if state is not None and entry[2] == number and entry[0] == partition and entry[1] == epoch:
                    return flight
        return None


@dataclass(slots=True)
class Attempts:
    """All attempts, those pushed to last at the end."""

    sequences: int = 0
    _attempts: OrderedDict[AttemptKey, Attempt] = field(default_factory=OrderedDict)

    def get(self, key: AttemptKey) -> Attempt:
        """The attempt, known or new, as the one pushed to last."""
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = self._attempts[key] = Attempt(key)
        else:
            self._attempts.move_to_end(key)
        return attempt

    def pushed(self, attempt: Attempt, count: int) -> None:
        """A push of the attempt began `count` sequences; forget those silent longest past the bounds."""
        if not attempt.sequences:
            del self._attempts[attempt.key]
        self.sequences += count
        while (self.sequences > SEQUENCES_MAX or len(self._attempts) > ATTEMPTS_MAX) and len(self._attempts) > 1:
            _, oldest = self._attempts.popitem(last=False)
            self.sequences -= len(oldest.sequences)
            assert self.sequences >= 0, "each sequence is counted once"

    def drop(self, shuffles: Iterable[ShuffleKey]) -> None:
        gone = set(shuffles)
        for key in [key for key in self._attempts if key[0] in gone]:
            self.sequences -= len(self._attempts.pop(key).sequences)
        assert self.sequences >= 0, "each sequence is counted once"

    def __len__(self) -> int:
        return len(self._attempts)

    def check(self) -> None:
        assert self.sequences == sum(len(attempt.sequences) for attempt in self._attempts.values())
        assert self.sequences <= SEQUENCES_MAX or len(self._attempts) == 1
        assert len(self._attempts) <= ATTEMPTS_MAX
        for key, attempt in self._attempts.items():
            assert attempt.key == key
            assert attempt.sequences
            for sequence in attempt.sequences.values():
                assert sequence.base <= sequence.next
                assert len(sequence.holes) <= HOLES_MAX
                assert all(sequence.base <= hole < sequence.next for hole in sequence.holes)


@dataclass(slots=True, eq=False)
class PushDecision:
    """What to do with a frame whose batches were decided one by one."""

    push: Push
    attempt: Attempt
    #: for each entry the epoch that takes it, None if it is not taken (anew)
    states: list[EpochState | None] = field(default_factory=list)
    #: (index, status) of what is not plain OK, ascending
    statuses: list[tuple[int, int]] = field(default_factory=list)
    #: (index, decision): seen before, and that arrival's outcome is not known yet
    waits: list[tuple[int, PushDecision]] = field(default_factory=list)
    #: epochs that begin with this frame: storage makes their copies
    opened: list[EpochState] = field(default_factory=list)
    #: epochs whose small batches are to be flushed
    marked: list[EpochState] = field(default_factory=list)
    #: every entry is taken
    whole: bool = True
    #: replicas that are to blame for what is REPLICA_FAILED
    short: set[int] = field(default_factory=set)
