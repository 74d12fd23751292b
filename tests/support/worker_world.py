"""A cluster of one master and one worker, with a shuffle that the masters know, as tests of the worker need it."""

import asyncio
import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from google.protobuf.message import Message

from holdfast.client.cluster.local import LocalCluster
from holdfast.client.cluster.server import Server
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.messages import Hello
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import BufferPool
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.support.map_data import shuffle_key
from tests.support.waiting import gone

HOLDER = bytes(range(16))


class World:
    """One master, one worker, and a shuffle that the masters know."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.instance = os.urandom(16)
        self.shuffles = 0

    @property
    def worker(self) -> Server:
        """The worker's process."""
        return self.cluster.workers[0]

    def status(self) -> dict:
        """The worker's /status."""
        with urllib.request.urlopen(f"http://{self.worker.http}/status", timeout=60) as answer:
            return json.load(answer)

    def count(self, name: str) -> int:
        """One of the worker's counters."""
        return self.status()["counters"][name]

    async def call(self, method: str, request: Message) -> Any:
        """Call the masters."""
        async with ControlClient(self.cluster.endpoints) as control:
            return await control.call(method, request)

    async def new_shuffle(self) -> ShuffleKey:
        """Register the application and another shuffle of it."""
        await self.call(
            "Shuffles/RegisterApplication",
            pb.RegisterApplicationRequest(instance=self.instance, name="test", holder=HOLDER),
        )
        self.shuffles += 1
        key = pb.ShuffleKey(instance=self.instance, shuffle=self.shuffles, generation=0)
        request = pb.RegisterShuffleRequest(key=key, kind=pb.PARTITION_KIND_MAP, partitions=8, holder=HOLDER)
        registered = await self.call("Shuffles/RegisterShuffle", request)
        return shuffle_key(self.instance, self.shuffles, registered.state)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[FrameClient]:
        """A connection to the worker."""
        cluster_id = (self.cluster.directory / "cluster").read_text()
        host, port = self.worker.address.split(":")
        client = await FrameClient.connect(host, int(port), Hello(cluster_id=cluster_id), BufferPool(256 * MIB))
        try:
            yield client
        finally:
            client.abort()
            await gone(client)

    def restart(self) -> None:
        """Kill -9 and start."""
        self.worker.kill()
        self.worker.start()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's story on a loop of its own."""
    asyncio.run(asyncio.wait_for(story(), 120))


async def failure_of(asking: Awaitable[object]) -> Status | None:
    """The status that a request is refused with, or None if it is not."""
    try:
        await asking
    except HoldfastError as error:
        return error.status
    return None


async def refused(asking: Awaitable[object]) -> Status:
    """The status that a request is refused with."""
    status = await failure_of(asking)
    assert status is not None
    return status
