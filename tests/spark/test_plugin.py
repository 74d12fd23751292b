"""The plug-in as its user meets it: conf() and nothing else, fallback, generations, shuffles that go in time."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.common.log_events import LogEvent
from tests.support.logged import lines_of
from tests.support.spark_conf import conf
from tests.support.waiting import wait_until

#: Several Sparks and compilers are started one after another.
pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-P", "-m", "holdfast.tools.cli.main"]
NOWHERE = "127.0.0.1:1"
QUIET = {"spark.ui.showConsoleProgress": "false", "spark.holdfast.register.timeout": "2s"}
SUMS = {
    "grouped": [sum(range(100_000)), 100],
    "joined": [[each, sum(range(each, 100_000, 100))] for each in range(3)],
    "pairs": [[each, sum(range(each, 1000, 10))] for each in range(10)],
}
TOTALS = [[each, sum(range(each, 2000, 10))] for each in range(10)]


class Job:
    """A job in a process of its own that goes on when it is told to."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._log = log

    def step(self) -> Any:
        """What the next step gave."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log()[-6000:]
        return json.loads(line)

    def go(self) -> None:
        """Let it begin the next step."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()


@contextmanager
def job(
    name: str, settings: dict[str, str], directory: Path, master: str = "local[2]", module: str = "plugin_job"
) -> Iterator[Job]:
    """Run a job of plugin_job.py, or another module here, with these settings of Spark; it ends with the block."""
    asked = json.dumps({"master": master, "conf": {**QUIET, **settings}, "job": name})
    log = directory / "log"
    with log.open("w") as err:
        command = [sys.executable, "-m", f"tests.spark.{module}", asked]
        with subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, cwd=ROOT
        ) as process:
            try:
                yield Job(process, log)
            finally:
                process.kill()


def shuffles(cluster: LocalCluster, besides: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """What the masters keep, but nothing of the applications of `besides`: other files use this cluster, too."""
    others = {one["instance"] for one in besides or []}
    return [one for one in command("shuffles", cluster)["shuffles"] if one["instance"] not in others]


def command(name: str, cluster: LocalCluster, *words: str) -> Any:
    """What a command says with --json."""
    asked = [*COMMAND, name, *words, "--json", "--masters", cluster.endpoints]
    return json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def generations(cluster: LocalCluster) -> set[int]:
    """Generations of all shuffles that the masters keep."""
    return {one["generation"] for one in shuffles(cluster)}


def alive(cluster: LocalCluster) -> set[str]:
    """Names of the workers that the masters take for living."""
    done = subprocess.run(
        [*COMMAND, "workers", "--json", "--masters", cluster.endpoints], check=False, capture_output=True, text=True
    )
    return {worker["name"] for worker in json.loads(done.stdout)["workers"] if worker["state"] == "alive"}


def pushed(cluster: LocalCluster) -> int:
    """Bytes that the workers took."""
    return sum(worker_status(worker.http, 5.0)["counters"]["push_bytes"] for worker in cluster.workers)


@pytest.mark.parametrize("master", ["local[2]", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.long)])
def test_conf_is_all_it_takes(cluster: LocalCluster, tmp_path: Path, master: str) -> None:
    """With conf() alone every shuffle goes through the workers, and nothing is left when the application ends."""
    before, others = pushed(cluster), shuffles(cluster)
    with job("sums", conf(cluster.endpoints, fallback="never"), tmp_path, master) as running:
        assert running.step() == SUMS
        assert pushed(cluster) > before
        assert shuffles(cluster, others)
        running.go()
        assert running.step() == "stopped"
        wait_until(lambda: not shuffles(cluster, others), "the shuffles of an ended application to be dropped", 30.0)
        assert not lines_of(running.log(), LogEvent.SETTING_UNSUITABLE), "conf() leaves nothing to warn of"


def registrations(cluster: LocalCluster) -> float:
    """How often a master was asked to place a shuffle, or where its partitions are."""
    counted = 'holdfast_master_calls_total{method="Shuffles/RegisterShuffle",status="OK"}'
    found = 0.0
    for master in cluster.masters:
        with urllib.request.urlopen(f"http://{master.address}/metrics", timeout=60) as page:
            lines = page.read().decode().splitlines()
        found += sum(float(line.split()[1]) for line in lines if line.startswith(f"{counted} "))
    return found


@pytest.mark.parametrize("master", ["local[2]", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.long)])
def test_places_come_with_the_shuffle_and_spark_shows_what_it_costs(
    cluster: LocalCluster, tmp_path: Path, master: str
) -> None:
    """The driver registers a shuffle and no task asks again where to push. Spark's metric system has the plug-in's
    source, by its own names and by those that its Prometheus sink makes of them."""
    before = registrations(cluster)
    sink = "spark.metrics.conf.*.sink.prometheusServlet"
    shown = {f"{sink}.class": "org.apache.spark.metrics.sink.PrometheusServlet", f"{sink}.path": "/metrics/prometheus"}
    with job("measured", conf(cluster.endpoints, fallback="never") | shown, tmp_path, master) as running:
        assert running.step() == TOTALS
        assert registrations(cluster) == before + 1
        running.go()
        document, text = running.step()
    ours = {
        name.partition(".driver.holdfast.")[2]: value
        for kind in ("gauges", "counters", "timers")
        for name, value in json.loads(document)[kind].items()
        if ".driver.holdfast." in name
    }
    assert ours.keys() >= {"push.latency", "push.creditWait", "push.retries", "push.revives", "fallbacks.quota"}
    assert ours["memory.directIdleBytes"]["value"] >= 0
    found = re.search(r"^metrics_\w+_driver_holdfast_push_latency_Count\S* (\d+)", text, re.MULTILINE)
    assert found
    if master.startswith("local["):  # elsewhere executors push, and the driver has nothing to count
        assert int(found[1]) == ours["push.latency"]["count"] > 0
        assert sum(ours[f"push.bytes.{codec}"]["count"] for codec in ("none", "lz4", "zstd")) > 0


def stages(reported: dict[str, Any], *names: str) -> list[tuple[int, ...]]:
    """These counters of each stage that ran, in order."""
    ran = [each for each in reported["stages"] if each["status"] == "COMPLETE"]
    return [tuple(each[name] for name in names) for each in sorted(ran, key=lambda each: each["stageId"])]


def exchanges(reported: dict[str, Any]) -> list[dict[str, str]]:
    """What Spark's UI shows of the exchanges of each query: counts as they are, of sizes the total."""
    wanted = ("shuffle records written", "records read", "data size")
    queries = sorted(reported["queries"], key=lambda query: query["id"])
    nodes = [node for query in queries for node in query["nodes"] if node["nodeName"] == "Exchange"]
    shown = [{each["name"]: each["value"] for each in node["metrics"] if each["name"] in wanted} for node in nodes]
    return [{name: value.split("\n")[-1].partition(" (")[0] for name, value in each.items()} for each in shown]


def test_spark_counts_what_it_counts_of_its_own_shuffle(cluster: LocalCluster, tmp_path: Path) -> None:
    """Records, and blocks wherever they are, are those of Spark's own shuffle in every stage that reads all, and in
    every exchange of SQL. Where only the beginning is read, of which Spark's own counts nothing for the stage, ours is
    what was read. All of ours is remote; what is read once is as long as it was written, and the workers took no
    less."""
    before = pushed(cluster)
    settings = conf(cluster.endpoints, fallback="never") | {"spark.sql.adaptive.enabled": "false"}
    with job("counted", settings, tmp_path) as running:
        ours = running.step()
        taken = pushed(cluster) - before
        running.go()
        own = running.step()
    records = ("shuffleReadRecords", "shuffleWriteRecords")
    wanted, found = stages(own, *records), stages(ours, *records)
    assert found == [*wanted[:4], (5, 0), *wanted[5:8], (3, 0)]
    assert found[:3] == [(0, 20_000), (20_000, wanted[1][1]), (wanted[1][1], 0)]
    assert exchanges(ours) == exchanges(own)
    assert [len(each) for each in exchanges(ours)] == [3, 3, 3]
    blocks = ("shuffleRemoteBlocksFetched", "shuffleLocalBlocksFetched")
    counts = [
        (sum(found), sum(wanted)) for found, wanted in zip(stages(ours, *blocks), stages(own, *blocks), strict=True)
    ]
    assert all(found == wanted for at, (found, wanted) in enumerate(counts) if at not in (4, 8))
    local = ("shuffleLocalBlocksFetched", "shuffleLocalBytesRead", "shuffleRemoteBytesReadToDisk")
    assert not any(map(any, stages(ours, *local, "shuffleCorruptMergedBlockChunks")))
    sizes = stages(ours, "shuffleRemoteBytesRead", "shuffleWriteBytes")
    assert (sizes[1][0], sizes[2][0], sizes[6][0]) == (sizes[0][1], sizes[1][1], sizes[5][1])
    assert 0 < sum(written for _, written in sizes) <= taken
    assert all(time > 0 for written, time in stages(ours, "shuffleWriteBytes", "shuffleWriteTime") if written)


@pytest.mark.long
def test_the_example_says_what_it_should(cluster: LocalCluster) -> None:
    """examples/every_shuffle.py runs as it stands, and what it shuffles goes through the workers."""
    before = pushed(cluster)
    environ = os.environ | {"HOLDFAST_MASTERS": cluster.endpoints, "PYSPARK_PYTHON": sys.executable}
    example = str(ROOT / "examples" / "every_shuffle.py")
    command = [sys.executable, example]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stderr[-6000:]
    revenue = Counter[int]()
    for number in range(1_000_000):
        revenue[number % 1000 % 7] += number % 97
    lines = done.stdout.splitlines()
    counts = {country: sum(1000 for customer in range(1000) if customer % 7 == country) for country in range(7)}
    assert lines[:7] == [f"country {each}: {counts[each]} orders, {revenue[each]} in all" for each in range(7)]
    assert lines[7:] == ["acknowledged: 1000", "is: 2000", "kept: 1000", "what: 1000"]
    assert pushed(cluster) > before


@pytest.mark.long
def test_falls_back_where_nobody_answers(tmp_path: Path) -> None:
    """Without masters Spark's own shuffle serves, which is logged."""
    with job("sums", conf(NOWHERE), tmp_path) as running:
        assert running.step() == SUMS
        assert lines_of(running.log(), LogEvent.SHUFFLE_FALLBACK)


@pytest.mark.long
def test_never_falls_back_if_asked(tmp_path: Path) -> None:
    """With fallback=never the same is an error that names the setting."""
    with job("sums", conf(NOWHERE, fallback="never"), tmp_path) as running:
        with pytest.raises(AssertionError):
            running.step()
        assert "spark.holdfast.fallback is never" in running.log()


def test_wrong_settings_are_reported_by_name(tmp_path: Path) -> None:
    """A value that cannot be right ends Spark's start with a sentence that names the key."""
    wrong = conf(NOWHERE) | {"spark.holdfast.ack": "soon"}
    with job("sums", wrong, tmp_path) as running:
        with pytest.raises(AssertionError):
            running.step()
        assert 'spark.holdfast.ack is memory, written, synced, not "soon"' in running.log()


def test_shuffle_goes_when_spark_lets_go(cluster: LocalCluster, tmp_path: Path) -> None:
    """A shuffle that nothing refers to any more is dropped while its application lives on."""
    others = shuffles(cluster)
    with job("cleaned", conf(cluster.endpoints, fallback="never"), tmp_path) as running:
        assert running.step() == 10
        assert shuffles(cluster, others)

        def gone() -> bool:
            running.go()
            assert running.step() == "collected"
            return not shuffles(cluster, others)

        wait_until(gone, "the cleaner's word to reach the masters", 60.0)


def test_worker_killed_between_reads_loses_nothing(tmp_path: Path) -> None:
    """All workers killed with -9 and started again between two reads: the second finds all, no map runs again."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster") as cluster,
        job("reuse", conf(cluster.endpoints, fallback="never"), tmp_path) as running,
    ):
        assert running.step() == TOTALS
        for worker in cluster.workers:
            worker.kill()
            worker.start()
        running.go()
        assert running.step() == TOTALS
        assert "FetchFailed" not in running.log()
        assert generations(cluster) == {0}


def test_lost_data_is_computed_again_in_the_next_generation(tmp_path: Path) -> None:
    """A worker that goes for good: all maps run again, the result is right, and the old generation is dropped."""
    quick = {"lease": {"worker": "3s", "heartbeat": "500ms"}}
    settings = {"spark.holdfast.fallback": "never", "spark.holdfast.fetch.returnGrace": "1s"}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=quick) as cluster,
        job("reuse", conf(cluster.endpoints) | settings, tmp_path) as running,
    ):
        assert running.step() == TOTALS
        cluster.workers[0].kill()
        running.go()
        assert running.step() == TOTALS
        assert lines_of(running.log(), LogEvent.GENERATION_FAILED)
        wait_until(lambda: generations(cluster) == {1}, "generation 0 to be dropped", 30.0)


def test_a10_a_driver_whose_application_was_dropped_begins_anew_at_once(tmp_path: Path) -> None:
    """An operator drops a running application by its id in Spark, and finds its UI where masters say. Its next query
    goes through Holdfast in a new instance, long before the lease is due to be renewed."""
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster") as cluster,
        job("anew", conf(cluster.endpoints, fallback="never"), tmp_path) as running,
    ):
        assert running.step() == 100
        (before,) = command("apps", cluster)["applications"]
        assert before["spark_id"].startswith("local-")
        with urllib.request.urlopen(f"{before['ui_url']}/api/v1/applications", timeout=60) as answer:
            assert [each["id"] for each in json.load(answer)] == [before["spark_id"]]
        assert command("forget", cluster, before["spark_id"], "--yes")["applications"] == 1
        taken = pushed(cluster)
        running.go()
        assert running.step() == 200
        (after,) = command("apps", cluster)["applications"]
        assert (after["spark_id"], after["instance"] == before["instance"]) == (before["spark_id"], False)
        assert pushed(cluster) > taken


@pytest.mark.long
def test_strict_replication_holds_for_whatever_is_registered(tmp_path: Path) -> None:
    """With one host left neither a new shuffle nor the next generation of an old one is placed with one copy: both fail
    with the setting's name. With two hosts again the same session goes on."""
    quick = {"lease": {"worker": "3s", "heartbeat": "500ms"}}
    settings = {"spark.holdfast.replication.strict": "true", "spark.holdfast.fetch.returnGrace": "1s"}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=quick) as cluster,
        job("strict", conf(cluster.endpoints, replication=2, fallback="never") | settings, tmp_path) as running,
    ):
        assert running.step() == TOTALS
        one, other = cluster.workers
        for worker in (one, other):
            worker.kill()
        configuration = tmp_path / "cluster" / f"{one.name}.toml"
        configuration.write_text(configuration.read_text().replace('name = "w1"', 'name = "another"'))
        shutil.rmtree(tmp_path / "cluster" / one.name)
        one.start()
        wait_until(lambda: alive(cluster) == {"another"}, "one worker to be new and the other to be missed", 60.0)
        running.go()
        for answer in running.step():
            assert "spark.holdfast.replication.strict is true" in answer
            assert "living workers are on 1 hosts" in answer
        other.start()
        wait_until(lambda: alive(cluster) == {"another", "w2"}, "both workers to be there", 60.0)
        running.go()
        assert running.step() == [TOTALS, 100]
