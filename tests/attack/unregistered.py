"""A tenant with a good token names shuffles to workers that were never registered."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

from holdfast.client.cluster.server import Server
from holdfast.common.errors import HoldfastError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import MapAbort, MapOpen
from holdfast.common.formats.reduce_messages import PushCredit
from holdfast.common.ids import (
    AttemptId,
    Epoch,
    Generation,
    Incarnation,
    MapFileKey,
    MapId,
    ShuffleId,
    ShuffleKey,
    StateId,
)
from holdfast.common.limits import MIB
from tests.attack.target import Target
from tests.support.reduce_data import Writer

#: Far from what anybody registers.
FIRST = 1_000_000


async def files(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """MAP_OPEN and MAP_ABORT, each of another shuffle: a folder on a disk for each number, which nobody deleted."""
    found: Counter[str] = Counter()
    for server, keys in _turns(target):
        client = await target.worker(server)
        try:
            for _ in range(64):
                file = MapFileKey(next(keys), MapId(0), AttemptId(0), Epoch(0))
                try:
                    opening = MapOpen(file=file, incarnation=Incarnation(0), partitions=1)
                    await client.request(FrameType.MAP_OPEN, opening.encode())
                    found["opened"] += 1
                except HoldfastError as error:
                    found[error.status.name] += 1
                await client.request(FrameType.MAP_ABORT, MapAbort(file).encode())
                if until():
                    return found
        finally:
            client.abort()
    raise AssertionError("there is always another turn")


async def pushes(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """PUSH, each of another shuffle: data that no commit would ever take, and a cry that masters had been restored."""
    found: Counter[str] = Counter()
    for server, keys in _turns(target):
        client = await target.worker(server)
        try:
            await client.request(FrameType.PUSH_CREDIT, PushCredit(1 * MIB).encode())
            for _ in range(64):
                writer = Writer(next(keys))
                meta, body = writer.push([writer.batch(0, b"x" * 100)], client.hello.incarnation)
                try:
                    await client.request(FrameType.PUSH, meta, body)
                    found["pushed"] += 1
                except HoldfastError as error:
                    found[error.status.name] += 1
                if until():
                    return found
        finally:
            client.abort()
    raise AssertionError("there is always another turn")


def _turns(target: Target) -> Iterator[tuple[Server, Iterator[ShuffleKey]]]:
    """Every worker in turn, and shuffles that nobody has named before."""
    keys = _strange(target)
    while True:
        for server in target.cluster.workers:
            yield server, keys


def _strange(target: Target) -> Iterator[ShuffleKey]:
    """The state may be any: 0 stands for whichever the masters have."""
    for number in count(FIRST):
        yield ShuffleKey(target.instance, ShuffleId(number), Generation(0), StateId(number % 3))
