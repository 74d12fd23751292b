"""The short form of every drill: a few kills with a fixed seed. The long forms are tox environments of their own."""

import pytest

from holdfast.client.cli.drill import Drill, run_drill
from holdfast.client.cli.drills import leader, masters, worker


@pytest.mark.parametrize(
    ("name", "drill", "count"),
    [
        ("leader", leader.drill_kill, 3),
        ("leader --stop", leader.drill_stop, 3),
        ("masters", masters.drill, 4),
        ("worker", worker.drill, 7),
    ],
)
def test_drill_finds_no_broken_promise(tmp_path, name: str, drill: Drill, count: int):
    """Servers are killed at random moments, and everything that was acknowledged is still there."""
    report = run_drill(name, drill, count, seed=1, directory=tmp_path)
    report.limits.clear()
    assert report.done == count, report.failures
    assert report.failures == []
    assert report.kills >= count
    assert report.good
