"""When a push is answered and with what: levels, second copies, batches that come again, disks that fail or hang."""

import random

import pytest

from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import Push, ReplicaPlace
from holdfast.common.ids import AttemptId, Incarnation, MapId, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.statuses import Status
from holdfast.worker.core.write.epochs import EpochState, Life
from holdfast.worker.core.write.pending_pushes import SYNC_SECONDS, PendingPush, PendingPushes, When
from holdfast.worker.core.write.reduce import Reduce, SplitLimits
from holdfast.worker.core.write.replicas import Settling
from tests.support.reduce_data import by_turns, shuffle_of

SHUFFLE = shuffle_of()
REPLICA = ReplicaPlace(WorkerId(2), Incarnation(1), "127.0.0.1:1")
REPLICAS = (REPLICA, ReplicaPlace(WorkerId(3), Incarnation(1), "127.0.0.1:2"))
S = 10**9


class World:
    """A core that accepts, over two directories taken by turns."""

    def __init__(self) -> None:
        self.reduce = Reduce(Incarnation(5), by_turns(2), SplitLimits(1 * MIB, 2 * MIB), has_room=[True, True])
        self.reduce.closed_because = ""
        self.pending = PendingPushes(self.reduce)

    def take(
        self,
        *batches: tuple[int, int],
        ack: Ack = Ack.WRITTEN,
        replicas: tuple[ReplicaPlace, ...] = (),
        ack_copies: int = 0,
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
            ack_copies=ack_copies,
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

    def send(self, *batches: tuple[int, int], ack_copies: int = 2) -> PendingPush:
        """A push that is on its way to two replicas, and is answered when so many copies have it."""
        push = self.take(*batches, replicas=REPLICAS, ack_copies=ack_copies)
        assert self.pending.begin(push, 0, slow=False) is not None
        return push

    def forwarded(self, push: PendingPush, replica: int, refused: list[int]) -> list[PendingPush]:
        """A replica has a push, but for these entries; what is answered now."""
        answered, _ = self.pending.forwarded(push, replica, refused)
        self.pending.replicas.check()
        return answered

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
    assert world.forwarded(push, 0, [2]) == [push]
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
    assert world.forwarded(push, 0, []) == []
    again = world.take((1, 0), replicas=(REPLICA, REPLICA))
    assert world.pending.begin(again, 0, slow=False) is not None
    assert world.forwarded(push, 1, [1]) == [push, again]
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
        assert world.forwarded(pushes[-1], 0, []) == []
    assert world.forwarded(pushes[0], 0, [0]) == pushes
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
    assert world.forwarded(other, 0, []) == []
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


def test_enough_copies_acknowledge_and_the_answer_names_who_is_behind() -> None:
    """Of three copies two are asked for: a push is answered when one replica has it, and the other is named as behind
    until it has it, too: in the answers to other pushes, and to a batch that comes again."""
    world = World()
    push = world.send((0, 0), (1, 0))
    assert world.forwarded(push, 1, []) == [push]
    assert (world.statuses(push), push.failed, push.behind) == ({}, 0, 1)
    again = world.take((0, 0), replicas=REPLICAS, ack_copies=2)
    assert world.at_once(again)
    assert (world.statuses(again), again.behind) == ({}, 1)
    other = world.send((5, 0))
    assert world.forwarded(other, 1, []) == [other]
    assert world.forwarded(push, 0, []) == world.forwarded(other, 0, []) == []
    last = world.send((0, 1))
    assert world.forwarded(last, 0, []) == [last]
    assert (world.statuses(last), last.behind) == ({}, 2)
    assert world.reduce.incomplete(SHUFFLE, [(0, 0), (1, 0), (5, 0)]) == []


def test_one_copy_acknowledges_at_once() -> None:
    """With one copy asked for nothing is waited for, and both replicas are behind."""
    world = World()
    push = world.send((0, 0), ack_copies=1)
    assert world.pending.ready(push) == [push]
    assert (world.statuses(push), push.behind) == ({}, 3)
    assert world.pending.ready(push) == []


def test_a_replica_that_is_behind_counts_for_nothing() -> None:
    """A replica has a later push, and not yet one that was acknowledged without it: the later one waits until either
    the replica has caught up, or the other has it. Else both could lack something that was acknowledged."""
    world = World()
    first, second, third = world.send((0, 0)), world.send((0, 1)), world.send((0, 2))
    assert world.forwarded(first, 0, []) == [first]
    assert world.forwarded(second, 1, []) == []
    assert world.forwarded(third, 1, []) == []
    assert world.forwarded(second, 0, []) == [second]
    assert (world.statuses(second), second.behind) == ({}, 2)
    assert world.forwarded(first, 1, []) == [third]
    assert (world.statuses(third), third.behind) == ({}, 1)


def test_what_a_replica_lacks_is_on_the_others_and_its_epoch_takes_nothing_more() -> None:
    """A replica fails after the answer: its copy of that epoch is incomplete, and is named to who asks. What is next in
    the epoch goes elsewhere, without that replica; what was on its way counts it no more. Other epochs go on."""
    world = World()
    push, flying = world.send((0, 0), (1, 0)), world.send((0, 1))
    assert world.forwarded(push, 0, []) == [push]
    assert world.forwarded(push, 1, [0]) == []
    assert world.reduce.incomplete(SHUFFLE, [(1, 0), (0, 0)]) == [(0, 0, 3)]
    late = world.take((0, 2), (1, 1), replicas=REPLICAS, ack_copies=2)
    world.pending.begin(late, 0, slow=False)
    assert late.decision.statuses == [(0, Status.REPLICA_FAILED)]
    assert world.forwarded(late, 1, []) == [late]
    assert (world.statuses(late), late.failed) == ({0: Status.REPLICA_FAILED}, 2)
    assert world.forwarded(late, 0, []) == world.forwarded(flying, 1, []) == []
    assert world.forwarded(flying, 0, [0]) == [flying]
    assert (world.statuses(flying), flying.failed) == ({0: Status.REPLICA_FAILED}, 3)
    assert world.reduce.incomplete(SHUFFLE, [(0, 0)]) == [(0, 0, 3)], "what nobody was promised nobody lacks"


def test_too_few_copies_acknowledge_nothing() -> None:
    """Both replicas fail, each at another batch: what one of them has is acknowledged, and the other's copy of that is
    incomplete; a batch that neither has is refused, and names both."""
    world = World()
    push = world.send((0, 0), (1, 0), (2, 0))
    assert world.forwarded(push, 0, [0, 2]) == []
    assert world.forwarded(push, 1, [1, 2]) == [push]
    assert (world.statuses(push), push.failed) == ({2: Status.REPLICA_FAILED}, 3)
    assert world.reduce.incomplete(SHUFFLE, [(0, 0), (1, 0), (2, 0)]) == [(0, 0, 2), (1, 0, 3)]


def test_who_settles_waits_for_what_was_acknowledged_to_it() -> None:
    """An attempt asks what became of its pushes on all replicas: the answer comes when none of those that were
    acknowledged is on its way, whatever others are."""
    world = World()
    pushes = [world.send((0, 0)), world.send((0, 1))]
    for push in pushes:
        assert world.forwarded(push, 0, []) == [push]
    unanswered, attempt = world.send((0, 2)), (SHUFFLE, 0, 0)
    replicas = world.pending.replicas
    settling = Settling(SHUFFLE, [(0, 0)])
    assert not replicas.settle(settling, attempt)
    assert world.pending.forwarded(pushes[1], 1, []) == ([], [])
    assert world.pending.forwarded(unanswered, 1, []) == ([], [])
    assert world.pending.forwarded(pushes[0], 1, []) == ([unanswered], [settling])
    assert not replicas.settle(settling, attempt)
    assert replicas.settle(settling, (SHUFFLE, 0, 1))


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("ack_copies", [1, 2, 3])
def test_so_many_copies_have_all_that_was_acknowledged_whatever_replicas_do(ack_copies: int, seed: int) -> None:
    """Replicas answer in any order, and fail batches at random. At every moment so many copies of each epoch as were
    asked for have everything that was acknowledged in it, those that are called incomplete not among them; and no
    replica lacks anything without being called behind, or incomplete."""
    rng = random.Random(seed)
    world, numbers = World(), [0, 0]
    under_way: list[tuple[PendingPush, int]] = []
    has: dict[int, set[tuple[int, int]]] = {2: set(), 3: set()}
    acknowledged: set[tuple[int, int]] = set()

    def answer(answered: list[PendingPush]) -> None:
        for push in answered:
            refused = world.statuses(push)
            entries = [entry[:3:2] for entry in push.decision.push.entries]
            acknowledged.update(entry for at, entry in enumerate(entries) if at not in refused)

    def look() -> None:
        world.pending.replicas.check()
        for partition in (0, 1):
            wanted = {one for one in acknowledged if one[0] == partition}
            incomplete = {row[2] for row in world.reduce.incomplete(SHUFFLE, [(partition, 0)])}
            whole = [worker for worker in has if wanted <= has[worker] and worker not in incomplete]
            assert 1 + len(whole) >= ack_copies or not wanted
            if not under_way:
                assert all(worker in whole or worker in incomplete for worker in has)

    for _ in range(60):
        if rng.random() < 0.4:
            partitions = rng.sample((0, 1), rng.choice((1, 2)))
            push = world.take(*((one, numbers[one]) for one in partitions), replicas=REPLICAS, ack_copies=ack_copies)
            for one in partitions:
                numbers[one] += 1
            if world.pending.begin(push, 0, slow=False) is None:
                answer([push])
            else:
                under_way += [(push, 0), (push, 1)]
                answer(world.pending.ready(push))
        elif under_way:
            push, replica = under_way.pop(rng.randrange(len(under_way)))
            assert push.forwards is not None
            refused = [index for index in push.forwards.chosen if rng.random() < 0.05]
            kept = [push.decision.push.entries[index][:3:2] for index in push.forwards.chosen if index not in refused]
            has[REPLICAS[replica].worker].update(kept)
            answer(world.forwarded(push, replica, refused))
        look()
    while under_way:
        push, replica = under_way.pop(rng.randrange(len(under_way)))
        assert push.forwards is not None
        kept = [push.decision.push.entries[index][:3:2] for index in push.forwards.chosen]
        has[REPLICAS[replica].worker].update(kept)
        answer(world.forwarded(push, replica, []))
        look()
    assert not len(world.pending), "everything is answered in the end"
