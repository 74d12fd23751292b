"""Follows what the replicas have of the pushes of their primary: when enough copies have a push, and which lack what.

Rules
* A push has enough copies when as many as it asks for have all of it: this one, and replicas that lack nothing that was
  acknowledged before. So at any time that many copies of an epoch have everything that was acknowledged in it.
* A replica is behind while a push that others have is on its way to it. It counts for nothing beside the same others,
  which are those of its epochs, until it has caught up. It has, or has failed, after FORWARD_SECONDS
  (services/forwarding.py). This begins when it is decided that the push has enough copies: until it is answered others
  may be decided, and must not count on that replica.
* A replica that fails such a push has an incomplete copy, for good: its epoch takes nothing more here (reduce.py).
* A batch that too few copies have is REPLICA_FAILED. It is acknowledged to nobody, and no copy lacks it.

Pure. Called by pending_pushes.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.common.formats.reduce_messages import Push, PushEntry
from holdfast.common.ids import ShuffleKey
from holdfast.worker.core.write.reduce import Reduce, epoch_key
from holdfast.worker.core.write.seen_batches import AttemptKey, PushDecision


@dataclass(slots=True, eq=False)
class Settling:
    """Somebody waits for what was acknowledged to an attempt to end on all replicas."""

    shuffle: ShuffleKey
    #: (partition, epoch)
    epochs: Sequence[tuple[int, int]]
    #: pushes that have not ended
    left: int = 0


@dataclass(slots=True, eq=False)
class Forwards:
    """A push on its way to its replicas."""

    decision: PushDecision
    #: the entries that were sent
    chosen: Sequence[int]
    #: so many replicas have to have it
    needed: int
    #: replicas that have not answered
    left: int
    #: by replica that has answered: the entries that it did not keep
    refused: dict[int, Collection[int]] = field(default_factory=dict)
    #: whether it is known that enough replicas have it, or which entries too few have
    decided: bool = False
    missing: Sequence[int] = ()
    #: the entries that enough have
    kept: frozenset[int] = frozenset()
    settling: list[Settling] = field(default_factory=list)


class Replicas:
    """The forwards of one worker."""

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        #: by shuffle, those that wait for replicas
        self._undecided: dict[ShuffleKey, dict[Forwards, None]] = {}
        #: by attempt, those that have enough copies and have not ended
        self._lagging: dict[AttemptKey, dict[Forwards, None]] = {}
        #: pushes with enough copies that a replica does not have yet, by shuffle, replicas and one of these
        self._behind: Counter[tuple[ShuffleKey, tuple[int, ...], int]] = Counter()

    def begin(self, decision: PushDecision, chosen: Sequence[int], *, all_copies: bool) -> Forwards:
        """These entries of a push are sent to each of its replicas; `all_copies` are waited for, whatever it asks."""
        push = decision.push
        needed = len(push.replicas) if all_copies else push.acknowledging - 1
        forwards = Forwards(decision, chosen, needed, len(push.replicas))
        self._undecided.setdefault(push.shuffle, {})[forwards] = None
        if not needed:
            self._decided(forwards)
        return forwards

    def ended(
        self, forwards: Forwards, replica: int, refused: Collection[int]
    ) -> tuple[list[Forwards], list[Settling]]:
        """A replica has it, but for these entries. Returns what is decided now, and whose wait is over."""
        forwards.left -= 1
        forwards.refused[replica] = refused
        assert len(forwards.refused) + forwards.left == len(forwards.decision.push.replicas), "each replica ends once"
        if not forwards.decided:
            return ([forwards] if self._decide(forwards) else []), []
        self._caught_up(forwards, replica)
        waiting = list(self._undecided.get(forwards.decision.push.shuffle, ()))
        return [one for one in waiting if self._decide(one)], [] if forwards.left else self._over(forwards)

    def given_up(self, forwards: Forwards) -> None:
        """Nothing of it is acknowledged, whatever replicas have."""
        if not forwards.decided:
            forwards.missing = forwards.chosen
            self._decided(forwards)

    def _decided(self, forwards: Forwards) -> None:
        """It is known what becomes of a push: who does not have it is behind, and who refused some of it lacks that."""
        push = forwards.decision.push
        undecided = self._undecided[push.shuffle]
        del undecided[forwards]
        if not undecided:
            del self._undecided[push.shuffle]
        forwards.decided = True
        forwards.kept = frozenset(forwards.chosen).difference(forwards.missing)
        if not forwards.kept:
            return
        for replica, place in enumerate(push.replicas):
            if replica in forwards.refused:
                self._fell_short(forwards, replica)
            else:
                self._behind[_group(push, place.worker)] += 1
        if forwards.left:
            self._lagging.setdefault(forwards.decision.attempt.key, {})[forwards] = None

    def behind(self, push: Push) -> int:
        """Return the replicas of a push that lack something that is acknowledged, a bit each."""
        if push.acknowledging > len(push.replicas):
            return 0
        replicas = range(len(push.replicas))
        return sum((not self._complete(push, replica, push.entries)) << replica for replica in replicas)

    def blamed(self, forwards: Forwards) -> int:
        """Return the replicas for which entries are missing, a bit each."""
        push, mask = forwards.decision.push, 0
        entries = [push.entries[index] for index in forwards.missing]
        for replica, place in enumerate(push.replicas):
            refused = forwards.refused.get(replica, ())
            mask |= (
                any(index in refused for index in forwards.missing)
                or any(place.worker in self._incomplete(push.shuffle, entry) for entry in entries)
            ) << replica
        return mask

    def settle(self, settling: Settling, attempt: AttemptKey) -> bool:
        """Somebody waits for what was acknowledged to this attempt; return whether all of that has ended."""
        lagging = self._lagging.get(attempt, ())
        for forwards in lagging:
            forwards.settling.append(settling)
        settling.left = len(lagging)
        return not settling.left

    def _decide(self, forwards: Forwards) -> bool:
        """Whether it is known by now what becomes of a push."""
        push, refused = forwards.decision.push, forwards.refused
        entries = [push.entries[index] for index in forwards.chosen]
        whole = sum(not those and self._complete(push, replica, entries) for replica, those in refused.items())
        if whole < forwards.needed:
            if forwards.left or any(self._behind[_group(push, push.replicas[one].worker)] for one in refused):
                return False  # one more may have all of it soon
            forwards.missing = [index for index in forwards.chosen if self._have(forwards, index) < forwards.needed]
        self._decided(forwards)
        return True

    def _have(self, forwards: Forwards, index: int) -> int:
        """How many replicas have an entry, and lack nothing of its epoch."""
        push = forwards.decision.push
        incomplete = self._incomplete(push.shuffle, push.entries[index])
        return sum(
            index not in refused and push.replicas[replica].worker not in incomplete
            for replica, refused in forwards.refused.items()
        )

    def _complete(self, push: Push, replica: int, entries: Iterable[PushEntry]) -> bool:
        """Whether a replica of a push lacks nothing that was acknowledged in the epochs of these entries."""
        worker = push.replicas[replica].worker
        if self._behind[_group(push, worker)]:
            return False
        shuffle = self._reduce.shuffles.get(push.shuffle)
        if shuffle is None or not shuffle.incomplete:
            return True
        return not any(worker in self._incomplete(push.shuffle, entry) for entry in entries)

    def _incomplete(self, key: ShuffleKey, entry: PushEntry) -> Container[int]:
        shuffle = self._reduce.shuffles.get(key)
        return shuffle.incomplete.get(epoch_key(entry[0], entry[1]), ()) if shuffle is not None else ()

    def _caught_up(self, forwards: Forwards, replica: int) -> None:
        """A replica has what others had before it, or never will."""
        if not forwards.kept:
            return
        push = forwards.decision.push
        at = _group(push, push.replicas[replica].worker)
        self._behind[at] -= 1
        assert self._behind[at] >= 0, "each push is waited for once"
        if not self._behind[at]:
            del self._behind[at]
        self._fell_short(forwards, replica)

    def _fell_short(self, forwards: Forwards, replica: int) -> None:
        """What a replica did not keep of what is acknowledged."""
        decision = forwards.decision
        for index in forwards.refused[replica]:
            state = decision.states[index]
            if state is not None and index in forwards.kept:
                self._reduce.fell_short(state, decision.push.replicas[replica].worker)

    def _over(self, forwards: Forwards) -> list[Settling]:
        key = forwards.decision.attempt.key
        lagging = self._lagging.get(key, {})
        lagging.pop(forwards, None)
        if not lagging:
            self._lagging.pop(key, None)
        for one in forwards.settling:
            one.left -= 1
        return [one for one in forwards.settling if not one.left]

    def check(self) -> None:
        for key, undecided in self._undecided.items():
            assert undecided, f"{key} waits for nothing"
            assert not any(one.decided for one in undecided)
        behind: Counter[tuple[ShuffleKey, tuple[int, ...], int]] = Counter()
        for lagging in self._lagging.values():
            assert lagging
            for one in lagging:
                push = one.decision.push
                left = [each.worker for at, each in enumerate(push.replicas) if at not in one.refused]
                behind.update([_group(push, worker) for worker in left])
        assert behind == self._behind, "a replica is behind by what it does not have"


def _group(push: Push, worker: int) -> tuple[ShuffleKey, tuple[int, ...], int]:
    """A replica among those that have the same epochs."""
    return push.shuffle, tuple([place.worker for place in push.replicas]), worker
