"""Counts what a shuffle costs a disk, and the time: Spark's own, Holdfast's, and that of other services.

    python -m benchmarks.disk_operations [wide] [--scale 1] [--workers 1] [--images DIRECTORY] [--conf KEY=VALUE …]
    python -m benchmarks.disk_operations big --scale 30 --memory 2G --driver-memory 700m --disk-gib 72
    python -m benchmarks.disk_operations wide --read-ahead-kib 128
    python -m benchmarks.disk_operations wide --seek-ms 8
    python -m benchmarks.disk_operations wide --service celeborn=DIRECTORY

Each side has a disk of its own, a loop device with an ext4 file system: the local directories of Spark are there, and
those of Holdfast's workers, or the data of a service (compare.py says what its DIRECTORY holds). The map stage runs,
what it wrote is brought to the disk, the page cache of that file system is dropped (no other one's), and the reduce
stage runs. Prints a line for each side and stage: the seconds until all of it was on the disk, commit included; the
requests that the device took, how many for each GiB that the side's map tasks wrote, their mean size, and which share
of the reads began where the one before had ended; then of each other side what it has over Spark's. With `--memory`
everything that runs shares so much, its page cache included, and with `--seek-ms` the disks take no more requests than
one with such seeks could; the last lines say what saw to it. A loop device reads further ahead than most disks do:
`--read-ahead-kib 128` has it do as those. Needs root, and leaves nothing behind: the mounts are
those of a namespace of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.control_groups import less_memory, seeking
from benchmarks.disks import Disk, Requests, disk
from benchmarks.sides import Side, holdfast, named_service, service, spark
from benchmarks.workloads import ROWS
from holdfast.client.cluster.server import wait_until
from holdfast.client.connection.direct import ask
from holdfast.common.proto import holdfast_pb2 as pb

_TOOLS = ("unshare", "losetup", "mkfs.ext4", "mount", "umount", "blockdev")
_OWN_MOUNTS = "HOLDFAST_OWN_MOUNTS"
#: For the commit that follows the map stage.
_COMMIT_SECONDS = 600.0


class Stage(NamedTuple):
    """What one stage cost."""

    seconds: float
    requests: Requests
    #: those that did not begin where the one before had ended; None where it is not known
    read_seeks: int | None


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


def on_disk(side: Side, drive: Disk) -> float:
    """Wait until all that a stage wrote is on the disk; returns when it was (time.perf_counter)."""
    committed(side)
    drive.sync()
    if side.cluster is not None or not side.servers:
        return time.perf_counter()
    since = drive.idle_since(_COMMIT_SECONDS)  # nothing else says when servers of others are done
    if since is None:
        sys.exit(f"the servers of {side.name} were still writing after {_COMMIT_SECONDS:g} s")
    return since


def measure(side: Side, drive: Disk, options: argparse.Namespace) -> tuple[str, dict[str, Stage]]:
    """Run both stages, and print what each cost; returns how many rows came, and the cost of each stage."""
    found: dict[str, Stage] = {}
    result, shuffled = "", 0
    for step in ("map", "reduce"):
        drive.forget()
        drive.read()
        before, started = drive.count(), time.perf_counter()
        done = side.run(options.workload, options.scale, step=step)
        seconds = on_disk(side, drive) - started
        requests, follow = drive.count().since(before), drive.read()
        found[step] = Stage(seconds, requests, None if follow is None else round(requests.reads * (1 - follow)))
        result, shuffled = done.result, shuffled or done.written
        line: dict[str, Any] = {"side": side.name, "stage": step, "seconds": round(seconds, 2)}
        line |= {"shuffled_bytes": shuffled, "pushed_bytes": done.pushed, "fetched_bytes": done.fetched}
        print(json.dumps(line | requests.line(shuffled) | {"sequential_reads": follow}), flush=True)
    return result, found


@contextmanager
def on(drive: Disk, name: str, options: argparse.Namespace) -> Iterator[Side]:
    """A side whose data is on this disk."""
    conf = {"spark.local.dir": f"{drive.place}/spark", "spark.driver.memory": options.driver_memory}
    services = dict(options.service)
    way: AbstractContextManager[Side]
    if name in services:
        data = drive.place / "data"
        data.mkdir()
        way = service(name, Path(services[name]), data, conf)
    elif name == "holdfast":
        settings = {"worker": {"directories": [{"path": f"{drive.place}/{{name}}"}]}}
        pairs = [*(f"{key}={value}" for key, value in conf.items()), *options.conf]
        way = holdfast(workers=options.workers, conf=pairs, settings=settings)
    else:
        way = spark(conf)
    with way as side:
        yield side


def count(options: argparse.Namespace, memory: str) -> None:
    """Print all of it; `memory` is what sees to its limit, if it has one."""
    first, *others = "spark", "holdfast", *dict(options.service)
    costs: dict[str, dict[str, Stage]] = {}
    rows: dict[str, str] = {}
    seeks = ""
    for name in (first, *others):
        with disk(options.images, name, options.disk_gib, options.read_ahead_kib) as drive:
            slow = seeking(drive.device, options.seek_ms, mounts()) if options.seek_ms else nullcontext("")
            with slow as seeks, on(drive, name, options) as side:
                rows[name], costs[name] = measure(side, drive, options)
    if len(set(rows.values())) > 1:
        sys.exit(f"{options.workload}: the results differ: {rows}")
    said = {"workload": options.workload, "scale": options.scale, "rows": rows[first]}
    said |= {"memory": f"{options.memory} by {memory}"} if memory else {}
    said |= {"read_ahead_kib": options.read_ahead_kib} if options.read_ahead_kib is not None else {}
    said |= {"seeks": f"{options.seek_ms:g} ms by {seeks}"} if seeks else {}
    for name in others:
        print(json.dumps({"side": name, **said, **ratios(costs[first], costs[name])}))


def ratios(own: dict[str, Stage], ours: dict[str, Stage]) -> dict[str, float | None]:
    """A side's over Spark's: seconds of each stage and of both, reads and their seeks of the reduce stage, and writes,
    bytes written and flushes of both stages."""

    def ratio(mine: float | None, theirs: float | None) -> float | None:
        return round(mine / theirs, 3) if mine is not None and theirs else None

    def both(side: dict[str, Stage], what: str) -> int:
        return sum(getattr(stage.requests, what) for stage in side.values())

    times = {f"{step}_seconds_ratio": ratio(ours[step].seconds, own[step].seconds) for step in own}
    whole = [sum(stage.seconds for stage in side.values()) for side in (ours, own)]
    reads = ours["reduce"].requests.reads, own["reduce"].requests.reads
    found = times | {"seconds_ratio": ratio(*whole), "reads_ratio": ratio(*reads)}
    found |= {"read_seeks_ratio": ratio(ours["reduce"].read_seeks, own["reduce"].read_seeks)}
    return found | {
        f"{what}_ratio": ratio(both(ours, what), both(own, what)) for what in ("writes", "written_bytes", "flushes")
    }


def mounts() -> str:
    """What is mounted."""
    return Path("/proc/mounts").read_text("utf-8")


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
    parser.add_argument("--service", type=named_service, action="append", default=[], metavar="NAME=DIRECTORY")
    parser.add_argument("--memory", help="for everything that runs, page cache included, such as 2G")
    parser.add_argument("--driver-memory", default="4g", help="of the heap of each side's JVM")
    ahead = "how far the kernel reads ahead by itself: 128 on most disks, more on a loop device"
    parser.add_argument("--read-ahead-kib", type=int, help=ahead)
    parser.add_argument("--seek-ms", type=float, help="no more requests than one for each seek of so long")
    options = parser.parse_args()
    if reason := refusal():
        parser.error(reason)
    if not os.environ.get(_OWN_MOUNTS):
        os.environ[_OWN_MOUNTS] = "1"
        again = [sys.executable, "-m", "benchmarks.disk_operations", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *again])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # what is the kernel's is given back
    with less_memory(options.memory, mounts()) if options.memory else nullcontext("") as memory:
        count(options, memory)


if __name__ == "__main__":
    main()
