"""What the leader chose lately and from whom, for `holdfast placement APP/SHUFFLE`.

Rules: bounded, in memory, of this leadership only: places themselves are replicated, reasons are not. Called by
fleet.py's callers with each choice, read by explaining.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from holdfast.common.ids import ShuffleKey
from holdfast.common.proto import holdfast_pb2 as pb

#: Shuffles that are remembered, choices of each, workers that are named in one.
SHUFFLES_MAX = 1_000
CHOICES_MAX = 16
LEFT_OUT_MAX = 20


class PlacementDecisions:
    """Choices by shuffle; the oldest go."""

    def __init__(self) -> None:
        self._kept: OrderedDict[ShuffleKey, list[pb.PlacementDecision]] = OrderedDict()

    def remember(self, key: ShuffleKey, decision: pb.PlacementDecision) -> None:
        """Keep a choice; of each shuffle the first one and the latest stay."""
        kept = self._kept.setdefault(key.any_state, [])
        self._kept.move_to_end(key.any_state)
        if len(kept) == CHOICES_MAX:
            del kept[1]
        kept.append(decision)
        if len(self._kept) > SHUFFLES_MAX:
            self._kept.popitem(last=False)

    def of(self, key: ShuffleKey) -> Sequence[pb.PlacementDecision]:
        """Return what was chosen for a shuffle, oldest first."""
        return self._kept.get(key.any_state, ())

    def clear(self) -> None:
        """Another leadership begins."""
        self._kept.clear()
