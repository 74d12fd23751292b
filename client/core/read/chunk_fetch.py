"""Reads pushed partitions of a committed shuffle: which epochs to ask of whom, from which chunk, and what is whole.

Rules: pure. Every epoch that has a sealed copy is a file of read/fetch.py, which decides about workers, tries and
copies. Chunks of one copy are requested once: a stream that is opened again continues with the first chunk that was not
complete. Another copy has other chunk boundaries and begins with its first one; what comes twice is dropped by number.
An epoch without a copy is no reason to stop: when all others of its partition were read, the partition's books say
whether anything is missing. If so, the copies that were not read are read too, since a sealed copy may be shorter than
the other (recovery cut a damaged end); of those that are equal to CopyOrder the longest is read first, so that this is
rarely needed. A copy that is read in full has the bytes that the manifest names, whatever its worker reports: where
it is unknown which maps wrote, nothing else shows that a map is missing. Copies that were sealed or made after the
manifest was read are learned from a newer one. Called by push_reader.py.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from holdfast.client.core.read.check import IncompleteError
from holdfast.client.core.read.exact import PartitionCheck
from holdfast.client.core.read.fetch import CopyOrder, Effect, Fetch, Source
from holdfast.common.errors import CorruptError, DataLostError, HoldfastError
from holdfast.common.formats.batch import Batch
from holdfast.common.formats.reduce_layouts import EpochResult, ReduceManifest, ReduceWinners
from holdfast.common.ids import Epoch, PartitionId, WorkerId

#: (partition, epoch): a file.
EpochKey = tuple[PartitionId, Epoch]
#: What follows from the end of an epoch: files to read now, or the error that ends the read.
Verdict = Mapping[EpochKey, Source] | HoldfastError
#: Epochs that an error names.
_EPOCHS_NAMED = 8


class Holders(NamedTuple):
    """Workers with copies: those that may seal or make one yet, and those that have one sealed."""

    awaited: frozenset[WorkerId] = frozenset()
    sealed: frozenset[WorkerId] = frozenset()

    def may_be_more(self, alive: Container[WorkerId]) -> bool:
        """Whether a newer manifest may name more: one that was awaited is alive, or one is not that had a copy, which
        may have been made again elsewhere."""
        return any(each in alive for each in self.awaited) or any(each not in alive for each in self.sealed)


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
        order: CopyOrder | None = None,
    ) -> None:
        """`where` names the shuffle in errors. `maps`: a range with step 1, all by default."""
        self._where = where
        self.maps = range(len(winners.attempts)) if maps is None else maps
        #: only a part of every chunk is asked for: those that have nothing do not come, but for the last
        self._partly = maps is not None
        self._checks = {each: PartitionCheck(winners, each, self.maps) for each in partitions}
        #: epochs of each partition that were not read to their end
        self._left: dict[PartitionId, set[Epoch]] = {each: set() for each in self._checks}
        #: copies that were not read to their end, and may be tried; and those that were
        self._unread: dict[EpochKey, set[WorkerId]] = {}
        self._read: dict[EpochKey, list[WorkerId]] = {}
        #: why epochs of a partition cannot be read, and why other copies of epochs that were read cannot
        self._lost: dict[PartitionId, list[HoldfastError]] = {}
        self._other_errors: dict[PartitionId, list[HoldfastError]] = {}
        #: the chunk that comes next, by file and copy
        self._next: dict[tuple[EpochKey, WorkerId], int] = {}
        #: the epochs of each partition that have a sealed copy, ascending, and how long the longest copy of each is
        self._epochs: dict[PartitionId, list[EpochKey]] = {}
        self._longest: dict[EpochKey, int] = {}
        #: bytes of the complete chunks that came, and bytes that were sealed, by file and copy
        self._bytes: dict[tuple[EpochKey, WorkerId], int] = {}
        self._sealed: dict[tuple[EpochKey, WorkerId], int] = {}
        #: what the newest manifest says of the partitions that are read
        self._named: list[EpochResult] = []
        sources: dict[EpochKey, Source] = {}
        for result in manifest.epochs:
            if result.partition in self._checks:
                self._named.append(result)
                self._add(result, sources)
        self.fetch: Fetch[EpochKey] = Fetch(
            sources,
            where=where,
            gave_up=self._gave_up,
            may_have_more=self._awaited,
            order=order,
            grace_ns=grace_ns,
        )

    def _add(self, result: EpochResult, sources: dict[EpochKey, Source]) -> None:
        key = (result.partition, result.epoch)
        if result.readable:
            longest = sorted(result.readable, key=lambda copy: -copy.size_bytes)
            sources[key] = Source(tuple(copy.worker for copy in longest), _name(key))
            self._unread[key] = {copy.worker for copy in longest}
            self._sealed |= {(key, copy.worker): copy.size_bytes for copy in longest}
            self._longest[key] = longest[0].size_bytes
            self._epochs.setdefault(result.partition, []).append(key)
            self._left[result.partition].add(result.epoch)
        elif result.lost:
            copies = ", ".join(f"worker {copy.worker} {copy.status.name}" for copy in result.copies)
            error = DataLostError(
                f"{self._where}: {_name(key)} was recorded as lost at the commit ({copies}); run the maps again in "
                "a new generation or shuffle"
            )
            self._lost.setdefault(result.partition, []).append(error)

    def learn(self, newer: ReduceManifest) -> None:
        """A newer manifest names copies that were sealed since. An epoch that was LOST before is left as it was."""
        self._named = [result for result in newer.epochs if result.partition in self._checks]
        for result in self._named:
            key = (result.partition, result.epoch)
            copies = [copy for copy in result.readable if (key, copy.worker) not in self._sealed]
            if copies and key in self._unread:
                found = [copy.worker for copy in copies]
                self._unread[key].update(found)
                self._sealed |= {(key, copy.worker): copy.size_bytes for copy in copies}
                self._longest[key] = max(self._longest[key], *(copy.size_bytes for copy in copies))
                self.fetch.copies_found(key, found)

    def _awaited(self, key: EpochKey) -> bool:
        """Whether a copy of an epoch may be sealed or made yet."""
        return any(copy.unsealed for each in self._named if each[:2] == key for copy in each.copies)

    def holders(self) -> Holders:
        """Who has copies of what is not read yet, by the newest manifest."""
        copies = [copy for each in self._named if each.partition in self._left for copy in each.copies]
        return Holders(
            frozenset(copy.worker for copy in copies if copy.unsealed),
            frozenset(copy.worker for copy in copies if copy.readable),
        )

    # Chunks.

    def first_chunk(self, key: EpochKey, worker: WorkerId) -> int:
        """Return from which chunk to ask this copy for."""
        return self._next.get((key, worker), 0)

    def chunk_came(self, key: EpochKey, worker: WorkerId, chunk: int, *, size: int | None = None) -> None:
        """Bytes of a chunk came from this copy; with its last ones `size` is what they are in all. Raises
        IncompleteError out of turn."""
        due = self.first_chunk(key, worker)
        if chunk < due or (chunk > due and not self._partly):
            raise IncompleteError(key[0], f"chunk {chunk} came where {due} was due")
        self._next[key, worker] = chunk + (size is not None)
        self._bytes[key, worker] = self._bytes.get((key, worker), 0) + (size or 0)

    def file_sent(self, key: EpochKey, worker: WorkerId, chunks: int) -> None:
        """The worker says that all `chunks` of this copy were sent. Raises IncompleteError if they were not."""
        due = self.first_chunk(key, worker)
        if due < chunks:
            raise IncompleteError(key[0], f"chunk {due} of {chunks} did not come")
        came, sealed = self._bytes.get((key, worker), 0), self._sealed[key, worker]
        if came != sealed and not self._partly:
            self._next[key, worker] = self._bytes[key, worker] = 0  # whatever it is: all of it again
            raise IncompleteError(key[0], f"{came} bytes of {_name(key)} came, but {sealed} were sealed")

    def admit(self, partition: PartitionId, batch: Batch) -> bool:
        """Take note of a batch; return whether its payload counts. Raises IncompleteError."""
        return self._checks[partition].admit(batch)

    @property
    def duplicates(self) -> int:
        """Batches that came again, of a winner, and were dropped."""
        return sum(each.duplicates for each in self._checks.values())

    # Completeness.

    def started(self) -> list[Effect[EpochKey]]:
        """Nothing was read yet: judge the partitions without any epoch, and open the first streams."""
        for partition in [each for each, left in self._left.items() if not left]:
            verdict = self._judge(partition)
            if isinstance(verdict, HoldfastError):
                return self.fetch.stop(verdict)
        return self.fetch.started()

    def epoch_complete(self, stream: int, key: EpochKey, worker: WorkerId) -> list[Effect[EpochKey]]:
        """This worker's copy of an epoch was read to its end."""
        self._read.setdefault(key, []).append(worker)
        self._unread[key].discard(worker)
        verdict = self._epoch_over(key)
        if isinstance(verdict, HoldfastError):
            return self.fetch.stop(verdict)
        return self.fetch.file_complete(stream, key, verdict)

    def _gave_up(self, key: EpochKey, error: HoldfastError) -> Verdict:
        """No copy of an epoch that was asked for can be read."""
        self._unread[key].clear()
        kept = self._other_errors if key in self._read else self._lost
        kept.setdefault(key[0], []).append(error)
        return self._epoch_over(key)

    def _epoch_over(self, key: EpochKey) -> Verdict:
        self._left[key[0]].discard(key[1])
        return {} if self._left[key[0]] else self._judge(key[0])

    def _judge(self, partition: PartitionId) -> Verdict:
        all_read = partition not in self._lost and all(map(self._read_in_full, self._epochs_of(partition)))
        missing = self._checks[partition].missing(all_read=all_read)
        if not missing:
            del self._left[partition]
            self._checks[partition].close()
            return {}
        return self._other_copies(partition) or self._not_whole(partition, missing)

    def _read_in_full(self, key: EpochKey) -> bool:
        """Whether no copy of an epoch is longer than those that were read: a short one may lack all of a map."""
        return max((self._sealed[key, worker] for worker in self._read.get(key, ())), default=0) >= self._longest[key]

    def _other_copies(self, partition: PartitionId) -> dict[EpochKey, Source]:
        """What is sealed on several workers can be cut short on one: the copies that were not read may have more."""
        keys = [key for key in self._epochs_of(partition) if self._unread[key]]
        self._left[partition].update(epoch for _, epoch in keys)
        return {key: Source(tuple(sorted(self._unread[key])), _name(key)) for key in keys}

    def _not_whole(self, partition: PartitionId, missing: str) -> HoldfastError:
        read = [
            f"epoch {key[1]} of worker {' and '.join(map(str, self._read[key]))}"
            for key in self._epochs_of(partition)
            if key in self._read
        ]
        if len(read) > _EPOCHS_NAMED:
            read[_EPOCHS_NAMED:] = [f"{len(read) - _EPOCHS_NAMED} more epochs"]
        what = f"{missing} (read to the end: {', '.join(read) or 'nothing'})"
        causes = self._lost.get(partition, []) + self._other_errors.get(partition, [])
        if not causes:
            return CorruptError(f"{self._where}: partition {partition} was read to its end and is not whole: {what}")
        text = f"{str(causes[0]).rstrip('.')}. Without it the partition is not whole: {what}"
        error: HoldfastError = type(causes[0])(text, status=causes[0].status)
        return error

    def _epochs_of(self, partition: PartitionId) -> list[EpochKey]:
        return self._epochs.get(partition, [])

    def check(self) -> None:
        """Raise AssertionError if the books disagree."""
        self.fetch.check()
        assert self._left.keys() <= self._checks.keys()
        assert not any(self._unread[key].intersection(workers) for key, workers in self._read.items())


def _name(key: EpochKey) -> str:
    return f"partition {key[0]} epoch {key[1]}"
