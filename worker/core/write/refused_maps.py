"""Remembers which map attempts a draining worker has turned away, so that none is turned away twice in vain.

A writer goes round the ring of its shuffle, a worker further with each epoch, and the ring never changes. One that
comes back has asked everybody: the others are lost, full, or drain as well. Then it is better off here than nowhere.
With two copies it asks the same worker in two epochs, one after the other, so it is back when it comes with a later
one. Called by map_files.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.common.ids import AttemptId, Epoch, MapFileKey, MapId, ShuffleKey
from holdfast.common.limits import COPIES_MAX

#: Attempts remembered; one that was forgotten is turned away once more.
ATTEMPTS_MAX = 65_536


@dataclass(slots=True)
class RefusedMaps:
    """Attempts that were refused for no other reason than that this worker drains."""

    #: the epoch in which each asked first
    _first: dict[tuple[ShuffleKey, MapId, AttemptId], Epoch] = field(default_factory=dict)

    def is_back(self, file: MapFileKey) -> bool:
        """Whether this attempt has asked everybody else since it was turned away; else it is from now on."""
        attempt = (file.shuffle, file.map, file.attempt)
        first = self._first.setdefault(attempt, file.epoch)
        if len(self._first) > ATTEMPTS_MAX:
            del self._first[next(iter(self._first))]
        return file.epoch >= first + COPIES_MAX

    def __len__(self) -> int:
        return len(self._first)

    def forget(self) -> None:
        """This worker takes files again."""
        self._first.clear()
