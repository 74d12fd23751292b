"""The bound on open descriptors: raised when a server starts, and divided among its doors, so that no flood of
connections takes what the rest of it needs. Called by the mains of master and worker, and by a master's doors."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it may: connections and files need more than the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


#: For files, peers and whatever else is open; less where the bound is small.
RESERVE = 1_024
#: HTTP and gRPC, which share the descriptors of a master.
MASTER_DOORS = 2


def connections_max(most: int, doors: int) -> int:
    """Return how many connections one of so many doors of this process may have open: `most`, or less if they could
    leave too few descriptors for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(most, (soft - min(RESERVE, soft // 4)) // doors)
