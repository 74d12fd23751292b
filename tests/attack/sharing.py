"""What one application takes and keeps of a server, as much as it gets: a user runs it for many applications."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
from grpc import aio

from holdfast.common.errors import ForbiddenError, RetryError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import MapOpen, StreamOpen
from holdfast.common.formats.reduce_messages import PushAnswer, PushCredit
from holdfast.common.ids import Incarnation, PartitionId
from holdfast.common.limits import MIB, PUSH_BATCHES_MAX
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.net.keys import key_in
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.attack.bodies import begin_commit
from tests.attack.streams import PARTITIONS, written
from tests.attack.target import Target
from tests.support.map_data import file_key
from tests.support.reduce_data import Writer

#: Takes and keeps as much as it gets, at most so much, until the stack ends; returns how much that was.
Taking = Callable[[Target, AsyncExitStack, int], Awaitable[int]]
#: Batches of one push, each of another partition.
_BATCHES = PUSH_BATCHES_MAX // 4
#: Files of one connection, and of one stream.
_FILES = 256
_SHUFFLE = 77
_TIMES_REFUSED = 3


async def _client(target: Target, stack: AsyncExitStack) -> FrameClient:
    client = await target.worker(target.cluster.workers[0])
    stack.callback(client.abort)
    return client


async def epochs(target: Target, stack: AsyncExitStack, most: int) -> int:
    """Open epochs on a worker with one push after the other."""
    shuffle = await target.register(_SHUFFLE, kind=pb.PARTITION_KIND_REDUCE, partitions=8, maps=1)
    stack.push_async_callback(end, target)
    client, writer, opened = await _client(target, stack), Writer(key_in(shuffle)), 0
    while opened < most:
        batches = [writer.batch(partition, b"x") for partition in range(opened, opened + _BATCHES)]
        meta, body = writer.push(batches, client.hello.incarnation)
        await client.request(FrameType.PUSH_CREDIT, PushCredit(2 * MIB).encode())
        refused = PushAnswer.decode((await client.request(FrameType.PUSH, meta, body)).meta).statuses
        assert {status for _, status in refused} <= {Status.NO_ROOM}
        opened += _BATCHES - len(refused)
        if refused:
            break
    return opened


async def plans(target: Target, stack: AsyncExitStack, most: int) -> int:
    """Open streams over many MAP files, which take memory for what they plan."""
    client, files = await written(target, _FILES)
    stack.callback(client.abort)
    every: list[tuple[int, int, int]] = [(file.map, file.attempt, file.epoch) for file in files]
    request = StreamOpen(
        shuffle=files[0].shuffle, begin=PartitionId(0), end=PartitionId(PARTITIONS), credit_bytes=0, files=every
    ).encode()
    opened = refused = 0
    while opened < most and refused < _TIMES_REFUSED:  # a connection has a bound of its own
        try:
            await client.request(FrameType.STREAM_OPEN, request)
            opened += 1
        except RetryError:
            refused += 1
            client = await _client(target, stack)
    return opened


async def map_files(target: Target, stack: AsyncExitStack, most: int) -> int:
    """Open MAP files, and write nothing."""
    shuffle = key_in(await target.register(_SHUFFLE, kind=pb.PARTITION_KIND_MAP, partitions=8, maps=0))
    stack.push_async_callback(end, target)
    client, opened = await _client(target, stack), 0
    while opened < most:
        if opened and opened % _FILES == 0:
            client = await _client(target, stack)
        try:
            request = MapOpen(file=file_key(shuffle, opened), incarnation=Incarnation(0), partitions=8)
            await client.request(FrameType.MAP_OPEN, request.encode())
            opened += 1
        except RetryError:
            break
    return opened


async def connections(target: Target, stack: AsyncExitStack, most: int) -> int:
    """Open connections to a worker, and say nothing but HELLO."""
    for opened in range(most):
        try:
            await _client(target, stack)
        except RetryError:
            return opened
    return most


async def long_polls(target: Target, stack: AsyncExitStack, most: int) -> int:
    """Wait over gRPC for the commit of a shuffle that nobody commits; returns about how many calls wait."""
    return sum(not each.done() for each in await ask_long_polls(target, stack, most))


async def ask_long_polls(target: Target, stack: AsyncExitStack, most: int) -> set[asyncio.Task[bytes]]:
    """Begin to wait over gRPC for the commit of a shuffle that nobody commits; what is refused ends soon."""
    key = await target.register(_SHUFFLE, kind=pb.PARTITION_KIND_REDUCE, partitions=8, maps=1)
    request = pb.GetManifestRequest(key=key, holder=target.instance, wait_ms=30_000).SerializeToString()
    metadata = (("authorization", f"Bearer {target.application.token}"),)
    credentials = grpc.ssl_channel_credentials(target.application.ca_pem.encode())
    waiting: set[asyncio.Task[bytes]] = set()
    for number in range(0, most, 1_000):  # of one connection gRPC takes 1,024
        options = (("grpc.use_local_subchannel_pool", 1),)
        channel = aio.secure_channel(target.grpc[0], credentials, options)
        stack.push_async_callback(channel.close)
        call: Any = channel.unary_unary("/holdfast.v1.Shuffles/GetManifest")
        for _ in range(min(1_000, most - number)):
            waiting.add(asyncio.ensure_future(_answer(call(request, metadata=metadata, timeout=60))))
        # What was asked before has arrived by now.
        last: Any = channel.unary_unary("/holdfast.v1.Shuffles/Discover")
        await _answer(last(b"", metadata=metadata, timeout=60))
    for each in waiting:
        stack.callback(each.cancel)
    return waiting


async def _answer(call: Awaitable[bytes]) -> bytes:
    try:
        return await call
    except aio.AioRpcError as error:
        return error.code().name.encode()


async def bodies_of_ended(target: Target, stack: AsyncExitStack) -> asyncio.Task[str]:
    """End the application, then begin a commit of 62 MiB with its token; see begin_commit."""
    await end(target)
    return await begin_commit(target, stack)


async def end(target: Target) -> None:
    """The application ends; one that has ended is nobody's."""
    async with ControlClient(target.cluster.endpoints, target.user) as control:
        with suppress(ForbiddenError):
            await control.call("Admin/Forget", pb.ForgetRequest(instance=target.instance))


async def ask_window(target: Target, stack: AsyncExitStack, size: int) -> asyncio.Task[int]:
    """Ask for a window on a connection of its own; the task ends with how much was granted."""
    client = await _client(target, stack)

    async def ask() -> int:
        reply = await client.request(FrameType.PUSH_CREDIT, PushCredit(size).encode())
        return PushCredit.decode(reply.meta).size_bytes

    task = asyncio.ensure_future(ask())
    stack.callback(task.cancel)
    return task
