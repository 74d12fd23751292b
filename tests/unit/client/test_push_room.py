"""The push session's core where there is no room: it waits up to its grace, and spends nothing else."""

from collections.abc import Sequence

from holdfast.client.core.write.push import AllKept, PushFailed, PushSession, Wake
from holdfast.client.core.write.revivals import AskRevive
from holdfast.common.errors import NoRoomError
from holdfast.common.ids import Incarnation, PartitionId, WorkerId
from holdfast.common.statuses import Status
from tests.unit.client.push_world import FULL, at, numbers, of, pushed, sent, session

#: What every error that ends a wait for room says at its end.
GRACE = "NO_ROOM; how long is waited: no_room_grace of the session"


def starve(core: PushSession, effects: Sequence[object], seconds: float) -> tuple[list[object], float]:
    """Answer every Revive with "no room", until the attempt ends or the pauses come to so much; the last effects."""
    waited = 0.0
    while waited < seconds and not of(PushFailed, effects):
        for wake in of(Wake, effects):
            waited += wake.after_ns / 1e9
            effects = core.woken(None)
        assert of(AskRevive, effects)
        effects = core.revived([], {}, FULL)
        core.check()
    return list(effects), waited


def test_without_room_the_masters_are_asked_until_the_grace_is_over() -> None:
    """While no worker has room nothing but time is spent; then the attempt ends with the limits that were met."""
    core = session(at(1), revives_max=2, no_room_grace_ns=100 * 10**9)
    (frame,) = pushed(core, [(0, 0, 10)])
    effects, waited = starve(core, core.answered(frame.frame, [(0, Status.HARD_SPLIT)]), 1_000)
    (end,) = of(PushFailed, effects)
    assert isinstance(end.error, NoRoomError)
    reported = f"waited {waited:.0f} s for room for 1 partitions. {FULL} ({GRACE})"
    assert str(end.error) == f"shuffle s map 3 attempt 9: {reported}"
    assert 100 <= waited < 103


def test_room_that_comes_back_is_used() -> None:
    """Within the grace the first place that is made takes the batches, with the budget for revives untouched."""
    core = session(at(1), revives_max=2, no_room_grace_ns=100 * 10**9)
    (frame,) = pushed(core, [(0, 0, 10), (0, 1, 10)])
    effects, _ = starve(core, core.answered(frame.frame, [(0, Status.HARD_SPLIT), (1, Status.HARD_SPLIT)]), 90)
    assert of(Wake, effects)
    assert of(AskRevive, core.woken(None))
    (frame,) = sent(core, core.revived([(PartitionId(0), at(1, epoch=1))], {}))
    assert numbers(frame) == [(0, 1, 0), (0, 1, 1)]
    effects, waited = starve(core, core.answered(frame.frame, [(0, Status.HARD_SPLIT)]), 90)
    assert waited >= 90
    assert not of(PushFailed, effects), "one batch was kept: all begins anew"
    core.woken(None)
    (frame,) = sent(core, core.revived([(PartitionId(0), at(2, epoch=2))], {}))
    assert of(AllKept, core.answered(frame.frame, []))


def test_room_that_takes_nothing_does_not_renew_the_grace() -> None:
    """A worker that says it has room and refuses at once: the waiting goes on where it was, and the budget counts."""
    core = session(at(1), no_room_grace_ns=100 * 10**9)
    (frame,) = pushed(core, [(0, 0, 10)])
    effects: Sequence[object] = core.answered(frame.frame, [(0, Status.HARD_SPLIT)])
    for epoch in (1, 2):
        effects, _ = starve(core, effects, 45)
        assert of(AskRevive, core.woken(None))
        (frame,) = sent(core, core.revived([(PartitionId(0), at(1, epoch=epoch))], {}))
        effects = list(core.answered(frame.frame, [(0, Status.HARD_SPLIT)]))
    effects, waited = starve(core, effects, 45)
    assert of(PushFailed, effects)
    assert waited < 15


def refuse(core: PushSession, frame: int, status: Status, epoch: int) -> tuple[list[object], int]:
    """Refuse the batch of a frame and make it the place of this epoch; the last effects, and the pause before."""
    effects: Sequence[object] = core.answered(frame, [(0, status)])
    paused = 0
    for wake in of(Wake, effects):
        paused += wake.after_ns
        effects = core.woken(None)
    if not of(PushFailed, effects):
        assert of(AskRevive, effects)
        effects = core.revived([(PartitionId(0), at(1, epoch=epoch))], {WorkerId(1): Incarnation(1)})
    core.check()
    return list(effects), paused


def test_a_worker_that_says_so_before_the_masters_know_costs_no_revives() -> None:
    """The masters make place after place on a worker that has no room: only the grace ends that."""
    core = session(at(1), revives_max=2, no_room_grace_ns=100 * 10**9)
    (frame,) = pushed(core, [(0, 0, 10)])
    effects: list[object] = []
    waited = epoch = 0
    while not of(PushFailed, effects):
        epoch += 1
        effects, paused = refuse(core, frame.frame, Status.NO_ROOM, epoch)
        waited += paused
        if not of(PushFailed, effects):
            (frame,) = sent(core, effects)
    (end,) = of(PushFailed, effects)
    reason = "worker 1 answered NO_ROOM. See `holdfast workers`."
    reported = f"waited {waited / 1e9:.0f} s for room for 1 partitions. {reason} ({GRACE})"
    assert str(end.error) == f"shuffle s map 3 attempt 9: {reported}"
    assert 100 <= waited / 1e9 < 103


def test_a_place_without_room_is_no_broken_one() -> None:
    """Among refusals for want of room others do not add up to the budget."""
    core = session(at(1), revives_max=3)
    (frame,) = pushed(core, [(0, 0, 10)])
    for epoch in range(1, 21):
        status = Status.NO_ROOM if epoch % 2 else Status.HARD_SPLIT
        effects, _ = refuse(core, frame.frame, status, epoch)
        (frame,) = sent(core, effects)


def test_places_of_others_are_used_while_there_is_no_room() -> None:
    """An answer that names places for some partitions only: those go on, the others wait without spending revives."""
    core = session(at(1), at(1), revives_max=1)
    (frame,) = pushed(core, [(0, 0, 10), (1, 0, 10)])
    core.answered(frame.frame, [(0, Status.HARD_SPLIT), (1, Status.HARD_SPLIT)])
    effects = core.revived([(PartitionId(1), at(2, epoch=1))], {}, FULL)
    assert not of(PushFailed, effects)
    assert [wake.worker for wake in of(Wake, effects)] == [None]
    (frame,) = sent(core, effects)
    assert numbers(frame) == [(1, 1, 0)]
    core.answered(frame.frame, [])
    (revive,) = of(AskRevive, core.woken(None))
    assert [row[0] for row in revive.failed] == [0]
