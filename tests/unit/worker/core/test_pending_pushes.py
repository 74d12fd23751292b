"""When a push is answered and with what: levels, second copies, batches that come again, disks that fail or hang."""

import pytest

from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import Push, ReplicaPlace
from holdfast.common.ids import AttemptId, Incarnation, MapId, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.statuses import Status
from holdfast.worker.core.write.epochs import EpochState, Life
from holdfast.worker.core.write.pending_pushes import SYNC_SECONDS, PendingPush, PendingPushes, When
from holdfast.worker.core.write.reduce import Reduce, SplitLimits
from tests.support.reduce_data import by_turns, shuffle_of

SHUFFLE = shuffle_of()
REPLICA = ReplicaPlace(WorkerId(2), Incarnation(1), "127.0.0.1:1")
S = 10**9


class World:
    """A core that accepts, over two directories taken by turns."""

    def __init__(self) -> None:
        self.reduce = Reduce(Incarnation(5), by_turns(2), SplitLimits(1 * MIB, 2 * MIB), has_room=[True, True])
        self.reduce.closed_because = ""
        self.pending = PendingPushes(self.reduce)

    def take(
        self, *batches: tuple[int, int], ack: Ack = Ack.WRITTEN, replicas: tuple[ReplicaPlace, ...] = ()
    ) -> PendingPush:
        """A push of (partition, number); new epochs go to the two directories by turns."""
        push = Push(
            shuffle=SHUFFLE,
            incarnation=Incarnation(5),
            ack=ack,
            map=MapId(0),
            attempt=AttemptId(0),
            body_crc=0,
            entries=[(partition, 0, number, 100, 0) for partition, number in batches],  # type: ignore[misc]
            replicas=replicas,
        )
        if not self.reduce.knows(SHUFFLE):
            self.reduce.introduce(push, False, [])
        assert self.reduce.refuse(push) is None
        return PendingPush(self.reduce.decide(push))

    def when(self, push: PendingPush) -> When:
        return self.pending.when(push, slow=False)

    def at_once(self, push: PendingPush) -> bool:
        """Whether a push that was written is answered then."""
        if self.when(push) is When.WRITTEN:
            return True
        return self.pending.begin(push, 0, slow=False) is None

    def state(self, partition: int) -> EpochState:
        return self.reduce.shuffles[SHUFFLE].epochs[partition << 32]

    def statuses(self, push: PendingPush) -> dict[int, int]:
        """What a push is answered with; it leaves nothing behind."""
        reported = dict(self.pending.answer(push))
        self.reduce.check()
        assert push.decision not in push.decision.attempt.flights
        return reported


def test_written_is_answered_when_it_is_written() -> None:
    """Nothing is waited for; a batch that could not be written has its status, and may come again."""
    world = World()
    push = world.take((0, 0), (1, 0))
    assert world.when(push) is not When.PROMISED
    world.pending.written(push, [(1, Status.NO_ROOM)], [])
    assert world.at_once(push)
    assert world.statuses(push) == {1: Status.NO_ROOM}
    assert (world.state(0).life, world.state(1).life) == (Life.OPEN, Life.HARD)


def test_memory_is_promised_but_for_first_writes() -> None:
    """The first push of an epoch is its note, so it is written before it is answered; the next one is answered first.
    With a second copy, or behind a batch that is on its way, nothing is promised."""
    world = World()
    first = world.take((0, 0), ack=Ack.MEMORY)
    assert world.when(first) is not When.PROMISED
    assert world.at_once(first)
    assert world.when(world.take((0, 1), ack=Ack.MEMORY)) is When.PROMISED
    copied = world.take((0, 2), ack=Ack.MEMORY, replicas=(REPLICA,))
    assert world.when(copied) is not When.PROMISED
    assert world.pending.begin(copied, 0, slow=False) is not None
    assert world.when(world.take((0, 2), (0, 3), ack=Ack.MEMORY)) is not When.PROMISED


def promised(world: World, *batches: tuple[int, int]) -> PendingPush:
    """A push at level MEMORY that is answered before it is written."""
    push = world.take(*batches, ack=Ack.MEMORY)
    assert world.when(push) is When.PROMISED
    assert world.statuses(push) == {}
    return push


def memory_world() -> World:
    """Partitions 0 and 1 are open at level MEMORY."""
    world = World()
    assert world.at_once(world.take((0, 0), (1, 0), ack=Ack.MEMORY))
    return world


def test_what_was_promised_and_finds_no_room_is_owed() -> None:
    """Its epochs take nothing more and are not sealed, and nothing more is promised, until it is written. What was
    dropped meanwhile is not written any more."""
    world = memory_world()
    push = promised(world, (0, 1), (1, 1))
    world.pending.written(push, [(0, Status.NO_ROOM), (1, Status.NO_ROOM)], [])
    assert world.pending.promised(push, unforeseen=False) == []
    assert world.pending.owed is push
    assert world.state(0).owed
    assert world.state(0).life is Life.HARD
    assert world.when(world.take((2, 0), ack=Ack.MEMORY)) is not When.PROMISED
    world.reduce.broke(world.state(1))
    again = world.pending.retried()
    assert again is push
    assert push.decision.states == [world.state(0), None]
    assert world.pending.promised(push, unforeseen=False) == []
    assert not world.state(0).owed
    assert world.pending.retried() is None


def test_what_was_promised_and_failed_gives_its_copies_up() -> None:
    """After an error that nobody foresaw nobody may take what is there for all: each copy is given up, once."""
    world = memory_world()
    push = promised(world, (0, 1), (1, 1), (0, 2))
    lost = world.pending.promised(push, unforeseen=True)
    assert lost == [world.state(0), world.state(1)]
    assert {state.life for state in lost} == {Life.FAILED}
    assert world.pending.owed is None


def test_synced_waits_for_every_disk() -> None:
    """Each directory that took something is waited for. One of which a copy is missing fails that copy alone; what was
    dropped meanwhile is refused."""
    world = World()
    push = world.take((0, 0), (1, 0), (2, 0), ack=Ack.SYNCED)
    steps = world.pending.begin(push, 0, slow=False)
    assert steps is not None
    assert (steps.directories, steps.chosen) == ([0, 1], [])
    assert world.pending.synced(push, 1, []) == []
    states = [world.state(partition) for partition in range(3)]
    states[2].become(Life.GONE)
    assert world.pending.synced(push, 0, [states[0]]) == [push]
    assert len(world.pending) == 0
    assert dict(world.pending.answer(push)) == {0: Status.FAILED_COPY, 2: Status.SEALED}
    assert [state.life for state in states] == [Life.FAILED, Life.OPEN, Life.GONE]


def test_a_second_copy_is_waited_for() -> None:
    """What was taken here goes to the replica, and no batch that failed here; what it refuses is not acknowledged.
    Where everything failed here there is nothing to wait for."""
    world = World()
    push = world.take((0, 0), (1, 0), (2, 0), replicas=(REPLICA,))
    world.pending.written(push, [(1, Status.FAILED_COPY)], [])
    steps = world.pending.begin(push, 0, slow=False)
    assert steps is not None
    assert (steps.directories, steps.chosen) == ([], [0, 2])
    assert world.pending.forwarded(push, 0, [2]) == [push]
    assert world.statuses(push) == {1: Status.FAILED_COPY, 2: Status.REPLICA_FAILED}
    failed = world.take((4, 0), replicas=(REPLICA,))
    world.pending.written(failed, [(0, Status.NO_ROOM)], [])
    assert world.at_once(failed)


def test_all_copies_are_waited_for_and_those_that_failed_are_named() -> None:
    """Of three copies a push is answered when both replicas have answered; what one of them did not keep is not
    acknowledged, and the answer names that one."""
    world = World()
    push = world.take((0, 0), (1, 0), replicas=(REPLICA, REPLICA))
    steps = world.pending.begin(push, 0, slow=False)
    assert steps is not None
    assert steps.chosen == [0, 1]
    assert world.pending.forwarded(push, 0, []) == []
    again = world.take((1, 0), replicas=(REPLICA, REPLICA))
    assert world.pending.begin(again, 0, slow=False) is not None
    assert world.pending.forwarded(push, 1, [1]) == [push, again]
    assert (world.statuses(push), push.failed) == ({1: Status.REPLICA_FAILED}, 2)
    assert (world.statuses(again), again.failed) == ({0: Status.REPLICA_FAILED}, 2)


def test_a_batch_that_comes_again_gets_the_outcome_of_its_first_arrival() -> None:
    """It waits for the push that it came with first, with what else is in its own; also in a row, and however many."""
    world = World()
    pushes = [world.take((0, 0), replicas=(REPLICA,))]
    assert world.pending.begin(pushes[0], 0, slow=False) is not None
    for number in range(1, 2_000):
        pushes.append(world.take((0, number - 1), (0, number), replicas=(REPLICA,)))
        steps = world.pending.begin(pushes[-1], 0, slow=False)
        assert steps is not None
        assert steps.chosen == [1]
        assert world.pending.forwarded(pushes[-1], 0, []) == []
    assert world.pending.forwarded(pushes[0], 0, [0]) == pushes
    assert dict(world.pending.answer(pushes[0])) == {0: Status.REPLICA_FAILED}
    assert dict(world.pending.answer(pushes[1])) == {0: Status.REPLICA_FAILED}
    assert dict(world.pending.answer(pushes[2])) == {}


def test_two_workers_never_wait_for_one_another() -> None:
    """A batch that a primary repeats here, and of which this worker is a primary, too: that is no order of ours."""
    world = World()
    first = world.take((0, 0), replicas=(REPLICA,))
    assert world.pending.begin(first, 0, slow=False) is not None
    again = world.take((0, 0))
    again.replicated = True
    assert world.at_once(again)
    assert dict(world.pending.answer(again)) == {0: Status.BAD_ORDER}


def test_no_push_waits_for_a_disk_for_ever() -> None:
    """People are told which disk it is; after SYNC_SECONDS the push is answered that it must go elsewhere, unless it
    waits for the replica as well. Its epochs there take nothing more; a disk that goes on changes nothing of that."""
    world = World()
    push = world.take((0, 0), (1, 0), ack=Ack.SYNCED)
    other = world.take((1, 1), ack=Ack.SYNCED, replicas=(REPLICA,))
    for one in (push, other):
        assert world.pending.begin(one, S, slow=False) is not None
    assert world.pending.synced(push, 1, []) == []
    assert world.pending.stuck(10 * S, 10.0) is None
    assert world.pending.stuck(12 * S, 10.0) == (11 * S, {0})
    late = S + int(SYNC_SECONDS * S)
    assert world.pending.leave_disks(late - 1) == []
    assert world.pending.leave_disks(late) == [push]
    assert world.statuses(push) == {0: Status.DISK_FAILED}
    assert (world.state(0).life, world.state(1).life) == (Life.HARD, Life.OPEN)
    assert world.pending.synced(push, 0, []) == []
    assert world.pending.forwarded(other, 0, []) == []
    assert world.pending.leave_disks(late) == [other]


@pytest.mark.parametrize("begun", [False, True])
def test_a_mistake_of_ours_costs_the_copies_that_it_touched(begun: bool) -> None:
    """Wherever it happens, the push is answered once, FAILED_COPY for all that was taken, and its copies are given up,
    with what waits for it; one that is sealed stays what it is."""
    world = World()
    push = world.take((0, 0), (1, 0), replicas=(REPLICA,))
    waiting = [push]
    if begun:
        assert world.pending.begin(push, 0, slow=False) is not None
        again = world.take((0, 0), replicas=(REPLICA,))
        assert world.pending.begin(again, 0, slow=False) is not None
        waiting.append(again)
    world.state(1).become(Life.SEALING)
    world.state(1).become(Life.SEALED)
    lost, answered = world.pending.abandon(push)
    assert lost == [world.state(0)]
    assert world.state(0).life is Life.FAILED
    assert answered == waiting
    assert dict(world.pending.answer(push)) == {0: Status.FAILED_COPY, 1: Status.FAILED_COPY}
    assert world.pending.abandon(push) == ([], [])


def test_a_new_epoch_whose_note_cannot_be_written_takes_nothing() -> None:
    """Its batches are refused, those of other epochs of the frame are taken."""
    world = World()
    push = world.take((0, 0), (1, 0), (0, 1))
    world.pending.not_opened(push, world.state(0), Status.NO_ROOM)
    assert push.decision.states == [None, world.state(1), None]
    assert push.taken
    assert world.at_once(push)
    assert world.statuses(push) == {0: Status.NO_ROOM, 2: Status.NO_ROOM}


def test_an_epoch_that_cannot_be_flushed_takes_nothing_more() -> None:
    """On a full disk what it has stays, and this frame's batches of it with that; after an error it is given up, and
    every batch of it in this frame is refused."""
    world = World()
    push = world.take((0, 0), (1, 0), (0, 1))
    world.pending.written(push, [], [(world.state(0), Status.FAILED_COPY), (world.state(1), Status.NO_ROOM)])
    assert world.at_once(push)
    assert world.statuses(push) == {0: Status.FAILED_COPY, 2: Status.FAILED_COPY}
    assert (world.state(0).life, world.state(1).life) == (Life.FAILED, Life.HARD)


def test_a_slow_worker_answers_when_it_is_asked_to() -> None:
    """The fault port's delay is one more thing that is waited for."""
    world = World()
    push = world.take((0, 0))
    assert world.pending.when(push, slow=True) is When.LATER
    assert world.pending.begin(push, 0, slow=True) is not None
    assert world.pending.waited(push) == [push]
    assert world.statuses(push) == {}
