"""A socket peer that answers seals like a worker, and a driver of REDUCE partitions, for tests of the masters.

The peer is made from the same frame server as the worker: it registers, answers HELLO and SEAL, and does nothing else.
A real worker cannot be told to hold a seal back, to have failed, or to have forgotten an epoch just when a test needs
it.
"""

import asyncio
import contextlib
import secrets
import urllib.request
from collections.abc import AsyncIterator, Sequence

from holdfast.client.cluster.local import LocalCluster
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Ack, Hello, HelloOk, Role
from holdfast.common.formats.reduce_layouts import EpochResult, ReduceLocations, ReduceManifest, ReduceWinners
from holdfast.common.formats.reduce_messages import ReplicaPlace, Seal, SealAnswer, SealedEpoch
from holdfast.common.ids import (
    AttemptId,
    Generation,
    Incarnation,
    Instance,
    ShuffleId,
    ShuffleKey,
    StateId,
    WorkerId,
)
from holdfast.common.limits import FRAME_BODY_BYTES_MAX, MIB
from holdfast.common.net.control import ControlClient
from holdfast.common.net.frames.buffers import Body, BufferPool
from holdfast.common.net.frames.server import FrameServer, ServerConnection, serve
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.cluster.masters import Driver, heartbeat, leader_of, silent, worker
from tests.support.reduce_data import RawClient, Writer


class Peer:
    """A worker as the masters see it: it registers, and answers seals with what the test wants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.incarnation = 0
        #: how often a master has asked who this is
        self.hellos = 0
        self.seals: list[Seal] = []
        #: what to say of an epoch that is not sealed well
        self.statuses: dict[tuple[int, int], Status] = {}
        #: how the next seals are refused
        self.refusals: list[HoldfastError] = []
        #: keep seals instead of answering
        self.hold = False
        self._held: list[tuple[ServerConnection, FrameHeader, Seal]] = []
        self._server: FrameServer
        self._beats: asyncio.Task[None] | None = None

    async def start(self, client: ControlClient, beat_s: float = 0.0, **changed: str) -> None:
        """Listen and register as the next incarnation; with heartbeats if the leases of the test are short."""
        await self.listen()
        await self.register(client, beat_s, **changed)

    async def listen(self, port: int = 0) -> None:
        """Answer as the next incarnation, which the masters do not know yet."""
        self.incarnation += 1
        self._server = await serve("127.0.0.1", port, self, BufferPool(FRAME_BODY_BYTES_MAX))
        self.port = self._server.address[1]

    async def register(self, client: ControlClient, beat_s: float = 0.0, **changed: str) -> None:
        """Have the masters know this incarnation."""
        host, port = self._server.address
        request = worker(self.name, self.incarnation, data_address=f"{host}:{port}", **changed)
        self.registered: pb.RegisterWorkerReply = await client.call("Registry/RegisterWorker", request)
        self.number = self.registered.worker
        if beat_s:
            self._beats = asyncio.create_task(self._beat(client, request, beat_s))

    async def stop(self) -> None:
        """Close the port and every connection, and be silent."""
        if self._beats is not None:
            self._beats.cancel()
        await self._server.close()

    def release(self) -> None:
        """Answer what was held, and from now on everything."""
        self.hold = False
        for held in self._held:
            self._answer(*held)
        self._held.clear()

    @property
    def sealed(self) -> set[tuple[int, int]]:
        """Every epoch that was named in a seal."""
        return {epoch for seal in self.seals for epoch in seal.epochs}

    async def _beat(self, client: ControlClient, request: pb.RegisterWorkerRequest, beat_s: float) -> None:
        beat = heartbeat(self.name, self.registered, directories=request.directories)
        while True:
            await client.call("Registry/Heartbeat", beat)
            await silent(beat_s, "the next heartbeat")

    def _answer(self, connection: ServerConnection, header: FrameHeader, seal: Seal) -> None:
        reported = []
        for partition, epoch in seal.epochs:
            status = self.statuses.get((partition, epoch), Status.OK)
            size = 100 if status == Status.OK else 0
            reported.append(SealedEpoch(partition, epoch, status, size))  # type: ignore[arg-type]
        connection.reply(header, SealAnswer(reported).encode())

    # What the frame server calls.

    def hello(self, connection: ServerConnection, hello: Hello) -> HelloOk:
        assert hello.role == Role.MASTER
        self.hellos += 1
        uid = worker(self.name).uid
        return HelloOk(worker=WorkerId(self.number), incarnation=Incarnation(self.incarnation), uid=uid)

    def admit(self, connection: ServerConnection, header: FrameHeader, meta: bytes) -> bool:
        raise AssertionError("masters send no bodies")

    def frame(self, connection: ServerConnection, header: FrameHeader, meta: bytes, body: Body | None) -> None:
        assert header.type == FrameType.SEAL
        seal = Seal.decode(meta)
        self.seals.append(seal)
        if self.refusals:
            connection.refuse(header, self.refusals.pop(0))
        elif self.hold:
            self._held.append((connection, header, seal))
        else:
            self._answer(connection, header, seal)

    def writable(self, connection: ServerConnection) -> None:
        """Nothing is queued here."""

    def hurried(self) -> bool:
        return False

    def lost(self, connection: ServerConnection) -> None:
        """Nothing is kept here."""


class ReduceDriver(Driver):
    """A driver with REDUCE partitions."""

    async def open(
        self,
        shuffle: int = 1,
        partitions: int = 8,
        copies: int = 1,
        ack: Ack = Ack.WRITTEN,
        generation: int = 0,
        failed_before: bool = False,
        to_write: bool = False,
        unusable: Sequence[int] = (),
    ) -> tuple[ReduceLocations, pb.RegisterShuffleReply]:
        request = pb.RegisterShuffleRequest(
            key=self.key(shuffle, generation),
            kind=pb.PARTITION_KIND_REDUCE,
            partitions=partitions,
            copies=copies,
            ack=ack,
            holder=self.holder,
            failed_before=failed_before,
            to_write=to_write,
            unusable_workers=unusable,
        )
        reply = await self.client.call("Shuffles/RegisterShuffle", request)
        return ReduceLocations.decode(reply.assignment_array), reply

    async def revive(
        self,
        epochs: Sequence[tuple[int, int]],
        status: Status = Status.UNAVAILABLE,
        unusable: Sequence[int] = (),
        client: ControlClient | None = None,
        generation: int = 0,
    ) -> list[pb.NewLocation]:
        failed = [pb.FailedEpoch(partition=partition, epoch=epoch, status=status) for partition, epoch in epochs]
        request = pb.ReviveRequest(
            key=self.key(1, generation), failed=failed, unusable_workers=unusable, holder=self.holder
        )
        return list((await (client or self.client).call("Shuffles/Revive", request)).locations)

    async def end(
        self, partitions: int = 8, attempt: int = 5, client: ControlClient | None = None, shuffle: int = 1
    ) -> pb.CommitReply:
        """Commit with one winning map."""
        array = ReduceWinners(partitions, (AttemptId(attempt),)).encode()
        request = pb.CommitRequest(key=self.key(shuffle), winners_array=array, holder=self.holder)
        reply: pb.CommitReply = await (client or self.client).call("Shuffles/Commit", request, deadline_s=60)
        return reply

    async def reported(self, offers: bool = False, wait_ms: int = 0) -> tuple[EpochResult, ...]:
        """The committed epochs, as a reader hears of them."""
        request = pb.GetManifestRequest(key=self.key(1), wait_ms=wait_ms, holder=self.holder, offers_winners=offers)
        reply = await self.client.call("Shuffles/GetManifest", request)
        assert reply.kind == pb.PARTITION_KIND_REDUCE
        return ReduceManifest.decode(reply.manifest_array).epochs

    async def info(self) -> pb.ShuffleInfo:
        listed = await self.client.call("Admin/ListShuffles", pb.ListShufflesRequest(instance=self.instance))
        return listed.shuffles[0]


async def push_one_each(driver: ReduceDriver, placed: ReduceLocations, reply: pb.RegisterShuffleReply, ack: Ack):
    """Push one batch to every partition, each to its worker and replica."""
    addresses = {each.worker: each for each in reply.workers}
    key = ShuffleKey(Instance(driver.instance), ShuffleId(1), Generation(0), StateId(reply.state))
    writer = Writer(key, map=0, attempt=5)
    for worker_id, at in addresses.items():
        host, port = at.address.split(":")
        raw = RawClient(*await asyncio.open_connection(host, int(port)))
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(raw.close)
            await raw.say_hello(Role.CLIENT, driver.client.cluster_id)
            await raw.credit(1 * MIB)
            for partition, place in enumerate(placed.partitions):
                if place.primary == worker_id:
                    others = [(one, addresses[one]) for one in place.workers[1:]]
                    replicas = tuple([ReplicaPlace(one, Incarnation(at.incarnation), at.address) for one, at in others])
                    assert await raw.push(writer, [writer.batch(partition, bytes(1000))], ack, replicas=replicas) == {}


def metric(cluster: LocalCluster, name: str) -> float:
    with urllib.request.urlopen(f"http://{leader_of(cluster).address}/metrics", timeout=60) as page:
        text = page.read().decode()
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


@contextlib.asynccontextmanager
async def world(
    cluster: LocalCluster, peers: int, beat_s: float = 0.0
) -> AsyncIterator[tuple[ReduceDriver, list[Peer]]]:
    """A driver with an application, and workers that are gone for good afterwards."""
    async with ControlClient(cluster.endpoints) as client:
        there = [Peer(f"p{secrets.token_hex(3)}") for _ in range(peers)]
        for peer in there:
            await peer.start(client, beat_s)
        driver = ReduceDriver(client)
        await driver.register()
        yield driver, there
        for peer in there:
            await peer.stop()
