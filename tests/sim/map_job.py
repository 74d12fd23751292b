"""An application with shuffles of MAP partitions beside the job: written, committed, read, and read again at the end.

`_MapSender`, `MapRegions`, `Spool` and the whole of `RangeReader` are the product's. `write` does what the thread of a
task does in writer.py, `MapReader.read` what it does in stream_reader.py.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from holdfast.client.compress import Compression
from holdfast.client.connection.addresses import known_addresses
from holdfast.client.core.write.route import locations
from holdfast.client.read.manifests import Manifest
from holdfast.client.read.reader import RangeReader, _Stream
from holdfast.client.read.stream_reader import Record
from holdfast.client.write import writer
from holdfast.client.write.region import MapPushFrame, MapRegions
from holdfast.client.write.spool import Spool
from holdfast.client.write.status import MapStatus, winners_of
from holdfast.common.errors import DataError, HoldfastError, NoRoomError, RetryError
from holdfast.common.formats.batch import Codec
from holdfast.common.formats.layouts import MapAssignment, MapWinner
from holdfast.common.formats.messages import Ack, StreamData
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Generation,
    Instance,
    MapId,
    PartitionId,
    ShuffleId,
    ShuffleKey,
    StateId,
    WorkerId,
)
from holdfast.common.net.keys import key_message
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.sim.client import CREDIT_BYTES, TICKET, Executor
from tests.sim.clock import Violation, here, pause
from tests.sim.network import SimBody

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario

INSTANCE = Instance(b"m" * 16)
HOLDER = b"M" * 16
#: The masters never think that this application is over.
_LEASE_MS = 3_600_000


@dataclass
class MapShuffleHere:
    """What a registration told; stands for client/shuffle.MapShuffle."""

    key: ShuffleKey
    ack: Ack
    partitions: int
    maps: int
    reply: pb.RegisterShuffleReply
    ticket: Any = TICKET
    #: (map, partition) -> payloads in their order, of the attempt that was committed
    written: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    manifest: Manifest | None = None

    def places(self, number: MapId) -> list[set[WorkerId]]:
        """Where the copies of a map may be: all of them are in one of these."""
        assignment = MapAssignment.decode(self.reply.assignment_array)
        return [{*locations(assignment, number, Epoch(turn))} for turn in range(len(assignment.workers))]

    @property
    def addresses(self) -> dict[WorkerId, str]:
        return known_addresses(self.reply.workers)

    def forget_manifest(self) -> None:
        """It is the same for ever here."""

    def dropped_error(self) -> None:
        """Nobody drops a shuffle that is read."""


@dataclass
class MapPlan:
    """One attempt: its regions, each partition with a payload, and how fast it makes them."""

    map: MapId
    attempt: AttemptId
    regions: list[list[tuple[int, bytes]]]
    pause: float

    def written(self) -> dict[tuple[int, int], list[bytes]]:
        """What a reader finds of it."""
        found: dict[tuple[int, int], list[bytes]] = {}
        for region in self.regions:
            for partition, payload in region:
                found.setdefault((self.map, partition), []).append(payload)
        return found


async def write(shuffle: MapShuffleHere, plan: MapPlan, rng: random.Random) -> MapStatus:
    """Run one attempt to its end; raises what ended it."""
    regions = MapRegions(shuffle.key, plan.map, plan.attempt, shuffle.partitions, Compression(Codec.NONE))
    spool, assignment = Spool(), MapAssignment.decode(shuffle.reply.assignment_array)
    sender = writer._MapSender(cast("Any", shuffle), assignment, plan.map, plan.attempt, spool)

    def add(frame: MapPushFrame) -> None:
        spool.add(frame)
        sender.add(frame.size)

    try:
        sender.start()
        for region in plan.regions:
            for frame in regions.region(region):
                add(frame)
            await pause(rng.uniform(0.0, plan.pause))
        for frame in regions.region((), final=True):
            add(frame)
        totals = regions.totals()
        sender.finish(totals)
        done = await asyncio.wrap_future(sender.outcome)
    finally:
        sender._core.check()
        sender.abort()
        spool.close()
    winner = MapWinner(
        attempt=plan.attempt,
        epoch=done.epoch,
        workers=done.workers,
        batches=totals.batches,
        size_bytes=totals.size_bytes,
        partitions=regions.bitmap(),
    )
    return MapStatus(shuffle.key, plan.map, shuffle.partitions, winner)


class _TurningStream(_Stream):
    """A sink to which a byte comes wrong now and then."""

    def data(self, data: StreamData, body: Any) -> None:
        if body is not None:
            body = SimBody(cast("MapReader", self._reader).turned(bytes(body.view)))
        super().data(data, body)


class _Queue:
    """Stands for the queue between the loop and a task's thread."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, event: object) -> None:
        self.events.put_nowait(event)


class MapReader(RangeReader):
    """A read of some partitions; the loop is the task's thread, too."""

    _SINK = _TurningStream

    def __init__(self, world: Scenario, shuffle: MapShuffleHere, begin: int, end: int) -> None:
        assert shuffle.manifest is not None, "it is committed"
        super().__init__(cast("Any", shuffle), shuffle.manifest, PartitionId(begin), PartitionId(end))
        self._world = world
        self._queue = _Queue()
        self.events = cast("Any", self._queue)
        self._credit_bytes = CREDIT_BYTES
        self._turned = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.found: dict[tuple[int, int], list[bytes]] = {}

    async def read(self) -> None:
        """Read to the end. Raises DataLostError, CorruptError and what else ends a read."""
        try:
            self._do(self._first())
            while not self._complete:
                await self._step()
        finally:
            for number in list(self._open):
                self._close(number)
            for task in self._tasks:
                task.cancel()

    async def _step(self) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds()):
                event = await self._queue.events.get()
        except TimeoutError:
            self._look_for_late()
            self._look_for_stalls()
            return
        if isinstance(event, partial):
            event()
        else:
            for record in self._on_piece(event):
                self._take(record)

    def _take(self, record: Record) -> None:
        self.found.setdefault((record.map, record.partition), []).append(bytes(record.payload))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def turned(self, body: bytes) -> bytes:
        """Once in a read a byte comes wrong: three times may be the end of it."""
        network = self._world.network
        if self._turned or network.rng.random() >= network.weather.turn:
            return body
        self._turned = True
        return bytes((body[0] ^ 1,)) + body[1:]


class MapJob:
    """The work of this application."""

    def __init__(self, world: Scenario) -> None:
        self._world = world
        # Of its own, so that the rest of a seed's story does not hang on it.
        self._rng = random.Random(f"maps {world.seed}")
        self.reads = self.lost_reads = self.attempts = 0
        self.where = ""
        #: committed, read, and not dropped
        self._kept: list[MapShuffleHere] = []

    async def run(self) -> None:
        """All of it, until faults have ended; runs as an executor of its own."""
        application = pb.RegisterApplicationRequest(
            instance=INSTANCE, name="maps", user="m", holder=HOLDER, lease_ms=_LEASE_MS
        )
        await self._call("Shuffles/RegisterApplication", application)
        number = 0
        while True:
            calm = self._world.calm
            ended = await self._shuffle(number)
            number += 1
            if calm and (ended or self._world.shape.capacity):
                return
            if self._kept and (len(self._kept) > 2 or self._rng.random() < 0.3):
                await self._drop(self._kept.pop(0))

    async def again(self) -> None:
        """Every worker was started anew: the same data."""
        self.where = "the last look"
        for shuffle in self._kept[-2:]:
            await self._read(shuffle)

    async def _call(self, method: str, request: Any) -> Any:
        return await here.get().runtime.control().call(method, request, 240.0)  # type: ignore[attr-defined]

    async def _shuffle(self, number: int) -> bool:
        """Write, commit and read one; whether it could be written."""
        shape, rng = self._world.shape, self._rng
        key = ShuffleKey(INSTANCE, ShuffleId(number), Generation(0))
        self.where = f"{key}: maps"
        shuffle = await self._registered(key)
        statuses = []
        for each in range(shape.maps):
            status = await self._map(shuffle, MapId(each))
            if status is None:
                return False
            statuses.append(status)
        winners = winners_of(statuses, shuffle.key, shuffle.partitions).encode()
        self.where = f"{key}: commit"
        request = pb.CommitRequest(key=key_message(shuffle.key), winners_array=winners, holder=HOLDER)
        await self._patiently("Shuffles/Commit", request)
        reply = await self._patiently(
            "Shuffles/GetManifest", pb.GetManifestRequest(key=key_message(shuffle.key), holder=HOLDER, wait_ms=5_000)
        )
        if reply.winners_array != winners:
            raise Violation(f"{shuffle.key} is committed with other winners")
        shuffle.manifest = Manifest(winners, b"", known_addresses(reply.workers))
        if await self._read(shuffle) and rng.random() < 0.9:
            self._kept.append(shuffle)
        return True

    async def _patiently(self, method: str, request: Any) -> Any:
        """Call until it is heard."""
        while True:
            try:
                return await self._call(method, request)
            except RetryError as error:
                if self._world.long_calm:
                    raise Violation(f"{method}: {error}") from error

    async def _registered(self, key: ShuffleKey) -> MapShuffleHere:
        shape = self._world.shape
        request = pb.RegisterShuffleRequest(
            key=key_message(key),
            kind=pb.PARTITION_KIND_MAP,
            partitions=shape.partitions,
            copies=shape.copies,
            ack=shape.ack,
            holder=HOLDER,
        )
        while True:
            try:
                reply = await self._call("Shuffles/RegisterShuffle", request)
            except HoldfastError as error:
                # There may be no worker for a moment.
                if (not isinstance(error, RetryError) and error.status is not Status.NO_ROOM) or self._world.long_calm:
                    raise Violation(f"{key} cannot be registered: {error}") from error
                await pause(0.3)
            else:
                whole = ShuffleKey(key.instance, key.shuffle, key.generation, StateId(reply.state))
                return MapShuffleHere(whole, shape.ack, shape.partitions, shape.maps, reply)

    async def _map(self, shuffle: MapShuffleHere, number: MapId) -> MapStatus | None:
        """Run attempts until one ends well; sometimes one is aborted in its middle. None if none can: of the workers of
        the shuffle so many have lost their disks and are others now that no two neighbours are left, or they have no
        room."""
        tries = 0
        while True:
            plan = self._plan(shuffle, number)
            payloads = [payload for region in plan.regions for _, payload in region]
            self._world.oracle.map_pushed[number, plan.attempt] = payloads
            task = asyncio.create_task(write(shuffle, plan, self._rng))
            if self._rng.random() < 0.15:
                await asyncio.wait((task,), timeout=self._rng.uniform(0.0, 0.3))
                task.cancel()
            with suppress(asyncio.CancelledError):
                try:
                    status = await task
                except HoldfastError as error:
                    here = {each.number for each in self._world.workers}
                    full = isinstance(error, NoRoomError) and self._world.shape.capacity
                    if full or not any(each <= here for each in shuffle.places(number)):
                        return None
                    tries += self._world.calm
                    if not self._world.shape.faults or tries > 8:
                        raise Violation(f"map {number} of {shuffle.key} does not end well: {error}") from error
                else:
                    self._world.oracle.map_written(status)
                    shuffle.written |= plan.written()
                    return status
            await pause(0.1)

    def _plan(self, shuffle: MapShuffleHere, number: MapId) -> MapPlan:
        rng, shape = self._rng, self._world.shape
        self.attempts += 1
        regions = []
        for region in range(rng.choice((0, 1, 1, 3))):
            parts = sorted(rng.choices(range(shape.partitions), k=rng.randint(1, max(1, shape.records // 2))))
            regions.append(
                [
                    (each, b"%d.%d.%d.%d." % (number, self.attempts, region, at) + b"y" * rng.choice((0, 10, 300)))
                    for at, each in enumerate(parts)
                ]
            )
        return MapPlan(number, AttemptId(self.attempts), regions, shape.pause)

    async def _read(self, shuffle: MapShuffleHere) -> bool:
        """Read everything, at once or by two ranges; returns whether it could be."""
        self.where = f"{shuffle.key}: read"
        at = self._rng.randrange(shuffle.partitions)
        for begin, end in ((0, at), (at, shuffle.partitions)):
            if begin < end and not await self._read_range(shuffle, begin, end):
                return False
        return True

    async def _read_range(self, shuffle: MapShuffleHere, begin: int, end: int) -> bool:
        while True:
            reader = MapReader(self._world, shuffle, begin, end)
            self.reads += 1
            try:
                await reader.read()
            except RetryError as error:
                if self._world.long_calm:
                    raise Violation(f"{shuffle.key} cannot be read though all faults have ended: {error}") from error
                continue  # nobody could say where the workers are; the task runs again
            except DataError as error:
                self.lost_reads += 1
                if not self._world.oracle.may_lose(Ack.SYNCED, shuffle.key):  # what is sealed is synced
                    raise Violation(f"nothing happened that may lose a sealed map file, and: {error}") from error
                return False
            wanted = {place: data for place, data in shuffle.written.items() if begin <= place[1] < end}
            if reader.found != wanted:
                missing = Counter(wanted.keys()) - Counter(reader.found.keys())
                raise Violation(f"{shuffle.key} partitions {begin} to {end - 1}: not what was written; {missing}")
            return True

    async def _drop(self, shuffle: MapShuffleHere) -> None:
        request = pb.UnregisterShuffleRequest(key=key_message(shuffle.key), holder=HOLDER)
        await self._patiently("Shuffles/UnregisterShuffle", request)


def mapper(world: Scenario) -> Executor:
    """The executor on which it runs: its connections keep the order of frames, as those of TCP do."""
    executor = Executor("mapper", world.network)
    executor.life.runtime.in_order = True  # type: ignore[attr-defined]
    return executor
