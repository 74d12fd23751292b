"""Mistakes planted in how copies are made again: part of bugs.py."""

from __future__ import annotations

from typing import Any

from holdfast.client.core.write.laggards import Laggards
from holdfast.common.statuses import Status
from holdfast.master.control import restoring as restorer_module
from holdfast.master.core import restoring as restoring_module
from holdfast.master.core.seals import Seals
from holdfast.worker.core.write.replicas import Replicas
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


@bug
def attempt_does_not_settle() -> list[Swap]:
    """An attempt ends when its batches are acknowledged, whatever replicas are behind."""

    def settle(self: Any) -> list[Any]:
        self._behind.clear()
        return []

    return [(Laggards, "settle", settle)]


@bug
def silent_primary_calls_all_complete() -> list[Swap]:
    """A primary that does not say what became of its replicas leaves them for complete."""

    def unsettled(self: Any, settle: Any) -> list[Any]:
        original(self, settle)
        return []

    original = Laggards.unsettled
    return [(Laggards, "unsettled", unsettled)]


@bug
def late_failures_are_forgotten() -> list[Swap]:
    """A replica that fails a push after its answer counts as complete."""
    return [(Replicas, "_fell_short", lambda self, forwards, replica: None)]


@bug
def incomplete_copies_are_sealed() -> list[Swap]:
    """A commit asks for incomplete copies as for all others."""

    def add(self: Any, epochs: Any) -> None:
        original(self, [each._replace(incomplete=frozenset()) for each in epochs])

    original = Seals.add
    return [(Seals, "add", add)]


@bug
def incomplete_copies_are_copied() -> list[Swap]:
    """Copies are made of incomplete ones, too."""

    def shortage(epochs: Any, wanted: int, absent: Any, host_of: Any) -> Any:
        found = original(epochs, wanted, absent, host_of)
        lacking = {
            (each.partition, each.epoch): [copy.worker for copy in each.copies if copy.status is Status.INCOMPLETE]
            for each in epochs
        }
        found.copying = [
            each._replace(sources=(*lacking[each.key], *each.sources)) if lacking[each.key] else each
            for each in found.copying
        ]
        return found

    original = restoring_module.shortage
    return [(restorer_module, "shortage", shortage)]


class _Unsynced:
    """Files whose bytes are never synced."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def sync(self, handle: object) -> None:
        """Nothing."""
