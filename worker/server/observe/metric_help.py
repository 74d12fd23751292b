"""What each number of a worker means: the help texts of /metrics, of which metrics.md is made. Plain data."""

from __future__ import annotations

from holdfast.worker.server.observe.counters import COUNTER_HELP

#: Of the process; `holdfast_worker_NAME`.
PROCESS = {
    "build_info": "1, with the version as a label",
    "certificate_expires_seconds": "when this server's certificate ends, since 1970; 0 without security, and where its "
    "CA does not vouch for it",
    "faults_enabled": "1 while [faults] is on: never in production",
}
#: Grow only; `holdfast_worker_NAME_total`.
COUNTERS = {
    **COUNTER_HELP,
    "bytes_in": "frame bytes received",
    "bytes_out": "frame bytes sent",
    "body_waits": "times that a connection had to wait for memory",
    "log_bytes_written": "bytes written into push logs",
    "direct_bytes_written": "bytes written straight into partition files",
    "partition_flushes": "times that a partition was flushed from the log",
    "disk_syncs": "syncs of files, folders and index transactions",
    "loop_turns_slow": "turns of the event loop above 50 ms",
    "http_connections_displaced": "connections at the HTTP port that made room for others, without a permitted request",
    "log_lines_left_out": "lines that were not logged because too many were equal, or too many warnings came",
    "files_moved": "sealed files moved to another tier",
    "moved_bytes": "bytes of those",
    "moves_failed": "moves that failed for another reason than room",
    "dfs_put_bytes": "with [dfs]: bytes written to the DFS",
    "dfs_read_bytes": "with [dfs]: bytes read from it",
    "dfs_retries": "with [dfs]: requests tried again",
    "dfs_failures": "with [dfs]: abandoned requests",
}
#: Go up and down; `holdfast_worker_NAME`.
GAUGES = {
    "memory_bytes": "resident memory, buffers of bodies included, without that of mapped files",
    "body_bytes": "memory handed out for frame bodies",
    "body_bytes_peak": "the most that was",
    "body_bytes_max": "as much as may be: [worker] memory",
    "body_waiting": "connections that wait for some",
    "connections": "connections open now at the data port",
    "connections_max": "as many as may be",
    "http_connections": "connections open now at the HTTP port",
    "http_connections_max": "as many as may be",
    "peers": "connections to other workers, for second copies",
    "peers_max": "as many as may be",
    "streams": "streams open now",
    "streams_max": "as many as may be",
    "plan_rows": "what the plans of streams over map files take, in rows of some 240 bytes",
    "plan_rows_max": "as much as they may",
    "read_rows": "epochs and chunks that streams read, in the same rows",
    "read_rows_max": "as many as may be",
    "shuffles_registered": "shuffles that the masters are known to have",
    "asking": "requests that wait for the masters to confirm a shuffle",
    "asking_max": "as many as may wait",
    "loop_turn_microseconds_max": "the longest turn of the event loop: all clients wait for it",
    "files_open": "map files whose seal is pending",
    "files_open_max": "as many as may be",
    "seals_running": "seals of map files that wait for the disk",
    "epochs_open": "epochs that accept or are being sealed",
    "epochs_open_max": "as many as may be",
    "epochs_writing": "of those, with a copy that is being written",
    "epochs_left": "epochs that earlier starts left unsealed",
    "epochs_failed": "failed epochs",
    "log_bytes": "bytes in push logs",
    "log_segments": "segments of push logs",
    "push_window_bytes": "windows granted to clients",
    "push_owed_bytes": "acknowledged from memory, and waiting for room on the disk",
    "push_waiting": "clients in line for a window",
    "replica_window_bytes": "windows granted to primaries",
    "replicas_unreachable": "peers that are failed at once",
    "draining": "1 while the worker drains",
    "map_views": "epochs with an index by maps, for readers of slices of skewed partitions",
    "moves_running": "files that move to another tier or wait for it",
    "fetched_bytes": "bytes of chunks that were fetched from the DFS for readers and are held",
    "dfs_failing": "with [dfs]: 1 while the DFS cannot be used",
    "dfs_bytes": "with [dfs]: bytes of this worker's files there",
    "dfs_files": "with [dfs]: number of them",
    "files": "sealed files",
    "registered": "1 once the masters have accepted this start",
    "incarnation": "number of this start",
    "raft_index": "highest Raft index that the masters have answered with",
}
#: By `path`; `holdfast_worker_directory_NAME`.
DIRECTORY = {
    "capacity_bytes": "what the directory may hold",
    "used_bytes": "what it holds",
    "free_bytes": "what is free; over the directories of one device it adds up to no more than that has",
    "healthy": "1 while it takes new files",
    "errors": "failed writes, syncs and checks in the last disk_check.error_window, 1,024 at most",
    "flush_us": "mean time of a write in the last disk_check.average_window; 0: there was none",
    "fetch_us": "the same of reading a frame",
}
#: By `status`; `holdfast_worker_NAME_total`.
CAUSES = {
    "requests_refused": "requests answered with an error status, by its name",
    "batches_refused": "batches of REDUCE partitions whose status was not OK, by its name",
}
