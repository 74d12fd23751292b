"""Applications, shuffles, map files and streams by the bare protocols: what drills and benchmarks share.

The client library does more: it verifies, retries and reads from other copies. Here one sees what a server answers.
All coroutines raise what the server or the wire says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import (
    Ack,
    DataFlag,
    FileTotals,
    Hello,
    MapOpen,
    MapOpened,
    MapPush,
    MapSeal,
    MapSealed,
    StreamData,
    StreamOpen,
)
from holdfast.common.ids import Generation, Incarnation, Instance, MapFileKey, ShuffleId, ShuffleKey, StateId
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.client import ClientStream, FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.security.credentials import CredentialsProvider

#: Takes the runs' description and their bytes, which are valid during the call only.
Take = Callable[[StreamData, memoryview], None]
#: Region, flags, runs and body of a push.
Push = tuple[int, int, list[tuple[int, int]], bytes]

_DEADLINE_S = 30.0


# What masters are asked.


async def register_application(
    control: ControlClient, instance: bytes, name: str, *, lease_ms: int = 0, deadline_s: float = _DEADLINE_S
) -> pb.RegisterApplicationReply:
    """Register an application that holds its own lease; `lease_ms` 0 is the cluster's default."""
    request = pb.RegisterApplicationRequest(instance=instance, name=name, holder=instance, lease_ms=lease_ms)
    reply: pb.RegisterApplicationReply = await control.call("Shuffles/RegisterApplication", request, deadline_s)
    return reply


def shuffle_key(instance: bytes, shuffle: int) -> pb.ShuffleKey:
    """The first generation of a shuffle, as it is registered."""
    return pb.ShuffleKey(instance=instance, shuffle=shuffle, generation=0)


def reduce_request(instance: bytes, shuffle: int, partitions: int, maps: int = 1) -> pb.RegisterShuffleRequest:
    """What registers one of REDUCE partitions with two copies, of an application that holds its own lease."""
    return pb.RegisterShuffleRequest(
        key=shuffle_key(instance, shuffle),
        kind=pb.PARTITION_KIND_REDUCE,
        partitions=partitions,
        maps=maps,
        copies=2,
        ack=Ack.WRITTEN,
        holder=instance,
    )


async def register_shuffle(
    control: ControlClient,
    instance: bytes,
    shuffle: int,
    partitions: int,
    *,
    maps: int = 0,
    deadline_s: float = _DEADLINE_S,
) -> pb.RegisterShuffleReply:
    """Register a shuffle of MAP partitions."""
    request = pb.RegisterShuffleRequest(
        key=shuffle_key(instance, shuffle),
        kind=pb.PARTITION_KIND_MAP,
        partitions=partitions,
        maps=maps,
        ack=Ack.WRITTEN,
        holder=instance,
    )
    reply: pb.RegisterShuffleReply = await control.call("Shuffles/RegisterShuffle", request, deadline_s)
    return reply


def key_of(instance: bytes, shuffle: int, registered: pb.RegisterShuffleReply) -> ShuffleKey:
    """The key of the shuffle for workers."""
    return ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(0), StateId(registered.state))


# What workers are asked.


async def connect(
    address: str, cluster_id: str, pool: BufferPool, credentials: CredentialsProvider | None = None
) -> FrameClient:
    """Connect to a worker and say HELLO."""
    host, _, port = address.rpartition(":")
    return await FrameClient.connect(host, int(port), Hello(cluster_id=cluster_id), pool, credentials=credentials)


async def write(client: FrameClient, file: MapFileKey, partitions: int, pushes: Iterable[Push]) -> None:
    """Open a map file and push all of it, up to the last acknowledgement."""
    request = MapOpen(file=file, incarnation=Incarnation(0), partitions=partitions, ack=Ack.WRITTEN)
    reply = await client.request(FrameType.MAP_OPEN, request.encode())
    handle = MapOpened.decode(reply.meta).handle
    answers = []
    for region, flags, runs, body in pushes:
        push = MapPush(handle=handle, region=region, flags=flags, runs=runs)
        answer = await client.start(FrameType.MAP_PUSH, push.encode(), body)
        # When the connection is lost, all answers fail, but one of them is enough to report.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        answers.append(answer)
    await asyncio.gather(*answers)


def totals_of(writers: Collection[BatchWriter], regions: int, size_bytes: int) -> FileTotals:
    """What the seal of a file says of batches that these have made."""
    return FileTotals(
        regions=regions,
        batches=sum(writer.batches for writer in writers),
        size_bytes=size_bytes,
        crc_sum=sum(writer.crc_sum for writer in writers) & 0xFFFF_FFFF_FFFF_FFFF,
    )


async def seal(client: FrameClient, file: MapFileKey, totals: FileTotals) -> MapSealed:
    """Seal a map file, or ask again whether it is sealed."""
    reply = await client.request(FrameType.MAP_SEAL, MapSeal(file=file, totals=totals).encode())
    return MapSealed.decode(reply.meta)


async def drain(client: FrameClient, request: StreamOpen, take: Take) -> None:
    """Open the stream and return at its end; raises what the worker or the wire says."""
    sink = _Drain(take, request.credit_bytes // 2)
    stream = await client.open_stream(request, sink)
    sink.begin(stream)
    try:
        await sink.ended
    finally:
        stream.close()


class _Drain:
    """A StreamSink that gives back the credit it used, in steps of `step_bytes`."""

    def __init__(self, take: Take, step_bytes: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # If the connection is lost while the stream is being opened, the end has no waiter any more.
        self.ended.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._take = take
        self._step_bytes = step_bytes
        self._stream: ClientStream | None = None
        self._owed = 0

    def begin(self, stream: ClientStream) -> None:
        """The stream is known; data may have come before."""
        self._stream = stream
        self._give_back()

    def data(self, data: StreamData, body: Body | None) -> None:
        """Take the next piece (called by the connection)."""
        if body is not None:
            self._take(data, body.view)
            self._owed += len(body)
            body.release()
            self._give_back()
        if data.flags & DataFlag.END and not self.ended.done():
            self.ended.set_result(None)

    def failed(self, error: HoldfastError) -> None:
        """The stream ended early (called by the connection)."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def _give_back(self) -> None:
        if self._stream is not None and self._owed >= self._step_bytes:
            self._stream.credit(self._owed)
            self._owed = 0
