"""A tenant that fills disks, inodes and the registry up to its quota, again and again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import cycle

from holdfast.client import Session
from holdfast.common.errors import QuotaExceededError, RetryError
from holdfast.common.limits import MIB
from tests.attack.target import Target

#: What each user of the attacked cluster may hold. The honest one makes 10 MiB a second, which counts until workers
#: have told that it is deleted.
USER_BYTES = 256 * MIB
USER_FILES = 2_000
#: Bytes of a map's only row: many small files fill inodes, few large ones fill disks.
_ROWS = (100, MIB // 2)
_MAPS = 20
#: Registrations that are refused before what is held is given back.
_REFUSED = 50
#: Workers tell what they hold with their heartbeats: before that a tenant gets above its quota, and never far.
_ABOVE = 5


async def fill(target: Target, until: Callable[[], bool]) -> Counter[str]:
    """Write shuffles of small files, then of large ones, until no more is registered; give all back, and again."""
    return await asyncio.to_thread(_fill, target, until)


def _fill(target: Target, until: Callable[[], bool]) -> Counter[str]:
    counts: Counter[str] = Counter()
    session: Session | None = None
    while session is None:
        if until():
            return counts
        try:
            session = Session(target.cluster.endpoints, app="filling", credentials=target.user)
        except RetryError:  # the others attack, too: masters may not answer in time
            counts["not answered"] += 1
    with session:
        for size in cycle(_ROWS):
            held, refused = [], 0
            while refused < _REFUSED:
                if until():
                    return counts
                try:
                    shuffle = session.register_map_shuffle(1, maps=_MAPS)
                except QuotaExceededError:
                    refused += 1
                    continue
                held.append(shuffle)
                if len(held) * _MAPS > _ABOVE * USER_FILES or len(held) * _MAPS * size > _ABOVE * USER_BYTES:
                    raise AssertionError(f"{len(held)} shuffles of {_MAPS} files of {size} bytes, and no quota held")
                statuses = []
                for each in range(_MAPS):
                    with shuffle.writer(each, 1) as writer:
                        statuses.append(writer.close([(0, bytes(size))]))
                shuffle.commit(statuses)
                counts["shuffles"] += 1
            counts["times full"] += 1
            counts["refused"] += refused
            for shuffle in held:
                shuffle.unregister()
    raise AssertionError("there is always another turn")
