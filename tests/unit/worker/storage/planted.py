"""Mistakes planted in the storage on purpose, by name: stories must find each. None of this is in the product."""

from __future__ import annotations

from typing import Any

from holdfast.worker.storage import store as store_module
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.dfs.away_note import DfsNotes
from holdfast.worker.storage.dfs.away_search import AwaySearch
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.directory_room import DirectoryRoom
from holdfast.worker.storage.engine.reduce_store import ReduceStore
from holdfast.worker.storage.engine.unsealed import UnsealedEpochs
from holdfast.worker.storage.names import MOVING_SUFFIX
from holdfast.worker.storage.read.sealed_locations import SealedLocations
from holdfast.worker.storage.recovery.reconcile import Reconciler
from holdfast.worker.storage.tiers import moving as moving_module
from holdfast.worker.storage.tiers.moving import FileMover
from tests.sim.swap import Mistakes, Swap

BUGS = Mistakes()
bug, planted = BUGS.add, BUGS.planted


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of a step that is left out."""


@bug
def reader_is_sent_where_the_file_was() -> list[Swap]:
    """Between being told and the removal the directory that a file leaves is still looked into."""

    def relocate(self: Any, move: Any) -> None:
        original(self, move)
        move.source.leaving.clear()

    original = ReduceStore.relocate
    return [(ReduceStore, "relocate", relocate)]


@bug
def readers_are_not_told() -> list[Swap]:
    """Who holds a place goes on with the path that it had."""
    return [(SealedLocations, "moved", _nothing)]


@bug
def source_goes_first() -> list[Swap]:
    """The record at the source is removed before there is one at the target."""

    def copy(env: Any, path: Any, move: Any, target: Any, record: Any) -> Any:
        move.source.index.remove_file(record.key, [key for key, _ in record.epochs])
        yield from original(env, path, move, target, record)

    original = moving_module._copy
    return [(moving_module, "_copy", copy)]


@bug
def epochs_stay_where_they_were() -> list[Swap]:
    """What moved away stays in the index."""

    def remove(disk: Any, source: Any, record: Any, *, keep_epochs: bool) -> None:
        original(disk, source, record, keep_epochs=True)

    original = moving_module.remove
    return [(moving_module, "remove", remove)]


@bug
def nothing_is_settled() -> list[Swap]:
    """A start leaves a file in both places."""
    return [(store_module, "settle", lambda disk, directories: [])]


@bug
def moved_epochs_are_leftovers() -> list[Swap]:
    """What moved away is sealed again out of the log it left."""
    return [(UnsealedEpochs, "pass_over", _nothing)]


@bug
def deletion_does_not_wait() -> list[Swap]:
    """A shuffle is deleted while a file of it moves."""
    return [(FileMover, "drop", _nothing)]


@bug
def packs_are_counted_by_directory() -> list[Swap]:
    """Two directories give two pack files one name."""

    def seal(self: Any, shuffle: Any, final: Any, incarnation: Any, pack: int, keys: Any) -> Any:
        count[self.root] = count.get(self.root, 0) + 1
        return original(self, shuffle, final, incarnation, count[self.root], keys)

    count: dict[Any, int] = {}
    original = UnsealedEpochs.seal
    return [(UnsealedEpochs, "seal", seal)]


@bug
def away_is_not_noted() -> list[Swap]:
    """A file that went to the DFS is looked for in its directory."""
    return [(StorageDirectory, "note_away", _nothing)]


@bug
def token_is_lost() -> list[Swap]:
    """The record of a file on the DFS does not say which try it was."""

    def put(self: Any, record: Any, path: Any) -> bytes:
        original(self, record, path)
        return bytes(4)

    original = Away.put
    return [(Away, "put", put)]


@bug
def orphans_stay() -> list[Swap]:
    """A file whose move to the DFS was cut short outlives its shuffle."""

    def drop(self: Any, shuffle: Any, *, sure: bool) -> None:
        if sure:
            original(self, shuffle, sure=True)

    original = Away.drop
    return [(Away, "drop", drop)]


@bug
def gone_is_still_counted() -> list[Swap]:
    """A directory's sums keep what left it."""

    def count(self: Any, shuffle: Any, sizes: Any, *, gone: bool = False) -> None:
        original(self, shuffle, [] if gone else sizes)

    original = StorageDirectory.count_sealed
    return [(StorageDirectory, "count_sealed", count)]


@bug
def half_copied_files_stay() -> list[Swap]:
    """What a kill left of a copy is never removed."""

    def other(self: Any, below: str) -> None:
        if not below.endswith(MOVING_SUFFIX):
            original(self, below)

    original = Reconciler._other
    return [(Reconciler, "_other", other)]


@bug
def lost_index_is_not_noticed() -> list[Swap]:
    """Nobody looks for the files on the DFS whose records went with an index."""
    return [(DfsNotes, "lost_index", _nothing)]


@bug
def search_ends_before_it_has_begun() -> list[Swap]:
    """The word that files have to be found goes before they are."""

    def search(self: Any) -> None:
        self._away.notes.searched()
        original(self)

    original = AwaySearch.search
    return [(AwaySearch, "search", search)]


@bug
def part_of_an_epoch_is_sealed_again() -> list[Swap]:
    """While the DFS is gone, what the log still has of an epoch is taken for all of it."""
    return [(ReduceStore, "_wait_for", _nothing)]


@bug
def capacity_is_not_kept() -> list[Swap]:
    """Whoever writes does not look at what is left."""
    return [(DirectoryRoom, "take", _nothing)]
