"""The short forms of `holdfast drill spark`: a few kills under a Spark job. The long ones are `tox -e drill-spark`."""

from functools import partial
from pathlib import Path

import pytest

from holdfast.tools.drills.running import run_drill
from holdfast.tools.drills.spark import drill as spark
from holdfast.tools.drills.spark.drill import Killed
from holdfast.tools.drills.spark.events import read
from holdfast.tools.drills.support.report import Report

#: Sparks are started one after another, on a machine that may be busy.
pytestmark = pytest.mark.timeout(900)


def drilled(killed: Killed, count: int, copies: int, every: float | None, directory: Path) -> Report:
    """Run a drill; nothing was broken."""
    drill = partial(spark.drill, killed=killed, copies=copies, every=every)
    report = run_drill(f"spark {killed}", drill, count, 1, directory, spark.ground(killed, copies))
    report.limits.clear()
    assert report.done == count, report.failures
    assert not [failure for failure in report.failures if spark.STALL not in failure]
    return report


@pytest.mark.long
def test_a_shuffle_is_read_again_whatever_was_killed_between(tmp_path: Path) -> None:
    """The worker, all masters, and all of them together are killed and started again: no map runs a second time."""
    report = drilled(Killed.REUSE, 1, 1, None, tmp_path)
    assert report.kills == 8
    assert report.checks["no map runs for another read"] == 6
    assert report.counts["maps"] == 8
    assert set(report.checks) >= {"bytes go through the workers", "answers are the undisturbed ones"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("killed", "copies", "every", "kills"),
    [
        (Killed.LEADER, 1, 3.0, 4),
        (Killed.WORKER, 1, 5.0, 4),
        (Killed.WORKER, 2, 5.0, 4),
        (Killed.HOST, 2, 5.0, 4 * 2),
        (Killed.HOST, 3, 5.0, 4 * 4),
        (Killed.RACK, 2, 5.0, 4 * 2),
        (Killed.RACK, 3, 5.0, 4 * 4),
        (Killed.EXECUTORS, 1, 5.0, 4),
    ],
)
def test_queries_do_not_notice_kills(tmp_path: Path, killed: Killed, copies: int, every: float, kills: int) -> None:
    """Queries run while something is killed: equal answers, no stage runs a second time, no fetch fails."""
    report = drilled(killed, 4, copies, every, tmp_path)
    assert report.kills == kills
    assert report.checks["no stage runs again"] > 12


@pytest.mark.long
@pytest.mark.parametrize("copies", [1, 2])
def test_g1_queries_do_not_notice_a_rolling_restart(tmp_path: Path, copies: int) -> None:
    """Every worker is ended in order and started again while queries run: equal answers, no stage runs a second time,
    no fetch fails, and each worker ends because nothing is open there."""
    count = spark.ground(Killed.ROLLING, copies).workers
    report = drilled(Killed.ROLLING, count, copies, 3.0, tmp_path)
    assert report.kills == 0
    assert report.counts["restarts"] == count
    assert report.checks["workers end when that is safe"] == count
    assert report.checks["no stage runs again"] > 12


TASK = (
    '{{"Event":"SparkListenerTaskEnd","Stage ID":{stage},"Task Type":"{kind}",'
    '"Task End Reason":{{"Reason":"{reason}"}},"Task Info":{{"Index":{index},"Finish Time":{ends}}}}}'
)
STAGE = (
    '{{"Event":"SparkListenerStageSubmitted","Stage Info":{{"Stage ID":{stage},"Stage Attempt ID":{attempt}}},'
    '"Properties":{{"holdfast.drill.label":"{label}"}}}}'
)


def task(stage: int, index: int, reason: str = "Success", kind: str = "ShuffleMapTask", ends: int = 1000) -> str:
    """A line of an event log."""
    return TASK.format(stage=stage, index=index, reason=reason, kind=kind, ends=ends)


def test_what_ran_again_shows_in_the_event_log() -> None:
    """Further attempts at stages, maps that ran twice, failed fetches and pauses are counted, each under its label."""
    log = [
        '{"Event":"SparkListenerStageSubmitted","Stage Info":{"Stage ID":0,"Stage Attempt ID":0}}',
        task(0, 0),
        STAGE.format(stage=1, attempt=0, label="one"),
        task(1, 0, ends=1000),
        task(1, 1, "ExecutorLostFailure"),
        task(1, 1, ends=2000),
        STAGE.format(stage=2, attempt=0, label="two"),
        task(2, 0, "FetchFailed", "ResultTask", 3000),
        STAGE.format(stage=1, attempt=1, label="two"),
        task(1, 1, ends=7000),
        task(2, 0, kind="ResultTask", ends=8000),
    ]
    found = read(log)
    assert set(found) == {"one", "two"}
    assert (found["one"].stages_again, found["one"].maps, found["one"].maps_again) == (0, 2, 0)
    assert found["one"].failed == {"ExecutorLostFailure": 1}
    two = found["two"]
    assert (two.stages_again, two.maps, two.maps_again, two.fetch_failures) == (1, 1, 1, 1)
    assert two.longest_pause(2.5, 8.5) == 4.0
