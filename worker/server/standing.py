"""What a worker knows about its place in the cluster: shared by its edges, written by registration and by HELLO."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.common.ids import NO_WORKER, Incarnation, RaftIndex, WorkerId


@dataclass(slots=True)
class Standing:
    """Loop thread only."""

    cluster_id: str
    name: str
    incarnation: Incarnation
    #: NO_WORKER until the masters have given a number
    worker: WorkerId = NO_WORKER
    #: highest Raft index heard of, from masters and clients
    raft_index: RaftIndex = RaftIndex(0)
    #: the masters have accepted this incarnation
    registered: bool = False
    #: what a person should know: refused deletions, failing directories
    problems: tuple[str, ...] = ()

    def saw(self, index: RaftIndex) -> None:
        """Keep the highest Raft index."""
        if index > self.raft_index:
            self.raft_index = index
