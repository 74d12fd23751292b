"""CPU and memory of a server process."""

from __future__ import annotations

import psutil

#: Mappings that are not counted as memory of the process: pages of the index that the kernel may drop any time.
_INDEX_SUFFIX = ".mdb"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, all threads."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def pss_bytes(pid: int) -> int:
    """Proportional set size without mappings of LMDB files: shared pages count by the share of each process."""
    return sum(mapping.pss for mapping in psutil.Process(pid).memory_maps() if not mapping.path.endswith(_INDEX_SUFFIX))
