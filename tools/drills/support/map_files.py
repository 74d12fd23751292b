"""Map files whose content follows from their key, written and read by the bare data-plane protocol.

The drill of the workers uses the wire itself and not the client library, which would repair what it is to see. A file's
expected content can be made again from its key and the seed, so nothing has to be remembered to compare it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.common.formats.batch import BatchWriter
from holdfast.common.formats.checksum import partition_seed
from holdfast.common.formats.messages import FileTotals, PushFlag, StreamData, StreamOpen
from holdfast.common.ids import BROADCAST_PARTITION, MapFileKey, PartitionId
from holdfast.common.limits import KIB, MIB
from holdfast.common.net.frames.client import FrameClient
from holdfast.tools.bare import Push, drain, totals_of

PARTITIONS = 8
_REGIONS_MAX = 3
_BATCH_BYTES_MAX = 24 * KIB
_FRAME_BYTES = 128 * KIB
CREDIT_BYTES = 4 * MIB

#: per region, (partition, bytes) with partitions ascending
Regions = list[list[tuple[int, bytes]]]
#: (region, partition) -> bytes
Content = dict[tuple[int, int], bytes]


@dataclass(frozen=True, slots=True)
class MapFile:
    """One file of the drill; its content follows from the key and the drill's seed."""

    key: MapFileKey
    seed: int

    def make(self) -> tuple[Regions, FileTotals]:
        """The regions and what the seal says of them; the last region may be a broadcast one."""
        key = self.key
        rng = random.Random(f"{self.seed}/{key}")
        writers = {
            partition: BatchWriter(key.map, key.attempt, partition_seed(key.shuffle, PartitionId(partition)))
            for partition in (*range(PARTITIONS), BROADCAST_PARTITION)
        }
        regions: Regions = []
        for _ in range(rng.randint(1, _REGIONS_MAX)):
            chosen = sorted(rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS)))
            regions.append([(partition, _batches(writers[partition], rng)) for partition in chosen])
        if rng.random() < 0.3:
            regions.append([(BROADCAST_PARTITION, _batches(writers[BROADCAST_PARTITION], rng))])
        size_bytes = sum(len(data) for region in regions for _, data in region)
        return regions, totals_of(writers.values(), len(regions), size_bytes)

    def content(self) -> Content:
        """What a reader of all partitions must get."""
        regions, _ = self.make()
        return {(number, part): data for number, region in enumerate(regions) for part, data in region}


def pushes(regions: Regions) -> Iterator[Push]:
    """Every push of a file, in order; a body is about 128 KiB."""
    for number, region in enumerate(regions):
        flags = PushFlag.BROADCAST if region[0][0] == BROADCAST_PARTITION else 0
        runs: list[tuple[int, int]] = []
        bodies: list[bytes] = []
        for position, (partition, data) in enumerate(region):
            runs.append((partition, len(data)))
            bodies.append(data)
            last = position == len(region) - 1
            if last or sum(map(len, bodies)) >= _FRAME_BYTES:
                yield number, flags | (PushFlag.END if last else 0), runs, b"".join(bodies)
                runs, bodies = [], []


def _batches(writer: BatchWriter, rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.randint(1, 3)):
        payload = rng.randbytes(rng.randint(0, _BATCH_BYTES_MAX))
        parts += [writer.header(payload), payload]
    return b"".join(parts)


async def read(client: FrameClient, files: list[MapFile]) -> list[Content]:
    """All partitions of the files, which must be of one shuffle."""
    request = StreamOpen(
        shuffle=files[0].key.shuffle,
        begin=PartitionId(0),
        end=PartitionId(PARTITIONS),
        credit_bytes=CREDIT_BYTES,
        files=[(file.key.map, file.key.attempt, file.key.epoch) for file in files],
    )
    found: list[dict[tuple[int, int], bytearray]] = [{} for _ in files]

    def take(data: StreamData, body: memoryview) -> None:
        offset = 0
        for partition, length in data.runs:
            place = found[data.file].setdefault((data.region, partition), bytearray())
            place += body[offset : offset + length]
            offset += length

    await drain(client, request, take)
    return [{place: bytes(data) for place, data in content.items()} for content in found]
