"""Sums over one generation of a shuffle: what `holdfast shuffles show` and the page of a shuffle tell.

Rules
* The arrays of a committed generation are read once for each version of its manifest, by one thread at a time, however
  many ask; of an open one again after _OPEN_SECONDS.
* Sums are kept, not lists: some numbers, and a row for each worker. How many rows are kept is bounded.

Runs in the event loop. Called by admin.py and web.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from holdfast.common.formats.layouts import MapAssignment, MapWinners, bitmap_bytes
from holdfast.common.formats.reduce_layouts import ReduceManifest
from holdfast.common.ids import ShuffleKey
from holdfast.common.system.tasks import Shared
from holdfast.master.control.locations import Locations, epochs_of, off_loop
from holdfast.master.core.shuffle_sums import (
    ShuffleSums,
    as_workers_are,
    reported_bytes,
    sums_of_manifest,
    sums_of_placed,
    sums_of_ring,
    sums_of_winners,
)
from holdfast.master.core.state.records import KIND_MAP, Shuffle
from holdfast.master.leader.leader import Leader
from holdfast.master.leader.turns import turn

#: Sums of an open shuffle are this old at most.
_OPEN_SECONDS = 5.0
#: Rows of workers that are kept, some 100 bytes each, and shuffles.
_ROWS_MAX, _KEPT_MAX = 100_000, 1_000
#: Hosts in one answer.
HOSTS_MAX = 1_000
#: In place of the version of the manifest.
_OPEN = -1


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    #: of the loop's clock
    made: float
    sums: ShuffleSums


class Describer:
    """Sums up shuffles; the latest ones that were asked for are kept."""

    def __init__(self, leader: Leader, locations: Locations) -> None:
        self._leader, self._locations = leader, locations
        self._kept: OrderedDict[ShuffleKey, _Kept] = OrderedDict()
        self._rows = 0
        self._shared: Shared[tuple[ShuffleKey, int], ShuffleSums] = Shared()
        self._turn = asyncio.Lock()

    async def sums(self, shuffle: Shuffle) -> ShuffleSums:
        """Return the sums of this record. Raises RetryError (BUSY) where others are summed up for long."""
        key, now = shuffle.key, asyncio.get_running_loop().time()
        version = shuffle.manifest_version if shuffle.committed_ms else _OPEN
        kept = self._kept.get(key)
        if kept is None or kept.version != version or (version == _OPEN and now > kept.made + _OPEN_SECONDS):
            sums = await self._shared.result((key, version), partial(self._sum, shuffle))
            kept = _Kept(version, now, sums)
            self._keep(key, kept)
        workers = self._leader.node.local(lambda machine: machine.state.workers)
        return as_workers_are(kept.sums, lambda one: one in workers and workers[one].alive)

    async def _sum(self, shuffle: Shuffle) -> ShuffleSums:
        async with turn(self._turn, "the sums of shuffles"):
            if shuffle.committed_ms and shuffle.kind == KIND_MAP:
                size = shuffle.maps * (1 + bitmap_bytes(shuffle.partitions))
                return await off_loop(size, lambda: sums_of_winners(MapWinners.each(shuffle.winners)))
            if shuffle.committed_ms:
                work = partial(ReduceManifest.each, shuffle.manifest)
                return await off_loop(epochs_of(shuffle), lambda: sums_of_manifest(*work()))
            rows, key = self._leader.usage.rows(), shuffle.key
            reported = await off_loop(len(rows), partial(reported_bytes, rows, key.instance, key.shuffle))
            if shuffle.kind == KIND_MAP:
                return sums_of_ring(MapAssignment.decode(shuffle.assignment).workers, reported)
            return await self._locations.with_epochs(
                shuffle, lambda epochs: sums_of_placed(shuffle.partitions, epochs, reported)
            )

    def _keep(self, key: ShuffleKey, kept: _Kept) -> None:
        before = self._kept.pop(key, None)
        self._rows += len(kept.sums.shares) - (len(before.sums.shares) if before is not None else 0)
        self._kept[key] = kept
        while len(self._kept) > 1 and (self._rows > _ROWS_MAX or len(self._kept) > _KEPT_MAX):
            _, oldest = self._kept.popitem(last=False)
            self._rows -= len(oldest.sums.shares)
