"""Decides whether what was read of a pushed partition is all of it, and exactly once.

Rules: pure; batches come verified (their CRC is right), in any order and any number of times, and are judged by their
headers. Of every winning map the numbers seen are kept as "all below n" and what lies above; a number seen before is
dropped. A map is whole when its LAST was seen and count and sum of checksums match LAST. Batches of other
attempts are losers. Called by chunk_fetch.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.client.core.read.check import IncompleteError
from holdfast.common.formats.batch import Batch
from holdfast.common.formats.reduce_layouts import NO_ATTEMPT, ReduceWinners
from holdfast.common.ids import MapId, PartitionId

_U64 = 0xFFFF_FFFF_FFFF_FFFF
_MIXED = "damage, or two writers had this attempt number, which has to be unique in the application"


@dataclass(slots=True)
class _Seen:
    """What came of one map."""

    #: every number below was seen
    below: int = 0
    above: set[int] = field(default_factory=set)
    #: of the batches before LAST
    crc_sum: int = 0
    #: (batches, crc sum) of LAST
    totals: tuple[int, int] | None = None

    def note(self, number: int) -> bool:
        """Return whether the number is new."""
        if number < self.below or number in self.above:
            return False
        if number > self.below:
            self.above.add(number)
            return True
        self.below += 1
        while self.above and self.below in self.above:
            self.above.discard(self.below)
            self.below += 1
        return True


class PartitionCheck:
    """The books of one partition over a range of maps; keeps counters only, never payload."""

    __slots__ = ("_maps", "_partition", "_seen", "_winners", "duplicates")

    def __init__(self, winners: ReduceWinners, partition: PartitionId, maps: range) -> None:
        self._winners = winners
        self._partition = partition
        self._maps = maps
        self._seen: dict[int, _Seen] = {}
        #: batches that came again and were dropped
        self.duplicates = 0

    def admit(self, batch: Batch) -> bool:
        """Take note of a batch; return whether its payload counts (no loser, no duplicate). Raises IncompleteError."""
        map_id = batch.map
        attempts = self._winners.attempts
        if map_id not in self._maps or map_id >= len(attempts) or attempts[map_id] != batch.attempt:
            return False
        seen = self._seen.get(map_id)
        if seen is None:
            if self._winners.has(map_id, self._partition) is False:
                raise IncompleteError(self._partition, f"map {map_id} has batches, though its status has none")
            seen = self._seen[map_id] = _Seen()
        if not seen.note(batch.number):
            self.duplicates += 1
            return False
        if batch.totals is None:
            seen.crc_sum = (seen.crc_sum + batch.crc) & _U64
        else:
            seen.totals = batch.totals
        return True

    def missing(self, *, all_read: bool) -> str:
        """Return what is not there, for people, or "" if everything is.

        all_read: every epoch was read, in its longest copy; only then a map of which nothing came, and of which it is
        unknown whether it wrote, wrote nothing.
        """
        for map_id in self._maps:
            if map_id >= len(self._winners.attempts):
                break
            if self._winners.attempts[map_id] == NO_ATTEMPT:
                continue
            what = self._missing_of(MapId(map_id), all_read)
            if what:
                return f"map {map_id} attempt {self._winners.attempts[map_id]} {what}"
        return ""

    def close(self) -> None:
        """The partition is whole: forget the books; whatever comes after is dropped."""
        self._maps = range(0)
        self._seen.clear()

    def _missing_of(self, map_id: MapId, all_read: bool) -> str:
        seen = self._seen.get(map_id)
        if seen is None:
            wrote = self._winners.has(map_id, self._partition)
            if wrote is None:
                return "" if all_read else "may have written something that is not there"
            return "wrote for it, and nothing of that is there" if wrote else ""
        if seen.totals is None:
            return f"has {seen.below + len(seen.above)} batches and no LAST"
        count, crc_sum = seen.totals
        came = seen.below + len(seen.above)
        if came > count:
            return f"has {came} batches, and its LAST counts {count}; {_MIXED}"
        if seen.above or seen.below != count:
            return f"has {came} batches of {count}; number {seen.below} is missing"
        if crc_sum != seen.crc_sum:
            return f"has batches whose checksums do not match those of its LAST; {_MIXED}"
        return ""
