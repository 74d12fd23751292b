"""Sums over a shuffle: right for every kind and state, and made once, however many ask."""

from __future__ import annotations

import asyncio
import itertools
import threading
from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.formats.layouts import MapWinners
from holdfast.common.formats.reduce_layouts import CopyResult, EpochResult, ReduceManifest
from holdfast.common.ids import Epoch, PartitionId, WorkerId
from holdfast.common.limits import MIB
from holdfast.common.sizes import UsageTotals, skew
from holdfast.common.statuses import Status
from holdfast.master.control.locations import INLINE_MAX, Locations
from holdfast.master.core.seals import PlacedEpoch
from holdfast.master.core.shuffle_sums import (
    CopyCounts,
    EpochCounts,
    OutputSizes,
    Share,
    ShuffleSums,
    SizeBucket,
    hosts_of,
    reported_bytes,
    sizes_of,
    sums_of_manifest,
    sums_of_placed,
    sums_of_ring,
    sums_of_winners,
)
from holdfast.master.core.state import commands as cmd
from holdfast.master.core.state.records import Shuffle
from holdfast.master.core.usage import Row
from holdfast.master.observe import describing as module
from holdfast.master.observe.describing import Describer
from holdfast.tools.cli.output import percentile
from tests.unit.master.alone import Node, do, leader_of
from tests.unit.master.build import I1, I2, Log, application, key, reduce, winners, worker


def epoch(partition: int, number: int, *copies: tuple[int, Status, int]) -> EpochResult:
    return EpochResult(
        PartitionId(partition),
        Epoch(number),
        tuple(CopyResult(WorkerId(at), status, size) for at, status, size in copies),
    )


def test_a_manifest_is_summed_up() -> None:
    """The longest copy of each epoch counts, epochs of a partition are added up; every copy is counted by what became
    of it, and a worker has the bytes of its readable copies alone."""
    sums = sums_of_manifest(
        4,
        [
            epoch(0, 0, (1, Status.OK, 100), (2, Status.OK, 100)),
            epoch(1, 0, (1, Status.OK, 40), (2, Status.INCOMPLETE, 0)),
            epoch(1, 1, (3, Status.OK, 60), (2, Status.UNAVAILABLE, 0)),
            epoch(1, 2, (3, Status.OK, 7), (1, Status.NOT_SEALED, 0)),
            epoch(2, 0, (1, Status.UNKNOWN_FILE, 0), (2, Status.UNKNOWN_FILE, 0)),
            epoch(3, 0, (1, Status.DATA_LOST, 0), (2, Status.FAILED_COPY, 0)),
        ],
    )
    assert sums == ShuffleSums(
        sizes=OutputSizes(
            count=4,
            total_bytes=207,
            median_bytes=0,
            p99_bytes=107,
            largest_bytes=107,
            largest=1,
            histogram=(
                SizeBucket(0, 1, 2),
                SizeBucket(64, 128, 2),
            ),
        ),
        copies=CopyCounts(placed=12, readable=5, empty=2, incomplete=1, unavailable=1, restoring=1, lost=2),
        epochs=EpochCounts(1, 3, 1, 1, (3,)),
        shares=(Share(1, 2, 140), Share(2, 1, 100), Share(3, 2, 67)),
    )


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 1 << 50)), min_size=1, max_size=300))
def test_percentiles_are_by_nearest_rank_and_every_size_is_in_one_bucket(sizes: list[int]) -> None:
    """Median and p99 are sizes that occur, as the command line counts percentiles elsewhere; buckets have no gaps but
    for one behind the empty ones."""
    found = sizes_of(array("Q", sizes))
    assert (found.median_bytes, found.p99_bytes) == (percentile(sizes, 0.5), percentile(sizes, 0.99))
    assert (found.total_bytes, sizes[found.largest]) == (sum(sizes), max(sizes))
    for bucket in found.histogram:
        assert bucket.count == sum(bucket.from_bytes <= size < bucket.below_bytes for size in sizes)
    assert sum(bucket.count for bucket in found.histogram) == len(sizes)
    others = [bucket for bucket in found.histogram if bucket.from_bytes]
    assert all(one.below_bytes == other.from_bytes for one, other in itertools.pairwise(others))


def test_skew_needs_a_median() -> None:
    """Largest to median; there is none where half of the partitions are empty, nor where there are none."""
    assert skew(300, 100) == 3.0
    assert skew(300, 0) is None
    assert sizes_of(array("Q")) == OutputSizes()


def test_maps_are_summed_up_by_their_winners() -> None:
    """Of MAP partitions the masters know sizes of maps; while these run, who has a place and what workers report."""
    array_of = winners(1, maps=3, partitions=4, size=5 * MIB)
    sums = sums_of_winners(MapWinners.each(array_of))
    assert sums.sizes is not None
    assert (sums.sizes.count, sums.sizes.total_bytes) == (3, sum(each.size_bytes for each in MapWinners.each(array_of)))
    assert sums.copies == CopyCounts(placed=3, readable=3)
    assert sums.shares == (Share(1, 3, sums.sizes.total_bytes),)
    assert sums_of_ring([1, 2], {2: 9, 3: 4}).shares == (Share(2, 0, 9), Share(3, 0, 4), Share(1, 0, 0))


def test_an_open_shuffle_has_places_and_no_sizes() -> None:
    """Copies that are placed, those that are incomplete, and the bytes that workers report of this shuffle alone."""
    rows = {
        1: (Row(I1, UsageTotals(9, 9), ((1, UsageTotals(5, 1)), (2, UsageTotals(4, 1)))),),
        2: (Row(I2, UsageTotals(9, 9), ((1, UsageTotals(7, 1)),)),),
    }
    reported = reported_bytes(rows, I1, 1)
    assert reported == {1: 5}
    placed = [PlacedEpoch(0, 0, (1, 2), 1, frozenset({2})), PlacedEpoch(1, 0, (2, 3), 1), PlacedEpoch(0, 1, (3, 1), 2)]
    sums = sums_of_placed(2, placed, reported)
    assert sums.sizes is None
    assert (sums.copies, sums.epochs) == (CopyCounts(placed=6, incomplete=1), EpochCounts(1, 2, 0))
    assert sums.shares == (Share(1, 2, 5), Share(2, 2, 0), Share(3, 2, 0))


def test_workers_stand_with_their_hosts() -> None:
    """Hosts add up their workers, most bytes first."""
    log = Log()
    for number, host in ((1, "a"), (2, "b"), (3, "b")):
        log.do(worker(number, host=host))
    shares = (Share(1, 1, 50), Share(3, 2, 40), Share(2, 1, 20))
    found = [
        (each.host, each.copies, each.size_bytes, len(each.shares)) for each in hosts_of(shares, log.state.workers)
    ]
    assert found == [("b", 3, 60, 2), ("a", 1, 50, 1)]


async def committed(partitions: int) -> tuple[Describer, Shuffle]:
    """A leader, and a shuffle of so many partitions with a manifest."""
    node = Node()
    leader = leader_of(node)
    await do(leader, worker(1), worker(2), application(), reduce(partitions=partitions))
    found = node.machine.state.shuffle(key())
    assert found is not None
    epochs = tuple(epoch(number, 0, (1, Status.OK, 7)) for number in range(partitions))
    manifest = ReduceManifest(partitions, epochs).encode()
    return Describer(leader, Locations()), replace(found, manifest=manifest, manifest_version=1, committed_ms=1)


def test_who_asks_at_once_and_later_has_a_manifest_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one is read outside the loop, once for all who ask, until it is replaced."""
    threads: list[int] = []

    def counted(partitions: int, epochs: Iterable[Any]) -> ShuffleSums:
        threads.append(threading.get_ident())
        return sums_of_manifest(partitions, epochs)

    monkeypatch.setattr(module, "sums_of_manifest", counted)

    async def story() -> None:
        describer, shuffle = await committed(INLINE_MAX + 1)
        found = await asyncio.gather(*(describer.sums(shuffle) for _ in range(50)))
        assert all(each is found[0] for each in [*found, await describer.sums(shuffle)])
        assert len(threads) == 1
        assert threads[0] != threading.get_ident()
        assert await describer.sums(replace(shuffle, manifest_version=2)) == found[0]
        assert len(threads) == 2

    asyncio.run(story())


def test_copies_on_lost_workers_are_not_called_readable() -> None:
    """They are away, in every answer, until their worker is back."""

    async def story() -> None:
        describer, shuffle = await committed(4)
        for alive, copies in (
            (False, CopyCounts(placed=4, readable=0, away=4)),
            (True, CopyCounts(placed=4, readable=4)),
        ):
            await do(describer._leader, cmd.SetWorkersAlive(alive, (cmd.WorkerRef(1, 1),)))
            assert (await describer.sums(shuffle)).copies == copies

    asyncio.run(story())


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of workers are counted; the sums that were made first go first."""
    monkeypatch.setattr(module, "_ROWS_MAX", 3)

    async def story() -> None:
        describer, shuffle = await committed(4)
        for number in range(9):
            await describer.sums(replace(shuffle, key=key(number)))
            assert describer._rows == sum(len(kept.sums.shares) for kept in describer._kept.values()) <= 3
        assert list(describer._kept) == [key(6), key(7), key(8)]

    asyncio.run(story())
