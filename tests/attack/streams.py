"""A tenant opens streams over files of its own, and reads nothing: what a stream is planned to read takes memory."""

from collections import Counter
from collections.abc import Callable

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import StreamOpen
from holdfast.common.ids import MapFileKey, PartitionId
from holdfast.common.limits import STREAM_FILES_MAX
from holdfast.common.net.frames.client import FrameClient
from holdfast.common.net.keys import key_in
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.attack.target import Target
from tests.support.map_data import file_key, make_content, write_file

_SHUFFLE = 16
PARTITIONS = 8
#: Files of which each stream of `plans` reads a little.
_FILES = 256


async def repeated(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """STREAM_OPEN that names one file as often as a request can: 31 MB a stream, 4,096 streams a connection."""
    client, files = await written(target, 1)
    return await _open(target, client, files * STREAM_FILES_MAX, until)


async def plans(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """STREAM_OPEN of many files, each once, again and again: nothing is read, and nothing closed."""
    client, files = await written(target, _FILES)
    return await _open(target, client, files, until)


async def written(target: Target, count: int) -> tuple[FrameClient, list[MapFileKey]]:
    """Write so many small MAP files on one worker; returns them, and the connection."""
    shuffle = key_in(await target.register(_SHUFFLE, kind=pb.PARTITION_KIND_MAP, partitions=PARTITIONS, maps=0))
    client = await target.worker(target.cluster.workers[0])
    files = [file_key(shuffle, number) for number in range(count)]
    for file in files:
        try:
            await write_file(client, make_content(file, partitions=PARTITIONS, batch_bytes=10))
        except HoldfastError as error:
            if error.status is not Status.SEALED:  # by an earlier attack
                raise
    return client, files


async def _open(
    target: Target, client: FrameClient, files: list[MapFileKey], until: Callable[[], bool]
) -> Counter[str]:
    """Open streams over these files on one connection after the other, all of which stay."""
    found: Counter[str] = Counter()
    clients = [client]
    request = StreamOpen(
        shuffle=files[0].shuffle,
        begin=PartitionId(0),
        end=PartitionId(PARTITIONS),
        credit_bytes=0,
        files=[(file.map, file.attempt, file.epoch) for file in files],
    ).encode()
    try:
        while not until():
            try:
                await clients[-1].request(FrameType.STREAM_OPEN, request)
                found["opened"] += 1
            except HoldfastError as error:
                found[error.status.name] += 1
                try:
                    clients.append(await target.worker(target.cluster.workers[0]))
                except HoldfastError:
                    found["refused connections"] += 1
        return found
    finally:
        for each in clients:
            each.abort()
