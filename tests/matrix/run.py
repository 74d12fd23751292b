"""Every way to shuffle while tasks fail and are killed, with Spark's own results: `python -m tests.matrix.run`.

Each job runs with Spark's own shuffle and without trouble, then with Holdfast (fallback never) while tasks are killed
at random, some with an interrupt. Answers must be equal; no task may wait for more than WAIT_SECONDS_MAX without
progress; the bytes went through the workers. Exit 0 if all of it holds for every seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from tests.matrix.jobs import JAR_FREE, JOBS
from tests.support.spark_conf import conf
from tests.support.tree import ROOT

RUN_SECONDS_MAX = 1_800
#: Attempts of one task that may fail: those that are to fail do once.
MASTER = "local[2,4]"


@dataclass(frozen=True)
class Reported:
    """What a driver printed."""

    answers: dict[str, Any]
    kills: int
    waited: float
    heap_bytes: int


def drive(jobs: Sequence[str], settings: dict[str, str], **more: Any) -> Reported:
    """Run jobs in a Spark of their own; AssertionError with the end of its output if it fails."""
    asked = {"master": MASTER, "conf": settings, "jobs": list(jobs), "scale": 1, "seed": 0, "share": 0.0, **more}
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "tests.matrix.driver", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=RUN_SECONDS_MAX, check=False)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-8_000:]}"
    return Reported(**json.loads(done.stdout.splitlines()[-1]))


def pushed(cluster: LocalCluster) -> int:
    """Bytes that the workers took."""
    return sum(worker_status(worker.http, 5.0)["counters"]["push_bytes"] for worker in cluster.workers)


def holds(cluster: LocalCluster, jobs: Sequence[str], seed: int, share: float, scale: int, own: Reported) -> Reported:
    """Run the jobs with Holdfast and trouble, and compare; AssertionError for what differs."""
    before = pushed(cluster)
    settings = conf(cluster.endpoints, fallback="never")
    reported = drive(jobs, settings, seed=seed, share=share, scale=scale, endpoints=cluster.endpoints)
    for job in jobs:
        expected = own.answers[job] if job in own.answers else [True, *reported.answers[job][1:]]
        assert reported.answers[job] == expected, f"{job} with seed {seed}: {reported.answers[job]} and not {expected}"
    assert pushed(cluster) > before, "nothing went through the workers"
    return reported


def main() -> int:
    """Run all jobs with so many seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.3, help="how often a task is killed, 0 to 1")
    parser.add_argument("--jobs", default=",".join([*JOBS, *JAR_FREE]))
    options = parser.parse_args()
    jobs = options.jobs.split(",")
    own = drive([each for each in jobs if each in JOBS], {}, scale=options.scale)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-matrix-") as place,
        local_cluster(masters=1, workers=2, dir=Path(place) / "cluster") as cluster,
    ):
        for seed in range(options.seeds):
            reported = holds(cluster, jobs, seed, options.share, options.scale, own)
            sys.stdout.write(
                f"seed {seed}: {len(jobs)} jobs as with Spark's own shuffle, {reported.kills} tasks killed, at most "
                f"{reported.waited:.1f} s without progress, heap {reported.heap_bytes >> 20} MiB (Spark's own: "
                f"{own.heap_bytes >> 20} MiB)\n"
            )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
