"""Sealed epochs that are being read: where each lies and its chunks, kept once however many streams read it.

Rules: an entry goes with the last stream that holds its place, so nothing here is a cache that has to be emptied. The
chunks of all places together are bounded, and those of one owner (shares.py). Loop thread only. Called by
reduce_store.py.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from holdfast.common.errors import RetryError
from holdfast.common.shares import Shares
from holdfast.common.statuses import Status
from holdfast.worker.core.health import WindowMean
from holdfast.worker.storage.index.records import EpochRecord
from holdfast.worker.storage.layout import DataKey, EpochKey

#: Rows of all places together; one takes some 240 bytes.
ROWS_MAX = 1_048_576
#: What a place takes beside its chunks, as rows.
PLACE_ROWS = 5


@dataclass(slots=True, weakref_slot=True, eq=False)
class SealedLocation:
    """A sealed epoch and the file it lies in. The file may move: ask for the path whenever it is opened."""

    key: EpochKey
    record: EpochRecord
    path: str
    #: the file is on the DFS, and `path` its name there
    away: bool = False
    #: how long reads from its directory take
    fetches: WindowMean | None = None

    @property
    def rows(self) -> int:
        """Its weight in memory."""
        return PLACE_ROWS + len(self.record.chunks)


class _Held(weakref.ref[SealedLocation]):
    """A place that somebody holds, and what is counted for it."""

    __slots__ = ("file", "key", "owner", "rows")

    key: EpochKey
    file: DataKey
    owner: Hashable
    rows: int


class SealedLocations:
    """All places that somebody holds."""

    def __init__(self) -> None:
        self._known: dict[EpochKey, _Held] = {}
        #: all of them: one tells of its end as long as it is kept
        self._held: dict[int, _Held] = {}
        #: how many places lie in each file
        self._readers: Counter[DataKey] = Counter()
        #: their weight, by owner
        self._shares = Shares(ROWS_MAX)

    @property
    def rows(self) -> int:
        """The weight of all of them."""
        return self._shares.total

    def share(
        self,
        key: EpochKey,
        record: EpochRecord,
        path: str,
        fetches: WindowMean | None = None,
        *,
        owner: Hashable = (),
        away: bool = False,
    ) -> SealedLocation:
        """Return the place of an epoch, the one that is held already if there is one; a new one is of this owner.

        Raises RetryError BUSY if too much is held.
        """
        known = self._known.get(key)
        place = known() if known is not None else None
        if place is not None and place.record == record:
            # One for all, also if its file has moved and `moved` has yet to say so: else that one would not hear of it.
            place.path, place.away, place.fetches = path, away, fetches
            return place
        place = SealedLocation(key, record, path, away, fetches)
        if not self._shares.take(owner, place.rows):
            why = f"the open streams of this worker read {self.rows} chunks; try again when some have ended"
            raise RetryError(why, status=Status.BUSY)
        file = record.place(key)
        self._readers[file] += 1
        held = _Held(place, self._gone)
        held.key, held.file, held.owner, held.rows = key, file, owner, place.rows
        self._known[key] = held
        self._held[id(held)] = held
        return place

    def moved(self, key: EpochKey, path: str, fetches: WindowMean | None, *, away: bool) -> None:
        """The file that an epoch lies in is elsewhere now."""
        known = self._known.get(key)
        place = known() if known is not None else None
        if place is not None:
            place.path, place.away, place.fetches = path, away, fetches

    def reads(self, file: DataKey) -> bool:
        """Whether somebody reads an epoch of this file."""
        return file in self._readers

    def _gone(self, held: _Held) -> None:
        del self._held[id(held)]
        self._shares.give(held.owner, held.rows)
        self._readers[held.file] -= 1
        if not self._readers[held.file]:
            del self._readers[held.file]
        if self._known.get(held.key) is held:
            del self._known[held.key]

    def __len__(self) -> int:
        return len(self._known)
