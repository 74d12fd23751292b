"""What a commit asks, when it has enough, and what it writes down."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.formats.messages import Ack
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import Epoch, PartitionId
from holdfast.common.statuses import Status
from holdfast.master.core import seals as core_seals
from holdfast.master.core.seals import (
    PlacedEpoch,
    Seals,
    left_behind,
    may_have_lost,
    tally,
    unsealed,
    with_late,
    without_unwritten,
)
from holdfast.master.core.state.records import Worker
from tests.unit.master.build import Log, worker

S = Status
#: Two partitions on two workers each, and a second epoch with one copy.
EPOCHS = [PlacedEpoch(0, 0, (1, 2), 100), PlacedEpoch(1, 0, (2, 3), 100), PlacedEpoch(0, 1, (3,), 100)]


def workers() -> dict[int, Worker]:
    log = Log()
    for number in (1, 2, 3):
        log.do(worker(number))
    return dict(log.state.workers)


def sealed(partition: int, epoch: int, status: Status = S.OK) -> SealedEpoch:
    return SealedEpoch(PartitionId(partition), Epoch(epoch), status, 10 if status == S.OK else 0)


def say(seals: Seals, number: int, *answers: SealedEpoch, ack: Ack = Ack.WRITTEN) -> None:
    seals.answered(number, workers()[number], ack, answers)


def test_every_copy_of_every_epoch_is_asked_for():
    """Each worker is asked for what was ever placed on it, also for epochs that come later."""
    seals = Seals(2, EPOCHS[:2])
    seals.add(EPOCHS)
    assert {number: seals.missing(number, 9) for number in seals.unanswered} == {
        1: [(0, 0)],
        2: [(0, 0), (1, 0)],
        3: [(1, 0), (0, 1)],
    }


def test_enough_is_when_all_answered():
    """Nobody who is there is left out, however well the others are sealed."""
    seals = Seals(2, EPOCHS)
    say(seals, 1, sealed(0, 0))
    say(seals, 3, sealed(1, 0), sealed(0, 1))
    assert not seals.enough()
    say(seals, 2, sealed(0, 0))
    assert not seals.enough()
    say(seals, 2, sealed(1, 0))
    assert seals.enough()
    assert [(each.partition, each.epoch, len(each.readable)) for each in seals.results()] == [
        (0, 0, 2),
        (0, 1, 1),
        (1, 0, 2),
    ]


def test_worker_away_is_waited_for_where_it_has_the_only_copy():
    """One whose epochs are sealed elsewhere is not waited for; one with an epoch of its own is, until it is given
    up."""
    seals = Seals(2, EPOCHS)
    say(seals, 1, sealed(0, 0))
    say(seals, 3, sealed(1, 0), sealed(0, 1))
    assert seals.enough(away={2})
    other = Seals(2, EPOCHS)
    say(other, 1, sealed(0, 0))
    say(other, 2, sealed(0, 0), sealed(1, 0))
    assert not other.enough(away={3})
    other.give_up(3)
    assert other.enough()
    lost = [(each.partition, each.epoch) for each in other.results() if each.lost]
    assert lost == [(0, 1)]
    assert list(other.results())[1].copies[0].status == S.UNAVAILABLE


@pytest.mark.parametrize("status", [S.FAILED_COPY, S.DATA_LOST])
def test_copy_that_is_gone_covers_nothing(status):
    """A worker away is waited for while the other copy had batches and lost them."""
    seals = Seals(2, EPOCHS[:1])
    say(seals, 1, sealed(0, 0, status))
    assert not seals.enough(away={2})


def test_copy_without_a_batch_makes_the_other_needless():
    """What was acknowledged is on both copies: where one worker never had a batch the other is not waited for, and the
    epoch is not lost. The word of one that may have forgotten is not believed."""
    seals = Seals(2, EPOCHS[:1])
    say(seals, 1, sealed(0, 0, S.UNKNOWN_FILE))
    assert seals.enough(away={2})
    seals.give_up(2)
    assert not next(iter(seals.results())).lost
    forgot = Seals(2, [PlacedEpoch(0, 0, (1, 2), 1)])
    say(forgot, 1, sealed(0, 0, S.UNKNOWN_FILE), ack=Ack.MEMORY)
    assert not forgot.enough(away={2})
    forgot.give_up(2)
    assert next(iter(forgot.results())).lost


def test_not_knowing_is_believed_only_of_who_was_there():
    """UNKNOWN_FILE from a later start at MEMORY is DATA_LOST; from the start that it was placed on it is nothing
    lost."""
    for placed_index, status, lost in ((100, S.UNKNOWN_FILE, False), (1, S.DATA_LOST, True)):
        seals = Seals(2, [PlacedEpoch(0, 0, (1,), placed_index)])
        say(seals, 1, sealed(0, 0, S.UNKNOWN_FILE), ack=Ack.MEMORY)
        (result,) = seals.results()
        assert (result.copies[0].status, result.lost) == (status, lost)


def test_answers_that_nobody_asked_for_change_nothing():
    """Epochs that are not missing, known or not, are ignored; the first answer of a worker stays."""
    seals = Seals(2, EPOCHS)
    say(seals, 1, sealed(0, 0), sealed(7, 7))
    say(seals, 1, sealed(0, 0, S.FAILED_COPY))
    assert next(iter(seals.results())).copies[0].status == S.OK
    assert len(seals) == 3


def test_loss_is_seen_before_a_commit():
    """Data may be lost where no copy is on a worker that is alive and kept what it acknowledged."""
    there = workers()
    assert not may_have_lost(EPOCHS, there, Ack.MEMORY)
    assert may_have_lost(EPOCHS, {number: there[number] for number in (1, 2)}, Ack.MEMORY)
    assert may_have_lost([PlacedEpoch(0, 0, (1,), 1)], there, Ack.MEMORY)
    assert not may_have_lost([PlacedEpoch(0, 0, (3, 1), 2)], there, Ack.MEMORY), "worker 1 started before"


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 3))), st.randoms(use_true_random=False))
def test_results_are_in_order_however_epochs_came(epochs, random):
    """Every epoch stands once in the manifest, by partition and epoch."""
    order = sorted(epochs)
    random.shuffle(order)
    seals = Seals(2, [PlacedEpoch(partition, epoch, (1,), 9) for partition, epoch in (*order, *order)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_seals, "_SLICE", 3)
        assert [(each.partition, each.epoch) for each in seals.results()] == sorted(epochs)
    assert seals.missing(1, 1000) == order


def test_what_a_start_left_is_what_was_placed_before_it():
    """Epochs placed before the latest start of one of the workers asked about, on it alone, as primary or replica."""
    log = Log()
    for number in (1, 2, 3):
        log.do(worker(number))
    log.do(worker(1, incarnation=2))
    started = log.state.workers[1].started_index
    epochs = [
        PlacedEpoch(0, 0, (1, 2), started - 1),
        PlacedEpoch(1, 0, (2, 1), started - 1),
        PlacedEpoch(2, 0, (2,), started - 1),
        PlacedEpoch(0, 1, (1,), started + 1),
    ]
    assert left_behind(epochs, {1: log.state.workers[1]}) == {1: [(0, 0), (1, 0)]}
    assert left_behind(epochs, dict(log.state.workers)) == {1: [(0, 0), (1, 0)]}


def test_what_was_not_said_at_the_commit_may_be_said_later():
    """A late answer takes the place of silence and of nothing else: a copy that was sealed, failed or was lost stays
    what it was. The size is the late copy's own, so readers read the longer copy first."""
    seals = Seals(2, EPOCHS)
    say(seals, 1, sealed(0, 0))
    say(seals, 2, sealed(1, 0, S.FAILED_COPY))
    known = tuple(seals.results())
    assert tally(known, 2) == (3, 2, 1, 1, 3, 10)
    assert unsealed(known) == {2: {(0, 0)}, 3: {(0, 1), (1, 0)}}
    late = Seals(2, EPOCHS)
    late.answered(2, workers()[2], Ack.WRITTEN, [sealed(0, 0)._replace(size_bytes=7), sealed(1, 0)])
    late.answered(1, workers()[1], Ack.WRITTEN, [sealed(0, 0, S.DATA_LOST)])
    results = with_late(known, late)
    first, _, second = results
    assert [(copy.worker, copy.status, copy.size_bytes) for copy in first.copies] == [
        (1, S.OK, 10),
        (2, S.OK, 7),
    ]
    assert second.copies[0].status == S.FAILED_COPY
    assert tally(results, 2) == (3, 2, 0, 0, 2, 10)
    late.answered(3, workers()[3], Ack.WRITTEN, [sealed(0, 1), sealed(1, 0)])
    assert tally(with_late(known, late), 2) == (3, 0, 2, 0, 0, 30), "two epochs have one copy, for good"


def test_what_no_winner_wrote_for_is_not_lost():
    """By the winners' bits: a lost epoch of a partition without any becomes one that was never written to; without
    bits, or with the partition's bit, it stays lost, and what was sealed stays as it is."""
    seals = Seals(2, EPOCHS)
    say(seals, 1, sealed(0, 0))
    results = tuple(seals.results())
    assert [each.lost for each in results] == [False, True, True]
    assert tuple(without_unwritten(results, None)) == results
    assert tuple(without_unwritten(results, b"\x03")) == results
    found = tuple(without_unwritten(results, b"\x01"))
    assert [(each.partition, each.lost) for each in found] == [(0, False), (0, True), (1, False)]
    assert found[:2] == results[:2]
    assert tally(found, 2).lost == 1
    assert next(without_unwritten(results, b"\x00")) == results[0], "a loser's batches may be sealed"


def test_a_late_start_is_believed_as_at_the_commit():
    """A worker that has started since and does not know an epoch says nothing of use: its copy is lost."""
    placed = [PlacedEpoch(0, 0, (1,), 1)]
    known = tuple(Seals(2, placed).results())
    late = Seals(2, placed)
    late.answered(1, workers()[1], Ack.MEMORY, [sealed(0, 0, S.UNKNOWN_FILE)])
    (result,) = with_late(known, late)
    assert (result.copies[0].status, result.lost) == (S.DATA_LOST, True)


def test_an_epoch_that_was_never_written_to_lacks_no_copy():
    """Under-replicated is what has batches and fewer copies than asked for, for whatever reason."""
    for workers, status, found in (
        ((1, 2), S.OK, 0),
        ((1, 2), S.UNKNOWN_FILE, 0),
        ((1, 2), S.FAILED_COPY, 1),
        ((1,), None, 1),
    ):
        seals = Seals(2, [PlacedEpoch(0, 0, workers, 100)])
        say(seals, 1, sealed(0, 0))
        if status is not None:
            say(seals, 2, sealed(0, 0, status))
        assert tally(tuple(seals.results()), 2).under_replicated == found
        assert tally(tuple(seals.results()), 1).under_replicated == 0


def test_one_sealed_copy_of_three_is_enough_and_the_others_are_counted():
    """Two of three workers are away: the commit needs not wait, the epoch is under-replicated and not lost, and each
    late copy is added beside the others until nothing is missing."""
    placed = [PlacedEpoch(0, 0, (1, 2, 3), 100)]
    seals = Seals(3, placed)
    say(seals, 2, sealed(0, 0))
    assert seals.enough(away={1, 3})
    known = tuple(seals.results())
    assert tally(known, 3) == (1, 0, 1, 1, 2, 10)
    assert unsealed(known) == {1: {(0, 0)}, 3: {(0, 0)}}
    late = Seals(3, placed)
    say(late, 3, sealed(0, 0))
    known = with_late(known, late)
    assert (tally(known, 3), tally(known, 2).under_replicated) == ((1, 0, 1, 1, 1, 10), 0)
    say(late, 1, sealed(0, 0))
    assert tally(with_late(known, late), 3) == (1, 0, 0, 0, 0, 10)


def test_a_copy_without_a_batch_of_three_proves_that_none_was_acknowledged():
    """What was acknowledged is on all three copies: one that never had a batch makes the others needless, and lost
    only is what all three had and lost."""
    placed = [PlacedEpoch(0, 0, (1, 2, 3), 100)]
    seals = Seals(3, placed)
    say(seals, 1, sealed(0, 0, S.FAILED_COPY))
    say(seals, 2, sealed(0, 0, S.DATA_LOST))
    assert not seals.enough(away={3})
    assert next(iter(seals.results())).lost
    say(seals, 3, sealed(0, 0, S.UNKNOWN_FILE))
    (result,) = seals.results()
    assert (result.lost, result.under_replicated(3)) == (False, False)


def test_an_incomplete_copy_is_not_asked_for_and_is_no_copy():
    """A copy that lacks something that was acknowledged is final without a word of its worker: it is not read, not
    awaited and counted as missing. If its worker never had a batch that proves nothing; with all others gone the
    epoch is lost."""
    placed = [PlacedEpoch(0, 0, (1, 2, 3), 100, frozenset({3}))]
    seals = Seals(3, placed)
    assert sorted(seals.unanswered) == [1, 2]
    say(seals, 3, sealed(0, 0))
    say(seals, 1, sealed(0, 0))
    say(seals, 2, sealed(0, 0))
    assert seals.enough()
    known = tuple(seals.results())
    assert [copy.status for copy in known[0].copies] == [S.OK, S.OK, S.INCOMPLETE]
    assert tally(known, 3) == (1, 0, 1, 0, 0, 10)
    assert unsealed(known) == {}
    later = Seals(3, [PlacedEpoch(0, 0, (1, 2, 3), 100)])
    say(later, 2, sealed(0, 0))
    later.add([PlacedEpoch(0, 0, (1, 2, 3), 100, frozenset({2, 3}))])
    assert later.unanswered == [1]
    say(later, 1, sealed(0, 0))
    assert [copy.status for copy in next(iter(later.results())).copies] == [S.OK, S.INCOMPLETE, S.INCOMPLETE]
    gone = Seals(3, placed)
    say(gone, 3, sealed(0, 0, S.UNKNOWN_FILE))
    say(gone, 1, sealed(0, 0, S.DATA_LOST))
    say(gone, 2, sealed(0, 0, S.FAILED_COPY))
    assert next(iter(gone.results())).lost


def test_an_incomplete_copy_keeps_no_data():
    """Of an open generation whose last complete copy is on a lost worker data may be lost, whoever has the incomplete
    one."""
    there = workers()
    there[1] = replace(there[1], alive=False)
    assert not may_have_lost([PlacedEpoch(0, 0, (1, 2), 100)], there, Ack.WRITTEN)
    assert may_have_lost([PlacedEpoch(0, 0, (1, 2), 100, frozenset({2}))], there, Ack.WRITTEN)
