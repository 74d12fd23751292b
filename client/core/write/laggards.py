"""Which copies may lack something that was acknowledged to an attempt, since enough others had it.

Rules: pure. An answer says which replicas are behind, of the epochs that it is about; the next one for such an epoch
says so anew. Before the attempt ends each primary is asked what became of them. Where it does not say, since it has
started again or cannot be reached, those that were behind count as incomplete: nobody knows better. Called by push.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.core.write.locations import Destination
from holdfast.common.formats.reduce_messages import IncompleteCopy, PushEntry
from holdfast.common.ids import Epoch, PartitionId
from holdfast.common.limits import SETTLE_EPOCHS_MAX

EpochKey = tuple[PartitionId, Epoch]


@dataclass(frozen=True, slots=True)
class Settle:
    """Ask a primary which copies of these epochs are incomplete; answer with `settled` or `unsettled`."""

    destination: Destination
    epochs: list[EpochKey]


class Laggards:
    """The replicas that are behind of one attempt."""

    def __init__(self) -> None:
        #: by destination and epoch, as a bit each
        self._behind: dict[Destination, dict[EpochKey, int]] = {}
        self._asked: dict[Destination, dict[EpochKey, int]] = {}

    def acknowledged(self, destination: Destination, entries: Iterable[PushEntry], behind: int) -> None:
        """Batches are acknowledged, and these replicas are behind."""
        known = self._behind.get(destination)
        if behind:
            if known is None:
                known = self._behind[destination] = {}
            known.update({(entry.partition, entry.epoch): behind for entry in entries})
        elif known:
            for entry in entries:
                known.pop((entry.partition, entry.epoch), None)

    def settle(self) -> list[Settle]:
        """Everything is acknowledged: return what is to be asked."""
        asks = []
        for destination, known in self._behind.items():
            epochs, parts = list(known), range(0, len(known), SETTLE_EPOCHS_MAX)
            asks += [Settle(destination, epochs[at : at + SETTLE_EPOCHS_MAX]) for at in parts]
            self._asked.setdefault(destination, {}).update(known)
        self._behind.clear()
        return asks

    def settled(self, settle: Settle) -> None:
        """The primary has said what became of them."""
        for epoch in settle.epochs:
            del self._asked[settle.destination][epoch]

    def unsettled(self, settle: Settle) -> list[IncompleteCopy]:
        """The primary does not say: return the copies that may lack something."""
        asked = self._asked[settle.destination]
        return [
            IncompleteCopy(*epoch, worker)
            for epoch in settle.epochs
            for worker in settle.destination.failed(asked.pop(epoch))
        ]

    @property
    def waiting(self) -> int:
        """Epochs that primaries were asked about."""
        return sum(map(len, self._asked.values()))
