"""Workers: map files written and read back, in bytes per second and per second of a worker's core.

Clients run in other processes, with batches made and checksummed beforehand, so that the clock shows the worker. The
worker verifies every batch's CRC as it writes; reads come from the page cache.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from holdfast.client.cluster.local import LocalCluster, Server
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import FileTotals, PushFlag, StreamData, StreamOpen
from holdfast.common.ids import AttemptId, Epoch, MapFileKey, MapId, PartitionId, ShuffleKey
from holdfast.common.limits import GIB, KIB, MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.sizes import counted
from holdfast.tools import bare
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.process_stats import cpu_seconds

#: Of one worker; where several are measured together each has one.
_CLIENTS = 2
_WORKERS = (1, 2, 4)
_PARTITIONS = 64
_BATCH_BYTES = 256 * KIB
_BATCHES_PER_PARTITION = 4  # a region of 64 MiB
_FRAME_BYTES = 4 * MIB
_FILES_PER_CLIENT = 8  # in all 1 GiB
_READ_ROUNDS = 2
_HOW_READ = f"{_READ_ROUNDS} times, page cache"
_CREDIT_BYTES = 32 * MIB
_SECONDS_MAX = 300.0  # a client that takes longer hangs
_RANGE = 8  # partitions read at a time: what a reduce task of a coalesced stage asks for


@dataclass(frozen=True, slots=True)
class _Load:
    """The parameters of a client process."""

    address: str
    cluster_id: str
    shuffle: ShuffleKey
    client: int
    begin: float


@dataclass(frozen=True, slots=True)
class _Moved:
    """What was written or read, and what it took: seconds by the clock, and of the workers' processes."""

    name: str
    note: str
    size_bytes: int
    wall: float
    cpu: float


def data(cluster: LocalCluster) -> list[Figure]:
    """Write files of 64 MiB, seal them, read them back by ranges of partitions; WRITTEN, one region a file."""
    figures = []
    for moved, limit in zip(_transfer(cluster, cluster.workers[:1], _CLIENTS), (0.7, 1.5), strict=True):
        name, size = f"{moved.name}, per second of the worker's core", moved.size_bytes / 1e9
        figures += [
            Figure("data", name, size / moved.cpu, "GB/core-s", limit, False, moved.note),
            Figure("data", f"{moved.name}, by the clock", size / moved.wall, "GB/s", note="clients share the cores"),
        ]
    return figures


def workers(cluster: LocalCluster) -> list[Figure]:
    """The same with one, two and four workers at once, each with a client of its own: what each more brings here."""
    figures = []
    for count in _WORKERS:
        for moved in _transfer(cluster, cluster.workers[:count], 1):
            name = f"{moved.name}, {counted(count, 'worker')}"
            figures += [
                Figure("workers", name, moved.size_bytes / moved.wall / 1e9, "GB/s", note=moved.note),
                Figure("workers", f"{name}: their CPU", moved.cpu / moved.size_bytes * GIB, "s/GiB"),
            ]
    return figures


def _transfer(cluster: LocalCluster, workers: Sequence[Server], clients: int) -> list[_Moved]:
    """Write to all of these workers at once, by so many clients each, and read that back."""
    cluster_id, shuffle = asyncio.run(register(cluster.endpoints, _PARTITIONS))
    context = multiprocessing.get_context("spawn")
    targets = [worker for worker in workers for _ in range(clients)]
    found = []
    with ProcessPoolExecutor(len(targets), mp_context=context) as pool:
        for name, action, how in (("write", _write, "CRC checked, sealed"), ("read", _read, _HOW_READ)):
            begin = time.time() + 2.0 + len(targets)  # when every process has made its batches
            loads = [_Load(each.address, cluster_id, shuffle, at, begin) for at, each in enumerate(targets)]
            futures = [pool.submit(_in_process, action, load) for load in loads]
            time.sleep(max(0.0, begin - time.time()))  # the measurement starts when the clients do
            cpu, wall = sum(cpu_seconds(each.pid) for each in workers), time.perf_counter()
            total = sum(future.result(_SECONDS_MAX) for future in futures)
            cpu, wall = sum(cpu_seconds(each.pid) for each in workers) - cpu, time.perf_counter() - wall
            note = f"{total / 1e9:.1f} GB, {counted(len(targets), 'client')}, {how}"
            found.append(_Moved(name, note, total, wall, cpu))
    return found


async def register(endpoints: str, partitions: int) -> tuple[str, ShuffleKey]:
    """Register an application with one shuffle; return the cluster's id too."""
    instance = secrets.token_bytes(16)
    async with ControlClient(endpoints) as control:
        await bare.register_application(control, instance, "bench")
        registered = await bare.register_shuffle(control, instance, 1, partitions)
        return control.cluster_id, bare.key_of(instance, 1, registered)


async def _connect(load: _Load) -> FrameClient:
    return await bare.connect(load.address, load.cluster_id, BufferPool(128 * MIB))


def _in_process(action: Callable[[_Load], Coroutine[Any, Any, int]], load: _Load) -> int:
    return asyncio.run(action(load))


async def _write(load: _Load) -> int:
    """Write this client's files; returns bytes."""
    pushes, totals = _region(load)
    client = await _connect(load)
    await asyncio.sleep(max(0.0, load.begin - time.time()))
    for epoch in range(_FILES_PER_CLIENT):
        file = MapFileKey(load.shuffle, MapId(load.client), AttemptId(0), Epoch(epoch))
        await bare.write(client, file, _PARTITIONS, pushes)
        await bare.seal(client, file, totals)
    client.close()
    return totals.size_bytes * _FILES_PER_CLIENT


def _region(load: _Load) -> tuple[list[bare.Push], FileTotals]:
    """One region as pushes, and its totals; the same for every epoch of the client's map."""
    payload = secrets.token_bytes(_BATCH_BYTES)
    runs: list[tuple[int, int]] = []
    parts: list[bytes] = []
    pushes: list[bare.Push] = []
    writers: list[BatchWriter] = []
    size = 0
    for partition in range(_PARTITIONS):
        writer = BatchWriter(MapId(load.client), AttemptId(0), partition_seed(load.shuffle, PartitionId(partition)))
        writers.append(writer)
        for number in range(_BATCHES_PER_PARTITION):
            last = number == _BATCHES_PER_PARTITION - 1
            parts += [writer.header(payload, last=last), payload]
        run = sum(map(len, parts)) - sum(length for _, length in runs)
        runs.append((partition, run))
        size += run
        end = partition == _PARTITIONS - 1
        if end or sum(length for _, length in runs) + run > _FRAME_BYTES:
            pushes.append((0, PushFlag.END if end else 0, runs, b"".join(parts)))
            runs, parts = [], []
    return pushes, bare.totals_of(writers, 1, size)


async def _read(load: _Load) -> int:
    """Read all of this client's files by ranges of partitions; returns bytes."""
    client = await _connect(load)
    await asyncio.sleep(max(0.0, load.begin - time.time()))
    total = 0
    for _ in range(_READ_ROUNDS):
        for begin in range(0, _PARTITIONS, _RANGE):
            total += await _read_range(client, load, begin)
    client.close()
    return total


async def _read_range(client: FrameClient, load: _Load, begin: int) -> int:
    request = StreamOpen(
        shuffle=load.shuffle,
        begin=PartitionId(begin),
        end=PartitionId(begin + _RANGE),
        credit_bytes=_CREDIT_BYTES,
        files=[(load.client, 0, epoch) for epoch in range(_FILES_PER_CLIENT)],
    )
    total = 0

    def take(_: StreamData, body: memoryview) -> None:
        nonlocal total
        total += len(body)

    await bare.drain(client, request, take)
    return total
