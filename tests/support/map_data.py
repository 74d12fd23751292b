"""Makes contents of MAP files that can be told apart, writes them to a worker and reads them back, frame by frame.

The plainest possible client: no retries, no windows. What it reads it returns as bytes per (file, region, partition),
which a test compares with what it made.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import (
    Ack,
    DataFlag,
    FileTotals,
    MapOpen,
    MapOpened,
    MapPush,
    MapSeal,
    MapSealed,
    PushFlag,
    StreamData,
    StreamOpen,
)
from holdfast.common.ids import (
    BROADCAST_PARTITION,
    AttemptId,
    Epoch,
    Generation,
    Incarnation,
    Instance,
    MapFileKey,
    MapId,
    PartitionId,
    ShuffleId,
    ShuffleKey,
    StateId,
)
from holdfast.common.limits import MIB, STREAM_CREDIT_BYTES_MAX
from holdfast.common.net.frames.buffers import Body
from holdfast.common.net.frames.client import ClientStream, FrameClient, StreamSink

#: What a stream brought or should bring: bytes by (file of the stream, region, partition).
Pieces = dict[tuple[int, int, int], bytes]


@dataclass(frozen=True)
class PushFrame:
    """One MAP_PUSH: region, flags, runs and body."""

    region: int
    flags: int
    runs: list[tuple[int, int]]
    body: bytes

    def meta(self, handle: int) -> bytes:
        """The meta section."""
        return MapPush(handle=handle, region=self.region, flags=self.flags, runs=self.runs).encode()


@dataclass
class MapContent:
    """All frames of one map file and what they add up to."""

    key: MapFileKey
    partitions: int
    frames: list[PushFrame] = field(default_factory=list)
    totals: FileTotals = field(default_factory=lambda: FileTotals(regions=0, batches=0, size_bytes=0, crc_sum=0))

    def pieces(self, begin: int, end: int, file: int = 0) -> Pieces:
        """What a stream over [begin, end) must bring of this file."""
        found: dict[tuple[int, int, int], bytes] = defaultdict(bytes)
        for frame in self.frames:
            offset = 0
            for partition, length in frame.runs:
                if begin <= partition < end or partition == BROADCAST_PARTITION:
                    found[file, frame.region, partition] += frame.body[offset : offset + length]
                offset += length
        return {at: data for at, data in found.items() if data}


def file_key(shuffle: ShuffleKey, map_id: int = 0, attempt: int = 0, epoch: int = 0) -> MapFileKey:
    """A file's key."""
    return MapFileKey(shuffle, MapId(map_id), AttemptId(attempt), Epoch(epoch))


def shuffle_key(instance: bytes = bytes(16), shuffle: int = 0, state: int = 0) -> ShuffleKey:
    """A shuffle's key."""
    return ShuffleKey(Instance(instance), ShuffleId(shuffle), Generation(0), StateId(state))


def make_content(
    key: MapFileKey, partitions: int = 8, regions: int = 2, batch_bytes: int = 1_000, broadcast: bool = False
) -> MapContent:
    """Contents that follow from the key: every region has a batch for each partition, the last region LAST batches."""
    chance = random.Random(str(key))
    content = MapContent(key, partitions)
    targets = [*range(partitions)]
    writers = {at: _writer(key, at) for at in (*targets, BROADCAST_PARTITION)}
    if broadcast:
        content.frames.append(_frame(0, [BROADCAST_PARTITION], writers, chance, batch_bytes, last=True))
    for region in range(int(broadcast), regions + int(broadcast)):
        last = region == regions + int(broadcast) - 1
        half = partitions // 2
        for part in (targets[:half], targets[half:]) if half else (targets,):
            content.frames.append(
                _frame(region, part, writers, chance, batch_bytes, last=last, end=part[-1] == targets[-1])
            )
    used = list(writers.values())
    content.totals = FileTotals(
        regions=regions + int(broadcast),
        batches=sum(writer.batches for writer in used),
        size_bytes=sum(len(frame.body) for frame in content.frames),
        crc_sum=sum(writer.crc_sum for writer in used) % 2**64,
    )
    return content


def _writer(key: MapFileKey, partition: int) -> BatchWriter:
    return BatchWriter(key.map, key.attempt, partition_seed(key.shuffle, PartitionId(partition)))


def _frame(
    region: int,
    targets: list[int],
    writers: dict[int, BatchWriter],
    chance: random.Random,
    batch_bytes: int,
    *,
    last: bool,
    end: bool = True,
) -> PushFrame:
    runs, parts = [], []
    for partition in targets:
        payload = chance.randbytes(batch_bytes)
        head = writers[partition].header(payload, last=last)
        runs.append((partition, len(head) + len(payload)))
        parts += [head, payload]
    broadcast = targets == [BROADCAST_PARTITION]
    flags = (PushFlag.END if end else 0) | (PushFlag.BROADCAST if broadcast else 0)
    return PushFrame(region, flags, runs, b"".join(parts))


async def open_file(client: FrameClient, content: MapContent, ack: Ack = Ack.WRITTEN, incarnation: int = 0) -> int:
    """MAP_OPEN; returns the handle."""
    request = MapOpen(file=content.key, incarnation=Incarnation(incarnation), partitions=content.partitions, ack=ack)
    return MapOpened.decode((await client.request(FrameType.MAP_OPEN, request.encode())).meta).handle


async def push_all(client: FrameClient, content: MapContent, handle: int) -> None:
    """Push every frame, pipelined; returns when all are acknowledged."""
    futures = [await client.start(FrameType.MAP_PUSH, frame.meta(handle), frame.body) for frame in content.frames]
    await asyncio.gather(*futures)


async def seal(client: FrameClient, content: MapContent) -> MapSealed:
    """MAP_SEAL."""
    request = MapSeal(file=content.key, totals=content.totals)
    return MapSealed.decode((await client.request(FrameType.MAP_SEAL, request.encode())).meta)


async def write_file(client: FrameClient, content: MapContent, ack: Ack = Ack.WRITTEN) -> MapSealed:
    """Open, push and seal."""
    await push_all(client, content, await open_file(client, content, ack))
    return await seal(client, content)


class Collector(StreamSink):
    """Puts a stream together; gives credit as it goes unless told not to."""

    def __init__(self, credit_step: int = 4 * MIB) -> None:
        self.pieces: dict[tuple[int, int, int], bytearray] = defaultdict(bytearray)
        self.sequence = 0
        self.bytes = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stream: ClientStream | None = None
        self._owed = 0
        self._credit_step = credit_step

    def data(self, data: StreamData, body: Body | None) -> None:
        """Take a frame; frames must come in sequence and their runs must make up the body."""
        assert data.sequence == self.sequence
        self.sequence += 1
        view = body.view if body is not None else memoryview(b"")
        offset = 0
        for partition, length in data.runs:
            assert bool(data.flags & DataFlag.BROADCAST) == (partition == BROADCAST_PARTITION)
            self.pieces[data.file, data.region, partition] += view[offset : offset + length]
            offset += length
        assert offset == len(view)
        self.bytes += offset
        self._owed += offset
        if body is not None:
            body.release()
        if data.flags & DataFlag.END:
            self.done.set_result(None)
        elif self._owed >= self._credit_step:
            self.give()

    def give(self) -> None:
        """Give back as credit what has come since the last time."""
        if self.stream is not None and self._owed:
            self.stream.credit(self._owed)
            self._owed = 0

    def failed(self, error: HoldfastError) -> None:
        """Fail whoever waits."""
        if not self.done.done():
            self.done.set_exception(error)


def stream_request(files: list[MapFileKey], begin: int, end: int, credit: int) -> StreamOpen:
    """STREAM_OPEN over files of one shuffle."""
    return StreamOpen(
        shuffle=files[0].shuffle,
        begin=PartitionId(begin),
        end=PartitionId(end),
        credit_bytes=credit,
        files=[(file.map, file.attempt, file.epoch) for file in files],
    )


async def read_files(
    client: FrameClient, files: list[MapFileKey], begin: int, end: int, credit: int = STREAM_CREDIT_BYTES_MAX
) -> Pieces:
    """Read a range of partitions of sealed files to the end."""
    sink = Collector(max(1, credit // 2))
    sink.stream = await client.open_stream(stream_request(files, begin, end, credit), sink)
    sink.give()
    await sink.done
    assert sink.bytes == sink.stream.opened.total_bytes
    return {at: bytes(data) for at, data in sink.pieces.items()}
