"""A tenant names an address of its own choice as the second copy of its pushes."""

import asyncio
from collections import Counter
from collections.abc import Callable

from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.reduce_messages import PushAnswer, PushCredit, ReplicaPlace
from holdfast.common.ids import Incarnation, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.net.keys import key_in
from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.common.statuses import Status
from tests.attack.target import Target
from tests.support.reduce_data import Writer

_SHUFFLE = 23


async def anywhere(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Pushes whose replica is a port that the attacker chose: whoever hears the worker there, learns what it shows, and
    each such port held a connection of the worker's for 2 s. Counts connections that came as "reached"."""
    found: Counter[str] = Counter()

    async def reached(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found["reached"] += 1
        writer.close()

    listener = await asyncio.start_server(reached, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    key = key_in(await target.register(_SHUFFLE, kind=pb.PARTITION_KIND_REDUCE, partitions=8, maps=1))
    server = target.cluster.workers[0]
    client = await target.worker(server)
    writer = Writer(key)
    try:
        await client.request(FrameType.PUSH_CREDIT, PushCredit(1 * MIB).encode())
        for number in range(1 << 20):
            # A worker that nobody has, and one that is elsewhere.
            worker = (99, client.hello.worker)[number % 2]
            place = ReplicaPlace(WorkerId(worker), Incarnation(1), f"127.0.0.1:{port}")
            meta, body = writer.push([writer.batch(number % 8, b"x")], client.hello.incarnation, replicas=(place,))
            try:
                reply = await client.request(FrameType.PUSH, meta, body)
                found.update(Status(status).name for _, status in PushAnswer.decode(reply.meta).statuses)
            except HoldfastError as error:
                found[error.status.name] += 1
            if until():
                return found
        return found
    finally:
        client.abort()
        listener.close()
