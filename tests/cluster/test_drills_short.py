"""The short form of every drill: a few kills with a fixed seed. The long forms are tox environments of their own."""

from functools import partial

import pytest

from holdfast.client.cli.drill import Drill, run_drill
from holdfast.client.cli.drills import leader, masters, push, worker
from holdfast.common.messages import Ack


@pytest.mark.parametrize(
    ("name", "drill", "count", "workers"),
    [
        ("leader", leader.drill_kill, 3, 1),
        ("leader --stop", leader.drill_stop, 3, 1),
        ("masters", masters.drill, 4, 1),
        ("worker", worker.drill, 7, 1),
        ("push --copies 1", partial(push.drill, copies=1), 3, push.WORKERS),
        ("push --copies 2", partial(push.drill, copies=2), 3, push.WORKERS),
        ("push --copies 2 --ack memory", partial(push.drill, copies=2, ack=Ack.MEMORY), 2, push.WORKERS),
    ],
)
def test_drill_finds_no_broken_promise(tmp_path, name: str, drill: Drill, count: int, workers: int):
    """Servers are killed at random moments, and everything that was acknowledged is still there."""
    report = run_drill(name, drill, count, seed=1, directory=tmp_path, workers=workers)
    report.limits.clear()
    assert report.done == count, report.failures
    assert report.failures == []
    assert report.kills >= count
    assert report.good


def test_what_was_only_in_memory_is_lost_by_name(tmp_path):
    """Of data acknowledged in memory, with one copy, every partition reads back exact or as lost by name; some are."""
    drill = partial(push.drill, copies=1, ack=Ack.MEMORY)
    report = run_drill("push --copies 1 --ack memory", drill, 3, seed=1, directory=tmp_path, workers=push.WORKERS)
    assert report.failures == []
    assert report.good
    assert report.counts["partitions lost"] > 0
    assert report.counts["partitions whole"] > 0
