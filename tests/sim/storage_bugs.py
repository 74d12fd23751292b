"""Mistakes planted in the storage engine, by name: the simulation must find each. None of this is in the product.

The first half is planted at the door, so that it needs no name of what is behind it: a step is left out, or its error
is swallowed, for files of one kind.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.common.errors import CorruptError
from holdfast.common.statuses import Status
from holdfast.worker.core.write.reduce import Reduce
from holdfast.worker.storage import names
from holdfast.worker.storage import store as store_module
from holdfast.worker.storage.engine import marks as marks_module
from holdfast.worker.storage.engine import seal as seal_module
from holdfast.worker.storage.engine import syncing as syncing_module
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.folders import Folders
from holdfast.worker.storage.engine.partition import PartitionCopy
from holdfast.worker.storage.engine.reduce_store import ReduceStore
from holdfast.worker.storage.engine.seal import SealWork
from holdfast.worker.storage.engine.syncing import Syncing
from holdfast.worker.storage.engine.unsealed import UnsealedEpochs
from holdfast.worker.storage.index.index import Index
from holdfast.worker.storage.log import push_log as log_module
from holdfast.worker.storage.log.push_log import PushLog
from holdfast.worker.storage.recovery import reduce_recovery as recovery_module
from holdfast.worker.storage.recovery.reconcile import Reconciler
from holdfast.worker.storage.tiers.moving import FileMover
from tests.sim.env.files import SimFiles
from tests.sim.env.indexes import Contents, SimIndex
from tests.sim.swap import Mistakes, Swap

STORAGE_BUGS = Mistakes()
bug = STORAGE_BUGS.add


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of a step that is left out."""


def _path(what: Any) -> str:
    return str(getattr(what, "path", what))


def left_out(step: str, chosen: Callable[[str], bool]) -> list[Swap]:
    """A step of the door does nothing for some paths."""

    def act(self: Any, what: Any, *values: Any) -> Any:
        return None if chosen(_path(what)) else original(self, what, *values)

    original = getattr(SimFiles, step)
    return [(SimFiles, step, act)]


def swallowed(step: str, chosen: Callable[[str], bool] = lambda _: True) -> list[Swap]:
    """Its error is passed over."""

    def act(self: Any, what: Any, *values: Any) -> None:
        try:
            original(self, what, *values)
        except OSError:
            if not chosen(_path(what)):
                raise

    original = getattr(SimFiles, step)
    return [(SimFiles, step, act)]


# syncs that are left out


@bug
def open_files_not_synced() -> list[Swap]:
    """A partition file gets its sealed name without a sync."""
    return left_out("sync", lambda path: path.endswith(".open"))


@bug
def log_not_synced() -> list[Swap]:
    """Segments of the push log are never synced."""
    return left_out("sync", lambda path: path.endswith(".push"))


@bug
def new_files_not_synced() -> list[Swap]:
    """A pack file, or a copy in another directory, gets its name without a sync."""
    return left_out("sync", lambda path: path.endswith(".moving"))


@bug
def shuffle_folders_not_synced() -> list[Swap]:
    """The sealed names of a shuffle are not brought down."""
    return left_out("sync_folder", lambda path: path.count("/") == 5)


@bug
def upper_folders_not_synced() -> list[Swap]:
    """The folder of a shuffle has no name on the platter."""
    return left_out("sync_folder", lambda path: path.endswith("/data") or path.count("/") == 4)


@bug
def log_folder_not_synced() -> list[Swap]:
    """Segments have no names on the platter."""
    return left_out("sync_folder", lambda path: path.endswith("/log"))


@bug
def index_folder_not_synced() -> list[Swap]:
    """The file of the index has no name on the platter."""
    return left_out("sync_folder", lambda path: path.endswith("/index"))


@bug
def directory_not_synced() -> list[Swap]:
    """What is made in a storage directory has no name on the platter."""
    return left_out("sync_folder", lambda path: path.count("/") == 2)


@bug
def made_directory_not_synced() -> list[Swap]:
    """A storage directory that is made has no name on the platter."""
    return left_out("sync_folder", lambda path: path.count("/") == 1)


@bug
def index_not_synced() -> list[Swap]:
    """Transactions are there, and after a crash perhaps none that came since the start."""

    def commit(self: Any, table: Any) -> None:
        before = self.table if self.doubt is None else self.doubt
        original(self, table)
        self.doubt = before

    original = Contents.commit
    return [(Contents, "commit", commit)]


# errors that are swallowed


@bug
def write_errors_swallowed() -> list[Swap]:
    """A write that failed counts as one that did not."""
    return [*swallowed("write"), *swallowed("write_parts")]


@bug
def sync_errors_swallowed() -> list[Swap]:
    """So does a sync."""
    return swallowed("sync")


@bug
def log_sync_errors_swallowed() -> list[Swap]:
    """So does a sync of the log."""
    return swallowed("sync", lambda path: path.endswith(".push"))


@bug
def index_errors_swallowed() -> list[Swap]:
    """So does a transaction."""

    def commit(self: Any, change: Any) -> None:
        with suppress(OSError):
            original(self, change)

    original = SimIndex.commit
    return [(SimIndex, "commit", commit)]


@bug
def left_files_not_compared() -> list[Swap]:
    """What an earlier start wrote is believed to be on the disk if the next sync of it is good."""
    return [(seal_module, "_compare_with_disk", _nothing)]


@bug
def footers_of_what_was_given_up_count() -> list[Swap]:
    """Where the index cannot be read, a file with a sealed name is sealed, though its seal had failed."""

    def from_footers(self: Any, key: Any, cause: Any) -> Any:
        failed, self.unsealed.failed = self.unsealed.failed, set()
        try:
            return original(self, key, cause)
        finally:
            self.unsealed.failed = failed

    original = StorageDirectory._from_footers
    return [(StorageDirectory, "_from_footers", from_footers)]


# files that are not what they should be


@bug
def torn_end_kept() -> list[Swap]:
    """What an earlier start left is not cut behind its last whole batch."""
    return left_out("truncate", lambda path: path.endswith(".open"))


@bug
def cut_one_short() -> list[Swap]:
    """It is cut one byte too early."""

    def truncate(self: Any, path: Any, size: int) -> None:
        original(self, path, max(0, size - 1))

    original = SimFiles.truncate
    return [(SimFiles, "truncate", truncate)]


@bug
def dropped_files_stay() -> list[Swap]:
    """Files of a dropped shuffle are never removed."""
    return left_out("remove", lambda path: "/data/" in path)


@bug
def torn_batch_taken_for_damage() -> list[Swap]:
    """An incomplete last batch costs the whole epoch."""
    return [(recovery_module, "is_cut", lambda data, at, seed: False)]


@bug
def pending_lost_at_the_seal() -> list[Swap]:
    """What a file's copy has in the log only is not sealed."""

    def finish(self: Any, writers: Any, copy: Any, earlier: int) -> Any:
        if copy.file_bytes:
            copy.pending.clear()
        return original(self, writers, copy, earlier)

    original = SealWork._finish
    return [(SealWork, "_finish", finish)]


@bug
def pack_forgets_a_batch() -> list[Swap]:
    """The last batch of an epoch is not in its pack file."""

    def gather(self: Any) -> Any:
        if len(self.pending) > 1 and not self.file_bytes:
            del self.pending.positions[-1:]
            del self.pending.sizes[-1:]
        return original(self)

    original = PartitionCopy.gather
    return [(PartitionCopy, "gather", gather)]


# verdicts and marks


def _verdict_not_recorded(status: Status) -> list[Swap]:
    def items(key: Any, record: Any) -> Any:
        return () if record.status is status else original(key, record)

    original = vars(seal_module)["epoch_items"]
    return [(seal_module, "epoch_items", items)]


@bug
def lost_verdict_not_recorded() -> list[Swap]:
    """DATA_LOST is answered, and a later start knows nothing of it."""
    return _verdict_not_recorded(Status.DATA_LOST)


@bug
def damage_of_nobody_knows_what_forgotten() -> list[Swap]:
    """A log lost records of nobody knows what: what is not known here is said never to have been."""

    def start(self: Any, directory: Any, shuffle: Any, final: bool, todo: Any, jobs: Any) -> None:
        original(self, directory, shuffle, final, [key for key in todo if directory.unsealed.has(key)], jobs)

    original = ReduceStore._start
    return [(ReduceStore, "_start", start)]


@bug
def failed_copies_not_marked() -> list[Swap]:
    """A copy that is given up is found whole by the next start, which does not ask the disk either."""
    return [(marks_module, "mark_failed", _nothing), (seal_module, "_compare_with_disk", _nothing)]


@bug
def failed_copy_goes_on() -> list[Swap]:
    """A copy whose write failed goes on as if nothing had happened."""
    return [(Reduce, "broke", lambda self, state: None), (UnsealedEpochs, "give_up", _nothing)]


@bug
def sync_tried_again() -> list[Swap]:
    """A sync that failed is tried again, and then succeeds with nothing done."""

    def sync(self: Any, handle: Any) -> None:
        try:
            original(self, handle)
        except OSError:
            original(self, handle)

    original = SimFiles.sync
    return [(SimFiles, "sync", sync)]


@bug
def sealed_epochs_not_in_the_index() -> list[Swap]:
    """A seal records no file."""
    return [(seal_module, "file_items", lambda *_: ())]


# the log


@bug
def log_released_too_early() -> list[Swap]:
    """Segments go although something refers to them."""

    def remove_before(self: Any, number: int) -> None:
        original(self, self.newest)

    original = PushLog.remove_before
    return [(PushLog, "remove_before", remove_before)]


@bug
def log_released_before_the_sync() -> list[Swap]:
    """At SYNCED segments go before what was flushed from them is synced."""

    def wrote(self: Any, copy: Any, began_ns: int, first: int) -> None:
        original(self, copy, began_ns, first)
        self.syncing.unsynced.pop(copy, None)

    original = UnsealedEpochs._wrote
    return [(UnsealedEpochs, "_wrote", wrote)]


@bug
def log_not_recorded() -> list[Swap]:
    """The index does not say that there is a log."""
    return [(Index, "put_log", _nothing)]


@bug
def spare_used_at_once() -> list[Swap]:
    """A segment that was synced is written over before its free head is down."""
    return [(log_module, "_may_be_used", lambda spare: True)]


@bug
def note_counts_before_it_is_written() -> list[Swap]:
    """Which segments are needed counts as told although the disk was full: the first one goes, and is missed."""

    def write_note(self: Any, segment: Any, end: int, *, lowest: int = 0, closed: bool = False) -> None:
        segment.lowest = lowest or segment.lowest
        original(self, segment, end, closed=closed)

    original = PushLog._write_note
    return [(PushLog, "_write_note", write_note)]


@bug
def segment_goes_on_after_an_error() -> list[Swap]:
    """What follows a write that failed goes behind it."""

    def append(self: Any, segment: Any, parts: Any, size: int, batches: int) -> int:
        try:
            return int(original(self, segment, parts, size, batches))
        except OSError:
            self._current = segment
            segment.end += size
            raise

    original = PushLog.append
    return [(PushLog, "append", append)]


@bug
def end_of_the_log_not_noted() -> list[Swap]:
    """A segment does not say how far it was acknowledged."""
    return [(PushLog, "_write_note", _nothing)]


@bug
def left_epochs_forgotten() -> list[Swap]:
    """What an earlier start left is not remembered as closed, and is opened again; who names that start is not refused
    before anybody looks."""

    def past(self: Any, shuffle: Any) -> Any:
        final, keys = original(self, shuffle)
        return final, [key for key in keys if key not in self.left]

    def refuse(self: Any, push: Any) -> Any:
        refusal = real_refuse(self, push)
        return None if refusal is not None and refusal.status is Status.STALE_INCARNATION else refusal

    original, real_refuse = UnsealedEpochs.past, Reduce.refuse
    return [(UnsealedEpochs, "past", past), (Reduce, "refuse", refuse)]


@bug
def late_standing_belongs_to_somebody() -> list[Swap]:
    """A directory that was emptied while it was in use is refused at the next start, for what the worker wrote there
    before it noticed."""
    return [(names, "STRAYS", frozenset())]


# what overtakes what


@bug
def removal_overtakes_the_seal() -> list[Swap]:
    """A shuffle is removed while it is sealed."""
    return [(StorageDirectory, "seals_of", lambda self, key: [])]


@bug
def dropped_seal_is_taken_in() -> list[Swap]:
    """A5: a seal that outlives its shuffle is taken in; the removal does not wait for it."""

    def sealed(self: Any, job: Any, done: Any) -> None:
        job.dropped = False
        original(self, job, done)

    original = UnsealedEpochs._sealed
    return [(UnsealedEpochs, "_sealed", sealed), (StorageDirectory, "seals_of", lambda self, key: [])]


@bug
def sync_of_what_was_dropped_fails_others() -> list[Swap]:
    """A3: a copy that was dropped while it was synced costs all that are synced with it."""

    def lost_files(self: Any, files: Any, outcomes: Any, untried: Any) -> Any:
        found = list(outcomes)
        gone = next((missing for _, missing in found if missing is not None), None)
        return original(self, files, iter(found), untried) if gone is None else {copy: gone for copy, _ in files}

    original = Syncing._lost_files
    return [(Syncing, "_lost_files", lost_files)]


@bug
def folders_of_others_are_synced() -> list[Swap]:
    """A4: whoever syncs a folder syncs all that are known, also those of shuffles that go this moment."""

    def unsynced(self: Any, folder: Any) -> Any:
        return (*original(self, folder), *[(one, -1) for one in sorted(self.known())])

    original = Folders.unsynced
    return [(Folders, "unsynced", unsynced)]


@bug
def sealing_begins_beside_a_sync() -> list[Swap]:
    """A seal has a file while a round syncs it: who comes second does not hear of an error."""

    def go_on(self: Any) -> None:
        syncing = self.syncing
        running, syncing._running, waiting, syncing._next = syncing._running, {}, syncing._next, {}
        original(self)
        syncing._running, syncing._next = running, waiting

    original = UnsealedEpochs._let_seals_go_on
    return [(UnsealedEpochs, "_let_seals_go_on", go_on)]


@bug
def full_disk_forgets_what_a_seal_had() -> list[Swap]:
    """A seal that met a full disk does not give back what it had."""
    return [(UnsealedEpochs, "_take_back", _nothing)]


# moves between directories


@bug
def readers_of_a_moved_file_are_not_told() -> list[Swap]:
    """Between being told and the removal the directory that a file leaves is still looked into."""

    def relocate(self: Any, move: Any) -> None:
        original(self, move)
        move.source.leaving.clear()

    original = ReduceStore.relocate
    return [(ReduceStore, "relocate", relocate)]


@bug
def nothing_is_settled() -> list[Swap]:
    """A start leaves a file in both places."""
    return [(store_module, "settle", lambda files, directories: [])]


@bug
def deletion_does_not_wait_for_moves() -> list[Swap]:
    """A shuffle is deleted while a file of it moves."""
    return [(FileMover, "drop", lambda self, shuffle: [])]


@bug
def packs_are_counted_by_directory() -> list[Swap]:
    """Two directories give two pack files one name."""

    def seal(self: Any, shuffle: Any, final: Any, incarnation: Any, pack: int, *more: Any) -> Any:
        self.packs = getattr(self, "packs", 0) + 1
        return original(self, shuffle, final, incarnation, self.packs, *more)

    original = UnsealedEpochs.seal
    return [(UnsealedEpochs, "seal", seal)]


@bug
def half_copied_files_stay() -> list[Swap]:
    """What a kill left of a new file is never removed."""

    def other(self: Any, below: str) -> None:
        if not below.endswith(".moving"):
            original(self, below)

    original = Reconciler._other
    return [(Reconciler, "_other", other)]


# answers that change


@bug
def record_of_what_was_given_up_counts() -> list[Swap]:
    """What the index says was sealed is, though it was given up."""

    def recorded(self: Any, key: Any) -> Any:
        failed = self.unsealed.failed
        try:
            with self.index.reading() as reader:
                found = reader.epoch(key)
        except CorruptError:
            return original(self, key)
        return found if found is not None and key in failed else original(self, key)

    original = StorageDirectory.recorded
    return [(StorageDirectory, "recorded", recorded)]


# want of descriptors


@bug
def file_that_cannot_be_opened_is_broken() -> list[Swap]:
    """A file that cannot be opened for want of descriptors counts as one that was written in part."""

    def write(self: Any, *values: Any) -> None:
        try:
            original(self, *values)
        except OSError as error:
            raise OSError(errno.EIO, "cannot be cut") if error.errno == errno.EMFILE else error from error

    original = PartitionCopy._write
    return [(PartitionCopy, "_write", write)]


@bug
def sync_that_was_not_tried_has_failed() -> list[Swap]:
    """A sync that could not open what it is for has failed, and its copies are given up."""
    return [(syncing_module, "was_tried", lambda error: True)]
