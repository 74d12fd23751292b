"""Disks of a benchmark's own, and what they are asked for: loop devices with a file system each.

Rules: the kernel's counters of a device say what it did; images are read and written past the page cache, which would
be a second one. Needs root, and mounts that nobody else has (`unshare --mount`). Called by disk_operations.py.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.common.limits import GIB, KIB

_SECTOR_BYTES = 512
#: Where they are counted, from the eighth number on.
_FLUSHES = 8
#: Of the kernel's trace, for each core; a request takes about 70 bytes of it.
_TRACE_KIB = 65_536
_READ = re.compile(r"block_rq_issue: \S+ R\w* \d+ \(.*?\) (\d+) \+ (\d+) ")
_KEPT = re.compile(r"entries-in-buffer/entries-written: (\d+)/(\d+)")
#: A device that has done nothing for so long is idle.
_IDLE_SECONDS, _LOOK_SECONDS = 3.0, 0.05


class Requests(NamedTuple):
    """What a device did, as the kernel counts it (Documentation/block/stat)."""

    reads: int
    reads_merged: int
    read_bytes: int
    writes: int
    writes_merged: int
    written_bytes: int
    flushes: int

    @classmethod
    def of(cls, stat: str) -> Requests:
        """From the text of /sys/block/NAME/stat."""
        reads, reads_merged, read, _, writes, writes_merged, written, *others = map(int, stat.split())
        return cls(
            reads, reads_merged, read * _SECTOR_BYTES, writes, writes_merged, written * _SECTOR_BYTES, others[_FLUSHES]
        )

    def since(self, before: Requests) -> Requests:
        """What came behind that."""
        return Requests(*(now - then for now, then in zip(self, before, strict=True)))

    def line(self, shuffled_bytes: int) -> dict[str, Any]:
        """As it is printed."""
        gib = shuffled_bytes / GIB
        return {
            **self._asdict(),
            "reads_a_gib": round(self.reads / gib),
            "writes_a_gib": round(self.writes / gib),
            "mean_read_kib": round(self.read_bytes / KIB / max(1, self.reads), 1),
            "mean_write_kib": round(self.written_bytes / KIB / max(1, self.writes), 1),
        }


def sequential(trace: str) -> float | None:
    """The share of reads in a trace that began where the one before had ended; None where it is not known."""
    kept = _KEPT.search(trace)
    reads = [(int(sector), int(count)) for sector, count in _READ.findall(trace)]
    if kept is None or kept[1] != kept[2] or not reads:
        return None
    follows = sum(sum(one) == other[0] for one, other in itertools.pairwise(reads))
    return round(follows / len(reads), 3)


class Disk:
    """A file system of its own on a device of its own."""

    def __init__(self, place: Path, device: str, trace: Path | None) -> None:
        self.place = place
        self.device = device
        self._stat = Path("/sys/block") / Path(device).name / "stat"
        self._trace = trace

    def forget(self) -> None:
        """Bring everything to the device, and drop what the page cache has of it; files that are mapped keep theirs."""
        self.sync()
        for path in filter(Path.is_file, self.place.rglob("*")):
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
        run("blockdev", "--flushbufs", self.device)

    def sync(self) -> None:
        """Bring everything to the device."""
        place = os.open(self.place, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(place):
                raise OSError(ctypes.get_errno(), f"{self.place} cannot be synced")
        finally:
            os.close(place)

    def idle_since(self, seconds: float) -> float | None:
        """Wait until the device is idle, and return since when (time.perf_counter); None if it was not in so long."""
        seen, since = self.count(), time.perf_counter()
        end = since + seconds
        while (now := time.perf_counter()) - since < _IDLE_SECONDS:
            if now >= end:
                return None
            time.sleep(_LOOK_SECONDS)
            if (found := self.count()) != seen:
                seen, since = found, time.perf_counter()
        return since

    def count(self) -> Requests:
        """What the device has done so far."""
        return Requests.of(self._stat.read_text())

    def read(self) -> float | None:
        """The share of the reads since the last call that were sequential; None where the kernel does not tell."""
        if self._trace is None:
            return None
        trace = (self._trace / "trace").read_text()
        (self._trace / "trace").write_text("")
        return sequential(trace)


def run(*command: str) -> str:
    """Run a command; its output. What it complains of ends the program."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout.strip()


@contextmanager
def disk(images: Path, name: str, gib: int, read_ahead_kib: int | None = None) -> Iterator[Disk]:
    """Make a disk, mount it, and take it away again. Its image is below `images` and as large as what was written.
    `read_ahead_kib`: how far the kernel reads ahead on it by itself; None for what it does on a loop device."""
    with tempfile.TemporaryDirectory(prefix=f"holdfast-{name}-", dir=images) as directory:
        image, place = Path(directory) / "image", Path(directory) / "disk"
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(gib * GIB)
        device = run("losetup", "--find", "--show", "--direct-io=on", str(image))
        try:
            if read_ahead_kib is not None:
                (Path("/sys/block") / Path(device).name / "queue/read_ahead_kb").write_text(str(read_ahead_kib))
            run("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", device)
            run("mount", "-o", "noinit_itable", device, str(place))  # or the kernel makes inodes meanwhile
        finally:
            run("losetup", "--detach", device)  # it goes with the mount, or at once
        try:
            with traced(Path(directory), device) as trace:
                yield Disk(place, device, trace)
        finally:
            run("umount", "--lazy", str(place))


@contextmanager
def traced(directory: Path, device: str) -> Iterator[Path | None]:
    """Have the kernel list the reads of a device, in a trace of its own; None where it cannot."""
    place = directory / "tracing"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tracefs", "none", str(place)], check=False, capture_output=True).returncode:
        yield None
        return
    trace = place / "instances" / directory.name
    try:
        trace.mkdir()
        try:
            (trace / "buffer_size_kb").write_text(str(_TRACE_KIB))
            number = os.stat(device).st_rdev
            wanted = f'dev == {os.major(number) << 20 | os.minor(number)} && rwbs ~ "R*"'
            (trace / "events/block/block_rq_issue/filter").write_text(wanted)
            (trace / "events/block/block_rq_issue/enable").write_text("1")
            yield trace
        finally:
            trace.rmdir()
    finally:
        run("umount", "--lazy", str(place))
