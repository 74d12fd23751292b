"""The writer's core as stories: events in, the list of effects out."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.core.write.map_write import (
    Abandon,
    AskSeal,
    MapFailed,
    MapWrite,
    Open,
    SendFrame,
    WakeMap,
    Written,
)
from holdfast.client.core.write.route import locations, pause_ns
from holdfast.common.errors import ApplicationGoneError, NoRoomError, RetryError, error_for
from holdfast.common.formats.layouts import MapAssignment
from holdfast.common.formats.messages import FileTotals
from holdfast.common.ids import AttemptId, Epoch, MapId, WorkerId
from holdfast.common.statuses import MEANINGS, Status

TOTALS = FileTotals(regions=1, batches=2, size_bytes=30, crc_sum=7)
LOST = RetryError("connection lost")


def ring(*workers: int, copies: int = 1) -> MapAssignment:
    return MapAssignment(tuple(WorkerId(worker) for worker in workers), copies)


def write(*workers: int, copies: int = 1, **options: int) -> MapWrite:
    """A write of map 0, attempt 0, so that epoch e starts at worker number e of the ring."""
    return MapWrite(ring(*workers, copies=copies), MapId(0), AttemptId(0), **options)


def opened_with_frames(core: MapWrite, *sizes: int) -> None:
    core.started(0)
    core.opened(0, Epoch(0), 0)
    for size in sizes:
        core.frame_added(size, 0)


def test_a_good_day() -> None:
    """Open, push, acknowledge, seal, done: one effect follows from each event."""
    core = write(7, 8)
    assert core.started(0) == [Open(0, WorkerId(7), Epoch(0))]
    assert core.frame_added(10, 0) == []
    assert core.opened(0, Epoch(0), 1) == [SendFrame(0, Epoch(0), 0)]
    assert core.frame_added(20, 0) == [SendFrame(0, Epoch(0), 1)]
    assert core.finished(TOTALS, 0) == []
    assert core.acked(0, Epoch(0), 1, 2) == []
    assert core.settled == 0, "frame 0 is still on its way"
    assert core.acked(0, Epoch(0), 0, 2) == [AskSeal(0, WorkerId(7), Epoch(0), TOTALS)]
    assert core.settled == 2
    assert core.sealed(0, Epoch(0), TOTALS) == [Written(Epoch(0), (WorkerId(7),))]
    assert core.over


def test_an_attempt_without_frames_is_sealed_too() -> None:
    """A map without output still has a file, so that the commit can name it."""
    core = write(7)
    core.started(0)
    core.finished(FileTotals(regions=0, batches=0, size_bytes=0, crc_sum=0), 0)
    (seal,) = core.opened(0, Epoch(0), 0)
    assert isinstance(seal, AskSeal)


def test_the_window_bounds_what_is_on_its_way() -> None:
    """No more bytes or frames are pushed than the window has; an acknowledgement lets the next through."""
    core = write(7, window_bytes=100, window_frames=3)
    opened_with_frames(core, 60, 60, 10, 10, 10, 10)
    assert core.acked(0, Epoch(0), 0, 0) == [
        SendFrame(0, Epoch(0), 1),
        SendFrame(0, Epoch(0), 2),
        SendFrame(0, Epoch(0), 3),
    ]
    assert core.acked(0, Epoch(0), 2, 0) == [SendFrame(0, Epoch(0), 4)]
    core.check()


def test_a_frame_larger_than_the_window_goes_alone() -> None:
    """The bound never makes a frame impossible."""
    core = write(7, window_bytes=100)
    core.started(0)
    core.opened(0, Epoch(0), 0)
    assert core.frame_added(500, 0) == [SendFrame(0, Epoch(0), 0)]
    assert core.frame_added(1, 0) == []


def test_a_lost_worker_costs_an_epoch() -> None:
    """After a lost connection everything is sent again, to the next worker of the ring, in the next epoch."""
    core = write(7, 8)
    opened_with_frames(core, 10, 20)
    core.acked(0, Epoch(0), 0, 0)
    assert core.failed(0, Epoch(0), LOST, 5) == [
        Abandon(0, WorkerId(7), Epoch(0)),
        Open(0, WorkerId(8), Epoch(1)),
    ]
    assert core.failed(0, Epoch(0), LOST, 5) == [], "the other futures of the same connection fail too"
    assert core.acked(0, Epoch(0), 1, 5) == [], "an answer of the old epoch changes nothing"
    assert core.opened(0, Epoch(1), 6) == [SendFrame(0, Epoch(1), 0), SendFrame(0, Epoch(1), 1)]


def test_a_ring_of_one_waits_for_its_worker() -> None:
    """Where no other worker is, the same one is tried again, after pauses that grow."""
    core = write(7)
    core.started(0)
    first, second = core.failed(0, Epoch(0), LOST, 1)
    assert first == Abandon(0, WorkerId(7), Epoch(0))
    assert second == WakeMap(pause_ns(1, 1), Epoch(1))
    assert core.woken(Epoch(0), None) == [], "a wake of another epoch is stale"
    assert core.woken(Epoch(1), None) == [Open(0, WorkerId(7), Epoch(1))]
    (_, later) = core.failed(0, Epoch(1), LOST, 2)
    assert isinstance(later, WakeMap)
    assert later.after_ns > second.after_ns


def test_two_copies_move_together() -> None:
    """When one copy fails both start again, because a winner names one epoch for both."""
    core = write(7, 8, 9, copies=2)
    assert core.started(0) == [Open(0, WorkerId(7), Epoch(0)), Open(1, WorkerId(8), Epoch(0))]
    core.opened(0, Epoch(0), 0)
    core.opened(1, Epoch(0), 0)
    assert core.frame_added(5, 0) == [SendFrame(0, Epoch(0), 0), SendFrame(1, Epoch(0), 0)]
    core.acked(0, Epoch(0), 0, 0)
    assert core.settled == 0, "settled is what all copies have"
    effects = core.failed(1, Epoch(0), error_for(Status.DISK_FULL, "full"), 1)
    assert effects[2:] == [Open(0, WorkerId(8), Epoch(1)), Open(1, WorkerId(9), Epoch(1))]


def test_both_copies_must_be_sealed() -> None:
    """Nothing is written before the second seal; the result names both workers."""
    core = write(7, 8, copies=2)
    core.started(0)
    core.finished(TOTALS, 0)
    core.opened(0, Epoch(0), 0)
    core.opened(1, Epoch(0), 0)
    assert core.sealed(1, Epoch(0), TOTALS) == []
    assert core.failed(1, Epoch(0), LOST, 0) == [], "a sealed copy cannot fail any more"
    assert core.sealed(0, Epoch(0), TOTALS) == [Written(Epoch(0), (WorkerId(7), WorkerId(8)))]


def test_a_seal_without_answer_is_asked_again() -> None:
    """The answer may be lost and the file be safe: the same worker is asked by key before all is sent again."""
    core = write(7, 8)
    opened_with_frames(core, 10)
    core.finished(TOTALS, 0)
    core.acked(0, Epoch(0), 0, 0)
    (wake,) = core.failed(0, Epoch(0), LOST, 1)
    assert isinstance(wake, WakeMap)
    assert wake.copy == 0
    assert core.woken(wake.epoch, wake.copy) == [AskSeal(0, WorkerId(7), Epoch(0), TOTALS)]
    assert core.sealed(0, Epoch(0), TOTALS) == [Written(Epoch(0), (WorkerId(7),))]


def test_a_seal_that_the_worker_forgot_is_written_again() -> None:
    """UNKNOWN_FILE to a seal means that the restart dropped the file: the next epoch begins."""
    core = write(7, 8)
    opened_with_frames(core, 10)
    core.finished(TOTALS, 0)
    core.acked(0, Epoch(0), 0, 0)
    effects = core.failed(0, Epoch(0), error_for(Status.UNKNOWN_FILE), 1)
    assert effects[-1] == Open(0, WorkerId(8), Epoch(1))


def test_a_seal_with_other_totals_is_an_error() -> None:
    """An answer that names other totals than were sent ends the attempt as CORRUPT."""
    core = write(7)
    opened_with_frames(core, 10)
    core.finished(TOTALS, 0)
    core.acked(0, Epoch(0), 0, 0)
    *_, failed = core.sealed(0, Epoch(0), FileTotals(regions=1, batches=1, size_bytes=30, crc_sum=7))
    assert isinstance(failed, MapFailed)
    assert failed.error.status is Status.CORRUPT


def test_what_no_worker_can_help_ends_the_attempt() -> None:
    """An application that is gone, or a committed generation, is not tried elsewhere."""
    for status in (Status.APPLICATION_GONE, Status.COMMITTED, Status.UNKNOWN_SHUFFLE, Status.WRONG_CLUSTER):
        core = write(7, 8)
        core.started(0)
        *_, failed = core.failed(0, Epoch(0), error_for(status), 1)
        assert isinstance(failed, MapFailed)
        assert failed.error.status is status
        assert core.over
    assert isinstance(error_for(Status.APPLICATION_GONE), ApplicationGoneError)


def test_patience_ends() -> None:
    """After the patience without any acknowledgement the error says what was tried and what to look at; a worker that
    cannot be reached is no want of room."""
    core = write(7, patience_ns=100)
    core.started(0)
    core.failed(0, Epoch(0), LOST, 50)
    core.woken(Epoch(1), None)
    *_, failed = core.failed(0, Epoch(1), LOST, 101)
    assert isinstance(failed, MapFailed)
    assert (type(failed.error), failed.error.status) == (RetryError, Status.UNAVAILABLE)
    assert "holdfast workers" in str(failed.error)


def test_a40_a_slow_task_is_not_the_workers_silence() -> None:
    """A task that computes for longer than the patience, all it wrote being acknowledged: its next frame, or its end,
    meets a connection that was lost meanwhile, and goes to another place."""
    for ends in (False, True):
        core = write(7, 8, patience_ns=100)
        opened_with_frames(core, 10)
        core.acked(0, Epoch(0), 0, 10)
        later = core.finished(TOTALS, 1_000) if ends else core.frame_added(10, 1_000)
        assert isinstance(later[0], AskSeal if ends else SendFrame)
        effects = core.failed(0, Epoch(0), error_for(Status.UNKNOWN_FILE if ends else Status.UNAVAILABLE), 1_001)
        assert effects == [Abandon(0, WorkerId(7), Epoch(0)), Open(0, WorkerId(8), Epoch(1))]
        core.frame_added(10, 1_050) if not ends else None
        *_, failed = core.failed(0, Epoch(1), LOST, 1_101)
        assert isinstance(failed, MapFailed), "what waits since then has its patience once"


def test_a_full_worker_that_takes_a_part_each_time_ends_with_no_room() -> None:
    """Something is accepted at every place, so patience never ends; the places do, and the error says for want of what,
    and not that nothing was accepted."""
    core = write(7)
    core.started(0)
    full = error_for(Status.DISK_FULL, "the capacity is used up")
    effects: list[Any] = []
    for epoch in range(1_000):
        core.opened(0, Epoch(epoch), 0)
        effects = core.failed(0, Epoch(epoch), full, 0)
        if core.over:
            break
        core.woken(Epoch(epoch + 1), None)
    (failed,) = [effect for effect in effects if isinstance(effect, MapFailed)]
    assert (type(failed.error), failed.error.status) == (NoRoomError, Status.NO_ROOM)
    assert "the capacity is used up" in str(failed.error)
    assert "nothing accepted" not in str(failed.error)


def test_an_abort_drops_every_copy() -> None:
    """The caller's abort tells each worker once, and nothing follows it."""
    core = write(7, 8, copies=2)
    core.started(0)
    assert core.aborted() == [Abandon(0, WorkerId(7), Epoch(0)), Abandon(1, WorkerId(8), Epoch(0))]
    assert core.aborted() == []
    assert core.opened(0, Epoch(0), 0) == []


def test_every_status_has_a_move() -> None:
    """The table is total: any number of the wire is decided, and OK is none of them."""
    assert {meaning.moves_map for meaning in MEANINGS.values()} == {True, False}
    assert MEANINGS[Status.UNAVAILABLE].moves_map


def test_copies_stand_on_neighbours_of_the_ring() -> None:
    """Copy c of epoch e is at place e + c, which layouts.worker_for promises to readers and masters."""
    assert locations(ring(5, 6, 7, copies=2), MapId(2), Epoch(0)) == (WorkerId(7), WorkerId(5))


@given(st.integers(1, 4), st.integers(1, 2), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=60))
def test_any_order_of_events_keeps_the_books(workers: int, copies: int, events: list[tuple[int, int]]) -> None:
    """Whatever comes in whatever order, the invariants hold, and a finished attempt names distinct sealed epochs."""
    core = write(*range(workers), copies=min(copies, workers), window_bytes=30, window_frames=3)
    pending = core.started(0)
    frames = 0
    for now, (kind, copy) in enumerate(events):
        copy = min(copy, min(copies, workers) - 1)
        pushes = [effect for effect in pending if isinstance(effect, SendFrame) and effect.epoch == core.epoch]
        opens = [effect for effect in pending if isinstance(effect, Open) and effect.epoch == core.epoch]
        wakes = [effect for effect in pending if isinstance(effect, WakeMap)]
        effects = []
        if kind == 0 and not core.over and frames < 20:
            frames += 1
            effects = core.frame_added(10, now)
        elif kind in (1, 2) and pushes:
            push = pushes[copy % len(pushes)]
            pending.remove(push)
            effects = core.acked(push.copy, push.epoch, push.frame, now)
        elif kind == 3 and opens:
            pending.remove(opens[0])
            effects = core.opened(opens[0].copy, opens[0].epoch, now)
        elif kind == 4 and (opens or pushes):
            effects = core.failed((opens or pushes)[0].copy, core.epoch, LOST, now)
        elif kind == 5 and wakes:
            pending.remove(wakes[0])
            effects = core.woken(wakes[0].epoch, wakes[0].copy)
        pending = [effect for effect in pending if getattr(effect, "epoch", core.epoch) == core.epoch] + effects
        core.check()
