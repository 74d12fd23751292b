"""What a worker tells about itself, gathered when asked. Called by http.py, metrics.py and registration (memory)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.common.ids import NO_WORKER
from holdfast.common.net.frames.server import FrameServer
from holdfast.common.system.idle import resident_bytes
from holdfast.common.system.log import FLOODS
from holdfast.common.system.loop_turns import LoopTurns
from holdfast.common.system.versions import versions
from holdfast.worker.core.read.streams import PLAN_ROWS_MAX, STREAMS_MAX
from holdfast.worker.core.write.registered import WAITING_MAX
from holdfast.worker.server.context import WorkerContext
from holdfast.worker.server.services.data_server import DataServer
from holdfast.worker.storage.names import FORMAT
from holdfast.worker.storage.read.sealed_locations import ROWS_MAX

if TYPE_CHECKING:
    from holdfast.common.net.http_server import HttpServer


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """Everything that can be shown."""

    context: WorkerContext
    data: DataServer
    frames: FrameServer
    turns: LoopTurns
    #: the HTTP port, once it is there
    http: list[HttpServer] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Sentences for people; empty if all is well."""
        standing, store = self.context.standing, self.context.store
        problems = [*standing.problems, *filter(None, [standing.twin, standing.refusal])]
        problems += [f"{found.path}: {found.problem}" for found in store.directories() if not found.healthy]
        dfs = store.dfs()
        if dfs is not None and dfs.problem:
            problems.append(f"the DFS {dfs.url}: {dfs.problem}")
        return problems

    def healthy(self) -> bool:
        return any(found.healthy for found in self.context.store.directories())

    def gauges(self) -> dict[str, int]:
        store, standing, most = self.context.store, self.context.standing, self.context.bounds.descriptors
        pool, registered = self.frames.pool, self.context.asking.registered
        pushes, maps, streams = self.data.pushes, self.data.maps.files, self.data.streams.streams
        return {
            "memory_bytes": resident_bytes(),
            "body_bytes": pool.used_bytes,
            "body_bytes_peak": pool.used_bytes_peak,
            "body_bytes_max": pool.budget_bytes,
            "body_waiting": pool.waiting,
            "connections": len(self.frames.connections),
            "connections_max": most.connections,
            "http_connections": sum(one.connections for one in self.http),
            "http_connections_max": most.http,
            "peers": pushes.forwarder.peers,
            "peers_max": most.peers,
            "streams": len(streams),
            "streams_max": STREAMS_MAX,
            "plan_rows": streams.plans.total,
            "plan_rows_max": PLAN_ROWS_MAX,
            "read_rows": store.reduce.places.rows,
            "read_rows_max": ROWS_MAX,
            "shuffles_registered": registered.shuffles,
            "asking": registered.waiting,
            "asking_max": WAITING_MAX,
            "loop_turn_microseconds_max": int(self.turns.longest * 1e6),
            "files_open": maps.count,
            "files_open_max": most.written,
            "seals_running": maps.seals,
            "epochs_open": pushes.reduce.shares.total,
            "epochs_open_max": pushes.reduce.shares.most,
            "push_window_bytes": pushes.credits.held_bytes,
            "push_owed_bytes": pushes.owed_bytes,
            "push_waiting": pushes.credits.waiting,
            "replica_window_bytes": pushes.replica_credits.held_bytes,
            "replicas_unreachable": pushes.forwarder.unreachable,
            "draining": int(pushes.reduce.draining),
            "map_views": len(store.views),
            **store.reduce.gauges(),
            "moves_running": store.mover.busy,
            "fetched_bytes": store.away.fetched_bytes if store.away is not None else 0,
            **self._dfs_gauges(),
            "files": store.files,
            "registered": int(standing.registered),
            "incarnation": standing.incarnation,
            "raft_index": standing.raft_index,
        }

    def _dfs_gauges(self) -> dict[str, int]:
        dfs = self.context.store.dfs()
        if dfs is None:
            return {}
        return {"dfs_failing": int(bool(dfs.problem)), "dfs_bytes": dfs.bytes, "dfs_files": dfs.files}

    def totals(self) -> dict[str, int]:
        store, moved = self.context.store, self.context.store.tiering.counts
        return {
            **self.context.counters.as_dict(),
            "bytes_in": self.frames.bytes_in,
            "bytes_out": self.frames.bytes_out,
            "body_waits": self.frames.pool.waits,
            "log_bytes_written": store.reduce.log_bytes,
            "direct_bytes_written": store.reduce.direct_bytes,
            "partition_flushes": store.reduce.flushes,
            "disk_syncs": store.syncs,
            "loop_turns_slow": self.turns.slow,
            "http_connections_displaced": sum(one.displaced for one in self.http),
            "log_lines_left_out": FLOODS.left_out,
            "files_moved": moved.files,
            "moved_bytes": moved.bytes,
            "moves_failed": moved.failed,
            **(store.away.counts() if store.away is not None else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        standing, dfs = self.context.standing, self.context.store.dfs()
        addresses = standing.addresses
        return {
            "name": standing.name,
            "worker": None if standing.worker == NO_WORKER else standing.worker,
            "cluster_id": standing.cluster_id,
            "host": addresses.host,
            "rack": addresses.rack,
            "machine_id": addresses.machine_id,
            "tags": list(addresses.tags),
            "data": addresses.data_address,
            "http": addresses.http_address,
            "version": addresses.version,
            "versions": {**versions(), "disk": str(FORMAT)},
            "clock_ms": time.time_ns() // 1_000_000,
            "pid": os.getpid(),
            "problems": self.problems(),
            "faults": self.context.faults.active(),
            "directories": [{**found, "id": found["id"].hex()} for found in self.data.pushes.directories()],
            "dfs": dfs._asdict() if dfs is not None else None,
            **self.gauges(),
            "counters": self.totals(),
        }
