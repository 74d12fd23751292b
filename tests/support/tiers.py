"""A worker with small tiers, and what its directories hold while it works."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.common.limits import MIB
from tests.support.changing import files_below

#: How often the size of a directory is looked at.
LOOK_SECONDS = 0.02


@dataclass
class Tiers:
    """Paths and capacities of one worker's tiers."""

    memory: Path
    disk: Path
    memory_mib: int
    disk_mib: int
    #: of the DFS; "" without one
    url: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """For local_cluster, with one worker."""
        directories = []
        for path, tier, size in ((self.memory, "MEMORY", self.memory_mib), (self.disk, "SSD", self.disk_mib)):
            if size:
                directories.append({"path": str(path), "tier": tier, "capacity": f"{size}MiB"})
        sections: dict[str, dict[str, Any]] = {"worker": {"directories": directories}}
        if self.url:
            sections["dfs"] = {"url": self.url}
        for section, keys in self.extra.items():
            sections.setdefault(section, {}).update(keys)
        return sections


def bytes_held(directory: Path) -> int:
    """What the files below data/ and log/ take, holes left out; files may go meanwhile."""
    total = 0
    for part in ("data", "log"):
        for path in files_below(directory / part):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                total += min(status.st_blocks * 512, status.st_size)
    return total


@dataclass
class Watch:
    """The most that each directory held."""

    most: dict[Path, int] = field(default_factory=dict)


@contextlib.contextmanager
def watched(directories: list[Path]) -> Iterator[Watch]:
    """Look at the directories again and again until the end of the block."""
    watch, over = Watch(dict.fromkeys(directories, 0)), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            for directory in directories:
                watch.most[directory] = max(watch.most[directory], bytes_held(directory))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def within(watch: Watch, tiers: Tiers) -> None:
    """No directory ever held more than its capacity."""
    assert watch.most[tiers.disk] <= tiers.disk_mib * MIB, watch
    if tiers.memory in watch.most:
        assert watch.most[tiers.memory] <= tiers.memory_mib * MIB, watch
