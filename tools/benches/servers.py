"""Server processes: what they use when nothing is asked of them, and how soon a full worker serves again."""

from __future__ import annotations

import asyncio
import os
import secrets
import time

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import (
    Ack,
    FileTotals,
    Hello,
    MapOpen,
    MapOpened,
    MapPush,
    MapSeal,
    PushFlag,
    StreamOpen,
)
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
    StateId,
)
from holdfast.common.limits import MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.process_stats import cpu_seconds, pss_bytes
from holdfast.tools.stream_drain import drain

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
    instance = Instance(secrets.token_bytes(16))
    async with ControlClient(endpoints) as control:
        request = pb.RegisterApplicationRequest(instance=instance, name="bench", holder=instance)
        await control.call("Shuffles/RegisterApplication", request)
        key = pb.ShuffleKey(instance=instance, shuffle=1, generation=0)
        registered = await control.call(
            "Shuffles/RegisterShuffle",
            pb.RegisterShuffleRequest(
                key=key, kind=pb.PARTITION_KIND_MAP, partitions=_PARTITIONS_PER_FILE, ack=1, holder=instance
            ),
        )
        cluster_id = control.cluster_id
    shuffle = ShuffleKey(instance, ShuffleId(1), Generation(0), StateId(registered.state))
    client = await _connect(worker, cluster_id)
    for first in range(0, files, _FILES_AT_ONCE):
        numbers = range(first, min(files, first + _FILES_AT_ONCE))
        await asyncio.gather(*(_write_small(client, shuffle, number) for number in numbers))
    client.close()
    return shuffle, cluster_id, files


async def _connect(worker: Server, cluster_id: str) -> FrameClient:
    host, _, port = worker.address.rpartition(":")
    return await FrameClient.connect(host, int(port), Hello(cluster_id=cluster_id), BufferPool(64 * MIB))


async def _write_small(client: FrameClient, shuffle: ShuffleKey, number: int) -> None:
    """One sealed file with a small batch in every partition."""
    file = MapFileKey(shuffle, MapId(number), AttemptId(0), Epoch(0))
    request = MapOpen(file=file, incarnation=Incarnation(0), partitions=_PARTITIONS_PER_FILE, ack=Ack.WRITTEN)
    handle = MapOpened.decode((await client.request(FrameType.MAP_OPEN, request.encode())).meta).handle
    parts, runs, crc_sum = [], [], 0
    for partition in range(_PARTITIONS_PER_FILE):
        writer = BatchWriter(file.map, file.attempt, partition_seed(shuffle, PartitionId(partition)))
        parts.append(writer.header(b"", last=True))
        runs.append((partition, len(parts[-1])))
        crc_sum += writer.crc_sum
    body = b"".join(parts)
    push = MapPush(handle=handle, region=0, flags=PushFlag.END, runs=runs)
    await client.request(FrameType.MAP_PUSH, push.encode(), body)
    totals = FileTotals(regions=1, batches=len(runs), size_bytes=len(body), crc_sum=crc_sum & 0xFFFF_FFFF_FFFF_FFFF)
    await client.request(FrameType.MAP_SEAL, MapSeal(file=file, totals=totals).encode())


def _drop_index(cluster: LocalCluster, worker: Server) -> int:
    """Have the kernel forget the pages of the worker's LMDB files; returns their bytes."""
    total = 0
    for path in (cluster.directory / worker.name).rglob("*.mdb"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(descriptor).st_blocks * 512
        finally:
            os.close(descriptor)
    return total


async def _open_one(worker: Server, cluster_id: str, shuffle: ShuffleKey, number: int) -> float:
    """Seconds to read one partition of one file on a new connection."""
    client = await _connect(worker, cluster_id)
    began = time.monotonic()
    request = StreamOpen(
        shuffle=shuffle, begin=PartitionId(7), end=PartitionId(8), credit_bytes=MIB, files=[(number, 0, 0)]
    )
    await drain(client, request, lambda _, __: None)
    seconds = time.monotonic() - began
    client.close()
    return seconds
