"""Mistakes planted in what writes, keeps and reads MAP files, by name; see storage_bugs.py. Only seeds from MAP_SEEDS
on can show them."""

from __future__ import annotations

import re
from typing import Any

from holdfast.client.core.read.check import FileCheck
from holdfast.client.core.write.map_write import Effect, MapWrite, Written
from holdfast.common.ids import MapFileKey
from holdfast.worker.storage.engine.seal import EpochSeal, SealWork
from holdfast.worker.storage.engine.unsealed import UnsealedEpochs
from holdfast.worker.storage.index.region_chunks import Chunk
from holdfast.worker.storage.recovery.reconcile import Reconciler
from tests.sim.storage_bugs import left_out, swallowed
from tests.sim.swap import Mistakes, Swap

MAP_BUGS = Mistakes()
#: The name of an unsealed map file: its note is the start that wrote it, and the level.
_MAP_FILE = re.compile(r"\.\d+\.[a-z]+\.open$")
bug = MAP_BUGS.add


def _is_map_file(path: str) -> bool:
    return _MAP_FILE.search(path) is not None


@bug
def map_files_not_synced() -> list[Swap]:
    """A map file gets its sealed name without a sync."""
    return left_out("sync", _is_map_file)


@bug
def map_sync_errors_swallowed() -> list[Swap]:
    """A map file whose sync failed is sealed all the same."""
    return swallowed("sync", _is_map_file)


@bug
def map_write_errors_swallowed() -> list[Swap]:
    """A write of a map file that failed is passed over."""
    return swallowed("write", _is_map_file)


@bug
def map_seal_answered_too_early() -> list[Swap]:
    """A map file is called sealed when its sync begins."""
    start, answer = UnsealedEpochs._start, EpochSeal.answer

    def started(self: UnsealedEpochs, job: EpochSeal, work: SealWork) -> None:
        if work.map is not None:
            job.future.set_result(work.copies[0]._record.epoch.map_answer)  # type: ignore[union-attr]
        start(self, job, work)

    def answered(self: EpochSeal, work: SealWork) -> None:
        if work.map is None:
            answer(self, work)

    return [(UnsealedEpochs, "_start", started), (EpochSeal, "answer", answered)]


@bug
def map_files_not_adopted() -> list[Swap]:
    """An index that is made anew has no map files."""
    original = Reconciler._adopt

    def adopt(self: Reconciler, record: Any, folder: Any) -> None:
        if not isinstance(record.key, MapFileKey):
            original(self, record, folder)

    return [(Reconciler, "_adopt", adopt)]


@bug
def one_copy_of_a_map_is_enough() -> list[Swap]:
    """An attempt ends when the first of its copies is sealed, and names all."""
    original = MapWrite.sealed

    def sealed(self: MapWrite, copy: int, epoch: Any, totals: Any) -> list[Effect]:
        found = original(self, copy, epoch, totals)
        if not found and not self._stale(epoch):
            self.over = True
            return [Written(epoch, tuple(state.worker for state in self._copies))]
        return found

    return [(MapWrite, "sealed", sealed)]


@bug
def map_batches_counted_twice() -> list[Swap]:
    """A file that is read again from another copy brings again what had come."""
    original = FileCheck.admit

    def admit(self: FileCheck, partition: int, batch: Any) -> bool:
        seen = self._seen.get(partition)
        again = seen is not None and batch.number < seen.batches
        return original(self, partition, batch) or again

    return [(FileCheck, "admit", admit)]


@bug
def last_partition_of_a_chunk_left_out() -> list[Swap]:
    """The rows of a region's index that a range needs are counted one short."""
    original = Chunk.span

    def span(self: Chunk, begin: int, end: int) -> tuple[int, int]:
        first, last = original(self, begin, end)
        return first, max(first, last - (end - begin > 1))

    return [(Chunk, "span", span)]
