"""What each number of a master means: the help texts of /metrics and of docs/operate/metrics.md. Plain data."""

from __future__ import annotations

#: `holdfast_master_NAME`; "those" and "it" are what the line before is about.
GAUGES = {
    "serving": "1 on the serving leader",
    "term": "Raft term",
    "commit_index": "Raft commit index",
    "applied_index": "Raft applied index",
    "log_entries": "entries in the Raft log",
    "log_bytes": "bytes in the Raft log",
    "raft_turn_seconds_max": "longest turn of the Raft thread, with disk",
    "raft_turns_slow": "its turns above 50 ms",
    "peers_connected": "connected other masters",
    "commands_proposed": "commands applied through this master",
    "entries_proposed": "log entries with them",
    "commands_waiting": "commands waiting to be proposed",
    "calls_under_way": "pending calls, without long polls",
    "calls_under_way_max": "limit",
    "calls_refused": "calls refused because too many were pending",
    "rpcs": "pending RPCs at the gRPC port, with long polls",
    "rpcs_max": "limit",
    "body_bytes": "bodies of pending calls; incomplete ones count whole",
    "body_bytes_max": "limit",
    "body_bytes_refused": "calls refused without room for their bodies",
    "answer_bytes": "untaken answers",
    "answer_bytes_max": "limit",
    "answer_bytes_refused": "calls refused without room for their answers",
    "winners_bytes": "winners of pending commits of REDUCE partitions",
    "winners_bytes_max": "limit",
    "http_connections": "HTTP connections",
    "http_connections_max": "limit",
    "http_connections_displaced": "those closed to make room",
    "loop_turn_seconds_max": "longest turn of the event loop",
    "loop_turns_slow": "its turns above 50 ms",
    "raft_strangers": "Raft connections that have not yet proved the secret",
    "raft_strangers_max": "limit",
    "raft_strangers_displaced": "those closed to make room",
    "long_polls": "waiting long polls",
    "long_polls_max": "limit",
    "workers": "workers not gone",
    "workers_alive": "live workers",
    "workers_draining": "draining workers",
    "applications": "applications",
    "shuffles": "shuffle generations",
    "array_bytes": "bytes of assignments, moves, winners and manifests",
    "answers": "remembered answers to calls",
    "quota_refusals": "shuffles refused by a quota",
    "revives": "failed epochs that clients asked to replace",
    "revives_made": "epochs made by revives",
    "revive_commands": "commands for revives",
    "revives_without_room": "revives without a worker with room",
    "moves": "epochs moved from lost, restarted or draining workers",
    "move_commands": "commands for them",
    "placement_not_adhering": "partitions placed against the policy",
    "placement_soft": "of those, only their racks do not adhere",
    "rack_unresolved": "failed resolutions of hosts",
    "workers_on_default_rack": "live workers of unknown place",
    "workers_flapping": "leader: workers that restart repeatedly",
    "workers_in_quarantine": "leader: quarantined workers",
    "commits": "REDUCE generations committed by this master",
    "commit_seconds": "total time of those",
    "commits_without_worker": "workers that commits did not wait for",
    "lost_epochs": "epochs lost at commits",
    "commits_under_replicated_epochs": "epochs with too few copies at commits",
    "under_replicated_epochs": "epochs of committed shuffles with too few copies now (MAP: one per map)",
    "copies_incomplete": "copies of open epochs that lack acknowledged data",
    "late_copies": "copies sealed after their commit",
    "restored_copies": "copies made again after a loss",
    "restored_bytes": "bytes of those",
    "epochs_short": "leader: epochs of committed shuffles with too few copies on live workers",
    "open_epochs_short": "leader, some seconds late: the same for open shuffles, even empty epochs",
    "copies_coming": "their copies in progress or queued",
    "early_seals": "epochs sealed before their commit",
    "dfs_rounds": "with [dfs]: searches of the store",
    "dfs_removed": "folders removed there",
    "dfs_failures": "failed searches or removals",
    "dfs_unheard": "instances there that it never registered",
    "peers": "configured other masters",
    "leader_known": "1 while this master has a leader",
    "snapshot_index": "Raft index of the last snapshot",
    "workers_lost": "lost workers",
    "applications_silent": "applications with all leases expired",
    "array_bytes_max": "limit of array_bytes; beyond it shuffles are refused",
    "certificate_expires_seconds": "end of this server's certificate, since 1970; 0 without a valid one",
    "faults_enabled": "1 while [faults] is on: never in production",
    "directories_failing": "leader: unusable directories of live workers",
    "directories_full": "leader: directories in which partitions cannot grow",
    "workers_dfs_failing": "leader: live workers that cannot use the DFS",
    "push_bytes_per_second": "leader: push rate to all workers",
    "fetch_bytes_per_second": "the same for fetches",
}
#: Of these begin at 0 with the process and only grow:
GROWING = frozenset(
    "raft_turns_slow commands_proposed entries_proposed calls_refused body_bytes_refused "  # noqa: SIM905
    "answer_bytes_refused http_connections_displaced loop_turns_slow raft_strangers_displaced "
    "quota_refusals revives revives_made revive_commands revives_without_room moves "
    "move_commands placement_not_adhering placement_soft rack_unresolved commits commit_seconds "
    "commits_without_worker lost_epochs commits_under_replicated_epochs copies_incomplete late_copies "
    "restored_copies restored_bytes early_seals "
    "dfs_rounds dfs_removed dfs_failures".split()
)
#: By a label; `holdfast_master_NAME`.
LABELLED = {
    "build_info": ("version", "1, with the version"),
    "peer_connected": ("peer", "1 while that master is connected"),
    "peer_lag_entries": ("peer", "leader: log entries that this master lacks"),
    "open_partitions": (
        "adherence",
        "leader: open partitions: strict, soft, failed",
    ),
    "fallbacks": ("reason", "shuffles that became Spark's own, as drivers report to the leader; grows"),
    "worker_lost": ("worker", "1 for each of the first 100 lost workers, by id"),
    "tier_used_bytes": ("tier", "leader: bytes used on live workers"),
    "tier_free_bytes": ("tier", "leader: bytes free there"),
}
#: By `kind`.
EVENTS = "events with a star in log_events.md, since the start of this master's log"
#: By `method` and `status`, and by `method`.
CALLS = "calls answered"
CALL_SECONDS = "time to answer"

assert GAUGES.keys() >= GROWING, GROWING - GAUGES.keys()
