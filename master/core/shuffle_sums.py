"""What is in one generation of a shuffle, in sums: sizes, copies, epochs, and what each worker has of it. Pure.

Rules: the arrays of a shuffle are read once, front to back, and nothing of them is kept but a number for each partition
and one row for each worker: there may be millions of epochs. Called by master/observe/describing.py, in a thread where
that is much.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from typing import NamedTuple

from holdfast.common.formats.layouts import MapWinner
from holdfast.common.formats.reduce_layouts import EpochResult
from holdfast.common.statuses import Status
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.state.records import Worker
from holdfast.master.core.usage import Row

#: Lost partitions that are named.
NAMED_MAX = 10
#: Numbers sorted at a time: sorting all at once would hold up every other thread.
_SLICE = 32_768
#: What became of a copy, by its field in CopyCounts; every other status means that it is lost.
_BECAME = {
    Status.OK: "readable",
    Status.UNKNOWN_FILE: "empty",
    Status.INCOMPLETE: "incomplete",
    Status.UNAVAILABLE: "unavailable",
    Status.NOT_SEALED: "restoring",
}


@dataclass(frozen=True, slots=True)
class SizeBucket:
    """How many outputs are at least as large as one bound and smaller than the other, in bytes."""

    from_bytes: int
    below_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSizes:
    """Bytes of partitions, or of the outputs of maps; one copy of each counts. `largest` is the number of the largest.
    Percentiles are by nearest rank; the bounds of the buckets are powers of two, without gaps but
    for one behind the empty ones."""

    count: int = 0
    total_bytes: int = 0
    median_bytes: int = 0
    p99_bytes: int = 0
    largest_bytes: int = 0
    largest: int = 0
    histogram: tuple[SizeBucket, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCounts:
    """What became of copies: `placed` are all of them, the others are disjoint, and 0 while a shuffle is open."""

    placed: int = 0
    readable: int = 0
    empty: int = 0
    incomplete: int = 0
    unavailable: int = 0
    restoring: int = 0
    lost: int = 0
    #: would be readable, were their workers not lost
    away: int = 0


class Share(NamedTuple):
    """What one worker has: readable copies and their bytes, or of an open shuffle the copies that are placed there and
    the bytes that it reported."""

    worker: int
    copies: int
    size_bytes: int


class HostShare(NamedTuple):
    """What the workers of a host have together, those with most bytes first."""

    host: str
    copies: int
    size_bytes: int
    shares: tuple[Share, ...]


class EpochCounts(NamedTuple):
    """Of REDUCE partitions: how many have several epochs, which one has most of them, and how many have a lost one, of
    which `lost` are the first."""

    partitions_moved: int = 0
    epochs_most: int = 0
    epochs_most_partition: int = 0
    partitions_lost: int = 0
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSums:
    """One generation; `sizes` is None while it is open."""

    sizes: OutputSizes | None = None
    copies: CopyCounts = CopyCounts()
    epochs: EpochCounts = EpochCounts()
    shares: tuple[Share, ...] = ()


def sums_of_manifest(partitions: int, epochs: Iterable[EpochResult]) -> ShuffleSums:
    """Sum up a committed shuffle of REDUCE partitions."""
    sizes, number = array("Q", bytes(8 * partitions)), array("I", bytes(4 * partitions))
    became: Counter[str] = Counter()
    held = _Held()
    lost: dict[int, None] = {}
    for each in epochs:
        number[each.partition] += 1
        sizes[each.partition] += max(copy.size_bytes for copy in each.copies)
        if each.lost:
            lost[each.partition] = None
        for copy in each.copies:
            became[_BECAME.get(copy.status, "lost")] += 1
            if copy.readable:
                held.add(copy.worker, copy.size_bytes)
    return ShuffleSums(
        sizes=sizes_of(sizes),
        copies=CopyCounts(placed=became.total(), **became),
        epochs=_epochs(number, tuple(lost)),
        shares=held.shares(),
    )


def as_workers_are(sums: ShuffleSums, alive: Callable[[int], bool]) -> ShuffleSums:
    """The sums with what is readable split by whether its worker is `alive`."""
    away = sum(each.copies for each in sums.shares if not alive(each.worker)) if sums.copies.readable else 0
    if not away:
        return sums
    return replace(sums, copies=replace(sums.copies, readable=sums.copies.readable - away, away=away))


def sums_of_winners(winners: Iterable[MapWinner]) -> ShuffleSums:
    """Sum up a committed shuffle of MAP partitions: masters know sizes of whole maps."""
    sizes, held = array("Q"), _Held()
    for each in winners:
        sizes.append(each.size_bytes)
        for worker in each.workers:
            held.add(worker, each.size_bytes)
    copies = sum(held.copies.values())
    return ShuffleSums(sizes=sizes_of(sizes), copies=CopyCounts(placed=copies, readable=copies), shares=held.shares())


def sums_of_placed(partitions: int, epochs: Iterable[PlacedEpoch], reported: Mapping[int, int]) -> ShuffleSums:
    """Sum up an open shuffle of REDUCE partitions; `reported`: bytes that workers say they have of it."""
    number, held, incomplete = array("I", bytes(4 * partitions)), _Held(reported), 0
    for each in epochs:
        number[each.partition] += 1
        incomplete += len(each.incomplete)
        for worker in each.workers:
            held.add(worker, 0)
    copies = CopyCounts(placed=sum(held.copies.values()), incomplete=incomplete)
    return ShuffleSums(copies=copies, epochs=_epochs(number), shares=held.shares())


def sums_of_ring(ring: Iterable[int], reported: Mapping[int, int]) -> ShuffleSums:
    """Sum up an open shuffle of MAP partitions: masters do not see its maps yet."""
    return ShuffleSums(shares=_Held({**dict.fromkeys(ring, 0), **reported}).shares())


def reported_bytes(rows: Mapping[int, Sequence[Row]], instance: bytes, shuffle: int) -> dict[int, int]:
    """Return, by worker, the bytes of a shuffle, all generations together, in what workers report of their largest."""
    return {
        worker: held.size_bytes
        for worker, applications in rows.items()
        for row in applications
        if row.instance == instance
        for number, held in row.shuffles
        if number == shuffle
    }


def hosts_of(shares: Iterable[Share], workers: Mapping[int, Worker]) -> list[HostShare]:
    """Return what each host has, most bytes first; workers that are not known any more stand under ""."""
    by_host: dict[str, list[Share]] = {}
    for share in shares:
        known = workers.get(share.worker)
        by_host.setdefault(known.host if known is not None else "", []).append(share)
    found = [
        HostShare(host, sum(one.copies for one in those), sum(one.size_bytes for one in those), tuple(those))
        for host, those in by_host.items()
    ]
    return sorted(found, key=lambda each: (-each.size_bytes, -each.copies, each.host))


def sizes_of(sizes: array[int]) -> OutputSizes:
    """Sum up sizes; the number of each is its place."""
    if not sizes:
        return OutputSizes()
    values = iter(sizes)
    ordered = merge(*iter(lambda: sorted(islice(values, _SLICE)), []))
    middle, high = (-(-share * len(sizes) // 100) - 1 for share in (50, 99))
    median = next(islice(ordered, middle, None))
    largest = max(sizes)
    return OutputSizes(
        count=len(sizes),
        total_bytes=sum(sizes),
        median_bytes=median,
        p99_bytes=next(islice(ordered, high - middle - 1, None)) if high > middle else median,
        largest_bytes=largest,
        largest=sizes.index(largest),
        histogram=tuple(_histogram(sizes)),
    )


def _histogram(sizes: array[int]) -> Iterator[SizeBucket]:
    """Yield a bucket for the empty ones, if there are any, and one for each power of two from the smallest other size
    to the largest."""
    lengths = Counter(map(int.bit_length, sizes))
    empty = lengths.pop(0, 0)
    if empty:
        yield SizeBucket(0, 1, empty)
    if lengths:
        for length in range(min(lengths), max(lengths) + 1):
            yield SizeBucket(1 << length >> 1, 1 << length, lengths[length])


def _epochs(number: array[int], lost: tuple[int, ...] = ()) -> EpochCounts:
    """Count by partition; `number`: of the epochs of each."""
    most = max(number, default=0)
    first = number.index(most) if most else 0
    return EpochCounts(sum(count > 1 for count in number), most, first, len(lost), lost[:NAMED_MAX])


class _Held:
    """Copies and bytes by worker."""

    def __init__(self, size_bytes: Mapping[int, int] | None = None) -> None:
        self.copies: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter(size_bytes or {})

    def add(self, worker: int, size_bytes: int) -> None:
        self.copies[worker] += 1
        self._bytes[worker] += size_bytes

    def shares(self) -> tuple[Share, ...]:
        """Most bytes first."""
        found = [Share(worker, self.copies[worker], size) for worker, size in self._bytes.items()]
        return tuple(sorted(found, key=lambda each: (-each.size_bytes, -each.copies, each.worker)))
