"""What each number of a master means: the help texts of /metrics, of which docs/metrics.md is made. Plain data."""

from __future__ import annotations

#: `holdfast_master_NAME`; "those" and "it" are what the line before is about.
GAUGES = {
    "serving": "1 on the leader, once it serves",
    "term": "Raft term",
    "commit_index": "Raft commit index",
    "applied_index": "Raft applied index",
    "log_entries": "entries in the log",
    "log_bytes": "bytes in the log",
    "raft_turn_seconds_max": "longest turn of the Raft thread, disk included; heartbeats and answers wait for it",
    "raft_turns_slow": "turns of it above 50 ms",
    "peers_connected": "other masters connected; holdfast_master_peers are to be",
    "commands_proposed": "commands applied through this master",
    "entries_proposed": "entries that carried them",
    "commands_waiting": "commands that wait to be proposed",
    "calls_under_way": "pending calls, without long polls",
    "calls_under_way_max": "bound of those",
    "calls_refused": "calls refused because too many were pending, in all or of one user",
    "rpcs": "pending RPCs at the gRPC port, with long polls",
    "rpcs_max": "bound of those",
    "body_bytes": "bodies of calls that are received or processed; an incomplete one counts whole",
    "body_bytes_max": "bound of those",
    "body_bytes_refused": "calls refused because there was no room for their bodies",
    "answer_bytes": "answers that clients have not taken yet",
    "answer_bytes_max": "bound of those",
    "answer_bytes_refused": "calls refused because there was no room for their answers",
    "winners_bytes": "winners of pending commits of REDUCE partitions",
    "winners_bytes_max": "bound of those",
    "http_connections": "connections at the HTTP port",
    "http_connections_max": "bound of those",
    "http_connections_displaced": "connections that made room for others: of strangers, or of users beyond their share",
    "loop_turn_seconds_max": "longest turn of the event loop: every call waits for it",
    "loop_turns_slow": "turns of it above 50 ms",
    "raft_strangers": "connections to the Raft port that have not proved the secret yet",
    "raft_strangers_max": "bound of those",
    "raft_strangers_displaced": "those that made room for others before they had proved anything",
    "long_polls": "long polls that wait",
    "long_polls_max": "bound of those",
    "workers": "workers known",
    "workers_alive": "workers alive",
    "workers_draining": "those of them that drain",
    "applications": "applications",
    "shuffles": "shuffle generations",
    "array_bytes": "bytes of assignments, moves, winners and manifests",
    "answers": "answered calls remembered",
    "quota_refusals": "shuffles refused because a quota was used up",
    "revives": "failed epochs that clients asked new places for",
    "revives_made": "epochs that revives made",
    "revive_commands": "commands that revives needed",
    "revives_without_room": "revives that found no worker with room",
    "moves": "epochs moved from workers lost, started again or draining",
    "move_commands": "commands that did it",
    "placement_not_adhering": "partitions placed by this master whose copies do not stand as wished",
    "placement_soft": "those of them whose regions are as wished, and whose racks are not",
    "rack_unresolved": "hosts that could not be resolved, counted each time",
    "workers_on_default_rack": "live workers whose place is unknown",
    "workers_flapping": "on the leader: workers that start again and again",
    "workers_in_quarantine": "on the leader: workers with many errors",
    "commits": "generations of REDUCE partitions committed by this master",
    "commit_seconds": "time that those took in all",
    "commits_without_worker": "workers that commits did not wait for",
    "lost_epochs": "epochs that commits found lost",
    "commits_under_replicated_epochs": "epochs that commits found with fewer copies than were asked for",
    "under_replicated_epochs": "epochs of committed shuffles that have fewer copies than were asked for, now, of MAP "
    "partitions one for each map; holdfast status shows how many remain so",
    "copies_incomplete": "copies of open epochs found to lack something that others had acknowledged",
    "late_copies": "copies sealed after their commit",
    "restored_copies": "copies made again, of epochs that had lost some with their workers",
    "restored_bytes": "bytes of those",
    "epochs_short": "epochs of committed shuffles with fewer copies than were asked for on workers that are alive, as "
    "the leader sees it",
    "open_epochs_short": "epochs of open shuffles, with data or without, of which fewer copies than asked for are "
    "whole and on workers that are alive; on the leader, some seconds ago",
    "copies_coming": "copies of those that are being made, or wait for their turn",
    "early_seals": "epochs sealed before their commit",
    "dfs_rounds": "with [dfs]: times that this master looked through the store",
    "dfs_removed": "folders that it removed from there",
    "dfs_failures": "times that it could not",
    "dfs_unheard": "instances there that it never registered",
    "peers": "other masters in the configuration",
    "leader_known": "1 while this master has a leader",
    "snapshot_index": "Raft index of the last snapshot",
    "workers_lost": "lost workers that had not been drained",
    "applications_silent": "applications whose leases have all expired: after the grace their data is deleted",
    "array_bytes_max": "the bound of holdfast_master_array_bytes: beyond it shuffles are refused",
    "certificate_expires_seconds": "when this server's certificate ends, since 1970; 0 without security, and where its "
    "CA does not vouch for it",
    "faults_enabled": "1 while [faults] is on: never in production",
    "directories_failing": "on the leader: directories of living workers that cannot be used",
    "directories_full": "on the leader: directories in which partitions cannot grow",
    "workers_dfs_failing": "on the leader: living workers that cannot use the DFS",
    "push_bytes_per_second": "on the leader: bytes a second pushed to all workers, between their last two heartbeats",
    "fetch_bytes_per_second": "the same of bytes fetched",
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
    "peer_lag_entries": ("peer", "on the leader: log entries that this master has not got yet"),
    "open_partitions": (
        "adherence",
        "on the leader: open partitions by how they stand to what placement wishes now: strict, soft, failed",
    ),
    "tier_used_bytes": ("tier", "on the leader: bytes used on living workers; DFS are their files there"),
    "tier_free_bytes": ("tier", "on the leader: bytes free there"),
}
#: By `kind`.
EVENTS = (
    "events by the names of docs/log_events.md with a star, as far back as the log of this "
    "master reaches; an event that never happened is missing"
)
#: By `method` and `status`, and by `method`.
CALLS = "calls answered"
CALL_SECONDS = "time to answer"

assert GAUGES.keys() >= GROWING, GROWING - GAUGES.keys()
