"""Mistakes planted in how copies are made again: part of bugs.py."""

from __future__ import annotations

from typing import Any

from holdfast.common.statuses import Status
from holdfast.master.core import restoring as restoring_module
from holdfast.worker.storage.tiers.arriving import Arrival
from tests.sim.swap import Mistakes, Swap

COPY_BUGS = Mistakes()
bug = COPY_BUGS.add


@bug
def place_of_a_copy_counts_as_one() -> list[Swap]:
    """The masters call a copy sealed as soon as it has a place, and nobody makes it."""

    def placed(epoch: Any, workers: Any, gone: Any) -> Any:
        made = original(epoch, workers, gone)
        size = max(copy.size_bytes for copy in made.copies)
        full = [copy._replace(status=Status.OK, size_bytes=size) if copy.restoring else copy for copy in made.copies]
        return made._replace(copies=tuple(full))

    original = restoring_module._placed
    return [(restoring_module, "_placed", placed)]


@bug
def restored_copy_is_not_synced() -> list[Swap]:
    """A copy that was made of another one is answered for before its bytes are on the disk."""

    def seal(self: Any) -> None:
        files, self._files = self._files, _Unsynced(self._files)
        try:
            original(self)
        finally:
            self._files = files

    original = Arrival._seal
    return [(Arrival, "_seal", seal)]


class _Unsynced:
    """Files whose bytes are never synced."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def sync(self, handle: object) -> None:
        """Nothing."""
