"""A tenant that takes as much as it gets of what the masters remember for all: applications, shuffles, clients."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from holdfast.common.errors import HoldfastError
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.attack.target import Target


async def applications(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Register one application after another, each by a client of its own, with the longest lease."""
    counts: Counter[str] = Counter()
    made = []
    while not until():
        instance = os.urandom(16)
        request = pb.RegisterApplicationRequest(instance=instance, name="hoard", holder=instance, lease_ms=600_000)
        try:
            async with ControlClient(target.cluster.endpoints, target.user) as control:
                await control.call("Shuffles/RegisterApplication", request)
            made.append(instance)
            counts["applications"] += 1
        except HoldfastError:
            counts["refused"] += 1
    async with ControlClient(target.cluster.endpoints, target.user) as control:
        for instance in made:
            await control.call("Admin/Forget", pb.ForgetRequest(instance=instance))
    return counts


async def shuffles(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Register shuffles of very many partitions, which fill assignments, until the time is up; then give them back."""
    counts: Counter[str] = Counter()
    async with ControlClient(target.cluster.endpoints, target.application) as control:
        while not until():
            number = counts["shuffles"] + counts["refused"]
            key = pb.ShuffleKey(instance=target.instance, shuffle=number, generation=0)
            request = pb.RegisterShuffleRequest(
                key=key, kind=pb.PARTITION_KIND_REDUCE, partitions=20_000, maps=1, ack=1, holder=target.instance
            )
            try:
                await control.call("Shuffles/RegisterShuffle", request)
                counts["shuffles"] += 1
            except HoldfastError:
                counts["refused"] += 1
        await control.call("Shuffles/Detach", pb.DetachRequest(instance=target.instance, holder=target.instance))
    return counts
