"""Commits that are small and hold much: 64 KiB that inflate a thousandfold."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections import Counter
from collections.abc import Callable

from holdfast.common.errors import HoldfastError
from holdfast.common.limits import MAPS_MAX
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.attack.target import Target

_AT_ONCE = 8


def winners(maps: int, partitions: int = 1) -> bytes:
    """MAP_WINNERS of so many maps with one copy, all zeros: a thousandth of what it inflates to."""
    size = maps * (32 + (partitions + 7) // 8)
    return struct.pack("<BBHIIQ", 2, 2, 1, maps, partitions, size) + zlib.compress(bytes(size), 9)


def reduce_winners(maps: int, partitions: int = 1) -> bytes:
    """REDUCE_WINNERS of so many maps, with bitmaps."""
    size = maps * (8 + (partitions + 7) // 8)
    return struct.pack("<BBHIIQ", 2, 17, 1, maps, partitions, size) + zlib.compress(bytes(size), 9)


async def of_another_shape(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """A tenant commits a shuffle of one map with winners of a million."""
    return await _commit(target, until, registered=1)


async def as_registered(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """A tenant registers shuffles of a million maps, as he may, and commits them again and again."""
    return await _commit(target, until, registered=MAPS_MAX)


async def _commit(target: Target, until: Callable[[], bool], registered: int) -> Counter[str]:
    reported: Counter[str] = Counter()
    keys = [
        (await target.register(1, kind=pb.PARTITION_KIND_MAP, partitions=1, maps=registered), winners(MAPS_MAX)),
        (
            await target.register(2, kind=pb.PARTITION_KIND_REDUCE, partitions=1, maps=registered),
            reduce_winners(MAPS_MAX),
        ),
    ]

    async def one(control: ControlClient, key: pb.ShuffleKey, array: bytes) -> None:
        while not until():
            request = pb.CommitRequest(key=key, winners_array=array, holder=target.instance)
            try:
                await control.call("Shuffles/Commit", request, 60)
                reported["OK"] += 1
            except HoldfastError as error:
                reported[error.status.name] += 1

    async with ControlClient(target.cluster.endpoints, target.application) as control, asyncio.TaskGroup() as group:
        for number in range(_AT_ONCE):
            group.create_task(one(control, *keys[number % 2]))
    return reported
