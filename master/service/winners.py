"""Checks the winners arrays of commits, in a thread where they are large. Called by shuffles.py."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from functools import reduce
from operator import or_

from holdfast.common.errors import HoldfastError, ProtocolError, RetryError, Status
from holdfast.common.layouts import MapWinners, bitmap_bytes
from holdfast.common.limits import KIB
from holdfast.common.reduce_layouts import ReduceWinners
from holdfast.master.core.records import KIND_MAP
from holdfast.master.service.turns import turn

#: Winners larger than this are checked in a thread, so that other calls go on.
_INLINE_BYTES = 64 * KIB
#: Large winners checked at once: each may take 256 MiB inflated.
_CHECKS_AT_ONCE = 2
_U64_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Seen:
    """What a winners array holds; of MAP partitions also what the winners name: workers, bytes, and how many wrote
    anything to one worker alone. Of REDUCE partitions `written` has bit p (byte p // 8, bit p % 8) set if a winner
    wrote for partition p, where the committer said so."""

    maps: int
    partitions: int
    digest: bytes
    data_bytes: int = 0
    single: int = 0
    written: bytes | None = None
    workers: frozenset[int] = frozenset()


class WinnersCheck:
    """Looks at winners, a few large ones at a time."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def see(self, kind: int, data: bytes) -> Seen:
        """Return what the array of a shuffle of this kind holds. Raises ProtocolError."""
        look = _see_map if kind == KIND_MAP else _see_reduce
        try:
            if len(data) <= _INLINE_BYTES:
                return look(data)
            async with turn(self._turns, "other long winners"):
                return await asyncio.get_running_loop().run_in_executor(None, look, data)
        except RetryError:
            raise
        except HoldfastError as error:
            status = error.status if error.status is Status.TOO_LARGE else Status.BAD_REQUEST
            raise ProtocolError(f"winners_array: {error}", status=status) from error


def _see_map(data: bytes) -> Seen:
    """Digest the content, so that two encodings of the same winners are equal."""
    winners = MapWinners.decode(data)
    digest = hashlib.blake2b(f"{winners.partitions} {len(winners.maps)}".encode(), digest_size=16)
    workers: set[int] = set()
    for winner in winners.maps:
        workers.update(winner.workers)
        digest.update(
            f"{winner.attempt} {winner.epoch} {winner.workers} {winner.batches} {winner.size_bytes} ".encode()
            + winner.partitions
        )
    data_bytes = min(sum(winner.size_bytes for winner in winners.maps), _U64_MAX)
    single = sum(len(winner.workers) == 1 and winner.batches > 0 for winner in winners.maps)
    return Seen(len(winners.maps), winners.partitions, digest.digest(), data_bytes, single, None, frozenset(workers))


def _see_reduce(data: bytes) -> Seen:
    """Digest the attempts alone: the partitions that each wrote to follow from them, and not every committer knows."""
    winners = ReduceWinners.decode(data)
    digest = hashlib.blake2b(f"{winners.partitions} {len(winners.attempts)}".encode(), digest_size=16)
    digest.update(b"".join([attempt.to_bytes(8, "little") for attempt in winners.attempts]))
    written = None
    if winners.bitmaps or not winners.attempts:
        bits = reduce(or_, (int.from_bytes(bitmap, "little") for bitmap in winners.bitmaps), 0)
        written = bits.to_bytes(bitmap_bytes(winners.partitions), "little")
    return Seen(len(winners.attempts), winners.partitions, digest.digest(), written=written)
