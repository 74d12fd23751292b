"""What Spark does in its life changes no answer: retries, speculation, executors that go, streams, pandas.

Every job runs in a Spark of its own with the plug-in and without fallback, and the workers must have taken bytes. What
is asserted beside the answers is which attempts of which maps ran: those that finished never run again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.log_events import LogEvent
from tests.spark.test_plugin import NOWHERE, Job, generations, job, pushed
from tests.support.logged import lines_of
from tests.support.spark_conf import conf
from tests.support.standalone import Standalone, shuffle_service
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROWS, KEYS = 2_000, 10
COUNTED = [[key, ROWS // KEYS, sum(range(key, ROWS, KEYS))] for key in range(KEYS)]
SUMS = [[key, sum(range(key, ROWS, KEYS))] for key in range(KEYS)]
SEPARATE = "local-cluster[2,1,1024]"
COME_AND_GO = {
    "dynamicAllocation__enabled": "true",
    "dynamicAllocation__minExecutors": "0",
    "dynamicAllocation__maxExecutors": "2",
    "dynamicAllocation__executorIdleTimeout": "1s",
}
START_SECONDS = 240.0


@contextmanager
def life(
    name: str, cluster: LocalCluster, directory: Path, monkeypatch: pytest.MonkeyPatch, master: str = "local[2,4]",
    **settings: str,
) -> Iterator[Job]:  # fmt: skip
    """Run a job of plugin_life_job.py; the workers must have taken bytes of it when the block ends."""
    monkeypatch.setenv("HOLDFAST_JOB_DIR", str(directory))
    before = pushed(cluster)
    with job(
        name, conf(cluster.endpoints, fallback="never") | dotted(settings), directory, master, "plugin_life_job"
    ) as running:
        yield running
    assert pushed(cluster) != before


def dotted(settings: dict[str, str]) -> dict[str, str]:
    """Settings of Spark, as Spark writes their names."""
    return {f"spark.{key.replace('__', '.')}": value for key, value in settings.items()}


def attempts(directory: Path) -> set[str]:
    """`map-attempt` of every attempt that began."""
    return {path.name for path in directory.glob("[0-9]-[0-9]")}


def test_failed_maps_are_tried_again(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What attempts wrote before they failed half-way is in no answer."""
    with life("retried", cluster, tmp_path, monkeypatch) as running:
        assert running.step() == COUNTED
    assert attempts(tmp_path) == {"0-0", "1-0", "1-1", "2-0", "2-1", "2-2", "3-0"}


def test_speculation(
    cluster: LocalCluster, standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two attempts of a map write at once, on two hosts, one wins, and every row is there once; none has failed."""
    settings = {"speculation": "true", "speculation__interval": "100ms", "speculation__multiplier": "1.1"}
    settings |= {"speculation__quantile": "0.5", "executor__memory": "700m"}
    with life("speculation", cluster, tmp_path, monkeypatch, standalone.address, **settings) as running:
        assert running.step() == COUNTED
        assert "does not come" not in running.log()
    assert {"0-0", "0-1"} <= attempts(tmp_path)


def test_barrier_stages_are_tried_again_whole(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task of a barrier stage fails after all have pushed: the second attempt of the stage alone counts."""
    with life("barrier", cluster, tmp_path, monkeypatch) as running:
        assert running.step() == COUNTED
    assert (tmp_path / "failed").exists()


def test_rows_dealt_out_in_turn_are_exact_after_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker goes for good with a part of an indeterminate stage's output: all of the stage runs again."""
    quick = {"lease": {"worker": "3s", "heartbeat": "500ms"}}
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=quick) as cluster,
        life("indeterminate", cluster, tmp_path, monkeypatch, holdfast__fetch__returnGrace="1s") as running,
    ):
        assert running.step() == ROWS
        cluster.workers[0].kill()
        running.go()
        assert running.step() == COUNTED
        assert lines_of(running.log(), LogEvent.GENERATION_FAILED)
        assert max(generations(cluster)) >= 1
        cluster.workers[0].start()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("idle", COME_AND_GO),
        ("decommissioned", {"decommission__enabled": "true", "storage__decommission__enabled": "true"}),
    ],
)
def test_executors_go_between_two_reads(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, str]
) -> None:
    """With dynamic allocation, or decommissioned: no map runs again for the executors that left."""
    with life(name, cluster, tmp_path, monkeypatch, SEPARATE, **settings) as running:
        assert running.step() == SUMS
        began = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[0-9]-[0-9]")}
        running.go()
        assert running.step() == SUMS
        assert began == {path: path.stat().st_mtime_ns for path in tmp_path.glob("[0-9]-[0-9]")}
        assert "FetchFailed" not in running.log()


def what_fell_back_stays(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """Run a job whose shuffle falls back under dynamic allocation: executors leave, and no map runs again."""
    monkeypatch.setenv("HOLDFAST_JOB_DIR", str(directory))
    with job(name, conf(NOWHERE) | dotted(COME_AND_GO | settings), directory, SEPARATE, "plugin_life_job") as running:
        assert running.step() == SUMS
        began = {path: path.stat().st_mtime_ns for path in directory.glob("[0-9]-[0-9]")}
        assert lines_of(running.log(), LogEvent.SHUFFLE_FALLBACK)
        running.go()
        assert running.step() == SUMS
        assert began == {path: path.stat().st_mtime_ns for path in directory.glob("[0-9]-[0-9]")}


@pytest.mark.feature("shuffle service for fallback")
def test_what_fell_back_outlives_executors_with_sparks_shuffle_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dynamic allocation a shuffle falls back where Spark's external shuffle service is there, which gives what
    executors wrote after all of them have left."""
    with shuffle_service(tmp_path) as port:
        service = {"shuffle__service__enabled": "true", "shuffle__service__port": str(port)}
        what_fell_back_stays("idle", tmp_path, monkeypatch, **service)


def test_what_fell_back_keeps_its_executor_with_shuffle_tracking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dynamic allocation a shuffle falls back where Spark tracks shuffles: an executor that holds nothing leaves,
    the one that holds the output stays."""
    tracking = {"dynamicAllocation__shuffleTracking__enabled": "true"}
    what_fell_back_stays("tracked", tmp_path, monkeypatch, **tracking)


def test_nothing_falls_back_onto_executors_that_leave(tmp_path: Path) -> None:
    """With dynamic allocation and neither of these a shuffle that cannot be registered is an error, whatever `fallback`
    is; the driver says so as it starts, and the error says what would allow it."""
    reason = (
        "spark.holdfast.fallback is never with dynamic allocation, which would remove executors with what fell back,"
        " unless spark.shuffle.service.enabled or, without a timeout,"
        " spark.dynamicAllocation.shuffleTracking.enabled is true"
    )
    with job("twice", conf(NOWHERE) | dotted(COME_AND_GO), tmp_path) as running:
        with pytest.raises(AssertionError):
            running.step()
        log = running.log()
    assert any(reason in line for line in lines_of(log, LogEvent.SETTING_UNSUITABLE))
    assert f"could not be registered with Holdfast, and {reason}: " in log


def test_executor_killed_while_maps_write(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of an executor: its map runs again, those that it had finished do not, and the answer is exact."""
    with life("killed", cluster, tmp_path, monkeypatch, SEPARATE) as running:
        wait_until(
            lambda: all((tmp_path / f"waits-{each}").exists() for each in (2, 3)), "two maps half-way", START_SECONDS
        )
        executor_processes(running.pid)[0].kill()
        wait_until(lambda: attempts(tmp_path) & {"2-1", "3-1"}, "a map to run again", START_SECONDS)
        (tmp_path / "go").touch()
        assert running.step() == COUNTED
        assert len(attempts(tmp_path)) == 5, "a map that had finished ran again"


def test_a12_finished_maps_stay_finished_after_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Spark needs a shuffle that fell back, storage is not called reliable; when that shuffle is dropped it is
    again: an executor that is killed as maps write takes no finished map with it."""
    settings = {"quota": {"application_bytes": "1MiB"}, "lease": {"deletion_grace": "1s", "heartbeat": "500ms"}}
    monkeypatch.setenv("HOLDFAST_JOB_DIR", str(tmp_path))
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", settings=settings) as cluster,
        job(
            "fell_back",
            conf(cluster.endpoints) | {"spark.holdfast.codec": "none"},
            tmp_path,
            SEPARATE,
            "plugin_life_job",
        ) as running,
    ):
        assert running.step() is False
        running.go()
        assert running.step() is True
        running.go()
        before = pushed(cluster)
        wait_until(
            lambda: all((tmp_path / f"waits-{each}").exists() for each in (2, 3)), "two maps half-way", START_SECONDS
        )
        executor_processes(running.pid)[0].kill()
        wait_until(lambda: attempts(tmp_path) & {"2-1", "3-1"}, "a map to run again", START_SECONDS)
        (tmp_path / "go").touch()
        assert running.step() == COUNTED
        assert len(attempts(tmp_path)) == 5, "a map that had finished ran again"
        assert pushed(cluster) > before


def executor_processes(driver: int) -> list[psutil.Process]:
    """The JVMs of an application's executors."""
    found = []
    for child in psutil.Process(driver).children(recursive=True):
        try:
            command = child.cmdline()
        except psutil.Error:
            continue
        if command and command[0].endswith("java") and "CoarseGrainedExecutorBackend" in " ".join(command):
            found.append(child)
    return found


def test_streams(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batches with an aggregation: stopped, gone on from the checkpoint, also in another application."""
    files = batches = 0
    for _ in range(2):
        with life("streaming", cluster, tmp_path, monkeypatch) as running:
            for _ in range(2):
                numbers, counts = running.step()
                files += 3
                assert numbers == list(range(batches, batches + 3))
                batches += 3
                keys = {key: list(range(key, files * 1000, KEYS)) for key in range(KEYS)}
                assert counts == [[key, [len(all_of), sum(all_of)]] for key, all_of in keys.items()]
                running.go()
            assert running.step() == "stopped"


def test_functions_over_pandas(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouped, cogrouped, aggregated and mapped frames are those of Spark's own shuffle."""
    monkeypatch.setenv("HOLDFAST_JOB_DIR", str(tmp_path))
    with job("over_pandas", {}, tmp_path, module="plugin_life_job") as own:
        expected = own.step()
    assert all(expected.values())
    with life("over_pandas", cluster, tmp_path, monkeypatch) as running:
        assert running.step() == expected
