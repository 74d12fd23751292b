"""The bound on open descriptors: raised when a server starts, and divided among its doors, so that no flood of
connections takes what the rest of it needs. Called by the mains of master and worker, and by their doors."""

from __future__ import annotations

import resource
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class WorkerDescriptors:
    """What a worker opens of each kind at most, so that none takes what another needs. Together they stay below the
    bound of the process, with a reserve for indexes, logs, and what is on its way to be refused."""

    limit: int
    #: connections of clients, workers and masters at the data port, and at the HTTP port
    connections: int
    http: int
    #: connections to replicas
    peers: int
    #: MAP files that are written
    written: int
    #: files that are kept open for readers, and as many for writers
    kept: int

    @classmethod
    def of(cls, limit: int) -> WorkerDescriptors:
        """Divide a bound; each has its most where the bound is 16,384 or more."""
        return cls(
            limit=limit,
            connections=min(4_096, limit * 3 // 8),
            http=min(256, limit // 32),
            peers=min(256, limit // 16),
            written=min(4_096, limit // 4),
            kept=min(512, limit // 16),
        )

    @classmethod
    def here(cls) -> WorkerDescriptors:
        """Divide the bound of this process."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls.of(min(soft, 1 << 30))

    @property
    def reserve(self) -> int:
        """What is left for everything else."""
        return self.limit - self.connections - self.http - self.peers - self.written - 2 * self.kept
