"""The short form of every drill: a few kills with a fixed seed. The long forms are tox environments of their own."""

from functools import partial

import pytest

from holdfast.common.formats.messages import Ack
from holdfast.tools.drills import push, rolling
from holdfast.tools.drills.catalogue import CATALOGUE, run_short
from holdfast.tools.drills.running import Ground, run_drill

#: What the checks of a drill must include, where the test of its verdict would not notice that they are gone.
CHECKED = {
    **{
        name: {"no partition is lost", "no map runs again", "every record read once", "copies do not fail together"}
        for name in ("host --copies 2", "host --copies 3", "rack --copies 2", "rack --copies 3", "region --copies 3")
    },
    "driver": {"a new driver attaches", "every record read once", "no lease ends early", "leases end"},
    "disk-full": {"some worker was full", "every record read once", "the limit that was met is named"},
    "bit-flip": {"with two copies every read is right", "a read is right, or refused as damaged"},
    "partition": {"no stale answer", "every record read once", "equal state hashes"},
    "clock-skew": {"no lease ends early", "leases end", "no worker that beats is lost"},
}
#: These have tests of their own below.
OWN = {name for name in CATALOGUE if name.startswith("rolling")}


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name not in OWN])
def test_drill_finds_no_broken_promise(tmp_path, name: str):
    """Servers, drivers, disks, networks and clocks fail at random moments; what was acknowledged is still there."""
    report = run_short(name, seed=1, directory=tmp_path)
    report.limits.clear()
    assert report.failures == []
    assert report.done == CATALOGUE[name].rounds
    assert report.good
    assert report.events or name == "disk-slow"
    assert CHECKED.get(name, set()) <= report.checks.keys()


def test_from_memory_with_two_copies_nothing_is_lost(tmp_path):
    """With two copies in memory a worker that is killed takes nothing with it."""
    drill = partial(push.drill, copies=2, ack=Ack.MEMORY)
    report = run_drill("push --ack memory", drill, 2, 1, tmp_path, Ground(workers=push.workers(2)))
    assert report.failures == []
    assert report.good
    assert report.kills >= 2


@pytest.mark.parametrize("copies", [1, 2])
def test_g1_every_worker_is_restarted_in_order_under_load(tmp_path, copies: int):
    """Each worker is drained, ended and started again while maps push, masters commit and readers read: it ends by
    itself when nothing is open there, nothing is lost, and nothing runs again."""
    drill = partial(rolling.drill, copies=copies)
    ground = Ground(workers=rolling.workers(copies))
    report = run_drill(f"rolling --copies {copies}", drill, 1, 1, tmp_path, ground)
    assert report.failures == []
    assert report.good
    assert report.counts["restarts"] == rolling.workers(copies)
    assert report.counts["moves"] > 0, "no partition was open where a worker was restarted"
    wanted = {"no partition is lost", "no map runs again", "every record read once", "workers end when that is safe"}
    assert wanted <= report.checks.keys()


def test_workers_are_restarted_by_host(tmp_path):
    """Both workers of a host are drained, ended and started together, and nothing is lost and nothing runs again."""
    ground = Ground(workers=2, workers_per_host=2)
    report = run_drill("rolling", partial(rolling.drill, copies=1), 1, 1, tmp_path, ground)
    assert report.failures == []
    assert report.good
    assert report.counts["restarts"] == 4


def test_what_was_only_in_memory_is_lost_by_name(tmp_path):
    """Of data acknowledged in memory, with one copy, every partition reads back exact or as lost by name; some are."""
    drill = partial(push.drill, copies=1, ack=Ack.MEMORY)
    report = run_drill("push --copies 1 --ack memory", drill, 3, 1, tmp_path, Ground(workers=push.workers(1)))
    assert report.failures == []
    assert report.good
    assert report.counts["partitions lost"] > 0
    assert report.counts["partitions whole"] > 0
