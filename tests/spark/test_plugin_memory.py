"""What the plug-in takes is given back: memory in small executors, nothing after many shuffles, disks after an end."""

import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.errors import RetryError
from holdfast.common.limits import KIB, MIB
from tests.spark.plugin_memory_job import LARGE_BYTES, LARGE_ROWS
from tests.spark.test_plugin import TOTALS, Job, job, pushed, shuffles
from tests.spark.test_plugin_life import SEPARATE, START_SECONDS, executor_processes
from tests.support.changing import files_below
from tests.support.jvm import Jvm
from tests.support.spark_conf import conf
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
#: Files that every JVM of Spark's opens and closes as it likes, and shuffles that are just being forgotten.
COMINGS_AND_GOINGS = 20
SMALL_EXECUTORS = {"spark.executor.memory": "512m"}
SMALL_DRIVER = {"spark.driver.memory": "512m"}
#: A container of an executor with many cores, little memory and Spark's own overhead for it.
CORES, CONTAINER_HEAP = 16, 1024
CONTAINER_BYTES = (CONTAINER_HEAP + 384) * MIB
#: What each of its two shuffles moves: more than all tasks at once may hold.
CROWDED_BYTES = 192 * MIB
#: Memory that is the same in so many looks is that of tasks that wait.
LOOKS = 200
#: What may be gone between two looks at an application that ended: lease, grace, and the workers' next question.
GONE_SECONDS = 120.0


@pytest.mark.parametrize(
    ("master", "settings"),
    [("local[2]", SMALL_DRIVER), ("local[6]", SMALL_DRIVER), ("local-cluster[2,1,512]", SMALL_EXECUTORS)],
)
def test_half_a_gibibyte_is_enough(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str]
) -> None:
    """The workload `big` ends well, and equally, where a JVM has 512 MiB: for two tasks at once, six, or one."""
    monkeypatch.setenv("HOLDFAST_JOB_SIZE", os.environ.get("HOLDFAST_BIG_SCALE", "1"))
    with job("big", {}, tmp_path, module="plugin_memory_job") as own:
        expected = own.step()
    before = pushed(cluster)
    ours = conf(cluster.endpoints, fallback="never") | settings
    with job("big", ours, tmp_path, master, "plugin_memory_job") as running:
        assert running.step() == expected
        assert "OutOfMemory" not in running.log()
        assert "Lost task" not in running.log()
    assert pushed(cluster) > before


def taken(cluster: LocalCluster) -> int:
    """What the workers took, as soon as they have time to say so."""
    try:
        return pushed(cluster)
    except RetryError:
        return 0


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Path]:
    """A control group with the memory of one executor and its overhead. Its `java` is that of the group."""
    groups = Path("/sys/fs/cgroup/memory")
    own = groups / f"holdfast-tests-{os.getpid()}"
    try:
        own.mkdir()
        (own / "memory.limit_in_bytes").write_text(str(CONTAINER_BYTES))
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    java = Path(shutil.which("java") or "").resolve()
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f'#!/bin/sh\necho $$ > {own}/cgroup.procs\nexec {java} "$@"\n')
    script.chmod(0o755)
    yield own
    wait_until(lambda: not (own / "cgroup.procs").read_text(), "the executor to end")
    own.rmdir()


def test_a13_an_executor_stays_in_its_container(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, container: Path
) -> None:
    """An executor with many cores and little memory is not killed in a container of its memory and overhead while all
    cores fetch and push, and a worker stands still in between so that everything waits."""
    monkeypatch.setenv("HOLDFAST_JOB_SIZE", str(CORES))
    monkeypatch.setenv("HOLDFAST_JOB_BYTES", str(CROWDED_BYTES))
    settings = conf(cluster.endpoints, fallback="never") | {
        "spark.executor.memory": f"{CONTAINER_HEAP}m",
        "spark.executor.cores": str(CORES),
        "spark.executorEnv.JAVA_HOME": str(tmp_path / "java"),
        "spark.executor.extraJavaOptions": f"-Xms{CONTAINER_HEAP}m -XX:+AlwaysPreTouch -XX:+UseSerialGC",
        "spark.holdfast.codec": "none",
        "spark.sql.adaptive.enabled": "false",
    }
    master = f"local-cluster[1,{CORES},{CONTAINER_HEAP}]"
    second = pushed(cluster) + CROWDED_BYTES * 5 // 4
    with job("crowded", settings, tmp_path, master, "plugin_memory_job") as running:
        stalled = cluster.workers[0]
        wait_until(lambda: taken(cluster) > second, "tasks that read and write", START_SECONDS)
        os.kill(stalled.pid or 0, signal.SIGSTOP)
        try:
            used, looks = container / "memory.usage_in_bytes", deque([0], LOOKS)

            def settled() -> bool:
                looks.append(int(used.read_text()))
                return len(looks) == LOOKS and max(looks) - min(looks) < 1 * MIB

            wait_until(settled, "everything to wait", START_SECONDS)
        finally:
            os.kill(stalled.pid or 0, signal.SIGCONT)
        rows = CROWDED_BYTES // KIB
        assert running.step() == [rows, rows * (rows - 1) // 2, CROWDED_BYTES]
        assert "Lost executor" not in running.log()
    print("of", CONTAINER_BYTES, "bytes at most", (container / "memory.max_usage_in_bytes").read_text())


@pytest.mark.parametrize("count", [60, 500])
def test_many_shuffles_leave_nothing(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Buffers, connections, threads, files and objects of the plug-in are as many after many shuffles as before."""
    monkeypatch.setenv("HOLDFAST_JOB_SIZE", str(count))
    others = shuffles(cluster)
    with job("many", conf(cluster.endpoints, fallback="never"), tmp_path, module="plugin_memory_job") as running:
        before = running.step()
        running.go()
        after = running.step()
        print(before, after, sep="\n")
        for held in ("buffers", "connections borrowed", "pushing threads"):
            assert before[held] == after[held] == 0, held
        # Spark's own pools have up to a hundred threads each, which come and go.
        grown = {what: after[what] - before.get(what, 0) for what in after if what != "threads"}
        assert {what: by for what, by in grown.items() if by > COMINGS_AND_GOINGS} == {}
        wait_until(lambda: len(shuffles(cluster, others)) <= 5, "the masters to forget shuffles that nobody knows of")


@pytest.mark.parametrize(("name", "rows"), [("spilled", 2_100_000), ("written", 1_050_000)])
def test_a01_no_row_vanishes_without_direct_memory(
    cluster: LocalCluster, jvm: Jvm, tmp_path: Path, name: str, rows: int
) -> None:
    """Other tasks hold all direct memory for longer than a writer waits, as an aggregate of its task wants memory of
    its buffers, or as it writes: the task fails and says why, the JVM goes on, and the next try has every row."""
    settings = conf(cluster.endpoints, fallback="never") | {
        "spark.driver.memory": "512m",
        "spark.driver.extraClassPath": str(jvm.classes),
        "spark.driver.extraJavaOptions": "-XX:MaxDirectMemorySize=32m",
        "spark.memory.fraction": "0.45",
        "spark.sql.adaptive.enabled": "false",
        "spark.holdfast.codec": "none",
        "spark.holdfast.push.memoryGrace": "1s",
    }
    with job(name, settings, tmp_path, "local[1,4]", "plugin_memory_job") as running:
        assert running.step() == [rows, rows * (rows - 1) // 2, rows]
        log = running.log()
    assert "all direct memory is taken" in log
    assert "Lost task 0.0" in log
    assert "bytes of direct memory are left" in log
    assert "SparkUncaughtExceptionHandler" not in log
    assert ("PartitionBuffers.spill" in log) == (name == "spilled")


@pytest.mark.parametrize("master", ["local[1]"])
def test_a41_a_drained_reader_holds_nothing(cluster: LocalCluster, jvm: Jvm, tmp_path: Path, master: str) -> None:
    """One task reads 300 partitions of large rows one after the other in a heap that holds a few of them, SQL rows and
    pairs of an RDD: what was read to its end is let go of, as by Spark's own shuffle."""
    settings = conf(cluster.endpoints, fallback="never") | {
        "spark.driver.memory": "512m",
        "spark.driver.extraClassPath": str(jvm.classes),
        "spark.sql.adaptive.enabled": "false",
        "spark.holdfast.codec": "none",
    }
    before = pushed(cluster)
    with job("coalesced", settings, tmp_path, master, "plugin_memory_job") as running:
        assert running.step() == [LARGE_ROWS, LARGE_ROWS * LARGE_BYTES]
        running.go()
        assert running.step() == [LARGE_ROWS, LARGE_ROWS * LARGE_BYTES]
        assert "OutOfMemory" not in running.log()
    assert pushed(cluster) - before > 2 * LARGE_ROWS * LARGE_BYTES


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster that deletes soon."""
    soon = {"lease": {"deletion_grace": "1s"}}
    with local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=soon) as cluster:
        yield cluster


def stop(running: Job) -> None:
    """The application ends by itself."""
    running.go()
    assert running.step() == TOTALS
    running.go()
    assert running.step() == "stopped"


def kill_driver(running: Job) -> None:
    """The driver is killed with all that it started: nobody says goodbye."""
    for process in [*psutil.Process(running.pid).children(recursive=True), psutil.Process(running.pid)]:
        process.send_signal(signal.SIGKILL)


def kill_executors(running: Job) -> None:
    """All executors are killed; the application goes on and ends by itself."""
    for process in executor_processes(running.pid):
        process.kill()
    stop(running)


@pytest.mark.parametrize(("end", "master"), [(stop, "local[2]"), (kill_driver, "local[2]"), (kill_executors, SEPARATE)])
def test_disks_are_empty_after_an_application(
    forgetful: LocalCluster, tmp_path: Path, end: Callable[[Job], None], master: str
) -> None:
    """However it ended, workers keep no file of its data, and the masters no shuffle."""
    settings = conf(forgetful.endpoints, fallback="never") | {"spark.holdfast.lease": "3s"}
    with job("reuse", settings, tmp_path, master) as running:
        assert running.step() == TOTALS
        assert stored(forgetful)
        end(running)
    wait_until(lambda: not stored(forgetful), "the workers' disks to be empty", GONE_SECONDS)
    assert not shuffles(forgetful)


def test_disks_are_empty_after_a_driver_was_killed_as_maps_wrote(
    forgetful: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unfinished files go as finished ones do."""
    monkeypatch.setenv("HOLDFAST_JOB_DIR", str(tmp_path))
    settings = conf(forgetful.endpoints, fallback="never") | {"spark.holdfast.lease": "3s"}
    with job("killed", settings, tmp_path, "local[4]", "plugin_life_job") as running:
        wait_until(
            lambda: all((tmp_path / f"waits-{each}").exists() for each in (2, 3)), "two maps half-way", START_SECONDS
        )
        wait_until(lambda: pushed(forgetful), "workers to have taken data", START_SECONDS)
        kill_driver(running)
    wait_until(lambda: not stored(forgetful), "the workers' disks to be empty", GONE_SECONDS)
    wait_until(lambda: not shuffles(forgetful), "the masters to forget", GONE_SECONDS)


def stored(cluster: LocalCluster) -> list[Path]:
    """Files with data of shuffles on the workers' disks, and segments of their logs beside the one each keeps open."""
    found = []
    for worker in cluster.workers:
        directory = cluster.directory / worker.name
        found += files_below(directory / "data")
        found += sorted(files_below(directory / "log"))[1:]
    return found
