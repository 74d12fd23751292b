"""Less memory, and slower disks, for a benchmark and all that it starts: the kernel's control groups.

Rules: of version 1, which has a hierarchy for each controller, or 2, which has one for all, whichever has the
controller; what is made or set is taken back in the end. Needs root. Called by disk_operations.py.

A disk that seeks is one that takes so few requests a second. dm-delay is no such disk: it delays requests, but all that
wait at the same time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.client.cluster.server import wait_until

#: For what was started to be gone.
_GONE_SECONDS = 10.0


class Hierarchy(NamedTuple):
    """Where the groups with some controller are."""

    root: Path
    version: int
    controller: str

    @classmethod
    def of(cls, mounts: str, first: str, second: str) -> Hierarchy:
        """From the text of /proc/mounts; the controller's names in versions 1 and 2. Ends the program without one."""
        found = [line.split()[1:4] for line in mounts.splitlines()]
        for place, kind, options in found:
            if kind == "cgroup" and first in options.split(","):
                return cls(Path(place), 1, first)
        for place, kind, _ in found:
            if kind == "cgroup2" and second in (Path(place) / "cgroup.controllers").read_text().split():
                return cls(Path(place), 2, second)
        sys.exit(f"there is no control group with the controller {first}")

    def __str__(self) -> str:
        return f"cgroup v{self.version}"

    def enter(self, group: Path) -> None:
        """Have this process in a group, and all that it starts from now on."""
        _write(group / "cgroup.procs", str(os.getpid()))

    @contextmanager
    def own_group(self) -> Iterator[Path]:
        """Be in a group of its own; within another such block it is that one's, since version 2 has one for all."""
        group = self.root / f"holdfast-{os.getpid()}"
        if group.exists():
            yield group
            return
        before, switch = self._group(), self.root / "cgroup.subtree_control"
        added = {"memory", "io"}.difference(switch.read_text().split()) if self.version == 2 else set()
        if added:
            _write(switch, " ".join(f"+{each}" for each in sorted(added)))
        group.mkdir()
        try:
            self.enter(group)
            yield group
        finally:
            self.enter(before)
            if not wait_until(partial(_removed, group), _GONE_SECONDS):
                print(f"{group} cannot be removed: processes are left in it", file=sys.stderr)
            elif added:
                _write(switch, " ".join(f"-{each}" for each in sorted(added)))

    def _group(self) -> Path:
        """Where this process is."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if self.controller in controllers.split(",") or (self.version == 2 and not controllers):
                found = self.root / place.lstrip("/")
                return found if found.is_dir() else self.root  # it may be outside of what is mounted here
        return self.root

    @contextmanager
    def group_of_writes(self) -> Iterator[Path]:
        """Be in the group to which requests are counted, also those of the kernel that writes back: of version 1 that
        is the root alone."""
        if self.version == 2:
            with self.own_group() as group:
                yield group
        else:
            before = self._group()
            self.enter(self.root)
            try:
                yield self.root
            finally:
                self.enter(before)


@contextmanager
def less_memory(size: str, mounts: str) -> Iterator[str]:
    """Have so much memory, such as 2G, page cache included and no swap. Yields what sees to it."""
    hierarchy = Hierarchy.of(mounts, "memory", "memory")
    with hierarchy.own_group() as group:
        if hierarchy.version == 1:
            _write(group / "memory.limit_in_bytes", size)
            swap = group / "memory.memsw.limit_in_bytes"
            if swap.exists():
                _write(swap, size)
        else:
            _write(group / "memory.max", size)
            _write(group / "memory.swap.max", "0")
        yield str(hierarchy)


@contextmanager
def seeking(device: str, seek_ms: float, mounts: str) -> Iterator[str]:
    """Have a device take no more reads, and no more writes, than if each needed a seek. Yields what sees to it."""
    hierarchy = Hierarchy.of(mounts, "blkio", "io")
    number, most = os.stat(device).st_rdev, max(1, round(1000 / seek_ms))
    name = f"{os.major(number)}:{os.minor(number)}"

    def limit(group: Path, value: int) -> None:
        if hierarchy.version == 1:
            for way in ("read", "write"):
                _write(group / f"blkio.throttle.{way}_iops_device", f"{name} {value}")
        else:
            _write(group / "io.max", f"{name} riops={value or 'max'} wiops={value or 'max'}")

    with hierarchy.group_of_writes() as group:
        limit(group, most)
        try:
            yield f"{hierarchy}: {most} reads and {most} writes a second"
        finally:
            limit(group, 0)  # the number is another device's next


def _removed(group: Path) -> bool:
    with suppress(OSError):  # as long as a process is in it
        group.rmdir()
    return not group.exists()


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        sys.exit(f"{file} does not take {text}: {error.strerror}")
