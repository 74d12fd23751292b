"""What a master did since it started, by the names of its metrics; metric_help.py says what they mean. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MasterCounts:
    """Those of `Leader.counts`, which the services increase; read by main.py."""

    quota_refusals: int = 0
    revives: int = 0
    revives_made: int = 0
    revive_commands: int = 0
    revives_without_room: int = 0
    moves: int = 0
    move_commands: int = 0
    placement_not_adhering: int = 0
    rack_unresolved: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    commits_without_worker: int = 0
    lost_epochs: int = 0
    commits_under_replicated_epochs: int = 0
    late_copies: int = 0
    early_seals: int = 0
    dfs_rounds: int = 0
    dfs_removed: int = 0
    dfs_failures: int = 0
    dfs_unheard: int = 0
