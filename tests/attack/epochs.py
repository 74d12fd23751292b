"""A tenant opens epochs on one worker and seals none: each takes memory there until its shuffle is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.reduce_messages import PushAnswer, PushCredit
from holdfast.common.limits import MIB, PUSH_BATCHES_MAX
from holdfast.common.net.control import ControlClient
from holdfast.common.net.keys import key_in
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.attack.target import Target
from tests.support.reduce_data import Made, Writer

_SHUFFLE = 24
#: Of one push, each of another partition.
_BATCHES = PUSH_BATCHES_MAX // 4


async def opened(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Pushes whose every batch opens another epoch. They took all that a worker may have, and pushes of all others were
    refused there until the tenant's shuffles were committed or dropped. At the end the shuffle is dropped."""
    found: Counter[str] = Counter()
    shuffle = await target.register(_SHUFFLE, kind=pb.PARTITION_KIND_REDUCE, partitions=8, maps=1)
    client = await target.worker(target.cluster.workers[0])
    writer = Writer(key_in(shuffle))
    batches = _batches(writer)
    try:
        while not until():
            meta, body = writer.push([next(batches) for _ in range(_BATCHES)], client.hello.incarnation)
            try:
                await client.request(FrameType.PUSH_CREDIT, PushCredit(2 * MIB).encode())
                reply = await client.request(FrameType.PUSH, meta, body)
            except HoldfastError as error:
                found[error.status.name] += 1
                continue
            refused = PushAnswer.decode(reply.meta).statuses
            found["opened"] += _BATCHES - len(refused)
            found.update(Status(status).name for _, status in refused)
        return found
    finally:
        client.abort()
        async with ControlClient(target.cluster.endpoints, target.application) as control:
            await control.call("Shuffles/UnregisterShuffle", pb.UnregisterShuffleRequest(key=shuffle))


def _batches(writer: Writer) -> Iterator[Made]:
    """One of every partition that a number can name."""
    for partition in range(1 << 32):
        yield writer.batch(partition, b"x")
