"""A tenant that takes as much as it gets: of what the masters remember for all, and by many applications at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack

from holdfast.common.errors import HoldfastError, QuotaExceededError
from holdfast.common.net.control import ControlClient
from holdfast.common.proto import holdfast_pb2 as pb
from tests.attack.sharing import Taking, connections, end, long_polls, map_files, plans
from tests.attack.target import Target, target_of

#: What applications of one user take at most, each, and how many of them do.
_TAKINGS: dict[Taking, int] = {plans: 512, map_files: 256, connections: 512, long_polls: 1_024}
_APPLICATIONS = 4


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


async def by_many_applications(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Take what can be held of a server by four applications of one user, let go of it, and begin again."""
    counts: Counter[str] = Counter()
    while not until():
        async with AsyncExitStack() as stack:
            await _hold(target, stack, until, counts)
    return counts


async def _hold(target: Target, stack: AsyncExitStack, until: Callable[[], bool], counts: Counter[str]) -> None:
    for taking, most in _TAKINGS.items():
        for _ in range(_APPLICATIONS):
            if until():
                return
            one = await target_of(target.cluster, "many")
            stack.push_async_callback(end, one)
            try:
                counts[taking.__name__] += await taking(one, stack, most)
            except QuotaExceededError:  # what ended before is not all deleted yet
                counts["over the quota"] += 1
