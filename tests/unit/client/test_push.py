"""The push session's core as stories, and as long random ones: where batches go, what refusals mean, how it ends."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.client.core.write.locations import Destination, PartitionLocations
from holdfast.client.core.write.push import (
    BUSY_MAX,
    DAMAGES_MAX,
    FRAME_BYTES_MIN,
    AllKept,
    Ask,
    PushFailed,
    PushSession,
    Return,
    Send,
    Settled,
    Wake,
)
from holdfast.client.core.write.revivals import REVIVES_MAX, AskRevive
from holdfast.client.core.write.window import WINDOW_BYTES_FIRST, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN, Window
from holdfast.common.errors import AbortedError, ApplicationGoneError, NoRoomError, RetryError, error_for
from holdfast.common.formats.reduce_layouts import Location
from holdfast.common.ids import Epoch, Incarnation, PartitionId, WorkerId
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from tests.unit.client.push_world import FULL, at, batches, locations, numbers, of, pushed, sent, session

FRAME = FRAME_BYTES_MIN
LOST = error_for(Status.UNAVAILABLE, "connection lost")
SILENT = error_for(Status.OUTCOME_UNKNOWN, "no answer")


def test_an_attempt_without_batches_is_done() -> None:
    """A map that wrote nothing ends at once."""
    assert session(at(1)).finished() == [AllKept()]


def test_batches_of_a_worker_share_a_frame() -> None:
    """One frame per destination, batches in the order they came; the attempt is done when both are answered."""
    core = session(at(1), at(2), at(1))
    first, second = pushed(core, [(0, 0, 10), (1, 0, 20), (2, 0, 30), (0, 1, 40)])
    assert numbers(first) == [(0, 0, 0), (2, 0, 0), (0, 0, 1)]
    assert first.size == 80
    assert first.destination == Destination(WorkerId(1), Incarnation(1))
    assert core.answered(first.frame, []) == [Settled(first.batches)]
    assert core.answered(second.frame, []) == [Settled(second.batches), AllKept()]
    core.check()


def test_frames_have_equal_replicas() -> None:
    """Partitions whose second copies are elsewhere do not share a frame, though their first ones do."""
    core = session(at(1, 2), at(1, 3), at(1, 2))
    frames = pushed(core, [(0, 0, 10), (1, 0, 10), (2, 0, 10)])
    assert sorted(numbers(frame) for frame in frames) == [[(0, 0, 0), (2, 0, 0)], [(1, 0, 0)]]


def test_small_batches_wait_for_company() -> None:
    """Nothing leaves before a frame is worth it, or too much waits, or the end comes."""
    core = session(at(1), at(2), press_bytes=2 * FRAME)
    assert core.added(batches((0, 0, FRAME - 1))) == []
    assert [effect.worker for effect in of(Ask, core.added(batches((0, 1, 1))))] == [1]
    pressed = session(at(1), at(2), press_bytes=FRAME)
    assert pressed.added(batches((0, 0, FRAME // 2), (1, 0, FRAME // 2 - 1))) == []
    assert [effect.worker for effect in of(Ask, pressed.added(batches((0, 1, 1))))] == [1, 2]


def test_a_frame_is_as_large_as_the_room() -> None:
    """What does not fit waits for the next room; what is not used is given back."""
    core = session(at(1))
    core.added(batches((0, 0, 100), (0, 1, 100), (0, 2, 100)))
    (ask,) = of(Ask, core.finished())
    assert (ask.least, ask.most) == (100, 300)
    effects = core.granted(WorkerId(1), 250)
    (frame,) = of(Send, effects)
    assert frame.size == 200
    assert Return(WorkerId(1), 50) in effects
    core.check()


def test_the_window_is_kept() -> None:
    """No more than the window is on its way to a worker, and an answer lets more go."""
    core = session(at(1))
    effects = core.added(batches(*((0, number, MIB) for number in range(10))))
    frames = sent(core, effects)
    assert sum(frame.size for frame in frames) == WINDOW_BYTES_FIRST
    more = sent(core, core.answered(frames[0].frame, []))
    assert sum(frame.size for frame in frames[1:] + more) > WINDOW_BYTES_FIRST


def test_all_workers_together_have_a_bound() -> None:
    """However many workers there are, what is on its way to all of them is bounded."""
    core = session(*(at(worker) for worker in range(10)), unanswered_bytes_max=8 * MIB)
    frames = sent(core, core.added(batches(*((p, n, MIB) for p in range(10) for n in range(4)))))
    assert sum(frame.size for frame in frames) <= 8 * MIB + 10 * MIB  # every worker may have one batch


def test_a_batch_larger_than_the_window_goes_alone() -> None:
    """A batch of 16 MiB is asked for and sent, whatever the window is."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 16 * MIB)])
    assert frame.size == 16 * MIB


def test_refused_batches_keep_their_numbers() -> None:
    """Batches refused by one answer wait for one revive and go, with their numbers, to where the masters say."""
    core = session(at(1), at(1), at(1))
    (frame,) = pushed(core, [(0, 0, 10), (1, 0, 10), (2, 0, 10), (0, 1, 10)])
    effects = core.answered(frame.frame, [(0, Status.HARD_SPLIT), (2, Status.SEALED), (3, Status.HARD_SPLIT)])
    assert of(Settled, effects) == [Settled([frame.batches[1]])]
    (revive,) = of(AskRevive, effects)
    assert sorted(revive.failed) == [(0, 0, Status.HARD_SPLIT), (2, 0, Status.SEALED)]
    core.check()
    moved = [(PartitionId(0), at(2, epoch=1)), (PartitionId(2), at(3, epoch=1))]
    frames = sent(core, core.revived(moved, {WorkerId(2): Incarnation(7), WorkerId(3): Incarnation(8)}))
    assert sorted(numbers(frame) for frame in frames) == [[(0, 1, 0), (0, 1, 1)], [(2, 1, 0)]]
    assert sorted(frame.destination.incarnation for frame in frames) == [7, 8]
    ends = [effect for frame in frames for effect in core.answered(frame.frame, [])]
    assert of(AllKept, ends)


def test_later_batches_of_a_moved_partition_wait_too() -> None:
    """While a partition has no place its new batches wait, and those of others go on."""
    core = session(at(1), at(1))
    (frame,) = sent(core, core.added(batches((0, 0, FRAME))))
    assert of(AskRevive, core.answered(frame.frame, [(0, Status.HARD_SPLIT)]))
    (other,) = sent(core, [*core.added(batches((0, 1, 10), (1, 0, 10))), *core.finished()])
    assert numbers(other) == [(1, 0, 0)]
    (late,) = sent(core, core.revived([(PartitionId(0), at(2, epoch=1))], {}))
    assert numbers(late) == [(0, 1, 0), (0, 1, 1)]


def test_one_revive_at_a_time() -> None:
    """What is refused while a revive is under way is asked for together when it is answered."""
    core = session(at(1), at(2), at(3))
    first, second, third = pushed(core, [(0, 0, 10), (1, 0, 10), (2, 0, 10)])
    assert of(AskRevive, core.answered(first.frame, [(0, Status.HARD_SPLIT)]))
    assert not of(AskRevive, core.answered(second.frame, [(0, Status.HARD_SPLIT)]))
    assert not of(AskRevive, core.answered(third.frame, [(0, Status.FAILED_COPY)]))
    (revive,) = of(AskRevive, core.revived([(PartitionId(0), at(4, epoch=1))], {}))
    assert [partition for partition, _, _ in revive.failed] == [1, 2]


def test_what_another_attempt_learnt_is_used() -> None:
    """Batches that wait for a place that has moved meanwhile are sent to the new one without asking."""
    shared = locations(at(1), at(2))
    core = PushSession(shared, where="s")
    core.added(batches((0, 0, 10), (1, 0, 10)))
    shared.learn(PartitionId(0), at(2, epoch=1), {WorkerId(2): Incarnation(1)})
    frames = sent(core, core.finished())
    assert {frame.destination.primary for frame in frames} == {2}
    assert sorted(row for frame in frames for row in numbers(frame)) == [(0, 1, 0), (1, 0, 0)]


def test_a_soft_split_is_no_refusal() -> None:
    """The batch is kept; the masters are asked in the background, and later batches go to the new place."""
    core = session(at(1))
    (frame,) = sent(core, core.added(batches((0, 0, FRAME))))
    effects = core.answered(frame.frame, [(0, Status.SOFT_SPLIT)])
    assert of(Settled, effects) == [Settled([0])]
    (revive,) = of(AskRevive, effects)
    assert revive.failed == [(0, 0, Status.SOFT_SPLIT)]
    (frame,) = sent(core, core.added(batches((0, 1, FRAME))))
    assert numbers(frame) == [(0, 0, 1)], "the old place is good still"
    core.revived([(PartitionId(0), at(2, epoch=1))], {})
    (moved,) = sent(core, core.added(batches((0, 2, FRAME))))
    assert numbers(moved) == [(0, 1, 2)]


def test_a_soft_split_that_cannot_be_placed_does_no_harm() -> None:
    """The attempt ends well where only the background revive failed."""
    core = session(at(1))
    (frame,) = sent(core, core.added(batches((0, 0, FRAME))))
    assert of(AskRevive, core.answered(frame.frame, [(0, Status.SOFT_SPLIT)]))
    assert core.revive_failed(NoRoomError("no worker")) == []
    assert core.finished() == [AllKept()]


def test_a_lost_connection_means_the_same_place_again() -> None:
    """What was on its way is sent again, with its numbers, to the same worker; nothing is asked of the masters."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10), (0, 1, 20)])
    (wake,) = of(Wake, core.failed(frame.frame, LOST))
    assert wake.worker == 1
    (again,) = sent(core, core.woken(WorkerId(1)))
    assert numbers(again) == numbers(frame)
    assert core.answered(frame.frame, []) == [], "a late answer of the first try means nothing"
    assert of(AllKept, core.answered(again.frame, []))


def test_several_frames_on_a_lost_connection_are_one_loss() -> None:
    """A connection that broke with many pushes under way counts once."""
    core = session(at(1))
    frames = sent(core, core.added(batches(*((0, number, MIB) for number in range(4)))))
    effects = [effect for frame in frames for effect in core.failed(frame.frame, LOST)]
    assert len(of(Wake, effects)) == 1
    assert not of(AskRevive, effects)
    core.check()


def test_a_worker_that_stays_away_is_left() -> None:
    """When it cannot be reached again, its partitions are revived as UNAVAILABLE, naming it; batches go elsewhere."""
    core = session(at(1), at(2))
    first, second = pushed(core, [(0, 0, 10), (1, 0, 10)])
    core.failed(first.frame, LOST)
    (ask,) = of(Ask, core.woken(WorkerId(1)))
    effects = core.unreachable(ask.worker, LOST)
    wanted = AskRevive([(PartitionId(0), Epoch(0), Status.UNAVAILABLE)], (WorkerId(1),), [])
    assert of(AskRevive, effects) == [wanted]
    (again,) = sent(core, core.revived([(PartitionId(0), at(2, epoch=1))], {}))
    assert numbers(again) == [(0, 1, 0)]
    core.answered(second.frame, [])
    assert of(AllKept, core.answered(again.frame, []))


def test_a_worker_that_came_back_as_another_is_used() -> None:
    """A worker is lost, and by then its partition was moved to its next start: the batches wait for that one."""
    shared = locations(at(1))
    core = PushSession(shared, where="s")
    (frame,) = sent(core, core.added(batches((0, 0, FRAME))))
    core.failed(frame.frame, LOST)
    core.woken(WorkerId(1))
    shared.learn(PartitionId(0), at(1, epoch=1), {WorkerId(1): Incarnation(2)})
    (again,) = sent(core, core.unreachable(WorkerId(1), LOST))
    assert numbers(again) == [(0, 1, 0)]
    assert again.destination.incarnation == 2


def test_a_silent_worker_is_left_at_once() -> None:
    """No answer for a long time was waiting enough: the batches go elsewhere without another try."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10)])
    (revive,) = of(AskRevive, core.failed(frame.frame, SILENT))
    assert revive.unusable == (WorkerId(1),)


def test_a_failed_replica_is_named() -> None:
    """The masters hear which worker held the copy that failed, and no other of its replicas."""
    core = session(at(1, 3, 2))
    (frame,) = pushed(core, [(0, 0, 10)])
    (revive,) = of(AskRevive, core.answered(frame.frame, [(0, Status.REPLICA_FAILED)], 2))
    assert revive.unusable == (WorkerId(2),)


def test_a_busy_worker_is_left_alone_for_a_moment() -> None:
    """BUSY sends the same batches to the same place again, later, with a smaller window."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10)])
    (wake,) = of(Wake, core.failed(frame.frame, error_for(Status.BUSY, "over credit")))
    assert wake.worker == 1
    (again,) = sent(core, core.woken(WorkerId(1)))
    assert numbers(again) == numbers(frame)
    (longer,) = of(Wake, core.failed(again.frame, error_for(Status.BUSY, "over credit")))
    assert longer.after_ns > wake.after_ns > 0


def test_a_worker_that_stays_busy_is_left() -> None:
    """Refused for the moment again and again, without an answer that keeps anything: the batches go elsewhere."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10)])
    effects: list[Any] = []
    for _ in range(BUSY_MAX):
        effects = list(core.failed(frame.frame, error_for(Status.BUSY, "over credit")))
        if of(AskRevive, effects):
            break
        (frame,) = sent(core, core.woken(WorkerId(1)))
    (revive,) = of(AskRevive, effects)
    assert revive.unusable == (WorkerId(1),)
    (again,) = sent(core, core.revived([(PartitionId(0), at(2, epoch=1))], {}))
    assert of(AllKept, core.answered(again.frame, []))


def test_damage_on_the_way_is_sent_again() -> None:
    """A body that arrived with a wrong checksum is sent again; from a worker that always says so it goes elsewhere."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10)])
    error = error_for(Status.CORRUPT, "body checksum")
    for _ in range(DAMAGES_MAX - 1):
        (frame,) = sent(core, core.failed(frame.frame, error))
    (revive,) = of(AskRevive, core.failed(frame.frame, error))
    assert revive.unusable == (WorkerId(1),)
    (again,) = sent(core, core.revived([(PartitionId(0), at(2, epoch=1))], {}))
    assert of(AllKept, core.answered(again.frame, []))


@pytest.mark.parametrize("whole", [True, False])
def test_a_sibling_won(whole: bool) -> None:
    """COMMITTED, for a frame or a batch, ends the attempt as aborted: never with a status."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10)])
    if whole:
        (end,) = of(PushFailed, core.failed(frame.frame, error_for(Status.COMMITTED, "too late")))
    else:
        (end,) = of(PushFailed, core.answered(frame.frame, [(0, Status.COMMITTED)]))
    assert isinstance(end.error, AbortedError)
    assert core.over


def test_masters_that_committed_end_the_attempt() -> None:
    """A revive that is answered COMMITTED or APPLICATION_GONE is the end; one that finds no room is tried again."""
    for status, kind in ((Status.COMMITTED, AbortedError), (Status.APPLICATION_GONE, ApplicationGoneError)):
        core = session(at(1))
        (frame,) = pushed(core, [(0, 0, 10)])
        core.answered(frame.frame, [(0, Status.SEALED)])
        (end,) = of(PushFailed, core.revive_failed(error_for(status, "over")))
        assert isinstance(end.error, kind)
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10)])
    core.answered(frame.frame, [(0, Status.SEALED)])
    assert of(AskRevive, core.revive_failed(NoRoomError("no worker")))


def test_revives_without_progress_are_budgeted() -> None:
    """A partition that no place takes ends the attempt with the cause, after pauses that grow: no want of room."""
    core = session(at(1))
    (frame,) = pushed(core, [(0, 0, 10)])
    pauses = []
    effects: list[Any] = []
    for round_number in range(1, REVIVES_MAX + 2):
        effects = list(core.answered(frame.frame, [(0, Status.DISK_FAILED)]))
        if of(PushFailed, effects):
            break
        for wake in of(Wake, effects):
            pauses.append(wake.after_ns)
            effects = list(core.woken(None))
        assert of(AskRevive, effects)
        (frame,) = sent(
            core, core.revived([(PartitionId(0), at(1, epoch=round_number))], {WorkerId(1): Incarnation(1)})
        )
    (end,) = of(PushFailed, effects)
    assert (type(end.error), end.error.status) == (RetryError, Status.UNAVAILABLE)
    assert "partition 0 was moved 32 times" in str(end.error)
    assert "DISK_FAILED" in str(end.error)
    assert pauses == sorted(pauses)


def test_an_accepted_batch_renews_the_budget() -> None:
    """A partition that is moved often but gets on is not given up."""
    core = session(at(1), revives_max=2)
    for round_number in range(10):
        (frame,) = sent(core, core.added(batches((0, round_number, FRAME))))
        core.answered(frame.frame, [(0, Status.HARD_SPLIT)])
        (frame,) = sent(core, core.revived([(PartitionId(0), at(1, epoch=round_number + 1))], {}))
        assert not of(PushFailed, core.answered(frame.frame, []))
    assert core.finished() == [AllKept()]


def test_slow_start() -> None:
    """The window doubles while all goes well, halves on congestion, and grows by steps above where it met it."""
    window = Window()
    window.sent(WINDOW_BYTES_FIRST)
    window.answered(WINDOW_BYTES_FIRST, kept=True)
    assert window.size == 2 * WINDOW_BYTES_FIRST
    window.congested()
    assert window.size == WINDOW_BYTES_FIRST
    window.sent(WINDOW_BYTES_FIRST)
    window.answered(WINDOW_BYTES_FIRST, kept=True)
    assert window.size == WINDOW_BYTES_FIRST + WINDOW_BYTES_MIN
    for _ in range(20):
        window.congested()
    assert window.size == WINDOW_BYTES_MIN
    for _ in range(3000):
        window.sent(MIB)
        window.answered(MIB, kept=True)
    assert window.size == WINDOW_BYTES_MAX
    window.check()


@dataclass
class World:
    """Workers and masters that do anything they may: refuse, lose answers, move partitions. Seeded."""

    rng: random.Random
    shared: PartitionLocations
    #: what every worker kept: (partition, number) -> how often
    kept: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    settled: set[int] = field(default_factory=set)
    ends: list[object] = field(default_factory=list)
    pending: list[object] = field(default_factory=list)

    def step(self, core: PushSession) -> Sequence[object]:
        """Let one of the things that may happen next happen."""
        effect = self.pending.pop(self.rng.randrange(len(self.pending)))
        match effect:
            case Ask():
                if self.rng.random() < 0.1:
                    return core.unreachable(effect.worker, LOST)
                return core.granted(effect.worker, self.rng.randint(effect.least, effect.most))
            case Send():
                return self._answer(core, effect)
            case Wake():
                return core.woken(effect.worker)
            case AskRevive():
                if self.rng.random() < 0.1:
                    return core.revive_failed(NoRoomError("not now"))
                starts = {WorkerId(worker): Incarnation(self.rng.randrange(1, 4)) for worker in range(4)}
                if self.rng.random() < 0.2:
                    return core.revived([self._move(row) for row in effect.failed[1:]], starts, FULL)
                return core.revived([self._move(row) for row in effect.failed], starts)
            case Settled():
                self.settled.update(effect.batches)
            case AllKept() | PushFailed():
                self.ends.append(effect)
        return []

    def _answer(self, core: PushSession, frame: Send) -> Sequence[object]:
        outcome = self.rng.random()
        if outcome < 0.08:
            return core.failed(frame.frame, error_for(self.rng.choice([Status.BUSY, Status.STALE_INCARNATION]), "x"))
        statuses = []
        for index, entry in enumerate(frame.entries):
            status = Status.OK
            if self.rng.random() < 0.2:
                status = self.rng.choice(
                    [
                        Status.HARD_SPLIT,
                        Status.NO_ROOM,
                        Status.SOFT_SPLIT,
                        Status.SLOW_DOWN,
                        Status.BUSY,
                        Status.REPLICA_FAILED,
                    ]
                )
                statuses.append((index, status))
            if status in (Status.OK, Status.SOFT_SPLIT, Status.SLOW_DOWN):
                self.kept[entry.partition, entry.number] += 1
        if outcome < 0.16:  # kept, and the answer is lost
            return core.failed(frame.frame, self.rng.choice([LOST, SILENT]))
        return core.answered(frame.frame, statuses)

    def _move(self, row: tuple[PartitionId, Epoch, Status]) -> tuple[PartitionId, Location]:
        partition, epoch, _ = row
        now = self.shared.current[partition].epoch
        return partition, at(self.rng.randrange(4), epoch=max(now, epoch + 1))


@pytest.mark.parametrize("seed", range(150))
def test_whatever_happens_every_batch_is_kept_under_its_number(seed: int) -> None:
    """Random refusals, losses and moves: the attempt ends well, and whatever was settled had been kept by somebody."""
    rng = random.Random(seed)
    shared = locations(*(at(rng.randrange(4), *rng.choice([(), (5,), (6,), (5, 6)])) for _ in range(6)))
    core = PushSession(shared, where="s", press_bytes=100 * KIB, revives_max=1_000)
    world = World(rng, shared)
    rows: list[tuple[PartitionId, int, int]] = []
    wanted = rng.randrange(1, 200)
    done = False
    for _ in range(200_000):
        if len(rows) < wanted and rng.random() < 0.3:
            partition = PartitionId(rng.randrange(6))
            row = (partition, sum(each[0] == partition for each in rows), rng.choice([1, 100, 5_000, 300_000]))
            rows.append(row)
            world.pending += core.added([row])
        elif len(rows) == wanted and not done:
            done = True
            world.pending += core.finished()
        elif world.pending:
            world.pending += world.step(core)
        core.check()
        for index in world.settled:
            assert world.kept[rows[index][0], rows[index][1]], "settled and never kept"
        if world.ends:
            break
    assert world.ends == [AllKept()]
    for effect in world.pending:
        if isinstance(effect, Settled):
            world.settled.update(effect.batches)
    assert world.settled == set(range(wanted))
