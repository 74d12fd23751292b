"""Mistakes planted in what brings files to the DFS, finds them again and removes them, by name; see storage_bugs.py.
Only seeds from DFS_SEEDS on can show them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from holdfast.common.dfs import names as names_module
from holdfast.common.dfs import store as store_module
from holdfast.common.dfs.names import TOKEN_DIGITS
from holdfast.common.dfs.store import DfsStore
from holdfast.worker.storage.dfs import away as away_module
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.dfs.away_health import DfsHealth
from holdfast.worker.storage.dfs.away_note import DfsNotes
from holdfast.worker.storage.dfs.away_search import AwaySearch
from holdfast.worker.storage.engine.reduce_store import ReduceStore
from holdfast.worker.storage.layout import sealed_path
from holdfast.worker.storage.tiers import moving as moving_module
from tests.sim.env.dfs import SimDfsDoor
from tests.sim.swap import Mistakes, Swap

DFS_BUGS = Mistakes()
bug = DFS_BUGS.add


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of a step that is left out."""


# moves


@bug
def moved_file_removed_before_its_record() -> list[Swap]:
    """A file that has come to the DFS goes from its directory, and is recorded after that."""

    def record_away(move: Any, record: Any) -> None:
        source = move.source
        source._files.remove(source.root / sealed_path(record.key))
        original(move, record)

    original = moving_module._record_away
    return [(moving_module, "_record_away", record_away)]


@bug
def copy_removed_after_an_index_error() -> list[Swap]:
    """Where the record of a file on the DFS failed the file goes from there, though the record may be on the disk."""

    def record_away(move: Any, record: Any) -> None:
        try:
            original(move, record)
        except OSError:
            away = known[-1]
            with suppress(Exception):
                away.store.remove(away.name_of(record.key, move.token))
            raise

    def put(self: Any, record: Any, path: Any) -> bytes:
        known[:] = [self]
        return put_before(self, record, path)

    known: list[Any] = []
    original, put_before = moving_module._record_away, Away.put
    return [(moving_module, "_record_away", record_away), (Away, "put", put)]


@bug
def upload_errors_swallowed() -> list[Swap]:
    """An upload that failed counts as one that did not, and nothing is read back."""

    def upload(*values: Any) -> None:
        with suppress(OSError):
            original(*values)

    original = vars(store_module)["upload"]
    return [(store_module, "upload", upload), (DfsStore, "_verify", _nothing)]


@bug
def names_on_the_dfs_used_again() -> list[Swap]:
    """Every try to store a file has the same name: what was given up meets what came after it."""

    def token(self: Any, size: int) -> bytes:
        found = original(self, size)
        return bytes(size) if size == TOKEN_DIGITS // 2 else found

    original = SimDfsDoor.token
    return [(SimDfsDoor, "token", token)]


# whose it is


@bug
def names_on_the_dfs_without_the_worker() -> list[Swap]:
    """All workers have one folder for the files of a shuffle: who looks for its own takes those of others."""

    def folder(cluster: str, key: Any, worker: bytes) -> str:
        return original(cluster, key, bytes(len(worker)))

    original = names_module.worker_folder
    return [(module, "worker_folder", folder) for module in (names_module, away_module)]


@bug
def any_store_is_taken() -> list[Swap]:
    """A worker takes whatever store is at the address, and makes a marker where there is none."""
    return [(Away, "_known", lambda self, store: False), (DfsNotes, "ident", lambda self, url: None)]


@bug
def dfs_not_noted() -> list[Swap]:
    """No directory says that files went to the DFS."""
    return [(DfsNotes, "_note", _nothing)]


@bug
def lost_index_not_noted() -> list[Swap]:
    """An index is made anew, and nothing says that it may have had files on the DFS."""
    return [(DfsNotes, "lost_index", _nothing)]


@bug
def searched_before_it_is() -> list[Swap]:
    """The note that the DFS has to be searched goes when that begins."""

    def search(self: Any) -> None:
        self._away.notes.searched()
        original(self)

    original = AwaySearch.search
    return [(AwaySearch, "search", search)]


@bug
def unknown_while_it_is_looked_for() -> list[Swap]:
    """What may yet be found on the DFS is called unknown meanwhile."""
    return [(ReduceStore, "not_known_yet", property(lambda self: lambda: "", _nothing))]


# the store


@bug
def dfs_never_recovers() -> list[Swap]:
    """A look at the DFS that ends well changes nothing."""

    def looked(self: Any, why: str, began: float) -> None:
        if why:
            original(self, why, began)

    original = DfsHealth.looked
    return [(DfsHealth, "looked", looked)]


@bug
def dropped_files_stay_on_the_dfs() -> list[Swap]:
    """A shuffle that is dropped goes from the directories alone."""
    return [(Away, "drop", _nothing)]


@bug
def removal_there_is_tried_once() -> list[Swap]:
    """Files that the DFS did not let go of are not tried again."""

    def remove_dropped(self: Any) -> None:
        original(self)
        self._dropped.clear()

    original = Away._remove_dropped
    return [(Away, "_remove_dropped", remove_dropped)]
