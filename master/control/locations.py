"""Where REDUCE partitions are and were, read from the arrays of a shuffle's record; the latest used stay decoded.

Rules: records never change, so all of this is worked out from one record, in a thread where it is large. What is kept
is bounded by its number of copies, and is dropped after KEPT_SECONDS without use, as that of a dropped
shuffle. Runs in the event loop. Called by shuffles.py, reviving.py, moving.py,
sealing.py.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from holdfast.common.formats.reduce_layouts import Location, ReduceLocations, ReduceManifest
from holdfast.common.ids import NO_WORKER, Epoch, ShuffleKey, WorkerId
from holdfast.common.system.tasks import Shared
from holdfast.common.system.waiting import said
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state.incomplete import unpack_incomplete
from holdfast.master.core.state.moves import unpack_moved
from holdfast.master.core.state.records import Shuffle

#: Copies of all partitions that are kept decoded: 4 bytes each, and the array of their locations now.
_KEPT_MAX = 8_000_000
#: Entries that were not used for so long are dropped; they are searched for as often.
KEPT_SECONDS = 10.0
#: Epochs worked on in the event loop; more go to a thread.
INLINE_MAX = 4_096

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class First:
    """The workers of every partition in epoch 0, in a column for each copy."""

    def __init__(self, shuffle: Shuffle) -> None:
        self.columns = ReduceLocations.columns(shuffle.assignment)
        #: no partition has fewer copies than another one
        self.even = NO_WORKER not in self.columns[-1]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def size(self) -> int:
        """Copies of all partitions."""
        return len(self) * len(self.columns)

    def workers(self, partition: int) -> tuple[int, ...]:
        """The workers of one partition, the primary first."""
        return tuple([worker for column in self.columns if (worker := column[partition]) != NO_WORKER])

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """The workers of each partition."""
        return zip(*self.columns, strict=True) if self.even else map(self.workers, range(len(self)))


@dataclass(frozen=True, slots=True)
class Now:
    """The locations of a moment: their array, and the workers that it names."""

    moved: int
    array: bytes
    workers: frozenset[int]


@dataclass(slots=True)
class _Kept:
    first: First
    #: of the loop's clock
    used: float
    now: Now | None = None
    #: of which version of the manifest, and who is in it
    manifest_workers: tuple[int, frozenset[int]] | None = None


class Locations:
    """Decoded locations by shuffle."""

    def __init__(self) -> None:
        self._kept: OrderedDict[ShuffleKey, _Kept] = OrderedDict()
        self._size = 0
        self._look: asyncio.TimerHandle | None = None
        # A thousand readers ask in one moment: what is large is decoded once for all of them.
        self._firsts: Shared[ShuffleKey, First] = Shared()
        self._nows: Shared[tuple[ShuffleKey, int], Now] = Shared()
        self._workers: Shared[tuple[ShuffleKey, int], frozenset[int]] = Shared()

    async def first(self, shuffle: Shuffle) -> First:
        """Return the location of every partition in epoch 0."""
        return (await self._keep(shuffle)).first

    async def with_epochs(self, shuffle: Shuffle, use: Callable[[Iterator[PlacedEpoch]], T]) -> T:
        """Return what `use`, which may run in a thread, makes of every epoch that there ever was: first those numbered
        0, then the others as they were made."""
        kept = await self._keep(shuffle)
        return await off_loop(epochs_of(shuffle), lambda: use(_all_epochs(kept.first, shuffle)))

    async def newest(self, shuffle: Shuffle) -> list[PlacedEpoch]:
        """Return the newest epoch of every partition, by partition."""
        kept = await self._keep(shuffle)

        def newest() -> list[PlacedEpoch]:
            return list({placed.partition: placed for placed in _all_epochs(kept.first, shuffle)}.values())

        return await off_loop(epochs_of(shuffle), newest)

    async def now(self, shuffle: Shuffle) -> Now:
        """Return the locations of this record."""
        kept = await self._keep(shuffle)
        if kept.now is None or kept.now.moved != shuffle.moved:
            work = partial(_now, kept.first, shuffle)
            kept.now = await _once(self._nows, (shuffle.key, shuffle.moved), epochs_of(shuffle), work)
        return kept.now

    async def manifest_workers(self, shuffle: Shuffle) -> frozenset[int]:
        """Return the workers that a committed shuffle's manifest names."""
        kept = await self._keep(shuffle)
        version = shuffle.manifest_version
        if kept.manifest_workers is None or kept.manifest_workers[0] != version:
            work = partial(_manifest_workers, shuffle)
            found = await _once(self._workers, (shuffle.key, version), epochs_of(shuffle), work)
            kept.manifest_workers = version, found
        return kept.manifest_workers[1]

    async def _keep(self, shuffle: Shuffle) -> _Kept:
        loop = asyncio.get_running_loop()
        kept = self._kept.get(shuffle.key)
        if kept is None:
            first = await _once(self._firsts, shuffle.key, shuffle.partitions, partial(First, shuffle))
            kept = self._kept.get(shuffle.key)
            if kept is None:
                kept = self._kept[shuffle.key] = _Kept(first, loop.time())
                self._size += first.size
        kept.used = loop.time()
        self._kept.move_to_end(shuffle.key)
        while self._size > _KEPT_MAX and len(self._kept) > 1:
            self._drop()
        self._look = self._look or loop.call_later(KEPT_SECONDS, self._drop_unused, loop)
        return kept

    def _drop(self) -> None:
        _, oldest = self._kept.popitem(last=False)
        self._size -= oldest.first.size

    def _drop_unused(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._kept and next(iter(self._kept.values())).used <= loop.time() - KEPT_SECONDS:
            self._drop()
        self._look = loop.call_later(KEPT_SECONDS, self._drop_unused, loop) if self._kept else None


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """Return what `work` returns; it runs in a thread if it is about more than a few thousand things."""
    if size <= INLINE_MAX:
        return work()
    with said("a thread that works on many epochs"):
        return await asyncio.get_running_loop().run_in_executor(None, work)


async def _once(shared: Shared[K, T], key: K, size: int, work: Callable[[], T]) -> T:
    """Return what `work` returns, or what it is about to return to others who wait for it in a thread."""
    return work() if size <= INLINE_MAX else await shared.result(key, partial(off_loop, size, work))


def epochs_of(shuffle: Shuffle) -> int:
    """Return how many epochs a shuffle of REDUCE partitions ever had."""
    return shuffle.partitions + shuffle.moved


def _all_epochs(first: First, shuffle: Shuffle) -> Iterator[PlacedEpoch]:
    incomplete = unpack_incomplete(shuffle.incomplete).get
    none = frozenset[int]()
    for partition, workers in enumerate(first):
        yield PlacedEpoch(partition, 0, workers, shuffle.created_index, incomplete((partition, 0), none))
    for each in unpack_moved(shuffle.moves, shuffle.copies_wanted):
        lacking = incomplete((each.partition, each.epoch), none)
        yield PlacedEpoch(each.partition, each.epoch, each.workers, each.made_index, lacking)


def _now(first: First, shuffle: Shuffle) -> Now:
    if not shuffle.moved:
        return Now(0, shuffle.assignment, frozenset().union(*first.columns) - {NO_WORKER})
    places = [Location(Epoch(0), _ids(workers)) for workers in first]
    for each in unpack_moved(shuffle.moves, shuffle.copies_wanted):
        places[each.partition] = Location(Epoch(each.epoch), _ids(each.workers), each.hint)
    workers = frozenset(worker for place in places for worker in place.workers)
    return Now(shuffle.moved, ReduceLocations(tuple(places)).encode(), workers)


def _ids(workers: tuple[int, ...]) -> tuple[WorkerId, ...]:
    return tuple(map(WorkerId, workers))


def _manifest_workers(shuffle: Shuffle) -> frozenset[int]:
    epochs = ReduceManifest.decode(shuffle.manifest).epochs
    return frozenset(copy.worker for epoch in epochs for copy in epoch.copies)
