"""The short form of the matrix: jobs whose tasks fail, are killed and are left early give Spark's own results."""

from pathlib import Path

import pytest

from holdfast.client.cluster.local import local_cluster
from tests.matrix.jobs import JAR_FREE, JOBS
from tests.matrix.run import drive, holds, pushed
from tests.matrix.trouble import WAIT_SECONDS_MAX
from tests.support.spark_conf import conf

#: What each run tries; `tox -e matrix` tries all, larger, several times.
SHORT = ("failing_maps", "failing_readers", "left_early", "nested")

pytestmark = [pytest.mark.timeout(1500), pytest.mark.spark, pytest.mark.plugin]


@pytest.mark.parametrize("jobs", [SHORT, pytest.param((*JOBS, *JAR_FREE), marks=pytest.mark.long)])
def test_jobs_whose_tasks_fail_and_are_killed_end_as_with_spark(tmp_path: Path, jobs: tuple[str, ...]) -> None:
    """SQL, RDDs, streams, jar-free and Arrow jobs, while tasks fail at their first attempt and are killed at random,
    with an interrupt and without: the answers are Spark's own, and no task waits for a minute without progress."""
    own = drive([each for each in jobs if each in JOBS], {})
    with local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster:
        reported = holds(cluster, jobs, seed=1, share=0.5, scale=1, own=own)
    assert reported.kills, "nothing was killed"
    assert reported.waited <= WAIT_SECONDS_MAX


def test_a40_tasks_that_fail_leave_no_other_one_waiting(tmp_path: Path) -> None:
    """Twenty maps whose first attempts fail with megabytes on their way to the only worker: the job ends as with
    Spark's own shuffle, and none of its tasks waits for a minute without progress."""
    with local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster:
        settings = conf(cluster.endpoints, fallback="never") | {"spark.holdfast.codec": "none"}
        reported = drive(["failing_large_maps"], settings)
        assert reported.answers == {"failing_large_maps": 32_000 * 4_000}
        assert reported.waited <= WAIT_SECONDS_MAX
        assert pushed(cluster) > 32_000 * 4_000
