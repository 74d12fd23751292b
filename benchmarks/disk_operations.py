"""Counts what a shuffle costs a disk, Spark's own and Holdfast's: reads, writes, flushes, and how large they are.

    python -m benchmarks.disk_operations [wide] [--scale 1] [--workers 1] [--images DIRECTORY] [--conf KEY=VALUE …]

Each side has a disk of its own, a loop device with an ext4 file system: Spark's local directories are there, and those
of Holdfast's workers. The map stage runs, what it wrote is brought to the disk, the page cache of that file system is
dropped (no other one's), and the reduce stage runs. Prints a line for each side and stage: the requests that the
device took, how many for each GiB that the side's map tasks wrote, their mean size, and which share of the reads began
where the one before had ended; then Holdfast's over Spark's. Needs root, and leaves nothing behind: the mounts
are those of a namespace of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sides import Side, holdfast, spark
from benchmarks.workloads import ROWS
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import ask
from holdfast.common.limits import GIB, KIB
from holdfast.common.proto import holdfast_pb2 as pb

_TOOLS = ("unshare", "losetup", "mkfs.ext4", "mount", "umount", "blockdev")
_OWN_MOUNTS = "HOLDFAST_OWN_MOUNTS"
_SECTOR_BYTES = 512
#: Where they are counted, from the eighth number on.
_FLUSHES = 8
#: For the commit that follows the map stage.
_COMMIT_SECONDS = 600.0
#: Of the kernel's trace, for each core; a request takes about 70 bytes of it.
_TRACE_KIB = 65_536
_READ = re.compile(r"block_rq_issue: \S+ R\w* \d+ \(.*?\) (\d+) \+ (\d+) ")
_KEPT = re.compile(r"entries-in-buffer/entries-written: (\d+)/(\d+)")


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
        self._device = device
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
        run("blockdev", "--flushbufs", self._device)

    def sync(self) -> None:
        """Bring everything to the device."""
        place = os.open(self.place, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(place):
                raise OSError(ctypes.get_errno(), f"{self.place} cannot be synced")
        finally:
            os.close(place)

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
def disk(images: Path, name: str, gib: int) -> Iterator[Disk]:
    """Make a disk, mount it, and take it away again. Its image is below `images` and as large as what was written."""
    with tempfile.TemporaryDirectory(prefix=f"holdfast-{name}-", dir=images) as directory:
        image, place = Path(directory) / "image", Path(directory) / "disk"
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(gib * GIB)
        device = run("losetup", "--find", "--show", str(image))
        try:
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


def committed(side: Side) -> None:
    """Wait until what the map stage pushed is sealed, where there are masters: its last writes belong to that stage."""
    cluster = side.cluster
    if cluster is None:
        return

    def done() -> bool:
        reply = ask(cluster.leader().address, "Admin/ListShuffles", pb.ListShufflesRequest(), pb.ListShufflesReply, 5.0)
        return all(each.state == "committed" for each in reply.shuffles)

    if not wait_until(done, _COMMIT_SECONDS):
        sys.exit(f"the map stage was not committed within {_COMMIT_SECONDS:g} s")


def measure(side: Side, drive: Disk, options: argparse.Namespace) -> tuple[str, dict[str, Requests]]:
    """Run both stages, and print what each cost; returns how many rows came, and the requests of each stage."""
    found: dict[str, Requests] = {}
    result, shuffled = "", 0
    for stage in ("map", "reduce"):
        drive.forget()
        drive.read()
        before = drive.count()
        done = side.run(options.workload, options.scale, step=stage)
        if stage == "map":
            committed(side)
        drive.sync()
        found[stage] = drive.count().since(before)
        result, shuffled = done.result, shuffled or done.written
        line: dict[str, Any] = {"side": side.name, "stage": stage, "shuffled_bytes": shuffled}
        line |= {"pushed_bytes": done.pushed, "fetched_bytes": done.fetched, **found[stage].line(shuffled)}
        print(json.dumps(line | {"sequential_reads": drive.read()}), flush=True)
    return result, found


def count(options: argparse.Namespace) -> None:
    """Print all of it."""
    with disk(options.images, "spark", options.disk_gib) as drive, spark({"spark.local.dir": str(drive.place)}) as side:
        rows, own = measure(side, drive, options)
    with disk(options.images, "holdfast", options.disk_gib) as drive:
        directories = [{"path": f"{drive.place}/{{name}}"}]
        settings = {"worker": {"directories": directories}}
        with holdfast(workers=options.workers, conf=options.conf, settings=settings) as side:
            our_rows, ours = measure(side, drive, options)
    if rows != our_rows:
        sys.exit(f"{options.workload}: the results differ: {rows} and {our_rows}")
    print(json.dumps({"workload": options.workload, "scale": options.scale, "rows": rows, **ratios(own, ours)}))


def ratios(own: dict[str, Requests], ours: dict[str, Requests]) -> dict[str, float | None]:
    """Holdfast's over Spark's: reads of the reduce stage, and writes, bytes written and flushes of both stages."""

    def both(side: dict[str, Requests], what: str) -> int:
        return sum(getattr(stage, what) for stage in side.values())

    pairs = {"reads": (ours["reduce"].reads, own["reduce"].reads)}
    pairs |= {what: (both(ours, what), both(own, what)) for what in ("writes", "written_bytes", "flushes")}
    return {f"{what}_ratio": round(mine / theirs, 3) if theirs else None for what, (mine, theirs) in pairs.items()}


def refusal() -> str:
    """What is missing to count here; "" if nothing is."""
    if os.geteuid() != 0:
        return "mounts file systems: run it as root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    missing += [] if Path("/dev/loop-control").exists() else ["/dev/loop-control"]
    return f"needs {', '.join(missing)}" if missing else ""


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="wide", choices=list(ROWS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--images", type=Path, default=Path(tempfile.gettempdir()), help="where the disks' images are")
    parser.add_argument("--disk-gib", type=int, default=32, help="the size of the disks; images take what is written")
    parser.add_argument("--conf", nargs="*", default=[], help="further settings of the plug-in's side, KEY=VALUE")
    options = parser.parse_args()
    if reason := refusal():
        parser.error(reason)
    if not os.environ.get(_OWN_MOUNTS):
        os.environ[_OWN_MOUNTS] = "1"
        again = [sys.executable, "-m", "benchmarks.disk_operations", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *again])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # what is the kernel's is given back
    count(options)


if __name__ == "__main__":
    main()
