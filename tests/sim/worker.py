"""A simulated worker: the product's push and seal services and their cores on a simulated disk.

What the edges around them do is done here: dispatch of frames (data_server.py), registration and heartbeats
(registration.py), and chunks by request and answer instead of a stream under credit (stream_service.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from holdfast.common.errors import HoldfastError, ProtocolError, UnknownStreamError
from holdfast.common.frame import FrameHeader, FrameType
from holdfast.common.ids import NO_WORKER, Epoch, Incarnation, PartitionId, WorkerId
from holdfast.common.messages import Role
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.reduce_messages import ChunksOpen, Push, Seal
from holdfast.worker.core.reduce import Limits
from holdfast.worker.server.counters import Counters
from holdfast.worker.server.faults import Faults
from holdfast.worker.server.push_service import PushService
from holdfast.worker.server.seal_service import SealService
from holdfast.worker.server.standing import Standing
from holdfast.worker.storage.reduce_layout import EpochKey
from tests.sim.clock import Life, VirtualLoop, here, pause
from tests.sim.control import Control
from tests.sim.disk import Disk, Store
from tests.sim.network import Network, ServerEnd, greeting
from tests.sim.oracle import Oracle

HEARTBEAT_SECONDS = 0.5


class SimBody:
    """Stands for common/net/buffers.Body."""

    def __init__(self, data: bytes) -> None:
        self.view = memoryview(data)

    def __len__(self) -> int:
        return len(self.view)

    def release(self) -> None:
        """It is the collector's."""


class SimWorker:
    """One worker, over all its starts."""

    def __init__(
        self, number: int, loop: VirtualLoop, network: Network, rng: random.Random, oracle: Oracle, limits: Limits
    ) -> None:
        self.name = f"w{number}"
        self._loop, self._network, self._oracle, self._limits = loop, network, oracle, limits
        self.disk = Disk(number, rng)
        self.life = Life(self.name)
        self.life.alive = False
        #: told when the process dies by itself
        self.on_crash: Callable[[SimWorker], None] = lambda _: None
        self.number = NO_WORKER
        self.speed = 0.01
        #: reasons why data may be lost here
        self.sins: dict[str, None] = {}

    def start(self) -> None:
        if self.life.alive:
            return
        self.life = Life(self.name)
        self.disk.armed = None
        self.disk.incarnation += 1
        token = here.set(self.life)
        try:
            self.standing = Standing("sim", self.name, Incarnation(self.disk.incarnation), WorkerId(self.number))
            self.store = Store(self.disk, self.life, self._loop, self._die)
            self.store.speed = self.speed
            counters = Counters()
            store: Any = self.store
            self.pushes = PushService(store, self.standing, counters, Faults(), memory=8 << 20, limits=self._limits)
            self.seals = SealService(store, self.standing, counters, self.pushes.reduce)
            self.pushes.accept(self.number != NO_WORKER, "the masters do not know this worker yet")
            self._network.servers[self.name] = self
            self._loop.create_task(self._register())
            self._loop.create_task(self._tick())
        finally:
            here.reset(token)

    def _die(self) -> None:
        """The process ends by itself, in the middle of what it does."""
        self.life.alive = False
        self._loop.call_soon(self.on_crash, self)

    def crash(self, power: bool) -> None:
        """Kill the process, or cut the power of the machine."""
        self._network.host_ended(self.name)
        self.life.end()
        self.sins["killed"] = None
        if power:
            self.sins["power"] = None
            self.disk.power_loss()

    # As registration.py.

    async def _register(self) -> None:
        control = Control(self._network)
        while True:
            try:
                directory = pb.Directory(
                    id=self.disk.directory, path="/d", tier="SSD", healthy=True, free_bytes=1 << 40
                )
                request = pb.RegisterWorkerRequest(
                    uid=self.disk.uid,
                    name=self.name,
                    incarnation=self.standing.incarnation,
                    host=self.name,
                    data_address=f"{self.name}:1",
                    http_address=f"{self.name}:2",
                    directories=[directory],
                    boot_id=self.disk.boot.decode(),
                    version="1",
                )
                reply = await control.call("Registry/RegisterWorker", request, 5.0)
                self.number = self.standing.worker = WorkerId(reply.worker)
                self.pushes.accept(True)
                while await self._beat(control, directory):
                    pass
            except HoldfastError:
                await pause(0.5)

    async def _beat(self, control: Control, directory: pb.Directory) -> bool:
        await pause(HEARTBEAT_SECONDS)
        directory.free_bytes = 0 if self.disk.full else 1 << 40
        request = pb.HeartbeatRequest(
            worker=self.standing.worker, incarnation=self.standing.incarnation, directories=[directory]
        )
        reply = await control.call("Registry/Heartbeat", request, 5.0)
        return not reply.reregister

    async def _tick(self) -> None:
        while True:
            await pause(1.0)
            self.pushes.tick(int(self._loop.now * 1e9) + 10**12)
            self.pushes.reduce.check()

    # As data_server.py.

    def accept(self, end: ServerEnd) -> object:
        end.extra["worker"] = self
        return greeting(self.standing.worker, self.standing.incarnation)

    def lost(self, end: ServerEnd) -> None:
        self.pushes.lost(end)  # type: ignore[arg-type]

    def handle(self, end: ServerEnd, header: FrameHeader, meta: bytes, body: bytes) -> None:
        watched: Any = _Watched(self, end, meta, body)
        try:
            self._dispatch(watched, header, meta, body)
        except ProtocolError:
            end.link.broke()
        except HoldfastError as error:
            end.refuse(header, error)

    def _dispatch(self, end: Any, header: FrameHeader, meta: bytes, body: bytes) -> None:
        kind = header.type
        if kind in (FrameType.PUSH, FrameType.REPLICATE):
            if self.pushes.admit(end, header, end.role):
                self.pushes.push(end, header, meta, SimBody(body))  # type: ignore[arg-type]
        elif kind is FrameType.PUSH_CREDIT:
            self.pushes.credit(end, header, meta, end.role)
        elif kind is FrameType.SEAL:
            self.seals.seal(end, header, meta)
        elif kind is FrameType.CHUNKS_OPEN:
            end.reply(header, self._chunks(ChunksOpen.decode(meta)))
        else:
            end.reply(header, b"")

    def _chunks(self, request: ChunksOpen) -> Any:
        """(incarnation, chunks of each file, [(file, chunk, bytes)])."""
        if self.disk.sick and self.disk.rng.random() < self.disk.sick:
            raise UnknownStreamError("a hiccup")
        counts, pieces = [], []
        for index, (partition, epoch, first) in enumerate(request.files):
            key = EpochKey(request.shuffle, PartitionId(partition), Epoch(epoch))
            chunks = self.store.chunks(key)
            counts.append(len(chunks))
            pieces += [(index, number, b"".join(chunks[number])) for number in range(first, len(chunks))]
        return counts, pieces


class _Watched:
    """A connection whose answers the oracle sees."""

    def __init__(self, worker: SimWorker, end: ServerEnd, meta: bytes, body: bytes) -> None:
        self._worker, self._end, self._meta, self._body = worker, end, meta, body
        self.number = end.number
        self.role: Role = end.role

    def reply(self, header: FrameHeader, meta: Any) -> None:
        worker = self._worker
        if worker.life.alive:
            if header.type in (FrameType.PUSH, FrameType.REPLICATE):
                worker._oracle.acknowledged(worker, Push.decode(self._meta), self._body, meta)
            elif header.type is FrameType.SEAL:
                worker._oracle.sealed(worker, Seal.decode(self._meta), meta)
        self._end.reply(header, meta)

    def refuse(self, header: FrameHeader, error: HoldfastError) -> None:
        self._end.refuse(header, error)
