"""Server processes: what they use when nothing is asked of them, and how soon a full worker serves again."""

from __future__ import annotations

import asyncio
import os
import time

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import PushFlag, StreamOpen
from holdfast.common.ids import AttemptId, Epoch, MapFileKey, MapId, PartitionId, ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.tools import bare
from holdfast.tools.benches.data import register
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.process_stats import cpu_seconds, pss_bytes

_IDLE_SECONDS = 10.0
_IDLE_MEMORY_BYTES = 80 * MIB
_PARTITIONS_PER_FILE = 100
#: Files that are written at the same time, so that their seals share syncs.
_FILES_AT_ONCE = 32


def idle(cluster: LocalCluster) -> list[Figure]:
    """CPU and memory of servers that only send heartbeats to one another, over some seconds; the worst of each role."""
    before = {server.name: cpu_seconds(server.pid) for server in cluster.servers}
    time.sleep(_IDLE_SECONDS)
    figures = []
    for role, servers in (("master", cluster.masters), ("worker", cluster.workers)):
        used = max(cpu_seconds(server.pid) - before[server.name] for server in servers)
        memory = max(pss_bytes(server.pid) for server in servers)
        figures += [
            Figure("idle", f"{role}, CPU", 100 * used / _IDLE_SECONDS, "% core", 1.0, note=f"over {_IDLE_SECONDS:g} s"),
            Figure("idle", f"{role}, PSS without index", memory, "B", _IDLE_MEMORY_BYTES),
        ]
    return figures


def restart(cluster: LocalCluster, partitions: int) -> list[Figure]:
    """Fill the worker with sealed partitions, kill it, drop its index from the page cache, and start it."""
    worker = cluster.workers[0]
    shuffle, cluster_id, files = asyncio.run(_fill(cluster.endpoints, worker, partitions))
    worker.kill()
    dropped = _drop_index(cluster, worker)
    began = time.monotonic()
    worker.start()
    serving = time.monotonic() - began
    opened = asyncio.run(_open_one(worker, cluster_id, shuffle, files - 1))
    sealed = files * _PARTITIONS_PER_FILE
    note = f"{sealed:,} sealed partitions in {files:,} files, {dropped / MIB:.0f} MiB of index dropped"
    return [
        Figure("restart", "exec to serving", serving, "s", 1.0, note=note),
        Figure("restart", "first read of one partition", opened, "s"),
    ]


async def _fill(endpoints: str, worker: Server, partitions: int) -> tuple[ShuffleKey, str, int]:
    files = -(-partitions // _PARTITIONS_PER_FILE)
    cluster_id, shuffle = await register(endpoints, _PARTITIONS_PER_FILE)
    client = await bare.connect(worker.address, cluster_id, BufferPool(64 * MIB))
    for first in range(0, files, _FILES_AT_ONCE):
        numbers = range(first, min(files, first + _FILES_AT_ONCE))
        await asyncio.gather(*(_write_small(client, shuffle, number) for number in numbers))
    client.close()
    return shuffle, cluster_id, files


async def _write_small(client: FrameClient, shuffle: ShuffleKey, number: int) -> None:
    """One sealed file with a small batch in every partition."""
    file = MapFileKey(shuffle, MapId(number), AttemptId(0), Epoch(0))
    writers = [
        BatchWriter(file.map, file.attempt, partition_seed(shuffle, PartitionId(partition)))
        for partition in range(_PARTITIONS_PER_FILE)
    ]
    parts = [writer.header(b"", last=True) for writer in writers]
    runs = [(partition, len(part)) for partition, part in enumerate(parts)]
    body = b"".join(parts)
    await bare.write(client, file, _PARTITIONS_PER_FILE, [(0, PushFlag.END, runs, body)])
    await bare.seal(client, file, bare.totals_of(writers, 1, len(body)))


def _drop_index(cluster: LocalCluster, worker: Server) -> int:
    """Have the kernel forget the pages of the worker's LMDB files; returns their bytes."""
    total = 0
    for path in (cluster.directory / worker.name).rglob("*.mdb"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(file.fileno()).st_blocks * 512
    return total


async def _open_one(worker: Server, cluster_id: str, shuffle: ShuffleKey, number: int) -> float:
    """Seconds to read one partition of one file on a new connection."""
    client = await bare.connect(worker.address, cluster_id, BufferPool(64 * MIB))
    began = time.monotonic()
    request = StreamOpen(
        shuffle=shuffle, begin=PartitionId(7), end=PartitionId(8), credit_bytes=MIB, files=[(number, 0, 0)]
    )
    await bare.drain(client, request, lambda _, __: None)
    seconds = time.monotonic() - began
    client.close()
    return seconds
