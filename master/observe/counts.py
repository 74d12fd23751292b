"""What a master did since it started, by the names of its metrics; metric_help.py says what they mean. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.sizes import short_of_copies


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
    placement_soft: int = 0
    rack_unresolved: int = 0
    commits: int = 0
    commit_seconds: float = 0.0
    commits_without_worker: int = 0
    lost_epochs: int = 0
    commits_under_replicated_epochs: int = 0
    copies_incomplete: int = 0
    late_copies: int = 0
    restored_copies: int = 0
    restored_bytes: int = 0
    early_seals: int = 0
    dfs_rounds: int = 0
    dfs_removed: int = 0
    dfs_failures: int = 0
    dfs_unheard: int = 0


def no_fallbacks() -> dict[str, int]:
    """Shuffles that became Spark's own, by every reason."""
    return dict.fromkeys(map(fallback_reason, pb.FallbackReason.values()), 0)


def fallback_reason(reason: int) -> str:
    """What a reason is called in metrics; one of a newer client is "other"."""
    known = reason if reason in pb.FallbackReason.values() else pb.FALLBACK_REASON_OTHER
    return pb.FallbackReason.Name(known).removeprefix("FALLBACK_REASON_").lower()


@dataclass(frozen=True, slots=True)
class ShortOfCopies:
    """What `Leader.short` says: epochs with fewer copies than were asked for on workers that are alive; copies that are
    made now; and when a lost worker is next taken for gone, 0 if none is waited for. Nothing where this master does not
    lead."""

    epochs_short: int = 0
    copies_coming: int = 0
    restore_at_ms: int = 0

    def sentence(self, now_ms: int) -> str:
        """For people; "" if nothing is short of copies."""
        in_s = max(0, self.restore_at_ms - now_ms) // 1000
        return short_of_copies(self.epochs_short, self.copies_coming, in_s) if self.epochs_short else ""
