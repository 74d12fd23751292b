"""CPU and memory of a server process, from /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
#: Mappings that are not counted as memory of the process: pages of the index that the kernel may drop any time.
_INDEX_SUFFIX = ".mdb"
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def pss_bytes(pid: int) -> int:
    """Proportional set size without mappings of LMDB files: shared pages count by the share of each process."""
    total = 0
    counted = True
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        if mapping := _MAPPING.match(line):
            counted = not mapping[1].removesuffix(" (deleted)").endswith(_INDEX_SUFFIX)
        elif counted and line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    return total
