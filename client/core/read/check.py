"""Decides whether what was read of a map file is all of it, and exactly once.

Rules: pure; batches come verified (their CRC is right) and are judged by their headers. Within a file the numbers
of a partition ascend from 0, so one counter separates a duplicate (below it: dropped, a stream may start again) from a
gap (above it: something is missing). A partition whose bit is set in the winner's bitmap must end with LAST and its
totals; one without must have nothing. Batches of another map or attempt are losers and are dropped. Called by
reader.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.common.formats.batch import Batch
from holdfast.common.formats.layouts import MapWinner
from holdfast.common.ids import BROADCAST_PARTITION, MapId, PartitionId


class IncompleteError(Exception):
    """What is wrong with a file's batches; the reader adds where they came from."""

    def __init__(self, partition: int, what: str) -> None:
        super().__init__(what)
        self.partition = PartitionId(partition)


@dataclass(slots=True)
class _Seen:
    """What came of one partition of the file."""

    batches: int = 0
    crc_sum: int = 0
    ended: bool = False


@dataclass(slots=True)
class FileCheck:
    """The books of one winner file over partitions [begin, end); keeps counters only, never payload."""

    map: MapId
    winner: MapWinner
    begin: PartitionId
    end: PartitionId
    _seen: dict[int, _Seen] = field(default_factory=dict)

    def admit(self, partition: int, batch: Batch) -> bool:
        """Take note of a batch; return whether its payload counts (no loser, no duplicate). Raises IncompleteError."""
        if batch.attempt != self.winner.attempt or batch.map != self.map:
            return False
        seen = self._seen.get(partition)
        if seen is None:
            self._expect(partition)
            seen = self._seen[partition] = _Seen()
        if batch.number < seen.batches:
            return False
        if seen.ended:
            raise IncompleteError(partition, f"batch {batch.number} comes after the LAST of {seen.batches}")
        if batch.number > seen.batches:
            raise IncompleteError(partition, f"batch {batch.number} came where {seen.batches} was due")
        if batch.totals is not None:
            if batch.totals != (batch.number + 1, seen.crc_sum):
                raise IncompleteError(partition, "the totals of the LAST batch differ from what came")
            seen.ended = True
        seen.batches += 1
        seen.crc_sum = (seen.crc_sum + batch.crc) & 0xFFFF_FFFF_FFFF_FFFF
        return True

    def finish(self) -> None:
        """The file's stream is at its end: raise IncompleteError unless everything was there."""
        for partition, seen in self._seen.items():
            if not seen.ended:
                raise IncompleteError(partition, f"ends after batch {seen.batches - 1} without LAST")
        for partition in self._wanted():
            if partition not in self._seen:
                raise IncompleteError(partition, "nothing came, though the map wrote to it")

    def _expect(self, partition: int) -> None:
        if partition == BROADCAST_PARTITION:
            return
        if not self.begin <= partition < self.end:
            raise IncompleteError(partition, f"was not asked for; partitions {self.begin} to {self.end - 1} were")
        if not self.winner.has(PartitionId(partition)):
            raise IncompleteError(partition, "has batches, though the map's status has none")

    def _wanted(self) -> list[int]:
        if self.end - self.begin == 1:
            return [self.begin] if self.winner.has(self.begin) else []
        return [partition for partition in range(self.begin, self.end) if self.winner.has(PartitionId(partition))]


def writes_to(winner: MapWinner, begin: PartitionId, end: PartitionId) -> bool:
    """Return whether the map wrote anything for the partitions [begin, end)."""
    if end - begin == 1:
        return winner.has(begin)
    bitmap = int.from_bytes(winner.partitions[begin >> 3 : (end + 7) >> 3], "little") >> (begin & 7)
    return bitmap & ((1 << (end - begin)) - 1) != 0
