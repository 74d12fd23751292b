"""Reads pushed partitions of a committed shuffle: which epochs to ask of whom, from which chunk, and what is whole.

Rules: pure. Every epoch that has a sealed copy is a file of core/fetch.py, which decides about workers, tries and
copies. Chunks of one copy are asked for once: a stream that is opened again goes on with the first chunk that was not
complete. Another copy has other chunk boundaries and begins with its first one; what comes twice is dropped by number.
An epoch without a copy is no reason to stop: when all others of its partition were read, the partition's books say
whether anything is missing. Called by push_reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.client.core.check import IncompleteError
from holdfast.client.core.exact import PartitionCheck
from holdfast.client.core.fetch import Fetch, Source
from holdfast.common.batch import Batch
from holdfast.common.errors import CorruptError, DataLostError, HoldfastError
from holdfast.common.ids import NO_WORKER, Epoch, PartitionId, WorkerId
from holdfast.common.reduce_layouts import CopyResult, EpochResult, ReduceManifest, ReduceWinners

#: (partition, epoch): a file.
EpochKey = tuple[PartitionId, Epoch]


class ChunkFetch:
    """The state of one read."""

    def __init__(
        self,
        manifest: ReduceManifest,
        winners: ReduceWinners,
        partitions: Iterable[PartitionId],
        *,
        where: str,
        grace_ns: int,
        maps: range | None = None,
    ) -> None:
        """`where` names the shuffle in errors. `maps`: a range with step 1, all by default."""
        self._where = where
        self.maps = range(len(winners.attempts)) if maps is None else maps
        #: only a part of every chunk is asked for, so some chunks may have nothing and not come
        self._partly = maps is not None
        self._checks = {each: PartitionCheck(winners, each, self.maps) for each in partitions}
        #: epochs of each partition that were not read to their end
        self._left: dict[PartitionId, set[Epoch]] = {each: set() for each in self._checks}
        #: why epochs of a partition cannot be read
        self._lost: dict[PartitionId, list[HoldfastError]] = {}
        #: the chunk that comes next, by file and copy
        self._next: dict[tuple[EpochKey, WorkerId], int] = {}
        sources: dict[EpochKey, Source] = {}
        for result in manifest.epochs:
            if result.partition in self._checks:
                self._add(result, sources)
        self.fetch: Fetch[EpochKey] = Fetch(sources, where=where, goes_on=True, grace_ns=grace_ns)

    def _add(self, result: EpochResult, sources: dict[EpochKey, Source]) -> None:
        name = f"partition {result.partition} epoch {result.epoch}"
        if result.copies:
            workers = tuple(copy.worker for copy in result.copies)
            sources[result.partition, result.epoch] = Source(workers, name)
            self._left[result.partition].add(result.epoch)
        elif result.lost:
            copies = ", ".join(_said(copy) for copy in (result.primary, result.replica))
            error = DataLostError(
                f"{self._where}: {name} was recorded as lost at the commit ({copies}); run the maps again in a new "
                "generation or shuffle"
            )
            self._lost.setdefault(result.partition, []).append(error)

    # Chunks.

    def first_chunk(self, key: EpochKey, worker: WorkerId) -> int:
        """Return from which chunk to ask this copy for."""
        return self._next.get((key, worker), 0)

    def chunk_came(self, key: EpochKey, worker: WorkerId, chunk: int, *, complete: bool) -> None:
        """Bytes of a chunk came from this copy; `complete` with its last ones. Raises IncompleteError out of turn."""
        due = self.first_chunk(key, worker)
        if chunk < due or (chunk > due and not self._partly):
            raise IncompleteError(key[0], f"chunk {chunk} came where {due} was due")
        self._next[key, worker] = chunk + complete

    def file_sent(self, key: EpochKey, worker: WorkerId, chunks: int) -> None:
        """The worker says that all `chunks` of this copy were sent. Raises IncompleteError if they were not."""
        due = self.first_chunk(key, worker)
        if due < chunks and not self._partly:
            raise IncompleteError(key[0], f"chunk {due} of {chunks} did not come")

    def admit(self, partition: PartitionId, batch: Batch) -> bool:
        """Take note of a batch; return whether its payload counts. Raises IncompleteError."""
        return self._checks[partition].admit(batch)

    @property
    def duplicates(self) -> int:
        """Batches that came again, of a winner, and were dropped."""
        return sum(each.duplicates for each in self._checks.values())

    # Completeness.

    def started(self) -> None:
        """Nothing was read yet: partitions without any epoch are judged now. Raises as `epoch_complete`."""
        for partition in [each for each, left in self._left.items() if not left]:
            self._judge(partition)

    def epoch_complete(self, key: EpochKey) -> None:
        """An epoch was read to its end. Raises DataLostError or CorruptError if its partition is not whole now."""
        self._left[key[0]].discard(key[1])
        if not self._left[key[0]]:
            self._judge(key[0])

    def gave_up(self, key: EpochKey, error: HoldfastError) -> None:
        """No copy of an epoch can be read. Raises as `epoch_complete`."""
        self._lost.setdefault(key[0], []).append(error)
        self.epoch_complete(key)

    def _judge(self, partition: PartitionId) -> None:
        lost = self._lost.pop(partition, [])
        missing = self._checks[partition].missing(all_read=not lost)
        if missing and lost:
            first = lost[0]
            raise type(first)(
                f"{str(first).rstrip('.')}. Without it the partition is not whole: {missing}", status=first.status
            )
        if missing:
            raise CorruptError(f"{self._where}: partition {partition} was read to its end and is not whole: {missing}")
        del self._left[partition]
        self._checks[partition].close()

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        self.fetch.check()
        assert self._left.keys() <= self._checks.keys()


def _said(copy: CopyResult) -> str:
    return "no second copy" if copy.worker == NO_WORKER else f"worker {copy.worker} {copy.status.name}"
