"""Racks of unequal size: many primaries repeat their pushes to one replica, and none waits for another that is idle."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from holdfast.client import Session
from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.limits import MIB

PRIMARIES = 5
PARTITIONS = 40


def status_of(cluster: LocalCluster, worker: int) -> dict[str, Any]:
    """The `/status` of a worker."""
    with urllib.request.urlopen(f"http://{cluster.workers[worker].http}/status", timeout=60) as page:
        found: dict[str, Any] = json.load(page)
    return found


def test_five_primaries_share_one_replica_without_waiting_for_idle_windows(tmp_path: Path) -> None:
    """Five workers on one rack and one on the other, with the memory of the defaults: whatever the size of bursts, no
    window is granted late, and none is refused."""
    table = tmp_path / "racks"
    table.write_text("".join(f"h{number} /dc/{'r1' if number <= PRIMARIES else 'r2'}\n" for number in range(1, 7)))
    settings = {"placement": {"resolver": "table", "resolver_path": str(table), "refresh": "200ms"}}
    with (
        local_cluster(1, PRIMARIES + 1, dir=tmp_path / "cluster", settings=settings) as cluster,
        Session(cluster.endpoints, app="unequal") as session,
    ):
        for size in (100, MIB, 6 * MIB):
            shuffle = session.register_reduce_shuffle(PARTITIONS, 2, replication=2)
            statuses = []
            for map_id in range(2):
                with shuffle.writer(map_id, map_id) as writer:
                    for partition in range(PARTITIONS if size <= MIB else PRIMARIES * 2):
                        writer.write(partition, bytes(size))
                    statuses.append(writer.close())
            shuffle.commit(statuses)
            shuffle.unregister()
        primaries = [status_of(cluster, number)["counters"] for number in range(PRIMARIES)]
        replica = status_of(cluster, PRIMARIES)
        assert all(counters["forwards"] and not counters["forwards_failed"] for counters in primaries)
        assert replica["counters"]["replica_grants_late"] == 0
        assert replica["counters"]["pushes_busy"] == 0
