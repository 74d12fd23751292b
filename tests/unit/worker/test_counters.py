"""Counters of a worker: refusals have causes, and heartbeats have numbers alone."""

from holdfast.common.statuses import Status
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.server.observe.metric_help import COUNTERS


def test_refusals_are_counted_by_cause() -> None:
    """Each is counted once in all and once by its status; a number that is no status is no label of its own."""
    counters = Counters()
    counters.refused(Status.BUSY)
    counters.refused(Status.BUSY)
    counters.refused(54_321)
    counters.batches_refused([Status.HARD_SPLIT, Status.NO_ROOM, Status.HARD_SPLIT])
    assert counters.causes() == {
        "requests_refused": {"BUSY": 2, "INTERNAL": 1},
        "batches_refused": {"HARD_SPLIT": 2, "NO_ROOM": 1},
    }
    assert (counters.refusals, counters.push_batches_refused) == (3, 3)


def test_heartbeats_carry_numbers_with_a_meaning() -> None:
    """What goes to the masters is numbers, and each has a meaning in the documentation."""
    reported = Counters().as_dict()
    assert all(isinstance(value, int) for value in reported.values())
    assert set(reported) <= set(COUNTERS)
