"""Whatever shuffles gives the same with Holdfast as with Spark's own shuffle, and the bytes went through the workers.

Each Spark runs in a process of its own (plugin_io_job.py): one with Spark's own shuffle, with which the others are
compared.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.connection.direct import worker_status
from tests.support.jvm import Jvm

#: Several Sparks are started one after another.
pytestmark = pytest.mark.timeout(1500)
JOB = Path(__file__).parent / "plugin_io_job.py"
RUN_SECONDS = 600.0
BOTH = ("kryo", "java")
SQL = ["repartition", "round_robin", "group_by", "joins", "order_by", "window", "limits", "reused", "skewed"]
#: What the default run tries, beside the matrix.
FEW = ["window", "limits", "skewed", "python_rdds"]
LONG = ["long_rows", "many_partitions"]
RDDS = [
    *(f"{name}:{each}" for name in ("partitionBy", "manyPartitions", "long", "sparse") for each in BOTH),
    *(f"{name}:{each}" for name in ("reduceByKey", "combineByKey") for each in BOTH),
    *(f"{name}:{each}" for name in ("sortWithin", "sortedCombined", "sortedAggregated") for each in BOTH),
    *("reused:kryo", "sortByKey:kryo", "cogroup:java", "groupByKey:java", "python_rdds"),
]
#: What is tried again with other settings and on separate executors.
SOME = [
    "repartition",
    "joins",
    "skewed",
    "long_rows",
    "reduceByKey:java",
    "sortedCombined:kryo",
    "manyPartitions:kryo",
    "long:java",
]


@dataclass(frozen=True)
class Outcome:
    """What one process of Spark printed."""

    answers: dict[str, Any]
    metrics: dict[str, dict[str, int]]
    named: list[str]


def run(master: str, jobs: list[str], directory: Path, conf: dict[str, str]) -> Outcome:
    """Run the jobs in a Spark of their own."""
    directory.mkdir(parents=True)
    # How many partitions are read together goes by their share of all, not by how well rows compress.
    alike = {"spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b"}
    asked = {"master": master, "conf": {**alike, **conf}, "events": str(directory), "jobs": jobs}
    done = subprocess.run(
        [sys.executable, JOB, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


@dataclass(frozen=True)
class Compared:
    """Runs jobs with Holdfast and compares them with what Spark's own shuffle said."""

    cluster: LocalCluster
    classes: Path
    directory: Path
    own: Outcome

    def holds(self, jobs: list[str], name: str, master: str = "local[2]", **conf: str) -> Outcome:
        """Run the jobs: every answer is Spark's own, and all that was written and read went through the workers."""
        self._ask_spark(jobs)
        pushed, streamed = self.moved()
        settings = {
            **on_class_path(self.classes),
            "spark.shuffle.manager": "org.apache.spark.shuffle.holdfast.HoldfastShuffleManager",
            "spark.shuffle.sort.io.plugin.class": "org.apache.spark.shuffle.holdfast.HoldfastShuffleDataIO",
            "spark.holdfast.master.endpoints": self.cluster.endpoints,
            "spark.holdfast.fallback": "never",
            **{key.replace("__", "."): value for key, value in conf.items()},
        }
        outcome = run(master, jobs, self.directory / name, settings)
        for job in jobs:
            assert outcome.answers[job] == self.own.answers[job], job
        pushed, streamed = (after - before for after, before in zip(self.moved(), (pushed, streamed), strict=True))
        written, read = (sum(each[way] for each in outcome.metrics.values()) for way in ("bytes_written", "bytes_read"))
        assert pushed >= written > 0
        # A reader that is left before its end was sent more than it read.
        assert streamed >= read > 0
        assert sum(each["requests_ms"] for each in outcome.metrics.values()) > 0
        ours = [name for name in outcome.named if re.fullmatch(r"Holdfast shuffle [0-9a-f]{8}/\d+", name)]
        assert ours or not {*jobs} & {*SQL}, f"stages of SQL name their shuffles: {outcome.named}"
        return outcome

    def _ask_spark(self, jobs: list[str]) -> None:
        """Have the answers of Spark's own shuffle, each asked for once."""
        if unknown := [job for job in jobs if job not in self.own.answers]:
            directory = self.directory / f"own-{len(self.own.answers)}"
            outcome = run("local[2]", unknown, directory, on_class_path(self.classes))
            self.own.answers.update(outcome.answers)
            self.own.metrics.update(outcome.metrics)

    def moved(self) -> tuple[int, int]:
        """Bytes that the workers took and gave."""
        counters = [worker_status(worker.http, 5.0)["counters"] for worker in self.cluster.workers]
        return sum(each["push_bytes"] for each in counters), sum(each["stream_bytes"] for each in counters)


def on_class_path(classes: Path) -> dict[str, str]:
    """The plug-in and the jobs of the JVM, before executors build their managers."""
    return {"spark.driver.extraClassPath": str(classes), "spark.executor.extraClassPath": str(classes)}


@pytest.fixture(scope="module")
def compared(cluster: LocalCluster, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Runs jobs both ways."""
    assert not jvm.complaints
    return Compared(cluster, jvm.classes, tmp_path_factory.mktemp("plugin-io-events"), Outcome({}, {}, []))


@pytest.mark.parametrize("jobs", [FEW, pytest.param(SQL, marks=pytest.mark.long)], ids=["few", "sql"])
def test_jobs_shuffle_as_before(compared: Compared, jobs: list[str]) -> None:
    """Exchanges of every kind, AQE's coalesced, split and local reads too, and RDDs that are combined, ordered or
    pickled; Spark's UI counts the same records, and names the shuffles as the masters do."""
    outcome = compared.holds(jobs, f"jobs-{len(jobs)}")
    assert compared.own.answers["skewed"][-2:] == [True, True], "the plans do not have what this is about"
    for job in filter(SQL.__contains__, jobs):
        own, ours = compared.own.metrics[job], outcome.metrics[job]
        assert ours["records_written"] == own["records_written"], job
        if job == "limits":  # Spark's own readers count nothing where they are left early
            assert outcome.answers[job] == [10, 3, 0]
            assert 10 + 3 <= ours["records_read"] < ours["records_written"]
            continue
        assert ours["records_read"] == own["records_read"], job
        assert ours["bytes_read"] >= ours["bytes_written"], job


@pytest.mark.long
def test_rdds_shuffle_as_before(compared: Compared) -> None:
    """Aggregated on the map side or not, ordered or not, with serialisers of both kinds, and what PySpark pickles."""
    outcome = compared.holds(RDDS, "rdds")
    for job in ("partitionBy:kryo", "partitionBy:java", "sortWithin:kryo"):
        assert outcome.metrics[job]["records_read"] == compared.own.metrics[job]["records_read"] == 80_000


@pytest.mark.long
def test_long_rows_and_very_many_partitions(compared: Compared) -> None:
    """Rows longer than a batch, and 20,000 partitions read by a few tasks."""
    compared.holds(LONG, "long")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("zstd", {"spark__io__compression__codec": "zstd"}),
        ("encrypted", {"spark__io__encryption__enabled": "true"}),
        ("off-heap", {"spark__memory__offHeap__enabled": "true", "spark__memory__offHeap__size": "512m"}),
        (
            "small-plain",
            {
                "spark__shuffle__compress": "false",
                "spark__io__encryption__enabled": "true",
                "spark__holdfast__push__buffer": "4k",
                "spark__driver__memory": "1g",
            },
        ),
    ],
)
def test_other_settings_change_no_answer(compared: Compared, name: str, conf: dict[str, str]) -> None:
    """Codecs, encryption, rows outside the heap, small buffers."""
    compared.holds(SOME, name, **conf)


@pytest.mark.long
def test_separate_executors(compared: Compared) -> None:
    """Executors in processes of their own know of shuffles what their tasks bring, and encrypt with their key."""
    compared.holds(
        [*SOME, "python_rdds"],
        "executors",
        "local-cluster[2,1,1024]",
        spark__io__encryption__enabled="true",
    )


@pytest.mark.long
def test_a_manager_that_extends_ours_shuffles_as_ours(compared: Compared) -> None:
    """An engine's own class of manager and of handles serves on separate executors: tasks get its handles, and every
    byte goes through the workers."""
    manager = "org.apache.spark.shuffle.holdfast.jobs.ExtendedShuffleManager"
    compared.holds(["window", "joins"], "extended", "local-cluster[2,1,1024]", spark__shuffle__manager=manager)


def test_an_engine_passes_arrow_batches_through_the_public_api(compared: Compared) -> None:
    """A columnar engine's own writer and reader, over the manager that its own extends, pass on batches of Arrow as
    blocks of its own codec, encrypted: the rows are those of Spark's own shuffle, and Spark's metrics are right. That
    manager refuses any other shuffle, and its reader any other codec."""
    manager = "org.apache.spark.shuffle.holdfast.jobs.ArrowShuffleManager"
    compared.holds(["arrow:java"], "arrow", spark__shuffle__manager=manager, spark__io__encryption__enabled="true")
