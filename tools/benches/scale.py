"""The masters' part of a very large shuffle: 50,000 maps, 50,000 partitions, 100 TB in two copies on 1,500 workers.

Every partition is larger than one epoch may be, so each has two. The workers are simulated by one process: they
register, and answer the masters' seals at once with what one of them would have; nothing is pushed. So a figure is what
masters, network and encoding take, without the disks, and the process of the workers shares the machine. What one host
takes of the data itself is in docs/internals/performance.md.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.errors import ProtocolError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Hello, HelloOk
from holdfast.common.formats.reduce_layouts import ReduceLocations, ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import Seal, SealAnswer, SealedEpoch
from holdfast.common.ids import AttemptId, Epoch, Incarnation, PartitionId, WorkerId
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, GIB, MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.server import FrameServer, ServerConnection, serve
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from holdfast.common.system.descriptors import raise_descriptor_limit
from holdfast.tools.bare import reduce_request, register_application, shuffle_key
from holdfast.tools.benches.commands import longest_turn
from holdfast.tools.benches.figures import Figure
from holdfast.tools.benches.fleet import HOSTS, register, registrations
from holdfast.tools.benches.process_stats import cpu_seconds, pss_bytes
from holdfast.tools.cli.output import percentile

#: For the masters of this section: the workers send no heartbeats.
SETTINGS: Mapping[str, Mapping[str, object]] = {"lease": {"worker": "1h"}}
#: Partitions that writers ask new places for in one call.
_REVIVED = 500
#: Executors that ask for the manifest, and how many of them at once.
_READERS, _READERS_AT_ONCE = 64, 8
#: For an answer; this machine may be busy.
_SECONDS_MAX = 120.0
#: Of the epochs, which are all alike.
_BATCHES, _CHUNKS = 50_000, 1_024


class Size(NamedTuple):
    """How large the shuffle is."""

    hosts: int = HOSTS
    maps: int = 50_000
    partitions: int = 50_000


def scale(cluster: LocalCluster) -> list[Figure]:
    """Register one such shuffle, move each partition once, commit it, and have executors ask for the manifest."""
    return asyncio.run(measure(cluster, Size()))


async def measure(cluster: LocalCluster, size: Size) -> list[Figure]:
    """The same for any size. Raises AssertionError if the manifest is not what the workers answered."""
    raise_descriptor_limit()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ControlClient(cluster.endpoints))
        await _workers(client, size, stack)
        leader = await asyncio.to_thread(cluster.leader)
        empty = pss_bytes(leader.pid)
        instance = secrets.token_bytes(16)
        await register_application(client, instance, "bench")
        began = time.perf_counter()
        reply = await client.call("Shuffles/RegisterShuffle", reduce_request(instance, 0, size.partitions, size.maps))
        registering = time.perf_counter() - began
        moving = await _move(client, instance, size)
        winners = ReduceWinners(size.partitions, tuple(map(AttemptId, range(size.maps)))).encode()
        request = pb.CommitRequest(key=shuffle_key(instance, 0), winners_array=winners, holder=instance)
        began, cpu = time.perf_counter(), cpu_seconds(leader.pid)
        committed = await client.call("Shuffles/Commit", request, _SECONDS_MAX)
        committing, cpu_of_commit = time.perf_counter() - began, cpu_seconds(leader.pid) - cpu
        assert (committed.lost, committed.under_replicated) == (0, 0), committed
        cpu = cpu_seconds(leader.pid)
        times, manifest = await _read(client, instance)
        cpu_of_manifest = (cpu_seconds(leader.pid) - cpu) / len(times)
    pairs = {row.workers for row in ReduceLocations.decode(reply.assignment_array).partitions}
    decoding = time.perf_counter()
    epochs = ReduceManifest.decode(manifest).epochs
    decoding = time.perf_counter() - decoding
    assert len(epochs) == 2 * size.partitions, len(epochs)
    assert all([copy.status for copy in each.copies] == [Status.OK, Status.OK] for each in epochs)
    turn = await asyncio.to_thread(longest_turn, cluster)
    shuffled = f"{size.maps:,} maps × {size.partitions:,} partitions, 2 copies on {size.hosts:,} workers"
    sealed = f"{len(epochs):,} epochs of {GIB // MIB:,} MiB, sealed twice each; workers answer at once"
    asked = f"{len(times)} executors, {_READERS_AT_ONCE} at once; {sum(times) / len(times) * 1e3:.0f} ms on average"
    held = f"before: {empty / MIB:.0f} MiB"
    return [
        Figure("scale", "registered", registering, "s", note=shuffled),
        Figure("scale", "its answer, with all places", len(reply.assignment_array), "B"),
        Figure("scale", "pairs of workers in it", len(pairs), "", note="frames are filled by pair"),
        Figure("scale", f"new places for {_REVIVED} partitions, median", percentile(moving, 0.5), "s"),
        Figure("scale", "committed", committing, "s", note=sealed),
        Figure("scale", "the same, CPU of the leader", cpu_of_commit, "s"),
        Figure("scale", "the winners that the driver sends", len(winners), "B"),
        Figure("scale", "the manifest asked for, p99", percentile(times, 0.99), "s", note=asked),
        Figure("scale", "the same, CPU of the leader for each", cpu_of_manifest, "s"),
        Figure("scale", "the manifest", len(manifest), "B"),
        Figure("scale", "the manifest decoded in Python", decoding, "s"),
        Figure("scale", "longest turn of a Raft thread", turn, "s", note="disk included"),
        Figure("scale", "the leader's memory, PSS", pss_bytes(leader.pid), "B", note=held),
    ]


async def _workers(client: ControlClient, size: Size, stack: AsyncExitStack) -> None:
    """Have workers that answer until the stack is left."""
    pool, made = BufferPool(FRAME_BODY_BYTES_MAX), registrations(size.hosts)
    workers = [_Worker(each.uid) for each in made]
    for each, worker in zip(made, workers, strict=True):
        server: FrameServer = await serve("127.0.0.1", 0, worker, pool)
        stack.push_async_callback(server.close)
        each.data_address = f"127.0.0.1:{server.address[1]}"
    for beat, worker in zip(await register(client, made), workers, strict=True):
        worker.number = WorkerId(beat.worker)


async def _move(client: ControlClient, instance: bytes, size: Size) -> list[float]:
    """Have every first epoch be full, as writers find it; returns the seconds of each call."""
    times = []
    for first in range(0, size.partitions, _REVIVED):
        full = [
            pb.FailedEpoch(partition=partition, epoch=0, status=Status.SOFT_SPLIT)
            for partition in range(first, min(size.partitions, first + _REVIVED))
        ]
        began = time.perf_counter()
        request = pb.ReviveRequest(key=shuffle_key(instance, 0), failed=full, holder=instance)
        reply = await client.call("Shuffles/Revive", request)
        times.append(time.perf_counter() - began)
        assert len(reply.locations) == len(full), reply.room
    return times


async def _read(client: ControlClient, instance: bytes) -> tuple[list[float], bytes]:
    """Ask for the manifest as executors do; returns the seconds of each call, and the manifest."""
    times: list[float] = []
    request = pb.GetManifestRequest(key=shuffle_key(instance, 0), holder=instance)

    async def ask() -> bytes:
        found = b""
        for _ in range(_READERS // _READERS_AT_ONCE):
            began = time.perf_counter()
            reply = await client.call("Shuffles/GetManifest", request, _SECONDS_MAX)
            times.append(time.perf_counter() - began)
            found = reply.manifest_array
        return found

    manifest, *_ = await asyncio.gather(*(ask() for _ in range(_READERS_AT_ONCE)))
    return times, manifest


class _Worker:
    """Answers the leading master as a worker that has all there is to seal."""

    def __init__(self, uid: bytes) -> None:
        self._uid = uid
        #: as registered
        self.number = WorkerId(0)

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        """Accept whoever calls."""
        return HelloOk(worker=self.number, incarnation=Incarnation(1), uid=self._uid)

    def admit(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> bool:
        """Take no bodies: nothing is pushed."""
        connection.refuse(header, ProtocolError("this worker takes no data"))
        return False

    def frame(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
        """Seal what is asked for, and hear of shuffles."""
        if header.type == FrameType.SEAL:
            answers = [
                SealedEpoch(PartitionId(partition), Epoch(epoch), Status.OK, GIB, _BATCHES, _CHUNKS)
                for partition, epoch in Seal.decode(meta).epochs
            ]
            connection.reply(header, SealAnswer(answers).encode())
        elif header.type == FrameType.REGISTERED:
            connection.reply(header)
        else:
            connection.refuse(header, ProtocolError(f"this worker answers no {header.type}"))

    def writable(self, connection: ServerConnection) -> None:
        """Answers are short."""

    def hurried(self) -> bool:
        """Nobody waits for bodies."""
        return False

    def lost(self, connection: ServerConnection) -> None:
        """Nothing is kept of a connection."""
