"""TPC-H with two copies on different racks while one of three racks is killed: equal answers, no stage runs again.

The scale is HOLDFAST_TPCH_SCALE, 0.1 unless it is set.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from tests.cluster.reduce_peers import metric
from tests.spark.test_plugin import Job, job, pushed
from tests.support.spark_conf import conf
from tests.support.waiting import wait_until

pytest.importorskip("duckdb")
pytest.importorskip("duckdb_extension_tpch")

from benchmarks import tpch
from tests.spark.test_plugin_tpch import QUERIES, SHUFFLES, differences

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]
#: Queries that are answered before the rack goes; it goes while the next one shuffles.
BEFORE = 4
RACKS = {f"h{number}": f"/dc/r{(number - 1) // 2}" for number in range(1, 7)}


def test_a_rack_is_killed_under_tpch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both workers of a rack are killed in the middle of a query and stay away: all answers are DuckDB's, no stage runs
    a second time and no task fails, and from then on copies are on the two racks that are left."""
    data = tpch.make(float(os.environ.get("HOLDFAST_TPCH_SCALE", "0.1")), tmp_path / "tpch")
    monkeypatch.setenv("HOLDFAST_TPCH", str(data))
    table, events = tmp_path / "racks", tmp_path / "events"
    events.mkdir()
    table.write_text("".join(f"{host} {place}\n" for host, place in RACKS.items()))
    settings = {
        "lease": {"heartbeat": "500ms", "worker": "3s"},
        "placement": {"resolver": "table", "resolver_path": str(table)},
    }
    with local_cluster(3, 6, dir=tmp_path / "cluster", settings=settings) as cluster:
        asked = conf(cluster.endpoints, fallback="never", replication=2) | SHUFFLES
        asked |= {
            "spark.driver.memory": "2g",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(events),
        }
        with job("tpch", asked, tmp_path, module="plugin_tpch_job") as running:
            for number in range(QUERIES):
                query, rows = running.step()
                wrong = differences(rows, data / "answers" / f"{query}.parquet")
                assert not wrong, f"{query}: {wrong[:3]}"
                if number == BEFORE - 1:
                    kill_rack(running, cluster)
                else:
                    running.go()
            assert running.step() == "stopped"
        assert metric(cluster, "holdfast_master_placement_not_adhering") == 0
    check_events(events)


def kill_rack(running: Job, cluster: LocalCluster) -> None:
    """Begin the next query, and kill the first rack as soon as it shuffles."""
    begun = pushed(cluster)
    running.go()
    wait_until(lambda: pushed(cluster) > begun, "the next query to shuffle")
    for worker in cluster.workers[:2]:
        worker.kill()


def check_events(directory: Path) -> None:
    """No stage has a second attempt, every task succeeded."""
    stages = tasks = 0
    for path in directory.rglob("events_*"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageSubmitted":
                stages += 1
                assert event["Stage Info"]["Stage Attempt ID"] == 0, event["Stage Info"]
            elif event["Event"] == "SparkListenerTaskEnd":
                tasks += 1
                assert event["Task End Reason"]["Reason"] == "Success", event["Task End Reason"]
    assert stages > 2 * QUERIES
    assert tasks > stages
