"""What the core decides about pushed batches: order of questions, duplicates, splits, seals; windows of credit."""

import dataclasses
import random

import pytest

from holdfast.common.errors import RetryError
from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import Push
from holdfast.common.ids import AttemptId, Incarnation, Instance, MapId, ShuffleId, ShuffleKey
from holdfast.common.limits import KIB, MIB
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.write import reduce as module
from holdfast.worker.core.write.credits import CREDIT_LIFE_NS, Credits
from holdfast.worker.core.write.epochs import Life
from holdfast.worker.core.write.reduce import Reduce, SplitLimits
from holdfast.worker.core.write.seen_batches import HOLES_MAX, SEQUENCES_MAX, BatchSequence, PushDecision
from tests.support.reduce_data import by_turns, shuffle_of

SHUFFLE = shuffle_of()


def push(
    *entries: tuple[int, int, int] | tuple[int, int, int, int],
    map_id: int = 0,
    attempt: int = 0,
    incarnation: int = 5,
    ack: Ack = Ack.WRITTEN,
    shuffle: ShuffleKey = SHUFFLE,
) -> Push:
    """A push of (partition, epoch, number[, size])."""
    return Push(
        shuffle=shuffle,
        incarnation=Incarnation(incarnation),
        ack=ack,
        map=MapId(map_id),
        attempt=AttemptId(attempt),
        body_crc=0,
        entries=[(*one[:3], one[3] if len(one) > 3 else 100, 0) for one in entries],  # type: ignore[misc]
    )


@pytest.fixture
def core() -> Reduce:
    """A core that accepts and knows the shuffle."""
    reduce = Reduce(Incarnation(5), by_turns(1), SplitLimits(1 * MIB, 2 * MIB))
    reduce.closed_because = ""
    reduce.introduce(push((0, 0, 0)), False, [(77, 0)])
    return reduce


def taken(decision: PushDecision) -> list[bool]:
    """Which entries are taken."""
    return [state is not None for state in decision.states]


def test_the_frame_is_questioned_in_its_order(core: Reduce) -> None:
    """Forgotten comes before committed, committed before stale, stale before another level. Nothing comes before a
    worker that takes nothing, for a push that is for this start of it."""
    wrong = push((0, 0, 0), incarnation=4, ack=Ack.SYNCED)
    for spoil, status in [
        (lambda: None, Status.STALE_INCARNATION),
        (lambda: core.seal(SHUFFLE, True, []), Status.COMMITTED),
        (lambda: core.forget(SHUFFLE), Status.APPLICATION_GONE),
        (lambda: setattr(core, "closed_because", "ending"), Status.APPLICATION_GONE),
        (lambda: setattr(core, "incarnation", 4), Status.UNAVAILABLE),
    ]:
        spoil()
        refusal = core.refuse(wrong)
        assert refusal is not None
        assert refusal.status == status
        core.check()


def test_a_level_is_that_of_the_shuffle(core: Reduce) -> None:
    """Another level than that of the first push of which something was taken is a conflict."""
    assert taken(core.decide(push((77, 0, 0), ack=Ack.SYNCED))) == [False]
    assert core.refuse(push((0, 0, 0))) is None
    assert taken(core.decide(push((0, 0, 0)))) == [True]
    refusal = core.refuse(push((0, 0, 0), ack=Ack.SYNCED))
    assert refusal is not None
    assert refusal.status == Status.CONFLICT


def test_batches_in_turn_are_taken_and_others_once(core: Reduce) -> None:
    """Any order is taken, each number once; a second arrival is OK and not taken."""
    order = list(range(200))
    random.Random(3).shuffle(order)
    for number in order:
        assert taken(core.decide(push((0, 0, number)))) in ([True], [False])
        core.check()
    core.decide(push((1, 0, 0), (1, 0, 1), (1, 0, 3)))
    again = core.decide(push((1, 0, 1), (1, 0, 2), (1, 0, 3), (1, 0, 4)))
    assert taken(again) == [False, True, False, True]
    assert again.statuses == []


def test_closed_epochs_never_accept(core: Reduce) -> None:
    """Epochs of earlier incarnations, sealed, failed and hard-split ones are refused, each by its status."""
    states = core.decide(push(*[(partition, 0, 0) for partition in range(4)])).states
    sealing, failed, hard = states[0], states[1], states[2]
    assert sealing is not None
    assert failed is not None
    assert hard is not None
    core.seal(SHUFFLE, False, [(0, 0), (9, 9)])
    core.broke(failed)
    core.split(hard)
    decision = core.decide(push((77, 0, 0), (0, 0, 1), (1, 0, 1), (2, 0, 1), (9, 9, 0), (3, 0, 1)))
    assert dict(decision.statuses) == {
        0: Status.SEALED,
        1: Status.SEALED,
        2: Status.FAILED_COPY,
        3: Status.HARD_SPLIT,
        4: Status.SEALED,
    }
    core.sealed(sealing)
    assert dict(core.decide(push((0, 0, 1))).statuses) == {0: Status.SEALED}
    assert core.shares.total == 3
    core.check()


def test_an_epoch_sealed_before_its_shuffle_came_never_accepts() -> None:
    """A hard-split epoch may be sealed on a replica that has had nothing of the shuffle; its other epochs are taken."""
    reduce = Reduce(Incarnation(5), by_turns(1), SplitLimits(1 * MIB, 2 * MIB))
    reduce.closed_because = ""
    assert reduce.seal(SHUFFLE, False, [(3, 0)]) == [None]
    reduce.introduce(push((0, 0, 0)), False, [])
    assert taken(reduce.decide(push((3, 0, 0), (3, 1, 0), (4, 0, 0)))) == [False, True, True]


def test_epochs_sealed_before_their_shuffles_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few shuffles they are of: beyond the bound an early seal is BUSY and a final one is not; those of a
    shuffle that came, was committed or was forgotten make room."""
    monkeypatch.setattr(module, "SEALED_FIRST_MAX", 6)
    reduce = Reduce(Incarnation(5), by_turns(1), SplitLimits(1 * MIB, 2 * MIB))
    reduce.closed_because = ""
    first, second, third, fourth = (shuffle_of(number) for number in range(1, 5))
    for shuffle in (first, second, third):
        reduce.seal(shuffle, False, [(0, 0), (1, 0)])
        reduce.seal(shuffle, False, [(1, 0)])
    with pytest.raises(RetryError) as full:
        reduce.seal(fourth, False, [(0, 0)])
    assert full.value.status is Status.BUSY
    assert reduce.sealed_only() == [first, second, third]
    reduce.seal(fourth, True, [(0, 0)])
    reduce.introduce(dataclasses.replace(push((0, 0, 0)), shuffle=first), False, [])
    reduce.seal(second, True, [(5, 0)])
    reduce.forget(third)
    assert (reduce.sealed_first, reduce.sealed_only()) == (0, [first])
    reduce.check()


def test_a_final_seal_leaves_nothing_of_a_shuffle_without_open_epochs(core: Reduce) -> None:
    """All was sealed early, or nothing ever came: the last word takes the shuffle out of memory."""
    (state,) = core.decide(push((0, 0, 0))).states
    assert state is not None
    core.seal(SHUFFLE, False, [(0, 0)])
    core.sealed(state)
    core.seal(SHUFFLE, True, [(0, 0), (1, 0)])
    assert not core.shuffles
    refusal = core.refuse(push((1, 0, 0)))
    assert refusal is not None
    assert refusal.status == Status.COMMITTED


def test_a_duplicate_waits_for_its_first_arrival(core: Reduce) -> None:
    """While the first is on its way a second waits for it; if the first failed, the next one is taken anew."""
    first = core.decide(push((0, 0, 0), (1, 0, 0)))
    core.flying(first)
    second = core.decide(push((1, 0, 0), (2, 0, 0)))
    assert taken(second) == [False, True]
    assert second.waits == [(0, first)]
    core.landed(first, [1])
    third = core.decide(push((0, 0, 0), (1, 0, 0)))
    assert taken(third) == [False, True]
    assert third.waits == []
    core.check()


def test_splits_at_their_sizes(core: Reduce) -> None:
    """A soft-split epoch accepts and says so; a hard-split one refuses."""
    reported = []
    for number in range(12):
        decision = core.decide(push((0, 0, number, 200 * KIB)))
        reported.append(dict(decision.statuses).get(0, Status.OK))
        core.check()
    assert reported == [Status.OK] * 6 + [Status.SOFT_SPLIT] * 5 + [Status.HARD_SPLIT]


def test_marks_ask_for_flushes(core: Reduce) -> None:
    """An epoch is named for a flush about every 256 KiB."""
    marked = sum(bool(core.decide(push((0, 0, number, 10 * KIB))).marked) for number in range(100))
    assert 2 <= marked <= 5


def test_without_room_epochs_split_and_none_begins(core: Reduce) -> None:
    """A full directory splits what it holds; new epochs go to the other one and never to this, and nowhere when
    draining."""
    core.set_has_room([True, True])
    core.choose = by_turns(2)
    assert [state.directory for state in core.decide(push((0, 0, 0), (1, 0, 0))).states if state] == [0, 1]
    core.set_has_room([False, True])
    assert dict(core.decide(push((2, 0, 0))).statuses) == {0: Status.NO_ROOM}
    decision = core.decide(push((0, 0, 1), (1, 0, 1), (2, 0, 0)))
    assert dict(decision.statuses) == {0: Status.HARD_SPLIT}
    assert [state.directory for state in decision.states if state] == [1, 1]
    core.drain(True)
    assert [status for _, status in core.decide(push((1, 0, 2), (5, 0, 0))).statuses] == [Status.HARD_SPLIT] * 2
    core.check()


def test_no_application_opens_all_epochs_that_there_may_be(core: Reduce) -> None:
    """One alone has four fifths, over all its shuffles; the next one opens some of the rest, and what is sealed or
    forgotten is there again. Who is refused is told NO_ROOM, by which clients go elsewhere; batches of open epochs are
    taken. The worker calls itself full when not even somebody new would find room."""
    core.shares = Shares(20)
    again = SHUFFLE._replace(shuffle=ShuffleId(2))
    other = SHUFFLE._replace(instance=Instance(b"o" * 16))
    for shuffle in (again, other):
        core.introduce(push(shuffle=shuffle), False, [])
    first = core.decide(push(*[(partition, 0, 0) for partition in range(10)]))
    second = core.decide(push(*[(partition, 0, 0) for partition in range(10)], shuffle=again))
    assert (sum(taken(first)), sum(taken(second))) == (10, 6)
    assert dict(second.statuses) == dict.fromkeys(range(6, 10), Status.NO_ROOM)
    assert taken(core.decide(push((9, 0, 1), (10, 0, 0)))) == [True, False]
    full = [core.full]
    third = core.decide(push(*[(partition, 0, 0) for partition in range(4)], shuffle=other))
    assert taken(third) == [True, True, True, False]
    full.append(core.full)
    core.check()
    core.seal(SHUFFLE, False, [(0, 0)])
    state = first.states[0]
    assert state is not None
    core.sealed(state)
    assert [*full, core.full] == [False, True, False]
    core.forget(again)
    assert core.shares.held((SHUFFLE.instance,)) == 9
    assert sum(taken(core.decide(push(*[(partition, 0, 0) for partition in range(4, 12)], shuffle=other)))) == 5
    core.check()


def test_a_new_incarnation_adds_nothing_to_old_epochs(core: Reduce) -> None:
    """After Began, epochs of before are hard-split."""
    core.decide(push((0, 0, 0)))
    core.begin(Incarnation(6))
    decision = core.decide(push((0, 0, 1), incarnation=6))
    assert dict(decision.statuses) == {0: Status.HARD_SPLIT}


def test_a_full_disk_lets_a_seal_be_asked_again(core: Reduce) -> None:
    """A seal that met a full disk leaves the epoch closed and sealable."""
    core.decide(push((0, 0, 0)))
    (state,) = core.seal(SHUFFLE, True, [(0, 0)])
    assert state is not None
    core.not_sealed(state)
    assert core.seal(SHUFFLE, True, [(0, 0)]) == [state]
    assert state.life is Life.SEALING
    core.sealed(state)
    assert SHUFFLE not in core.shuffles
    core.check()


def test_sequences_are_bounded(core: Reduce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts silent for longest are forgotten past the bound; holes too."""
    monkeypatch.setattr("holdfast.worker.core.write.seen_batches.SEQUENCES_MAX", 100)
    for attempt in range(50):
        core.decide(push(*[(partition, 0, 0) for partition in range(10)], attempt=attempt))
    assert core.attempts.sequences == 100
    assert len(core.attempts) == 10
    state = core.decide(push((0, 5, 0))).states[0]
    assert state is not None
    sequence = BatchSequence(state, 0)
    for number in range(0, 10 * HOLES_MAX, 2):
        sequence.take(number)
        assert sequence.seen(number)
        assert len(sequence.holes) <= HOLES_MAX
    assert SEQUENCES_MAX > 1_000


def test_refused_pushes_leave_nothing(core: Reduce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts of which nothing was taken, shuffles of which nothing is here, and stale pushes are not remembered;
    attempts are bounded however few their sequences are."""
    for attempt in range(20):
        assert taken(core.decide(push((77, 0, 0), attempt=attempt))) == [False]
    assert len(core.attempts) == 0
    other = shuffle_of(9)
    core.introduce(dataclasses.replace(push((0, 0, 0), incarnation=4), shuffle=other), False, [])
    assert not core.knows(other)
    core.drain(True)
    wanted = dataclasses.replace(push((0, 0, 0), ack=Ack.MEMORY), shuffle=other)
    core.introduce(wanted, False, [])
    assert dict(core.decide(wanted).statuses) == {0: Status.HARD_SPLIT}
    assert not core.knows(other)
    core.drain(False)
    monkeypatch.setattr("holdfast.worker.core.write.seen_batches.ATTEMPTS_MAX", 10)
    for attempt in range(20):
        assert taken(core.decide(push((attempt, 0, 0), attempt=attempt))) == [True]
        core.check()
    assert len(core.attempts) == 10


def test_a_stale_push_of_a_shuffle_that_was_sealed_for_good_learns_it(core: Reduce) -> None:
    """What storage remembers as final is COMMITTED to whoever asks, of whatever incarnation."""
    stale = dataclasses.replace(push((0, 0, 0), incarnation=4), shuffle=shuffle_of(9))
    core.introduce(stale, True, [])
    refusal = core.refuse(stale)
    assert refusal is not None
    assert refusal.status == Status.COMMITTED


def windows(budget: int = 64) -> Credits:
    """Windows of at most 32 MiB in a budget of some MiB."""
    return Credits(budget * MIB, 32 * MIB)


def test_windows_are_granted_first_come_first_served() -> None:
    """Who waits is served in order, also if somebody behind would fit."""
    all_of = windows()
    assert all_of.ask(1, 32 * MIB, 0) == [(1, 32 * MIB)]
    assert all_of.ask(2, 31 * MIB, 0) == [(2, 31 * MIB)]
    assert all_of.ask(3, 20 * MIB, 0) == []
    assert all_of.ask(4, 1 * MIB, 0) == []
    assert all_of.ask(2, 0, 0) == [(2, 0), (3, 20 * MIB), (4, 1 * MIB)]
    all_of.check()


def test_a_push_beyond_its_window_is_not_taken() -> None:
    """Byte-exact: the last byte fits, one more does not."""
    all_of = windows()
    assert not all_of.take(1, 1, 0)
    all_of.ask(1, 1_000, 0)
    assert all_of.take(1, 600, 0)
    assert not all_of.take(1, 401, 0)
    assert all_of.take(1, 400, 0)
    assert all_of.answered(1, 600, 0) == []
    assert all_of.window(1) == 1_000
    all_of.check()


def test_nobody_starves() -> None:
    """While others wait windows shrink as they are answered, so that all get their turns."""
    all_of = windows()
    served = dict.fromkeys(range(64), 0)
    now = 0
    for number in served:
        all_of.ask(number, 4 * MIB, now)
    for _ in range(2_000):
        now += 1
        for number in served:
            while all_of.take(number, 1 * MIB, now):
                served[number] += 1
        for number in served:
            for _ in range(4):
                window = all_of._windows.get(number)
                if window is not None and window.unanswered:
                    all_of.answered(number, 1 * MIB, now)
            if not all_of.window(number) and number not in all_of._line:
                all_of.ask(number, 4 * MIB, now)
        all_of.check()
    assert min(served.values()) > 0.5 * max(served.values())


def test_what_is_left_of_a_window_keeps_nobody_waiting() -> None:
    """Who asks for more holds nothing unused while he waits: the first in line may need just that."""
    all_of = windows(32)
    all_of.ask(1, 32 * MIB, 0)
    assert all_of.take(1, 31 * MIB, 0)
    assert all_of.ask(2, 32 * MIB, 0) == []
    assert all_of.answered(1, 31 * MIB, 0) == []
    assert all_of.window(1) == 1 * MIB
    assert all_of.ask(1, 32 * MIB, 0) == [(2, 32 * MIB)]
    all_of.check()


def test_unused_windows_lapse() -> None:
    """A window that nobody uses is given to who waits."""
    all_of = windows()
    all_of.ask(1, 32 * MIB, 0)
    all_of.ask(2, 32 * MIB, 0)
    all_of.take(2, 1, CREDIT_LIFE_NS)
    all_of.ask(3, 16 * MIB, CREDIT_LIFE_NS)
    assert all_of.tick(CREDIT_LIFE_NS) == [(3, 16 * MIB)]
    assert not all_of.take(1, 1, CREDIT_LIFE_NS)
    all_of.lost(2, CREDIT_LIFE_NS)
    assert all_of.held_bytes == 16 * MIB + 1
    all_of.answered(2, 1, CREDIT_LIFE_NS)
    assert all_of.held_bytes == 16 * MIB
    all_of.check()


def test_a_body_that_was_kept_is_room_for_the_next_ones() -> None:
    """While nobody waits a window is as large again when what it kept is given back, so its sender need not ask."""
    all_of = windows()
    all_of.ask(1, 32 * MIB, 0)
    for _ in range(100):
        assert all_of.take(1, 8 * MIB, 0)
        assert all_of.take(1, 8 * MIB, 0)
        all_of.answered(1, 8 * MIB, 0, keeps=True)
        assert all_of.window(1) == 24 * MIB
        all_of.answered(1, 8 * MIB, 0)
        assert all_of.released(1, 8 * MIB, 0) == []
        assert (all_of.window(1), all_of.held_bytes) == (32 * MIB, 32 * MIB)
        all_of.check()


def test_a_body_that_is_kept_stays_in_the_budget() -> None:
    """A push is answered while its body is kept: its window shrinks by that, others wait for what it takes, and when it
    is given back they are served. Who has kept a whole window may keep no more; a connection that is lost gives back
    what it kept when that is released, once."""
    all_of = windows()
    assert all_of.ask(1, 32 * MIB, 0) == [(1, 32 * MIB)]
    assert all_of.take(1, 20 * MIB, 0)
    assert all_of.answered(1, 20 * MIB, 0, keeps=True) == []
    assert (all_of.window(1), all_of.held_bytes) == (12 * MIB, 32 * MIB)
    all_of.check()
    assert all_of.ask(2, 32 * MIB, 0) == [(2, 32 * MIB)]
    assert all_of.may_keep(1)
    assert all_of.take(1, 12 * MIB, 0)
    assert all_of.answered(1, 12 * MIB, 0, keeps=True) == []
    assert not all_of.may_keep(1)
    assert all_of.ask(1, 10 * MIB, 0) == []
    assert all_of.ask(3, 10 * MIB, 0) == []
    assert all_of.released(1, 20 * MIB, 0) == [(1, 10 * MIB), (3, 10 * MIB)]
    all_of.check()
    all_of.lost(1, 0)
    assert all_of.held_bytes == 54 * MIB
    all_of.tick(CREDIT_LIFE_NS)
    assert all_of.released(1, 12 * MIB, 0) == []
    assert all_of.released(1, 12 * MIB, 0) == []
    all_of.check()
