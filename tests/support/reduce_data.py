"""Batches and pushes of REDUCE partitions, a raw frame client, and a worker process without masters, for tests."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.common.errors import HoldfastError, error_for
from holdfast.common.formats.batch import Batch, BatchWriter, parse_batches
from holdfast.common.formats.checksum import crc32c, partition_seed
from holdfast.common.formats.frame import (
    HEADER_BYTES,
    RESPONSE,
    FrameHeader,
    FrameType,
    check_meta,
    decode_header,
    encode_frame,
)
from holdfast.common.formats.messages import Ack, Hello, HelloOk, Role, StreamCredit
from holdfast.common.formats.reduce_messages import (
    ChunkFlag,
    ChunksData,
    ChunksOpen,
    ChunksOpened,
    Push,
    PushAnswer,
    PushCredit,
    Registered,
    ReplicaPlace,
    Seal,
    SealAnswer,
    SealedEpoch,
    SealFlag,
)
from holdfast.common.ids import (
    AttemptId,
    Generation,
    Incarnation,
    Instance,
    MapId,
    PartitionId,
    RaftIndex,
    ShuffleId,
    ShuffleKey,
    WorkerId,
)
from holdfast.worker.server.membership.worker_identity import KeptIdentity
from holdfast.worker.storage.env.system_files import SystemFiles
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.store import open_store, prepare

CLUSTER = "reduce-tests"
WORKER = WorkerId(1)


def shuffle_of(number: int = 1, generation: int = 0) -> ShuffleKey:
    """A shuffle key."""
    return ShuffleKey(Instance(bytes(range(16))), ShuffleId(number), Generation(generation))


def by_turns(directories: int) -> Callable[[int, Ack], int | None]:
    """Choose the directories of new epochs one after the other."""
    turns = itertools.cycle(range(directories))
    return lambda _hint, _ack: next(turns)


class Made(NamedTuple):
    """One batch with its place."""

    partition: int
    epoch: int
    number: int
    data: bytes


@dataclass
class Writer:
    """Makes the batches of one (map, attempt)."""

    shuffle: ShuffleKey
    map: int = 0
    attempt: int = 0
    writers: dict[int, BatchWriter] = field(default_factory=dict)

    def batch(self, partition: int, payload: bytes, *, epoch: int = 0, last: bool = False) -> Made:
        """The next batch of a partition."""
        writer = self.writers.get(partition)
        if writer is None:
            seed = partition_seed(self.shuffle, PartitionId(partition))
            writer = self.writers[partition] = BatchWriter(MapId(self.map), AttemptId(self.attempt), seed)
        number = writer.batches
        return Made(partition, epoch, number, writer.header(payload, last=last) + payload)

    def push(
        self,
        batches: Sequence[Made],
        incarnation: int,
        ack: Ack = Ack.WRITTEN,
        replicas: tuple[ReplicaPlace, ...] = (),
        ack_copies: int = 0,
    ) -> tuple[bytes, bytes]:
        """Meta and body of a push of these batches."""
        body = b"".join([made.data for made in batches])
        push = Push(
            shuffle=self.shuffle,
            incarnation=Incarnation(incarnation),
            ack=ack,
            map=MapId(self.map),
            attempt=AttemptId(self.attempt),
            body_crc=crc32c(body),
            replicas=replicas,
            ack_copies=ack_copies,
            entries=[(one.partition, one.epoch, one.number, len(one.data), 0) for one in batches],  # type: ignore[misc]
        )
        return push.encode(), body


class Answer(NamedTuple):
    """One frame that came."""

    header: FrameHeader
    meta: bytes
    body: bytes


class RawClient:
    """A framed connection with nothing between the test and the frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.next_id = 1
        self.hello: HelloOk

    async def say_hello(self, role: Role, cluster: str) -> None:
        """Greet."""
        answer = await self.ask(FrameType.HELLO, Hello(role=role, cluster_id=cluster).encode())
        self.hello = HelloOk.decode(answer.meta)

    async def send(self, kind: FrameType, meta: bytes = b"", body: bytes = b"") -> int:
        """Send a request; return its id."""
        self.next_id += 1
        self.writer.write(encode_frame(kind, self.next_id, meta, len(body)) + body)
        await self.writer.drain()
        return self.next_id

    async def receive(self) -> Answer:
        """The next frame, of any kind."""
        raw = await asyncio.wait_for(self.reader.readexactly(HEADER_BYTES), 30)
        header = decode_header(raw)
        meta = await self.reader.readexactly(header.meta_bytes)
        check_meta(raw, header, meta)
        assert header.flags & RESPONSE
        return Answer(header, meta, await self.reader.readexactly(header.body_bytes))

    async def ask(self, kind: FrameType, meta: bytes = b"", body: bytes = b"") -> Answer:
        """Send a request and return its answer, which is the next frame; raises what its status stands for."""
        number = await self.send(kind, meta, body)
        answer = await self.receive()
        if answer.header.status:
            raise error_for(answer.header.status, answer.meta.decode())
        assert answer.header.request_id == number
        return answer

    async def credit(self, size: int) -> int:
        """Ask for a window."""
        return PushCredit.decode((await self.ask(FrameType.PUSH_CREDIT, PushCredit(size).encode())).meta).size_bytes

    async def push(
        self,
        writer: Writer,
        batches: Sequence[Made],
        ack: Ack = Ack.WRITTEN,
        *,
        incarnation: int | None = None,
        replicas: tuple[ReplicaPlace, ...] = (),
        kind: FrameType = FrameType.PUSH,
    ) -> dict[int, int]:
        """Push batches; return the statuses that are not OK by index."""
        meta, body = writer.push(batches, incarnation or self.hello.incarnation, ack, replicas)
        return dict(PushAnswer.decode((await self.ask(kind, meta, body)).meta).statuses)

    async def seal(
        self, shuffle: ShuffleKey, epochs: Iterable[tuple[int, int]], *, final: bool = True
    ) -> list[SealedEpoch]:
        """Seal epochs."""
        seal = Seal(shuffle=shuffle, flags=SealFlag.FINAL if final else 0, raft_index=RaftIndex(1), epochs=list(epochs))
        return SealAnswer.decode((await self.ask(FrameType.SEAL, seal.encode())).meta).epochs

    async def read(
        self, shuffle: ShuffleKey, files: Sequence[tuple[int, int, int]], maps: tuple[int, int] = (0, 0xFFFF_FFFF)
    ) -> "Read":
        """Read chunks of sealed epochs to the end of the stream."""
        request = ChunksOpen(
            shuffle=shuffle, map_begin=maps[0], map_end=maps[1], credit_bytes=64 << 20, files=list(files)
        )
        opened = ChunksOpened.decode((await self.ask(FrameType.CHUNKS_OPEN, request.encode())).meta)
        read, given = Read(opened), 0
        while True:
            answer = await self.receive()
            if answer.header.status:
                raise error_for(answer.header.status, answer.meta.decode())
            data = ChunksData.decode(answer.meta)
            assert data.sequence == read.frames
            read.frames += 1
            if answer.body:
                chunk = read.chunks.setdefault((data.file, data.chunk), bytearray())
                chunk += answer.body
                assert bool(data.flags & ChunkFlag.END_OF_CHUNK) == (data.left_bytes == 0)
            given += len(answer.body)
            if data.flags & ChunkFlag.END:
                return read
            if given > 32 << 20:
                await self.send(
                    FrameType.STREAM_CREDIT, StreamCredit(stream=opened.stream, credit_bytes=given).encode()
                )
                given = 0

    async def close(self) -> None:
        """Close."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@dataclass
class Read:
    """What a stream of chunks brought."""

    opened: ChunksOpened
    frames: int = 0
    #: by (file, chunk)
    chunks: dict[tuple[int, int], bytearray] = field(default_factory=dict)

    def batches(self, shuffle: ShuffleKey, files: Sequence[tuple[int, int, int]]) -> dict[int, list[Batch]]:
        """The batches of every partition, each checked."""
        found: dict[int, list[Batch]] = {}
        for (file, _), data in sorted(self.chunks.items()):
            partition = files[file][0]
            seed = partition_seed(shuffle, PartitionId(partition))
            found.setdefault(partition, []).extend(parse_batches(memoryview(bytes(data)), seed))
        return found


def names(batches: Iterable[Batch]) -> list[tuple[int, int, int]]:
    """(map, attempt, number) of batches, in order."""
    return [(one.map, one.attempt, one.number) for one in batches]


#: Where the processes below are, by worker.
_PLACES: dict[WorkerId, str] = {}


class WorkerProcess:
    """A real worker process that takes itself for registered (lone_worker.py). Its masters do not exist: whoever
    connects tells it first, in their name, that the shuffles of `shuffle_of` are registered, and where the other
    processes are."""

    def __init__(self, directory: Path, worker: int = WORKER, **settings: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}
        self.worker = worker
        only = (DirectorySettings(path=str(self.data)),)
        open_store(prepare(StoreSettings(cluster_id=CLUSTER, worker_name=f"w{worker}", directories=only))).close()
        KeptIdentity(WorkerId(worker), RaftIndex(1)).write(SystemFiles(), self.data)

    def start(self, **environment: str) -> None:
        """Start and wait for the ready line."""
        lines = [f'{key} = "{value}"' for key, value in self.settings.items()]
        config = self.directory / "worker.toml"
        config.write_text(
            f'[cluster]\nid = "{CLUSTER}"\n[log]\nlevel = "ERROR"\n[worker]\nname = "w{self.worker}"\n'
            f'host = "h{self.worker}"\n'
            'data_port = 0\nhttp_port = 0\nmasters = ["127.0.0.1:1"]\n'
            f'directories = [{{ path = "{self.data}" }}]\n' + "\n".join(lines) + "\n"
        )
        command = [sys.executable, "-m", "tests.support.lone_worker", "--config", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.kill()
            raise AssertionError("the worker did not start")
        self.ready = json.loads(line)
        _PLACES[WorkerId(self.worker)] = self.ready["data"]

    def kill(self) -> None:
        """Kill -9 and reap."""
        _PLACES.pop(WorkerId(self.worker), None)
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(60)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def stop(self) -> None:
        """End in order."""
        assert self.process is not None
        _PLACES.pop(WorkerId(self.worker), None)
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.process = None

    def status(self) -> dict[str, Any]:
        """The worker's /status."""
        with urllib.request.urlopen(f"http://{self.ready['http']}/status", timeout=60) as answer:
            return dict(json.load(answer))

    @property
    def place(self) -> ReplicaPlace:
        """This worker as a replica."""
        return ReplicaPlace(WorkerId(self.worker), Incarnation(self.ready["incarnation"]), self.ready["data"])

    @staticmethod
    async def _connect(address: str, role: Role) -> RawClient:
        host, port = address.split(":")
        client = RawClient(*await asyncio.open_connection(host, int(port)))
        await client.say_hello(role, CLUSTER)
        return client

    async def _announce(self) -> None:
        for address in _PLACES.values():
            master = await self._connect(address, Role.MASTER)
            for number in range(1, 9):
                reported = Registered(shuffle_of(number), list(_PLACES.items()))
                await master.ask(FrameType.REGISTERED, reported.encode())
            await master.close()

    @contextlib.asynccontextmanager
    async def client(self, role: Role = Role.CLIENT, credit: int = 16 << 20) -> AsyncIterator[RawClient]:
        """A connection, with a window if it is one that pushes."""
        client = await self._connect(self.ready["data"], role)
        try:
            if role is not Role.MASTER:
                await self._announce()
            if credit and role is not Role.MASTER:
                assert await client.credit(credit) == credit
            yield client
        finally:
            await client.close()


async def refused(call: Any) -> int:
    """The status with which a call is refused."""
    try:
        await call
    except HoldfastError as error:
        return error.status
    raise AssertionError("it was not refused")
