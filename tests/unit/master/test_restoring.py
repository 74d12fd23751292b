"""Which copies are made again, where they are named meanwhile, and in which order they come."""

from collections.abc import Callable, Collection, Hashable, Sequence

import pytest

from holdfast.common.formats.reduce_layouts import CopyResult, EpochResult
from holdfast.common.formats.reduce_messages import SealedEpoch
from holdfast.common.ids import Epoch, PartitionId, WorkerId
from holdfast.common.limits import COPIES_MAX, MIB
from holdfast.common.statuses import Status
from holdfast.master.core import restoring as core
from holdfast.master.core.restoring import (
    REQUEST_BYTES,
    Copying,
    CopyQueue,
    Short,
    Shortage,
    is_due,
    with_given_up,
    with_places,
    with_restored,
)
from holdfast.master.core.seals import tally, unsealed

OK, AWAY, MAKING, FAILED = Status.OK, Status.UNAVAILABLE, Status.NOT_SEALED, Status.FAILED_COPY
NOBODY: frozenset[int] = frozenset()


def epoch(partition: int, **copies: Status) -> EpochResult:
    """Of 100 bytes a sealed copy; workers are w1, w2 …"""
    those = [CopyResult(WorkerId(int(name[1:])), status, 100 if status is OK else 0) for name, status in copies.items()]
    return EpochResult(PartitionId(partition), Epoch(0), tuple(those))


def shortage(
    epochs: Sequence[EpochResult],
    wanted: int,
    lost: Collection[int],
    gone: Collection[int],
    host_of: Callable[[int], Hashable] = lambda worker: worker,
) -> Shortage:
    """Each worker is on a host of its own, if nothing else is said."""
    return core.shortage(epochs, wanted, core.Absent(lost, gone), host_of)


def workers_of(one: EpochResult) -> list[tuple[int, Status]]:
    return [(copy.worker, copy.status) for copy in one.copies]


def test_a_copy_that_its_worker_does_not_have_any_more_is_short_at_once_and_made_again_later() -> None:
    """Of two epochs on the same workers one is missing on a living one: it is counted, is no source, and has another
    place once nothing is waited for; the other epoch has its copies."""
    manifest = [epoch(0, w1=OK, w2=OK), epoch(1, w1=OK, w2=OK)]
    missing = {(2, 1, 0)}

    def shortage_of(epochs: Sequence[EpochResult], absent: core.Absent) -> Shortage:
        return core.shortage(epochs, 2, absent, lambda worker: worker)

    waiting = shortage_of(manifest, core.Absent(without=missing))
    assert (waiting.epochs, waiting.short) == (1, [])
    given_up = core.Absent(without=missing, gone_without=missing)
    over = shortage_of(manifest, given_up)
    assert [(each.row, each.stay, each.left_by) for each in over.short] == [(1, (1,), (2,))]
    placed = with_places(manifest, {1: [3]}, NOBODY)
    (copying,) = shortage_of(placed, given_up).copying
    assert (copying.target, copying.sources) == (3, (1,))


def test_a_lost_worker_is_waited_for_and_then_not() -> None:
    """While a worker is lost its epochs are counted as short, and nothing is placed; once it is gone for too long a
    copy is missing of each, and of nothing else."""
    manifest = [epoch(0, w1=OK, w2=OK), epoch(1, w1=OK, w3=OK)]
    waiting = shortage(manifest, 2, {2}, NOBODY)
    assert (waiting.epochs, waiting.short, waiting.copying) == (1, [], [])
    over = shortage(manifest, 2, {2}, {2})
    assert over.short == [Short(row=0, stay=(1,), left_by=(2,), left=1, missing=1, size_bytes=100)]
    assert (over.epochs, over.missing_bytes, over.left) == (1, 100, 1)


def test_copies_on_one_host_count_as_one() -> None:
    """Worker 1 was lost, its copy was made again by worker 3 of its host, and it is back: with worker 2 there are two
    hosts, and without it one, which is too few."""
    host_of = {1: "a", 2: "b", 3: "a", 4: "c"}.__getitem__
    manifest = [epoch(0, w1=OK, w2=OK, w3=OK)]
    assert shortage(manifest, 2, NOBODY, NOBODY, host_of).epochs == 0
    (short,) = shortage(manifest, 3, NOBODY, NOBODY, host_of).short
    assert (short.stay, short.left_by, short.missing) == ((1, 2), (3,), 1)
    found = shortage(manifest, 2, {2}, {2}, host_of)
    assert (found.epochs, [each.missing for each in found.short]) == (1, [1])
    leaving = shortage(manifest, 2, NOBODY, {2}, host_of)
    assert leaving.needed == {2}


@pytest.mark.parametrize("copies", [1, 2])
def test_who_goes_away_is_read_and_needed_until_others_have_what_it_has(copies: int) -> None:
    """A worker whose host goes away gets a successor for each of its copies, and is itself where they are read; until
    that is done it is needed. What it has besides is short of nothing."""
    others = {"w2": OK} if copies == 2 else {}
    manifest = [epoch(0, w1=OK, **others), epoch(1, w4=OK, w5=OK)]
    found = shortage(manifest, copies, NOBODY, {1})
    assert [(each.row, each.left_by, each.missing) for each in found.short] == [(0, (1,), 1)]
    assert (found.needed, found.epochs) == ({1}, 0)
    placed = with_places(manifest, {0: [3]}, {1})
    making = shortage(placed, copies, NOBODY, {1})
    assert [(each.target, 1 in each.sources) for each in making.copying] == [(3, True)]
    assert (making.needed, making.short) == ({1}, [])
    done = with_restored(placed, {3: {(0, 0): SealedEpoch(PartitionId(0), Epoch(0), OK, 100)}})
    over = shortage(done, copies, NOBODY, {1})
    assert (over.needed, over.short, over.copying) == (set(), [], [])


@pytest.mark.parametrize(
    ("one", "lost", "needed"),
    [
        (epoch(0, w1=AWAY), set(), {1}),
        (epoch(0, w1=AWAY, w2=OK), {2}, {1}),
        (epoch(0, w1=AWAY, w2=OK), set(), {1}),
        (epoch(0, w1=AWAY, w2=OK), {1, 2}, set()),
        (epoch(0, w1=AWAY, w2=OK, w3=OK), set(), set()),
        (epoch(0, w1=MAKING, w2=OK), {2}, {1}),
        (epoch(0, w1=MAKING, w2=OK), set(), set()),
        (epoch(0, w1=FAILED, w2=OK), {2}, set()),
    ],
    ids=["only", "other lost", "other there", "lost itself", "two others", "may be made", "not made yet", "failed"],
)
def test_who_goes_away_is_needed_for_what_it_has_not_sealed_yet(
    one: EpochResult, lost: set[int], needed: set[int]
) -> None:
    """A worker that was away when its shuffle was committed has the copy all the same; so may one that was to make it.
    Its host may not go before others have what it has."""
    assert shortage([one], 2, lost, {1}).needed == needed


@pytest.mark.parametrize(
    ("one", "missing"),
    [
        (epoch(0, w1=OK), 0),
        (epoch(0, w1=OK, w2=FAILED), 1),
        (epoch(0, w1=OK, w2=AWAY), 0),
        (epoch(0, w1=OK, w2=MAKING), 0),
        (epoch(0, w1=OK, w2=Status.UNKNOWN_FILE), 0),
        (epoch(0, w1=FAILED, w2=Status.DATA_LOST), 0),
    ],
    ids=["one was placed", "failed", "sealed when it is back", "being made", "nothing in it", "nothing left"],
)
def test_what_is_missing(one: EpochResult, missing: int) -> None:
    """A copy is missing where it failed; not where it was never placed, or is on its way, nor where there is nothing to
    copy, or nothing to copy from."""
    assert sum(each.missing for each in shortage([one], 2, NOBODY, NOBODY).short) == missing


def test_a_place_is_named_before_there_is_a_copy_and_then_is_one() -> None:
    """The new place cannot be read, is counted as unsealed and is no late copy of a commit; what its worker says takes
    its place, once. The worker that is gone keeps its name: it may be back."""
    manifest = [epoch(0, w1=OK, w2=OK)]
    placed = with_places(manifest, {0: [3]}, {2})
    assert workers_of(placed[0]) == [(1, OK), (2, OK), (3, MAKING)]
    assert tally(placed, 2).unsealed == 1
    assert unsealed(placed) == {}, "it was not there at the commit"
    assert with_places(placed, {0: [3]}, {2}) == placed, "a second time changes nothing"
    assert shortage(placed, 2, {2}, {2}).copying == [Copying(1, 0, 0, 100, 3, (1,))]
    said = {(0, 0): SealedEpoch(PartitionId(0), Epoch(0), OK, 100)}
    done = with_restored(placed, {3: said})
    assert workers_of(done[0]) == [(1, OK), (2, OK), (3, OK)]
    assert shortage(done, 2, {2}, {2}).epochs == 0
    late = {(0, 0): SealedEpoch(PartitionId(0), Epoch(0), FAILED)}
    assert with_restored(done, {3: late}) == done, "what is said stays"
    assert with_restored(placed, {2: said}) == placed, "another worker says nothing of it"


def test_a_worker_that_makes_no_copy_says_nothing_of_the_epoch() -> None:
    """A worker that has a record of an epoch that it could never write, and so no copy, does not make it an empty one:
    its copy has failed, and another one is missing."""
    said = {(0, 0): SealedEpoch(PartitionId(0), Epoch(0), Status.UNKNOWN_FILE)}
    failed = with_restored([epoch(0, w1=OK, w3=MAKING)], {3: said})
    assert workers_of(failed[0]) == [(1, OK), (3, FAILED)]
    assert [each.left_by for each in shortage(failed, 2, NOBODY, NOBODY).short] == [(3,)]


def test_the_longest_copy_is_the_source_until_it_is_gone() -> None:
    """A replica failed, so the primary has a batch more, which nobody was told is there. While the primary is waited
    for nothing is copied of the other one; once it is gone that is the longest there is."""
    longer = CopyResult(WorkerId(1), OK, 120)
    one = epoch(0, w2=OK)._replace(copies=(longer, *epoch(0, w2=OK).copies, CopyResult(WorkerId(3), MAKING, 0)))
    assert [each.sources for each in shortage([one], 2, {1}, NOBODY).copying] == [(3,)]
    assert [(each.sources, each.size_bytes) for each in shortage([one], 2, {1}, {1}).copying] == [((2,), 100)]
    short = one._replace(copies=one.copies[:2])
    assert [each.size_bytes for each in shortage([short], 2, {1}, {1}).short] == [100]
    assert [each.size_bytes for each in shortage([short], 2, NOBODY, {1}).short] == [120], "it can be read still"
    leaving = shortage([short], 2, {1}, {1, 2})
    assert ([each.left_by for each in leaving.short], leaving.needed) == ([(1, 2)], {2})


def test_who_has_no_room_gives_up_its_place_where_another_copy_is() -> None:
    """Another worker makes the copy then. The one that may be the only one there is keeps its place."""
    manifest = [epoch(0, w1=OK, w3=MAKING), epoch(1, w1=OK, w3=MAKING), epoch(2, w1=AWAY, w3=MAKING)]
    given_up = with_given_up(manifest, 3, {(0, 0), (2, 0)})
    assert [each.copies[1].status for each in given_up] == [FAILED, MAKING, MAKING]
    assert [(each.row, each.left_by) for each in shortage(given_up, 2, NOBODY, NOBODY).short] == [(0, (3,))]


def test_a_place_that_is_gone_itself_is_replaced() -> None:
    """The worker that was to make the copy is gone, too: another one is found, and the first one may still do it."""
    placed = [epoch(0, w1=OK, w2=OK, w3=MAKING)]
    found = shortage(placed, 2, {2, 3}, {2, 3})
    assert [(each.stay, each.missing) for each in found.short] == [((1,), 1)]
    assert found.copying == []


def test_an_epoch_names_as_many_as_it_can() -> None:
    """Where an epoch names five, what failed gives up its name first, then what is gone and was never sealed, then what
    is gone; a copy that is there never does."""
    full = epoch(0, w1=OK, w2=OK, w3=AWAY, w4=FAILED, w5=OK)
    gone = {2, 3}
    first = with_places([full], {0: [6]}, gone)
    second = with_places(first, {0: [7]}, gone)
    third = with_places(second, {0: [8]}, gone)
    assert [copy.worker for copy in first[0].copies] == [1, 2, 3, 5, 6]
    assert [copy.worker for copy in second[0].copies] == [1, 2, 5, 6, 7]
    assert [copy.worker for copy in third[0].copies] == [1, 5, 6, 7, 8]
    assert with_places(third, {0: [9]}, gone) == third
    assert len(third[0].copies) == COPIES_MAX


def test_where_all_others_are_lost_the_worker_is_asked_what_it_has() -> None:
    """A copy was made, and its worker or the leader died before that was in the log; then the source was lost. The
    worker is asked whether it has the copy."""
    found = shortage([epoch(0, w1=OK, w2=OK, w3=MAKING)], 2, {1, 2}, {2})
    assert found.copying == [Copying(0, 0, 0, 100, 3, (3,))]
    assert CopyQueue(found.copying, {}).next(3, {3, 4}) == (3, found.copying)


def queue(*copying: Copying, tries: dict[tuple[int, int], int] | None = None) -> CopyQueue:
    return CopyQueue(sorted(copying), tries or {})


def of(partition: int, left: int = 1, size: int = 100, target: int = 9, sources: Sequence[int] = (1,)) -> Copying:
    return Copying(left, partition, 0, size, target, tuple(sources))


def test_those_with_the_fewest_copies_left_come_first() -> None:
    """What has one copy left is copied before what has two, though it comes later in the manifest."""
    first = queue(of(0, left=2), of(1, left=1)).next(9, {1, 9})
    assert first is not None
    assert [each.partition for each in first[1]] == [1, 0]


def test_only_idle_workers_are_asked_and_requests_are_bounded() -> None:
    """A source that is busy is passed over, for another one or for what others have; together go those of one source,
    up to so many bytes, and a larger one alone."""
    both = queue(of(0, sources=(1, 2)), of(1, sources=(2,)), of(2, sources=(1,)))
    assert both.next(9, {2, 9}) == (2, [of(0, sources=(1, 2)), of(1, sources=(2,))])
    assert both.next(9, {3, 9}) is None
    assert both.next(8, {1, 2, 8}) is None, "it has nothing to make"
    large = queue(of(0, size=REQUEST_BYTES - MIB), of(1, size=MIB), of(2, size=MIB), of(3, size=2 * REQUEST_BYTES))
    taken = large.next(9, {1, 9})
    assert taken is not None
    assert [each.partition for each in taken[1]] == [0, 1]
    alone = queue(of(3, size=2 * REQUEST_BYTES)).next(9, {1, 9})
    assert alone == (1, [of(3, size=2 * REQUEST_BYTES)])


def test_what_failed_comes_last_alone_and_of_another_source() -> None:
    """An epoch that cannot be copied of one worker holds up no other, and is tried of the next one."""
    failed = {(0, 0): 1}
    line = queue(of(0, sources=(1, 2)), of(1, sources=(1, 2)), tries=failed)
    assert line.next(9, {1, 2, 9}) == (1, [of(1, sources=(1, 2))])
    only = queue(of(0, sources=(1, 2)), tries=failed)
    assert only.next(9, {1, 2, 9}) == (2, [of(0, sources=(1, 2))])


def test_short_lived_shuffles_are_left_alone() -> None:
    """A shuffle is copied once it has lived for as long as that takes: one of 1 GiB at 64 MiB a second after 16 s."""
    assert not is_due(1024 * MIB, 64 * MIB, 15_999)
    assert is_due(1024 * MIB, 64 * MIB, 16_000)
    assert is_due(0, 1, 0)


def test_an_incomplete_copy_is_made_again_elsewhere_and_stays_named() -> None:
    """A copy that lacks something is no source, and is short of one that has all; its worker keeps its name in the
    manifest, however many copies are named, since it would answer for what it has if it were asked to make one."""
    manifest = [epoch(0, w1=OK, w2=OK, w3=Status.INCOMPLETE)]
    (short,) = shortage(manifest, 3, NOBODY, NOBODY).short
    assert (short.stay, short.left_by, short.missing) == ((1, 2), (3,), 1)
    placed = with_places(manifest, {0: [4]}, NOBODY)
    (copying,) = shortage(placed, 3, NOBODY, NOBODY).copying
    assert (copying.target, copying.sources) == (4, (1, 2))
    full = [epoch(0, w1=OK, w2=AWAY, w3=Status.INCOMPLETE, w4=FAILED, w5=AWAY)]
    assert len(full[0].copies) == COPIES_MAX
    assert [one for one, _ in workers_of(with_places(full, {0: [6, 7, 8]}, {2, 5})[0])] == [1, 3, 6, 7, 8]
    assert [one for one, _ in workers_of(with_places(full, {0: [6, 7, 8, 9]}, {2, 5})[0])] == [1, 3, 6, 7, 8]
