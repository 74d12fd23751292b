"""Which folders of the DFS store may go: what the state remembers as dropped, and has been seen so for a grace.

The grace is for living workers, which remove their own files sooner and cheaper, and for reads that end. It is counted
from when this leader first saw the folder dropped; a new leader counts anew. That something is unknown proves nothing
(ADR 10): it is recognised, and stays. Pure; the caller passes the time. Called by control/dfs_cleaning.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.common.ids import Instance
from holdfast.master.core.state.state import State


@dataclass(frozen=True, slots=True)
class Instances:
    """The state of the instances that have folders in the store."""

    dropped: tuple[Instance, ...]
    living: tuple[Instance, ...]
    unheard: tuple[Instance, ...]


def sort_instances(state: State, instances: Sequence[Instance]) -> Instances:
    """Sort instances by what the state remembers of them."""
    return Instances(
        dropped=tuple(each for each in instances if each in state.gone),
        living=tuple(each for each in instances if each in state.applications),
        unheard=tuple(each for each in instances if each not in state.gone and each not in state.applications),
    )


class Grace:
    """Since when each folder that still exists has been seen as dropped."""

    def __init__(self, grace_ns: int) -> None:
        self._grace_ns = grace_ns
        self._before: dict[str, int] = {}
        self._now: dict[str, int] = {}

    def due(self, folder: str, now_ns: int) -> bool:
        """Note that `folder` is there and dropped; whether its grace is over."""
        since = self._now.setdefault(folder, self._before.get(folder, now_ns))
        return now_ns - since >= self._grace_ns

    def end_round(self) -> None:
        """Forget the folders that this round did not find: they were removed."""
        self._before, self._now = self._now, {}
