"""What a worker tells about itself, gathered when asked. Called by http.py, metrics.py and registration (memory)."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.common.ids import NO_WORKER
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.server import FrameServer
from holdfast.common.system.descriptors import WorkerDescriptors
from holdfast.common.system.idle import resident_bytes
from holdfast.common.system.log import FLOODS
from holdfast.common.system.loop_turns import LoopTurns
from holdfast.common.system.versions import versions
from holdfast.worker.core.read.streams import PLAN_ROWS_MAX, STREAMS_MAX
from holdfast.worker.core.write.registered import WAITING_MAX
from holdfast.worker.server.membership.worker_identity import WorkerAddresses, WorkerIdentity
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.server.services.data_server import DataServer
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.storage.names import FORMAT
from holdfast.worker.storage.read.sealed_locations import ROWS_MAX
from holdfast.worker.storage.store import Store

if TYPE_CHECKING:
    from holdfast.common.net.http_server import HttpServer


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """Everything that can be shown."""

    standing: WorkerIdentity
    store: Store
    counters: Counters
    pool: BufferPool
    frames: FrameServer
    data: DataServer
    faults: Faults
    addresses: WorkerAddresses
    descriptors: WorkerDescriptors
    turns: LoopTurns
    #: the HTTP port, once it is there
    http: list[HttpServer] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Sentences for people; empty if all is well."""
        problems = [*self.standing.problems, *filter(None, [self.standing.twin, self.standing.refusal])]
        problems += [f"{found.path}: {found.problem}" for found in self.store.directories() if not found.healthy]
        dfs = self.store.dfs()
        if dfs is not None and dfs.problem:
            problems.append(f"the DFS {dfs.url}: {dfs.problem}")
        return problems

    def healthy(self) -> bool:
        return any(found.healthy for found in self.store.directories())

    def gauges(self) -> dict[str, int]:
        return {
            "memory_bytes": resident_bytes(),
            "body_bytes": self.pool.used_bytes,
            "body_bytes_peak": self.pool.used_bytes_peak,
            "body_bytes_max": self.pool.budget_bytes,
            "body_waiting": self.pool.waiting,
            "connections": len(self.frames.connections),
            "connections_max": self.descriptors.connections,
            "http_connections": sum(one.connections for one in self.http),
            "http_connections_max": self.descriptors.http,
            "peers": self.data.pushes.forwarder.peers,
            "peers_max": self.descriptors.peers,
            "streams": len(self.data.streams.streams),
            "streams_max": STREAMS_MAX,
            "plan_rows": self.data.streams.streams.plans.total,
            "plan_rows_max": PLAN_ROWS_MAX,
            "read_rows": self.store.reduce.places.rows,
            "read_rows_max": ROWS_MAX,
            "shuffles_registered": self.data.asking.registered.shuffles,
            "asking": self.data.asking.registered.waiting,
            "asking_max": WAITING_MAX,
            "loop_turn_microseconds_max": int(self.turns.longest * 1e6),
            "files_open": self.data.maps.files.count,
            "files_open_max": self.descriptors.written,
            "seals_running": self.data.maps.files.seals,
            "epochs_open": self.data.pushes.reduce.shares.total,
            "epochs_open_max": self.data.pushes.reduce.shares.most,
            "push_window_bytes": self.data.pushes.credits.held_bytes,
            "push_owed_bytes": self.data.pushes.owed_bytes,
            "push_waiting": self.data.pushes.credits.waiting,
            "replica_window_bytes": self.data.pushes.replica_credits.held_bytes,
            "replicas_unreachable": self.data.pushes.forwarder.unreachable,
            "draining": int(self.data.pushes.reduce.draining),
            "map_views": len(self.store.views),
            **self.store.reduce.gauges(),
            "moves_running": self.store.mover.busy,
            "fetched_bytes": self.store.away.fetched_bytes if self.store.away is not None else 0,
            **self._dfs_gauges(),
            "files": self.store.files,
            "registered": int(self.standing.registered),
            "incarnation": self.standing.incarnation,
            "raft_index": self.standing.raft_index,
        }

    def _dfs_gauges(self) -> dict[str, int]:
        dfs = self.store.dfs()
        if dfs is None:
            return {}
        return {"dfs_failing": int(bool(dfs.problem)), "dfs_bytes": dfs.bytes, "dfs_files": dfs.files}

    def totals(self) -> dict[str, int]:
        return {
            **self.counters.as_dict(),
            "bytes_in": self.frames.bytes_in,
            "bytes_out": self.frames.bytes_out,
            "body_waits": self.pool.waits,
            "log_bytes_written": self.store.reduce.log_bytes,
            "direct_bytes_written": self.store.reduce.direct_bytes,
            "partition_flushes": self.store.reduce.flushes,
            "disk_syncs": self.store.syncs,
            "loop_turns_slow": self.turns.slow,
            "http_connections_displaced": sum(one.displaced for one in self.http),
            "log_lines_left_out": FLOODS.left_out,
            "files_moved": self.store.tiering.counts.files,
            "moved_bytes": self.store.tiering.counts.bytes,
            "moves_failed": self.store.tiering.counts.failed,
            **(self.store.away.counts() if self.store.away is not None else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        standing, dfs = self.standing, self.store.dfs()
        return {
            "name": standing.name,
            "worker": None if standing.worker == NO_WORKER else standing.worker,
            "cluster_id": standing.cluster_id,
            "host": self.addresses.host,
            "rack": self.addresses.rack,
            "machine_id": self.addresses.machine_id,
            "data": self.addresses.data_address,
            "http": self.addresses.http_address,
            "version": self.addresses.version,
            "versions": {**versions(), "disk": str(FORMAT)},
            "clock_ms": time.time_ns() // 1_000_000,
            "pid": os.getpid(),
            "problems": self.problems(),
            "faults": self.faults.active(),
            "directories": [
                {**asdict(found), "id": found.id.hex(), "full": full}
                for found, full in zip(self.store.directories(), self.data.pushes.full(), strict=True)
            ],
            "dfs": dfs._asdict() if dfs is not None else None,
            **self.gauges(),
            "counters": self.totals(),
        }
