"""What Spark makes of statuses that name no executor: the ground on which the plug-in's generations stand.

Each test runs tests/spark/probe_job.py over Spark's own shuffle, in which only the locations are synthetic
(client/jvm/src/test/java/…/probe). docs/internals/adr/0014-synthetic-locations.md says what was seen on which Spark.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.jvm import Jvm
from tests.support.tree import ROOT

#: Several Sparks and compilers are started one after another.
pytestmark = pytest.mark.timeout(900)
#: What the two shuffles of the probe's job have to give.
SUMS = [[0, 26733], [1, 26467], [2, 26600]]
SECONDS_MAX = 240.0
#: Spark waits for a better place for 60 s in these jobs: whoever waited for one at all is above this.
WAIT_MS_MAX = 30_000


def run(jvm: Jvm, directory: Path, master: str, scenario: str, *settings: str) -> dict[str, Any]:
    """Run the job and return what it printed."""
    job = str(ROOT / "tests/spark/probe_job.py")
    command = [sys.executable, job, str(jvm.classes), str(directory), master, scenario, *settings]
    environ = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX, env=environ)
    assert done.returncode == 0, done.stderr[-4000:]
    reported: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reported


def attempts(reported: dict[str, Any], stage: int) -> list[int]:
    """How many tasks each attempt of a stage started."""
    names = sorted(name for name in reported["tasks"] if name.startswith(f"{stage}."))
    return [reported["tasks"][name] for name in names]


@pytest.mark.parametrize("master", ["local[2]", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.long)])
def test_nothing_waits_for_places_that_do_not_exist(jvm: Jvm, tmp_path: Path, master: str) -> None:
    """Tasks that read from synthetic locations start at once, though Spark would wait 60 s for a better place."""
    reported = run(jvm, tmp_path, master, "none")
    assert reported["result"] == SUMS
    assert [attempts(reported, stage) for stage in range(3)] == [[4], [4], [3]]
    assert reported["longest_wait_ms"] < WAIT_MS_MAX


@pytest.mark.parametrize("service", ["false", pytest.param("true", marks=pytest.mark.long)])
def test_fetch_failure_drops_exactly_the_generation(jvm: Jvm, tmp_path: Path, service: str) -> None:
    """A fetch failure that names a generation reruns all its maps and none of another shuffle's; readers then see the
    next generation alone; no executor is shut out. The same where Spark takes it that a service keeps the data."""
    reported = run(jvm, tmp_path, "local[2]", "fail", f"spark.shuffle.service.enabled={service}")
    assert reported["result"] == SUMS
    assert reported["reasons"]["FetchFailed"] >= 1, "more if a reader begins just as the outputs are dropped"
    assert (attempts(reported, 0), attempts(reported, 1)) == ([4], [4, 4])
    after = {place for name, place in reported["reads"].items() if name.startswith("read-0-1-")}
    assert after == {"holdfast-0-1-0"}
    assert {one.split()[-1] for one in reported["excluded"]} == {"holdfast-0-0-0"}


@pytest.mark.long
def test_executors_of_failed_readers_stay(jvm: Jvm, tmp_path: Path) -> None:
    """With exclusion on fetch failures it is the synthetic executor that is shut out, and real ones go on."""
    reported = run(jvm, tmp_path, "local-cluster[2,1,1024]", "fail")
    assert reported["result"] == SUMS
    assert attempts(reported, 0) == [4]
    assert {one.split()[-1] for one in reported["excluded"]} <= {"holdfast-0-0-0"}
    assert reported["longest_wait_ms"] < WAIT_MS_MAX


def test_late_events_of_a_dropped_generation_are_ignored(jvm: Jvm, tmp_path: Path) -> None:
    """A map that ends late with a status of a dropped generation, and a reader that reports it once more, change
    nothing: no reader ever sees two generations, and what was written of the next one is kept."""
    reported = run(jvm, tmp_path, "local[4]", "late")
    assert reported["result"] == SUMS
    assert reported["reasons"]["FetchFailed"] >= 3
    assert all(len(seen.split()) == 1 for seen in reported["reads"].values()), reported["reads"]
    after = {place for name, place in reported["reads"].items() if name.startswith("read-0-1-")}
    assert after == {"holdfast-0-1-0"}
    written = attempts(reported, 1)
    assert (written[0], written[2]) == (4, 4)
    # Spark takes late maps for finished and runs those again, in an attempt of their own; nothing else runs twice.
    assert sum(written[3:]) <= 3


@pytest.mark.long
def test_adaptive_plans_read_ranges_of_maps(jvm: Jvm, tmp_path: Path) -> None:
    """Local readers of adaptive plans, which ask for places of maps, work with synthetic ones."""
    reported = run(jvm, tmp_path, "local[2]", "adaptive")
    assert reported["result"] == [2000]
    assert reported["plans"] == {"AQEShuffleRead local": True, "BroadcastHashJoin": True}
    assert reported["longest_wait_ms"] < WAIT_MS_MAX
