"""The reader's core where copies are chosen: the order it is given, what it tells of workers, late streams, rivals."""

from collections.abc import Sequence

import pytest

from holdfast.client.core.read.fetch import (
    REACH_NS,
    RIVALS_MAX,
    AskMasters,
    CloseStream,
    Complete,
    Effect,
    Fetch,
    OpenStream,
    ReadFailed,
    Source,
    WorkerState,
)
from holdfast.common.errors import HoldfastError, RetryError, error_for
from holdfast.common.ids import MapId, WorkerId
from holdfast.common.statuses import Status

LOST = RetryError("connection refused")


class Reported:
    """An order in which the workers named come first, and what it was told."""

    def __init__(self, *first: int) -> None:
        self.first = first
        self.words: list[str] = []

    def ordered(self, copies: Sequence[WorkerId]) -> Sequence[WorkerId]:
        return sorted(copies, key=lambda worker: worker not in self.first)

    def failed(self, worker: WorkerId) -> None:
        self.words.append(f"{worker} failed")

    def slow(self, worker: WorkerId) -> None:
        self.words.append(f"{worker} slow")


def fetch(*files: tuple[int, ...], order: Reported | None = None, streams_max: int = 4) -> Fetch[MapId]:
    """A read of maps 0, 1, …, each given by the workers of its copies."""
    sources = {
        MapId(index): Source(tuple(map(WorkerId, workers)), f"map {index}") for index, workers in enumerate(files)
    }
    return Fetch(sources, where="shuffle s", order=order, grace_ns=1_000, streams_max=streams_max)


def opened(stream: int, worker: int, *maps: int) -> OpenStream[MapId]:
    return OpenStream(stream, WorkerId(worker), tuple(map(MapId, maps)))


def test_the_order_says_who_is_asked() -> None:
    """Of every file the copy that the order puts first, also of files that are wanted later."""
    core = fetch((1, 2), (3, 1), order=Reported(2))
    assert core.started() == [opened(0, 2, 0), opened(1, 3, 1)]
    again = {MapId(5): Source((WorkerId(1), WorkerId(2)), "map 5")}
    core.file_complete(1, MapId(1), again)
    core.file_complete(0, MapId(0))
    assert core.stream_ended(0) == [opened(2, 2, 5)]


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.BUSY, Status.DISK_FAILED, Status.CORRUPT])
def test_failures_are_reported(status: Status) -> None:
    """Who was out of reach or answered nothing useful."""
    reported = Reported()
    core = fetch((1, 2), order=reported)
    core.started()
    core.stream_failed(0, error_for(status), 0)
    assert reported.words == ["1 failed"]


def test_bad_data_is_reported_and_a_refused_lot_is_not() -> None:
    """A worker that only answers fewer files at once is as good as before."""
    reported = Reported()
    core = fetch((1, 2), (1, 2), order=reported)
    core.started()
    core.stream_failed(0, error_for(Status.TOO_LARGE), 0)
    assert reported.words == []
    core.file_bad(1, MapId(0), "checksum")
    assert reported.words == ["1 failed"]


def test_a_late_stream_gets_a_rival_and_the_quicker_is_read() -> None:
    """The rival brings data first: the late one is closed and slow, and is asked last from now on."""
    reported = Reported()
    core = fetch((1, 2), (1, 2), (2, 1), (3, 1), order=reported)
    core.started()
    assert core.late(0) == [opened(3, 2, 0, 1)]
    core.check()
    assert core.late(0) == [], "it has a rival"
    assert core.late(3) == [], "it is one"
    assert core.data_came(3) == [CloseStream(0)]
    core.check()
    assert reported.words == ["1 slow"]
    assert core.file_complete(0, MapId(0)) == [], "its events are too late"
    for map_id in (0, 1):
        core.file_complete(3, MapId(map_id))
    assert core.stream_failed(2, LOST, 0)[1:] == [opened(4, 1, 3)], "there is no other copy"
    core.check()


def test_a_late_stream_that_is_quicker_all_the_same() -> None:
    """Who was asked first and brings data first is not slow, nor is its rival, which was asked later."""
    reported = Reported()
    core = fetch((1, 2), order=reported)
    core.started()
    assert core.late(0) == [opened(1, 2, 0)]
    assert core.data_came(0) == [CloseStream(1)]
    assert core.data_came(1) == []
    assert core.late(0) == [], "something came"
    assert reported.words == []
    assert core.file_complete(0, MapId(0)) == [CloseStream(0), Complete()]


def test_a_slow_worker_is_asked_last_by_the_same_read() -> None:
    """What waits for a stream is asked of the other copy when its turn comes."""
    core = fetch((1, 2), (3, 4), (1, 3), (1, 4), streams_max=2)
    assert core.started() == [opened(0, 1, 0, 2, 3), opened(1, 3, 1)]
    assert core.late(0) == [opened(2, 2, 0)], "the worker with most of it, of equals the first"
    assert core.data_came(2) == [CloseStream(0)], "worker 3 is busy, and no more streams are allowed"
    core.check()
    core.file_complete(1, MapId(1))
    assert core.stream_ended(1) == [opened(3, 3, 2)]
    core.file_complete(3, MapId(2))
    assert core.stream_ended(3) == [opened(4, 4, 3)]


def test_the_worker_with_most_of_it_is_the_rival() -> None:
    """One rival is enough to show who is quicker; the rest moves with it."""
    core = fetch((1, 2), (1, 3), (1, 3))
    core.started()
    assert core.late(0) == [opened(1, 3, 1, 2)]
    assert core.data_came(1) == [CloseStream(0), opened(2, 2, 0)]


def test_what_has_one_copy_has_no_rival() -> None:
    """Where a stream owes something that nobody else in reach has, the read would end no sooner."""
    core = fetch((1,), (1, 2))
    core.started()
    assert core.late(0) == []
    core = fetch((1, 2), (2, 1))
    core.started()
    core.stream_failed(1, LOST, 0)
    assert core.late(0) == [], "worker 2 is out of reach"
    assert core.late(9) == []


def test_rivals_are_bounded() -> None:
    """However many streams are late, so many rivals are open at a time; others get theirs when one is over."""
    core = fetch((1, 2), (3, 4), (5, 6))
    core.started()
    rivals = [effect for stream in range(3) for effect in core.late(stream)]
    assert len(rivals) == RIVALS_MAX == 2
    core.check()
    assert core.data_came(0) == [CloseStream(3)]
    assert core.late(2) == [opened(5, 6, 2)]
    core.check()


def test_a_rival_does_not_keep_its_worker_from_others() -> None:
    """Files that are to be read from the rival's worker are asked for beside it."""
    core = fetch((1, 2), (2,), (2, 3), streams_max=2)
    core.started()
    core.late(0)
    core.file_complete(1, MapId(1))
    core.file_complete(1, MapId(2), {MapId(4): Source((WorkerId(2),), "map 4")})
    assert core.stream_ended(1) == [opened(3, 2, 4)]
    core.check()


@pytest.mark.parametrize("error", [LOST, error_for(Status.UNKNOWN_FILE), error_for(Status.DISK_FAILED)])
def test_a_rival_that_fails_is_no_loss(error: HoldfastError) -> None:
    """The late stream goes on alone, and may get another rival when that one can be reached."""
    core = fetch((1, 2))
    core.started()
    core.late(0)
    assert not any(isinstance(effect, OpenStream | CloseStream) for effect in core.stream_failed(1, error, 0))
    core.check()
    assert core.data_came(0) == []
    assert core.file_complete(0, MapId(0))[-1] == Complete()


def test_a_late_stream_that_fails_leaves_its_rival() -> None:
    """What the rival was asked for is not asked for again; the rest is."""
    reported = Reported()
    core = fetch((1, 2), (1, 2), (1, 3), order=reported)
    core.started()
    core.late(0)
    effects: list[Effect[MapId]] = core.stream_failed(0, LOST, 0)
    assert [effect for effect in effects if isinstance(effect, OpenStream)] == [opened(2, 3, 2)]
    core.check()
    assert reported.words == ["1 failed"], "it did not lose, it failed"
    assert core.data_came(1) == []
    core.file_complete(1, MapId(0))
    assert core.file_complete(1, MapId(1)) == []
    core.check()


def test_damage_before_anything_good_decides_nothing() -> None:
    """A rival whose first frame is broken is closed, the late stream goes on."""
    reported = Reported()
    core = fetch((1, 2), order=reported)
    core.started()
    core.late(0)
    assert core.file_bad(1, MapId(0), "checksum") == [CloseStream(1)]
    assert reported.words == ["2 failed"]
    core.check()
    assert core.data_came(0) == []


def test_a_file_that_a_rival_has_brought_can_still_be_named() -> None:
    """The slower stream brings something wrong of a file that was read by then: that is logged like any other."""
    core = fetch((1, 2))
    core.started()
    assert core.name_of(MapId(0)).endswith("map 0")
    core.late(0)
    core.file_complete(1, MapId(0))
    assert core.name_of(MapId(0)) == core.name_of(MapId(1)).partition(":")[0]


def test_a_file_without_data_decides_as_well() -> None:
    """A rival that ends at once has brought all there was."""
    core = fetch((1, 2))
    core.started()
    core.late(0)
    effects = core.file_complete(1, MapId(0))
    assert effects == [CloseStream(0), CloseStream(1), Complete()]
    core = fetch((1, 2))
    core.started()
    core.late(0)
    assert core.stream_ended(1) == [CloseStream(0), opened(2, 1, 0)], "its END without the file is an answer in vain"


def test_both_out_of_reach_is_reported_as_ever() -> None:
    """Rivals change nothing in what the masters are asked and when a read is given up."""
    core = fetch((1, 2))
    core.started()
    core.late(0)
    assert isinstance(core.stream_failed(0, LOST, 0)[0], AskMasters)
    assert isinstance(core.stream_failed(1, LOST, 0)[0], AskMasters)
    both = {WorkerId(1): WorkerState.ALIVE, WorkerId(2): WorkerState.ALIVE}
    assert core.workers_known(both, 1) == [opened(2, 1, 0)]
    assert core.late(2) == []
    core.stream_failed(2, LOST, 2)
    failed = core.workers_known(both, REACH_NS + 3)[-1]
    assert isinstance(failed, ReadFailed)
    assert "reachable" in str(failed.error)
