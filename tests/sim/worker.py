"""A simulated worker: the product's push and seal services and their cores on a simulated disk.

The product's registration too. What the other edges do is done here: dispatch of frames (data_server.py), and chunks by
request and answer instead of a stream under credit (stream_service.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast.common.errors import HoldfastError, ProtocolError, UnknownStreamError
from holdfast.common.formats.frame import FrameHeader, FrameType
from holdfast.common.formats.messages import Role
from holdfast.common.formats.reduce_messages import ChunksOpen, Push, Registered, Seal
from holdfast.common.ids import NO_WORKER, Epoch, Incarnation, PartitionId, ShuffleKey
from holdfast.worker.core.write.reduce import Reduce, SplitLimits
from holdfast.worker.server.membership.asking import Asking
from holdfast.worker.server.membership.departure import Departure
from holdfast.worker.server.membership.registration import Registration
from holdfast.worker.server.membership.worker_identity import (
    IdentityKeeper,
    KeptIdentity,
    WorkerAddresses,
    WorkerIdentity,
)
from holdfast.worker.server.observe.counters import Counters
from holdfast.worker.server.services.faults import Faults
from holdfast.worker.server.services.push_service import PushBounds, PushService
from holdfast.worker.server.services.refusal import refusal
from holdfast.worker.server.services.seal_service import SealService
from holdfast.worker.storage.reduce_layout import EpochKey
from tests.sim.clock import Life, VirtualLoop, here, pause
from tests.sim.disk import Disk, Store, name_of
from tests.sim.network import Dialer, Network, ServerEnd, greeting
from tests.sim.oracle import Oracle

#: The largest body: small, so that credit is scarce.
BODY_BYTES = 1024
#: How often a worker asks what it may delete.
CHECK_SECONDS = 1.5


class Kept(KeptIdentity):
    """The file `standing` on a simulated disk; a directory's path is its worker's name."""

    def write(self, directories: Iterable[Path]) -> None:
        for directory in directories:
            worker: Any = Dialer.network.servers[directory.name]
            worker.disk.standing = self


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
        self,
        number: int,
        loop: VirtualLoop,
        network: Network,
        rng: random.Random,
        oracle: Oracle,
        limits: SplitLimits,
        memory: int,
    ) -> None:
        self.name = f"w{number}"
        self._loop, self._network, self._oracle, self._limits, self._memory = loop, network, oracle, limits, memory
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
            self.standing = WorkerIdentity("sim", self.name, Incarnation(self.disk.incarnation), uid=self.disk.uid)
            kept = self.disk.standing
            if kept is not None:
                self.standing.given(kept.worker, kept.state, kept.raft_index)
            self.store = Store(self.disk, self.life, self._loop, self._die, lambda key: self._oracle.deleted(self, key))
            self.store.speed = self.speed
            self.counters = counters = Counters()
            store: Any = self.store
            asking = self.asking = Asking()
            asking.learn(store.shuffles())
            reduce = Reduce(self.standing.incarnation, store.choose, self._limits)
            self.seals = SealService(store, counters, reduce)
            bounds = PushBounds(self._memory)
            self.pushes = PushService(store, self.standing, counters, Faults(), asking, self.seals, bounds)
            self._accept(self.standing.worker != NO_WORKER, "the masters do not know this worker yet")
            self._network.servers[self.name] = self
            server: Any = SimpleNamespace(
                accept=self._accept,
                begin=reduce.begin,
                renumber=partial(self._network.close_all, self.life),
                forget=self._forget,
                sealed_only=self.pushes.reduce.sealed_only,
                pushes=self.pushes,
                drain=self.pushes.drain,
                asking=asking,
                writing=0,
            )
            place = WorkerAddresses(self.name, "", f"{self.name}:1", f"{self.name}:2", "1")
            departure = Departure(server, self.standing, 0, asyncio.Event())
            self._loop.create_task(
                Registration(
                    store, self.standing, IdentityKeeper(store, self.standing), counters, server, place, departure, int
                ).run("")
            )
            self._loop.create_task(self._tick())
        finally:
            here.reset(token)

    def _forget(self, shuffle: ShuffleKey) -> None:
        """See data_server.py."""
        self.asking.forget(shuffle)
        self.pushes.reduce.forget(shuffle)

    def _accept(self, yes: bool, why_not: str = "") -> None:
        """See data_server.py."""
        self.pushes.reduce.closed_because = "" if yes else why_not
        self.number = self.standing.worker or self.number

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

    async def _tick(self) -> None:
        while True:
            await pause(1.0)
            self.pushes.tick(int(self._loop.now * 1e9) + 10**12)
            self.asking.tick(int(self._loop.now * 1e9) + 10**12)
            self.asking.registered.check()
            self.pushes.reduce.check()
            Kept.of(self.standing).write([Path(self.name)])

    # As data_server.py.

    def accept(self, end: ServerEnd) -> object:
        end.extra["worker"] = self
        return greeting(self.standing.worker, self.standing.incarnation, self.standing.uid)

    def lost(self, end: ServerEnd) -> None:
        self.pushes.lost(end)  # type: ignore[arg-type]

    def handle(self, end: ServerEnd, header: FrameHeader, meta: bytes, body: bytes) -> None:
        watched: Any = _Watched(self, end, meta, body)
        try:
            self._dispatch(watched, header, meta, body)
        except ProtocolError:
            end.link.broke()
        except Exception as error:  # noqa: BLE001 - as the product answers it
            end.refuse(header, refusal(error))

    def _dispatch(self, end: Any, header: FrameHeader, meta: bytes, body: bytes) -> None:
        kind = header.type
        if kind in (FrameType.PUSH, FrameType.REPLICATE):
            if self.pushes.admit(end, header, end.role):
                self.pushes.push(end, header, meta, SimBody(body))  # type: ignore[arg-type]
        elif kind is FrameType.PUSH_CREDIT:
            self.pushes.credit(end, header, meta, end.role)
        elif kind is FrameType.SEAL:
            self.seals.seal(end, header, meta)
        elif kind is FrameType.REGISTERED:
            registered = Registered.decode(meta)
            self.asking.placed(registered.shuffle, registered.workers)
            end.reply(header, b"")
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
            for number, chunk in enumerate(chunks[first:], first):
                cut = [batch for batch in chunk if request.map_begin <= name_of(key, batch).map < request.map_end]
                if cut or number == len(chunks) - 1:
                    pieces.append((index, number, b"".join(cut)))
        return counts, pieces


class _Watched:
    """A connection whose answers the oracle sees."""

    def __init__(self, worker: SimWorker, end: ServerEnd, meta: bytes, body: bytes) -> None:
        self._worker, self._end, self._meta, self._body = worker, end, meta, body
        self.number = end.number
        self.role: Role = end.role

    @property
    def closed(self) -> bool:
        return self._end.closed

    def reply(self, header: FrameHeader, meta: Any) -> None:
        worker = self._worker
        if worker.life.alive:
            if header.type in (FrameType.PUSH, FrameType.REPLICATE):
                push, to_client = Push.decode(self._meta), header.type is FrameType.PUSH
                worker._oracle.acknowledged(worker, push, self._body, meta, to_client=to_client)
            elif header.type is FrameType.SEAL:
                worker._oracle.sealed(worker, Seal.decode(self._meta), meta)
        self._end.reply(header, meta)

    def refuse(self, header: FrameHeader, error: HoldfastError) -> None:
        self._end.refuse(header, error)
