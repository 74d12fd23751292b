"""The short form of every drill: a few kills with a fixed seed. The long forms are tox environments of their own."""

from functools import partial

import pytest

from holdfast.client.cli.drill import Drill, run_drill
from holdfast.client.cli.drills import leader, masters, push, rolling, slow_disk, worker
from holdfast.common.limits import MIB
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


@pytest.mark.parametrize("copies", [1, 2])
def test_g1_every_worker_is_restarted_in_order_under_load(tmp_path, copies: int):
    """Each worker is drained, ended and started again while maps push, masters commit and readers read: it ends by
    itself when nothing is open there, nothing is lost, and nothing runs again."""
    drill = partial(rolling.drill, copies=copies)
    report = run_drill(f"rolling --copies {copies}", drill, 1, 1, tmp_path, workers=rolling.workers(copies))
    assert report.failures == []
    assert report.good
    assert report.counts["restarts"] == rolling.workers(copies)
    assert report.counts["moves"] > 0, "no partition was open where a worker was restarted"
    wanted = {"no partition is lost", "no map runs again", "every record read once", "workers end when that is safe"}
    assert wanted <= report.checks.keys()


def test_clients_of_a_slow_disk_are_bounded_and_none_starves(tmp_path):
    """Sixteen processes push for some seconds at a disk of 20 MB/s: memory stays bounded, all progress, all is read."""
    memory = 64 * MIB
    drill = partial(slow_disk.drill, clients=16, seconds=4.0, memory=memory)
    report = run_drill("slow-disk", drill, 1, 1, tmp_path, settings=slow_disk.settings(memory))
    assert report.failures == []
    assert report.good


def test_what_was_only_in_memory_is_lost_by_name(tmp_path):
    """Of data acknowledged in memory, with one copy, every partition reads back exact or as lost by name; some are."""
    drill = partial(push.drill, copies=1, ack=Ack.MEMORY)
    report = run_drill("push --copies 1 --ack memory", drill, 3, seed=1, directory=tmp_path, workers=push.WORKERS)
    assert report.failures == []
    assert report.good
    assert report.counts["partitions lost"] > 0
    assert report.counts["partitions whole"] > 0
