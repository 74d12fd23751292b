"""Measures the storage of a worker by itself: `python -m benchmarks.storage restart|write|read DIR`.

restart makes DIR with sealed files (without syncing each, then by the rebuild whose time it states), drops the index
from the page cache and times a whole worker from exec to its ready line, with the CPU seconds that it and the children
it waited for took by then; on a busy machine run it under `chrt -f 5`. write times appends with all checks, for
several batch sizes. read times opening single partitions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import Ack, FileTotals, PushFlag
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Generation,
    Incarnation,
    Instance,
    MapFileKey,
    MapId,
    PartitionId,
    ShuffleId,
    ShuffleKey,
)
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.index.records import make_map_file
from holdfast.worker.storage.index.region_chunks import RegionEntries
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import open_store, prepare

SHUFFLE = ShuffleKey(Instance(bytes(range(16))), ShuffleId(1), Generation(0))
_MIB = 1 << 20


def settings(directory: str) -> StoreSettings:
    """One directory, defaults for the rest."""
    return StoreSettings(
        cluster_id="bench", worker_name="bench", directories=(DirectorySettings(path=directory),), sync_threads=4
    )


def file_key(map_id: int, shuffle: ShuffleKey = SHUFFLE) -> MapFileKey:
    """The file of a map's first attempt."""
    return MapFileKey(shuffle, MapId(map_id), AttemptId(map_id), Epoch(0))


def batches(map_id: int, partition: int, count: int, payload: bytes) -> tuple[bytes, int]:
    """Return `count` batches of one partition, the last of them LAST, and the sum of their CRCs."""
    writer = BatchWriter(MapId(map_id), AttemptId(map_id), partition_seed(SHUFFLE, PartitionId(partition)))
    parts = []
    for number in range(count):
        parts += [writer.header(payload, last=number == count - 1), payload]
    return b"".join(parts), writer.crc_sum


def fill(directory: str, files: int, partitions: int) -> None:
    """Make sealed files by hand, each with one batch for each of its partitions."""
    open_store(prepare(settings(directory))).close()
    folder = Path(directory) / layout.shuffle_folder(SHUFFLE)
    folder.mkdir(parents=True, exist_ok=True)
    data, crc_sum = [], 0
    for partition in range(partitions):
        encoded, crcs = batches(0, partition, 1, b"x" * 16)
        data.append(encoded)
        crc_sum += crcs
    entries = RegionEntries.begin(0, 0, 0)
    for partition, run in enumerate(data):
        entries.add(partition, len(run), 1)
    body = b"".join(data)
    totals = FileTotals(regions=1, batches=partitions, size_bytes=len(body), crc_sum=crc_sum)
    for number in range(files):
        key = file_key(number)
        _, footer = make_map_file(
            key, totals, entries.chunks(), partitions=partitions, ack=Ack.WRITTEN, incarnation=Incarnation(1)
        )
        (Path(directory) / layout.sealed_path(key)).write_bytes(body + footer)


def drop_index(directory: str) -> None:
    """Take the index out of the page cache."""
    path = Path(directory) / names.INDEX_DATA
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def restart(directory: str, files: int, partitions: int) -> None:
    """Time a restart, and the rebuild of the index from footers before it."""
    if not Path(directory).exists():
        fill(directory, files, partitions)
    begin = time.perf_counter()
    store = open_store(prepare(settings(directory)))
    print(f"opened (rebuilt if new) {store.files} files in {time.perf_counter() - begin:.2f} s, {store.report[:2]}")
    store.close()
    for _ in range(7):
        drop_index(directory)
        serving, cpu = start_worker(directory)
        print(f"  exec to ready {serving:.3f} s, {cpu:.2f} CPU s, load {os.getloadavg()[0]:.1f}")


def start_worker(directory: str) -> tuple[float, float]:
    """Start a worker over DIR until it says that it serves; return how long that took, and its CPU seconds."""
    config = Path(directory).with_suffix(".toml")
    config.write_text(
        f'[cluster]\nid = "bench"\n[worker]\nname = "bench"\nmasters = ["127.0.0.1:1"]\ndata_port = 0\nhttp_port = 0\n'
        f'[[worker.directories]]\npath = "{Path(directory).absolute()}"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "holdfast.worker", "--config", str(config)]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        serving = time.perf_counter() - begin
        fields = Path(f"/proc/{worker.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        worker.terminate()
    assert line, "the worker ended before it served"
    ticks = sum(int(field) for field in fields[11:15])  # utime, stime and those of children that were waited for
    return serving, ticks / os.sysconf("SC_CLK_TCK")


def write(directory: str) -> None:
    """Time appends of 1 MiB frames for several batch sizes, and the seal."""
    store = open_store(prepare(settings(directory)))
    for number, size in enumerate((65_536, 16_384, 4_096, 2_048, 512)):
        per_run = max(1, 65_536 // size)
        run, crc_sum = batches(number, 0, per_run, b"x" * (size - 40))
        count = (256 * _MIB) // len(run)
        frames = []
        for first in range(0, count, 16):
            runs = []
            parts = []
            for partition in range(first, min(first + 16, count)):
                encoded, crcs = batches(number, partition, per_run, b"x" * (size - 40))
                crc_sum += crcs
                runs.append((partition, len(encoded)))
                parts.append(encoded)
            frames.append((runs, memoryview(b"".join(parts))))
        crc_sum = 0
        writer = store.begin(file_key(number), count, Ack.WRITTEN)
        begin = time.perf_counter()
        cpu = time.thread_time()
        for index, (runs, body) in enumerate(frames):
            writer.append(0, PushFlag.END if index == len(frames) - 1 else 0, runs, body)
        took, cpu = time.perf_counter() - begin, time.thread_time() - cpu
        total = sum(len(body) for _, body in frames)
        begin = time.perf_counter()
        store.seal(writer.key, writer.totals()).result()
        sealed = time.perf_counter() - begin
        print(
            f"batches of {size:6} bytes: {total / took / 1e9:.2f} GB/s, {total / cpu / 1e9:.2f} GB per CPU second, "
            f"seal of {total >> 20} MiB {sealed * 1e3:.0f} ms"
        )
    store.forget([SHUFFLE]).result(30)
    store.close()


def read(directory: str, files: int) -> None:
    """Time plans of one partition over 1,000 files of a directory made by `restart`."""
    store = open_store(prepare(settings(directory)))
    wanted = [(number, number, 0) for number in range(min(1_000, files))]
    for begin, end in ((0, 1), (3, 4), (0, 1_000_000)):
        start = time.perf_counter()
        plan = store.plan(SHUFFLE, begin, end, wanted)
        planned = time.perf_counter() - start
        pieces = sum(1 for _ in plan.pieces())
        took = time.perf_counter() - start
        print(
            f"partitions [{begin}, {end}) of {len(wanted)} of {store.files} files: plan {planned * 1e3:.1f} ms, "
            f"with {pieces} pieces {took * 1e3:.1f} ms, {plan.total_bytes} bytes"
        )
    store.close()


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("restart", "write", "read"), help="read: what restart made in DIR")
    parser.add_argument("directory")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what == "restart":
        restart(arguments.directory, arguments.files, arguments.partitions)
    elif arguments.what == "write":
        write(arguments.directory)
    else:
        read(arguments.directory, arguments.files)


if __name__ == "__main__":
    main()
