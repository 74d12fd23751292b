"""What an attempt does about replicas that were behind when its batches were acknowledged, as stories."""

from holdfast.client.core.write.laggards import Settle
from holdfast.client.core.write.push import AllKept, PushFailed, PushSession, Settled, Wake
from holdfast.client.core.write.revivals import REVIVES_MAX, AskRevive
from holdfast.common.errors import AbortedError, RetryError, error_for
from holdfast.common.formats.reduce_messages import IncompleteCopy
from holdfast.common.ids import Epoch, PartitionId, WorkerId
from holdfast.common.limits import SETTLE_EPOCHS_MAX
from holdfast.common.statuses import Status
from tests.unit.client.push_world import at, of, pushed, sent, session

SILENT = error_for(Status.UNAVAILABLE, "no leader")


def lacks(partition: int, worker: int, epoch: int = 0) -> IncompleteCopy:
    return IncompleteCopy(PartitionId(partition), Epoch(epoch), WorkerId(worker))


def behind(mask: int) -> tuple[PushSession, list[Settle]]:
    """An attempt of one batch for each of two partitions, with three copies, all acknowledged with these replicas
    behind; and what it asks then."""
    core = session(at(1, 2, 3), at(1, 2, 3))
    (frame,) = pushed(core, [(0, 0, 10), (1, 0, 10)])
    effects = core.answered(frame.frame, [], behind=mask)
    assert of(Settled, effects) == [Settled(frame.batches)]
    assert of(AllKept, effects) == ([] if mask else [AllKept()])
    return core, of(Settle, effects)


def test_an_attempt_that_nobody_is_behind_of_ends_with_its_last_answer() -> None:
    """Where all copies acknowledge nothing is asked: the attempt is over as soon as everything is acknowledged."""
    _, asks = behind(0)
    assert asks == []


def test_an_attempt_ends_when_its_replicas_have_caught_up() -> None:
    """The primary of the epochs that somebody is behind of is asked, about all of them; it names no copy, and the
    attempt is over without a word to the masters."""
    core, (ask,) = behind(2)
    assert ask.destination.primary == 1
    assert ask.epochs == [(0, 0), (1, 0)]
    assert core.finished() == []
    assert core.settled(ask, []) == [AllKept()]
    core.check()


def test_an_attempt_does_not_end_before_the_masters_know_what_its_copies_lack() -> None:
    """A copy is incomplete: the masters are told, again after a pause where they do not answer, and only then the
    attempt is over."""
    core, (ask,) = behind(2)
    (revive,) = of(AskRevive, core.settled(ask, [lacks(1, 3)]))
    assert (revive.failed, revive.unusable, revive.incomplete) == ([], (), [lacks(1, 3)])
    (again,) = of(AskRevive, core.revive_failed(SILENT))
    assert again == revive
    (wake,) = of(Wake, core.revive_failed(SILENT))
    assert wake.worker is None
    (last,) = of(AskRevive, core.woken(None))
    assert last == revive
    assert core.revived([], {}) == [AllKept()]


def test_a_primary_that_does_not_answer_leaves_those_that_were_behind_incomplete() -> None:
    """It cannot be asked any more: the replicas that its latest answers called behind may lack something, and no
    others. An answer about an epoch says anew who is behind of it."""
    core = session(at(1, 2, 3), at(1, 2, 3))
    effects = [*core.added([(PartitionId(0), 0, 300_000)]), *core.added([(PartitionId(1), 0, 300_000)])]
    frames = sent(core, effects)
    core.answered(frames[0].frame, [], behind=3)
    core.answered(frames[1].frame, [], behind=3)
    (frame,) = sent(core, [*core.added([(PartitionId(0), 1, 10)]), *core.finished()])
    (ask,) = of(Settle, core.answered(frame.frame, [], behind=1))
    (revive,) = of(AskRevive, core.unsettled(ask))
    assert sorted(revive.incomplete) == [lacks(0, 2), lacks(1, 2), lacks(1, 3)]


def test_an_attempt_fails_where_too_few_copies_would_be_left() -> None:
    """The masters refuse to call another copy incomplete: what was acknowledged may be on too few, so the attempt is
    over, and its map can be run again. So it is when its shuffle is committed, with the masters' reason."""
    core, (ask,) = behind(3)
    core.unsettled(ask)
    (failed,) = core.revive_failed(error_for(Status.REPLICA_FAILED, "too few copies have all of it"))
    assert isinstance(failed, PushFailed)
    assert isinstance(failed.error, RetryError)
    core, (ask,) = behind(3)
    core.unsettled(ask)
    (failed,) = core.revive_failed(error_for(Status.COMMITTED, "it is committed"))
    assert isinstance(failed, PushFailed)
    assert isinstance(failed.error, AbortedError)


def test_masters_that_never_answer_end_the_attempt() -> None:
    """They are asked for a bounded number of times, with pauses in between; then the attempt fails with what was
    said."""
    core, (ask,) = behind(1)
    effects = core.unsettled(ask)
    asked = 0
    while not (failed := of(PushFailed, effects)):
        asked += len(of(AskRevive, effects))
        effects = core.woken(None) if of(Wake, effects) else core.revive_failed(SILENT)
    assert asked == REVIVES_MAX
    assert isinstance(failed[0].error, RetryError)
    assert "no leader" in str(failed[0].error)


def test_many_epochs_are_asked_about_in_parts() -> None:
    """A question names as many epochs as a frame holds; the attempt is over when all of them are answered."""
    count = SETTLE_EPOCHS_MAX + 1
    core = session(*[at(1, 2)] * count)
    (frame,) = pushed(core, [(partition, 0, 1) for partition in range(count)])
    asks = of(Settle, core.answered(frame.frame, [], behind=1))
    assert [len(ask.epochs) for ask in asks] == [SETTLE_EPOCHS_MAX, 1]
    assert core.settled(asks[1], []) == []
    assert core.settled(asks[0], []) == [AllKept()]
