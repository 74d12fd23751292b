"""Checks the winners arrays of commits. Called by shuffles.py.

Rules: 64 KiB may inflate to 64 MiB, so an array is judged by what its head announces. It has to be of the registered
shape before anything is inflated, and is looked at in a thread where it is large inflated, winner by winner.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Hashable
from functools import partial, reduce
from operator import or_

from holdfast.common.errors import ConflictError, HoldfastError, ProtocolError, RetryError
from holdfast.common.formats.layouts import MapWinners, bitmap_bytes
from holdfast.common.formats.reduce_layouts import ReduceWinners
from holdfast.common.limits import COPIES_MAX, KIB
from holdfast.common.statuses import Status
from holdfast.common.system.tasks import awaited
from holdfast.master.core.commit import Seen
from holdfast.master.core.state.records import KIND_MAP, Shuffle
from holdfast.master.leader.turns import UserTurns

#: Winners larger than this inflated are checked in a thread, so that other calls go on.
_INLINE_BYTES = 64 * KIB
_U64_MAX = (1 << 64) - 1


class WinnersCheck:
    """Checks winners, large ones in a thread: one at a time, and one of each user, so that no user waits
    behind all that one user has."""

    def __init__(self) -> None:
        self._turns = UserTurns()

    async def see(self, shuffle: Shuffle, data: bytes, user: Hashable) -> Seen:
        """Return what the array of this shuffle's winners holds. Raises ProtocolError, ConflictError if it is of
        another shape, which is known before it is inflated, and RetryError (BUSY)."""
        is_map = shuffle.kind == KIND_MAP
        look = _see_map if is_map else _see_reduce
        try:
            maps, partitions, size = (MapWinners if is_map else ReduceWinners).announced(data)
            if misfit := shuffle.misfit(maps, partitions):
                raise ConflictError(misfit)
            if max(size, len(data)) <= _INLINE_BYTES:
                return look(data)
            # If the caller leaves meanwhile, the turn is released when the thread has ended.
            return await asyncio.shield(awaited(self._in_turn(user, partial(look, data))))
        except (RetryError, ConflictError):
            raise
        except HoldfastError as error:
            status = error.status if error.status is Status.TOO_LARGE else Status.BAD_REQUEST
            raise ProtocolError(f"winners_array: {error}", status=status) from error

    async def _in_turn(self, user: Hashable, look: Callable[[], Seen]) -> Seen:
        async with self._turns.turn(user, "other long winners"):
            return await asyncio.get_running_loop().run_in_executor(None, look)


def _see_map(data: bytes) -> Seen:
    """Digest the content, so that two encodings of the same winners are equal."""
    maps, partitions, _ = MapWinners.announced(data)
    digest = hashlib.blake2b(f"{partitions} {maps}".encode(), digest_size=16)
    workers: set[int] = set()
    data_bytes, by_copies = 0, [0] * COPIES_MAX
    for winner in MapWinners.each(data):
        workers.update(winner.workers)
        data_bytes += winner.size_bytes
        by_copies[len(winner.workers) - 1] += winner.batches > 0
        digest.update(
            f"{winner.attempt} {winner.epoch} {winner.workers} {winner.batches} {winner.size_bytes} ".encode()
            + winner.partitions
        )
    return Seen(
        maps, partitions, digest.digest(), min(data_bytes, _U64_MAX), tuple(by_copies), None, frozenset(workers)
    )


def _see_reduce(data: bytes) -> Seen:
    """Digest the attempts alone: the partitions of each follow from them, and not every committer has those."""
    maps, partitions, _ = ReduceWinners.announced(data)
    attempts, bitmaps = ReduceWinners.inflated(data)
    digest = hashlib.blake2b(f"{partitions} {maps}".encode(), digest_size=16)
    digest.update(attempts)
    written = None
    if bitmaps or not maps:
        union = reduce(or_, (int.from_bytes(bitmap, "little") for bitmap in bitmaps), 0)
        written = union.to_bytes(bitmap_bytes(partitions), "little")
    return Seen(maps, partitions, digest.digest(), written=written)
