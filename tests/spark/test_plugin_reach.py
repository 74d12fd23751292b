"""Readers of Spark that cannot use a worker which the masters call alive: its maps run again, without it."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, Server, local_cluster
from holdfast.client.connection.direct import worker_status
from tests.soak.proxy import SHOWN, Proxy
from tests.spark.test_plugin import TOTALS, generations, job
from tests.spark.test_plugin_flips import committed
from tests.support.spark_conf import conf
from tests.support.waiting import wait_until

#: Several Sparks and compilers are started one after another.
pytestmark = pytest.mark.timeout(900)
QUICK = {"spark.holdfast.fetch.reachGrace": "2s", "spark.holdfast.fetch.returnGrace": "1s"}
#: The first worker is told to be where a proxy listens, which ends in the middle of a test.
OWN = {"w1": {"worker": {"address": SHOWN}}}


def taken(worker: Server) -> int:
    """Bytes that a worker took."""
    return int(worker_status(worker.http, 5.0)["counters"]["push_bytes"])


def unreachable(cluster: LocalCluster, network: ExitStack) -> None:
    """Nobody reaches the data address of the first worker any more; its heartbeats go on."""
    network.close()


def unreadable(cluster: LocalCluster, network: ExitStack) -> None:
    """The first worker, started again, cannot open what it has: each of its files leads to itself."""
    cluster.workers[0].kill()
    files = committed(cluster.workers[0], cluster)
    assert files
    for path in files:
        path.rename(path.with_name(f"{path.name}.away"))
        path.symlink_to(path)
    cluster.workers[0].start()
    cluster.wait_ready()


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (unreachable, "Is its data address reachable from this host?"),
        (unreadable, "is not lost, but worker "),
    ],
)
def test_a09_maps_run_again_without_a_worker_that_readers_cannot_use(
    tmp_path: Path, fails: Callable[[LocalCluster, ExitStack], None], reason: str
) -> None:
    """The masters call the worker alive, and nothing can be read from it for longer than the grace: the rows are those
    of the next generation, of which the worker takes nothing. The log says why."""
    with (
        local_cluster(masters=1, workers=2, dir=tmp_path / "cluster", own=OWN) as cluster,
        ExitStack() as network,
    ):
        one, other = cluster.workers
        network.enter_context(Proxy([one.address], 0, rate=0.0, late_seconds=0.0, swallow=False))
        with job("reuse", conf(cluster.endpoints, fallback="never") | QUICK, tmp_path) as running:
            assert running.step() == TOTALS
            assert min(taken(one), taken(other)) > 0
            fails(cluster, network)
            before = taken(one), taken(other)
            running.go()
            assert running.step() == TOTALS
            assert (taken(one), taken(other) > before[1]) == (before[0], True)
            assert reason in running.log()
            wait_until(lambda: generations(cluster) == {1}, "generation 0 to be dropped", 30.0)


@pytest.mark.long
def test_a09_the_user_reads_the_reason_first(tmp_path: Path) -> None:
    """Where there is no other worker the job ends, and what PySpark raises says in one sentence near its beginning
    which worker could not be reached, for how long, and what to look at."""
    settings = {**QUICK, "spark.stage.maxConsecutiveAttempts": "1"}
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path / "cluster", own=OWN) as cluster,
        ExitStack() as network,
    ):
        network.enter_context(Proxy([cluster.workers[0].address], 0, rate=0.0, late_seconds=0.0, swallow=False))
        with job("strict", conf(cluster.endpoints, fallback="never") | settings, tmp_path) as running:
            assert running.step() == TOTALS
            network.close()
            running.go()
            reported = running.step()[0]
    lines = reported.splitlines()
    found = [number for number, line in enumerate(lines) if "Is its data address reachable from this host?" in line]
    assert found, reported
    assert found[0] <= 4, reported
    assert "worker 1 holds" in lines[found[0]]
