"""The bound on open descriptors, raised when a server starts. Called by the mains of master and worker."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as it may: connections and files need more than the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
