"""What a commit asks each worker and when again, whom it goes without, when it is enough, and what it says."""

import pytest

from holdfast.common.errors import ConflictError, HoldfastError, NoRoomError, ProtocolError, RetryError
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import Epoch, PartitionId
from holdfast.common.statuses import Status
from holdfast.master.core.commit import FinalWord, SealRound, Seen, is_committed
from holdfast.master.core.patience import BUSY_GRACES, PAUSE_MAX_S, PAUSE_MIN_S
from holdfast.master.core.seals import PlacedEpoch, Seals
from holdfast.master.core.state.records import Shuffle, Worker
from tests.unit.master.build import Log, application, commit_reduce, key, reduce, worker

S = 10**9
NOW = 1_000 * S
COPY_GRACE, RETURN_GRACE = 5 * S, 30 * S
AWAY = RetryError("it cannot be reached")
FULL = NoRoomError("its disk is full", status=Status.DISK_FULL)
BUSY = RetryError("it is busy", status=Status.BUSY)
#: Partition 0 on two workers, partition 1 on the first alone.
EPOCHS = [PlacedEpoch(0, 0, (1, 2), 100), PlacedEpoch(1, 0, (1,), 100)]
SEEN = Seen(2, 4, b"digest")


class World:
    """A round over two workers."""

    def __init__(self) -> None:
        self.log = Log()
        self.log.do(worker(1))
        self.log.do(worker(2))
        self.log.do(application())
        self.log.do(reduce())
        self.seals = Seals(2, EPOCHS)
        self.round = SealRound(self.shuffle, self.seals, COPY_GRACE, RETURN_GRACE)

    @property
    def shuffle(self) -> Shuffle:
        found = self.log.state.shuffle(key())
        assert found is not None
        return found

    def worker(self, number: int) -> Worker:
        return self.log.state.workers[number]

    def seal(self, number: int, *epochs: tuple[int, int]) -> None:
        """A worker says that it sealed these, when it is asked for all it has."""
        said = [SealedEpoch(PartitionId(one), Epoch(epoch), Status.OK, 10) for one, epoch in epochs]
        self.round.answered(self.worker(number), self.round.ask(number, NOW), said)

    def fails(self, number: int, error: HoldfastError, now: int, silence: int | None = None) -> float | None:
        self.round.ask(number, now)
        return self.round.failed(self.worker(number), error, silence, now)

    def left_s(self, now: int) -> float | None:
        return self.round.left_s(dict.fromkeys(self.round.unanswered, 0), now)


def test_a_commit_has_enough_when_everybody_answered() -> None:
    """Each worker is asked for what it has not said yet, and for nothing once it said all."""
    world = World()
    assert world.round.workers == [1, 2]
    world.seal(1, (1, 0))
    assert world.round.ask(1, NOW) == [(0, 0)]
    world.seal(1, (0, 0))
    assert world.round.ask(1, NOW) == []
    assert world.left_s(NOW) == pytest.approx(5.0)
    world.seal(2, (0, 0))
    assert world.left_s(NOW) == 0.0


def test_an_answer_about_something_else_is_a_failure() -> None:
    """Whoever answers with epochs that nobody asked for is not asked for ever: that is an error, which counts."""
    world = World()
    with pytest.raises(ProtocolError, match='"w2" answered a seal with other epochs'):
        world.seal(2, (1, 0))


def test_a_second_copy_is_waited_for_only_for_a_moment() -> None:
    """Once the other copy is known its worker is left when `copy_grace` is over, and not before; the worker with an
    only copy is left by no time at all."""
    world = World()
    world.round.ask(2, NOW)
    world.seal(1, (0, 0), (1, 0))
    assert world.left_s(NOW + COPY_GRACE - S) == pytest.approx(1.0)
    assert world.left_s(NOW + COPY_GRACE) == 0.0
    other = World()
    other.round.ask(1, NOW)
    other.seal(2, (0, 0))
    assert other.left_s(NOW + COPY_GRACE) is None


def test_pauses_grow_and_stay_bounded() -> None:
    """A worker that fails is asked again soon at first, then later and later, but never after more than the bound."""
    world = World()
    pauses = [world.fails(1, AWAY, NOW) for _ in range(12)]
    assert pauses[0] == PAUSE_MIN_S
    assert pauses == sorted(pause for pause in pauses if pause is not None)
    assert pauses[-1] == PAUSE_MAX_S


def test_a_worker_that_is_away_is_given_up_after_the_grace() -> None:
    """Not before; then its only copies are said to be unsealed, and the commit goes on without it."""
    world = World()
    world.seal(2, (0, 0))
    assert world.fails(1, AWAY, NOW, silence=0) is not None
    assert world.fails(1, AWAY, NOW + RETURN_GRACE - S, silence=0) is not None
    assert world.fails(1, AWAY, NOW + RETURN_GRACE, silence=0) is None
    assert world.round.unanswered == []
    assert world.left_s(NOW + RETURN_GRACE) == 0.0
    word = FinalWord(world.shuffle, SEEN, world.seals)
    assert (word.tally.epochs, word.tally.lost, word.tally.unsealed) == (2, 1, 2)


@pytest.mark.parametrize(
    ("error", "reported", "status"), [(FULL, NoRoomError, Status.NO_ROOM), (BUSY, RetryError, BUSY.status)]
)
def test_a_worker_that_has_data_and_cannot_seal_it_ends_the_commit(
    error: HoldfastError, reported: type[HoldfastError], status: Status
) -> None:
    """After five graces, with a sentence that names it and a status that says why; until then it is asked again,
    though it fails in between for other reasons."""
    world = World()
    assert world.fails(1, error, NOW) is not None
    assert world.fails(1, AWAY, NOW + S) is not None
    assert world.fails(1, BUSY, NOW + BUSY_GRACES * RETURN_GRACE - S) is not None
    with pytest.raises(reported, match='worker "w1" could not seal its data for 150 s') as ended:
        world.fails(1, BUSY, NOW + BUSY_GRACES * RETURN_GRACE)
    assert ended.value.status is status


def test_a_worker_that_cannot_seal_is_not_needed_where_there_is_another_copy() -> None:
    """The same worker, with only copies that are sealed elsewhere: the commit goes without it and fails nowhere."""
    world = World()
    world.seal(1, (0, 0), (1, 0))
    assert world.fails(2, FULL, NOW) is not None
    assert world.fails(2, FULL, NOW + BUSY_GRACES * RETURN_GRACE) is None


def test_the_final_word_is_within_its_command_or_uploaded() -> None:
    """Winners and manifest are in the command or in its upload, never in both; its numbers are the manifest's."""
    world = World()
    world.seal(1, (0, 0), (1, 0))
    world.seal(2, (0, 0))
    word = FinalWord(world.shuffle, SEEN, world.seals)
    within, outside = word.command(b"winners", b""), word.command(b"winners", b"upload")
    assert (within.winners, within.manifest, within.upload) == (b"winners", word.manifest, b"")
    assert (outside.winners, outside.manifest, outside.upload) == (b"", b"", b"upload")
    assert outside.manifest_bytes == len(word.manifest)
    assert (within.epochs, within.lost, within.unsealed, within.data_bytes) == (2, 0, 0, 20)


def test_a_commit_is_final() -> None:
    """Asked again with the same winners it is there; with others, or with winners of another shape, it is refused."""
    world = World()
    shuffle = world.shuffle
    assert not is_committed(shuffle, SEEN)
    with pytest.raises(ConflictError):
        is_committed(shuffle, Seen(2, 5, b"digest"))
    world.log.do(commit_reduce(4, maps=2))
    done = world.shuffle
    assert is_committed(done, Seen(2, 4, b"winners"))
    with pytest.raises(ConflictError, match="a commit is final"):
        is_committed(done, SEEN)
