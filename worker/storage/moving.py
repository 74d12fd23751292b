"""Moves sealed partition and pack files from one directory of a worker to another, or to the DFS, while they are read.

The order, each step only after the one before it has succeeded: the bytes go into a file that has no sealed name; its
footer is read back; synced; renamed; the folder synced; one index transaction at the target; readers are told; one
index transaction at the source; the file there goes. Killed before the first transaction what is at the target counts
for nothing; killed between the two the file is in both, and a start settles that (`settle`). Where the source cannot
be changed any more (its disk fails, or is so full that its index cannot grow) the move has come about all the same:
what is left there is removed before anything else moves from or to that directory. A reader that has the file open goes
on with it. No epoch is ever split: a file moves whole, its checksums in it. One file moves at a time; while a move
hangs with one of its directories another thread goes on with the rest, so that each directory holds up one thread at
most. What the loop owns is asked and changed on the loop. Called by tiering.py.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from holdfast.common.errors import ConfigError, CorruptError, DfsError, HoldfastError
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.system.links import NO_LINK
from holdfast.common.system.log import log_event
from holdfast.worker.storage import layout
from holdfast.worker.storage.directory import StorageDirectory
from holdfast.worker.storage.disk import Disk
from holdfast.worker.storage.footers import read_data_footer
from holdfast.worker.storage.handles import Handle, OpenFiles
from holdfast.worker.storage.index import data_items
from holdfast.worker.storage.names import MOVING_SUFFIX
from holdfast.worker.storage.owner import Owner
from holdfast.worker.storage.push_log import is_full
from holdfast.worker.storage.records import encode_shuffle
from holdfast.worker.storage.reduce_layout import DataKey, EpochKey, sealed_path
from holdfast.worker.storage.reduce_records import DataRecord, EpochRecord

if TYPE_CHECKING:
    from holdfast.worker.storage.away import Away

#: What is copied at once.
COPY_BYTES = 4 * MIB
#: How often it is looked whether this worker is ending while the loop is waited for.
LOOP_SECONDS = 0.2
#: The DFS is left alone for so long after it has failed.
AWAY_PAUSE_SECONDS = 2.0
#: Moves that wait for their turn.
WAITING_MAX = 1_024


class FullError(Exception):
    """The target has no room."""


@dataclass(slots=True, eq=False)
class FileMove:
    """A file on its way."""

    key: DataKey
    size_bytes: int
    source: StorageDirectory
    #: where it goes; None: to the DFS
    target: StorageDirectory | None
    #: whose index has the epochs afterwards
    home: StorageDirectory
    #: what is in it; known when it has been read
    epochs: tuple[EpochKey, ...] = ()
    #: what its name on the DFS ends in
    token: bytes = b""
    #: why it did not come about; "" if it did
    problem: str = ""
    #: the target has no room: it is no fault of anybody
    full: bool = False
    #: the DFS cannot be used: people are told by away_health.py, not for each file
    unusable: bool = False
    #: it came about, but why the source still has the file; "" if it has not
    remains: str = ""
    #: not wanted any more: its shuffle is being deleted, or this worker is ending
    dropped: bool = False
    deleted: bool = False
    #: it is on the DFS and being recorded: not before that can it be left alone by who drops it
    recording: bool = False
    #: it has ended
    done: Future[None] = field(default_factory=Future)

    def places(self) -> tuple[StorageDirectory | None, ...]:
        """What it reads and writes; None: the DFS."""
        return self.source, self.target


class FileMover:
    """Moves one file after the other, in a thread that begins with the first move."""

    def __init__(
        self, disk: Disk, open_files: OpenFiles, away: Away | None, relocate: Callable[[FileMove], None], owner: Owner
    ) -> None:
        self._disk = disk
        self._open_files = open_files
        self._away = away
        #: tells readers where the file is now; runs on the loop
        self._relocate = relocate
        self._owner = owner
        self._guard = threading.Condition()
        self._waiting: deque[FileMove] = deque()
        #: one, and those that hang
        self._running: list[FileMove] = []
        self._threads: list[threading.Thread] = []
        #: threads that wait for a move
        self._idle = 0
        self._closed = False
        self._away_not_before = 0.0
        #: moves that have ended since they were last taken
        self._ended: list[FileMove] = []
        #: shuffles that are being deleted: nothing of them begins to move
        self._dropped: set[ShuffleKey] = set()
        #: what is still to be taken out of the directories that files have left; one for each directory at most
        self._remains: list[_Remains] = []

    def start(self, move: FileMove) -> bool:
        """Have a file moved; False if too many wait, or its shuffle is being deleted."""
        with self._guard:
            if self._closed or len(self._waiting) >= WAITING_MAX or move.key.shuffle in self._dropped:
                return False
            if move.target is not None:
                move.target.coming_bytes += move.size_bytes
                move.target.room.keep(move.size_bytes)
            self._waiting.append(move)
            if not self._threads:
                self._begin_thread()
            self._guard.notify_all()
        return True

    def _begin_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="holdfast-move", daemon=True)
        self._threads.append(thread)
        thread.start()

    def look(self) -> None:
        """Once a second: where all that runs hangs, another thread goes on with what waits."""
        with self._guard:
            if self._idle:
                self._guard.notify_all()
            elif self._running and self._pick() is not None:
                self._begin_thread()

    def _hangs(self, move: FileMove) -> bool:
        if move.target is None and self._away is not None and not self._away.health.answers:
            return True
        return any(one is not None and one.condition.silent for one in move.places())

    def _pick(self) -> FileMove | None:
        """The move to be carried out next: one at a time, and nothing beside what hangs with the same directory."""
        if not all(map(self._hangs, self._running)):
            return None
        taken = [one for move in self._running for one in move.places()]
        return next((one for one in self._waiting if not any(place in taken for place in one.places())), None)

    def take_ended(self) -> list[FileMove]:
        """The moves that have ended since this was asked last."""
        with self._guard:
            ended, self._ended = self._ended, []
        return ended

    def away_is_well(self, now: float) -> bool:
        """Whether moves to the DFS should be tried; `now` as time.monotonic."""
        return now >= self._away_not_before and self._away is not None and self._away.health.answers

    @property
    def busy(self) -> int:
        """Moves that wait or run, but for what hangs and what waits for that."""
        with self._guard:
            hanging = [one for one in self._running if self._hangs(one)]
            taken = [place for one in hanging for place in one.places()]
            waiting = [one for one in self._waiting if not any(place in taken for place in one.places())]
            return len(waiting) + len(self._running) - len(hanging)

    def drop(self, shuffle: ShuffleKey) -> list[Future[None]]:
        """Let go of a shuffle that is about to be deleted. When what is returned has ended nothing of it can come into
        a directory or an index any more, and nothing will until `forgotten` is called. What is on its way to the DFS,
        which may hang, is not waited for: it is removed there when it has come."""
        with self._guard:
            self._dropped.add(shuffle)
            for move in [move for move in self._waiting if move.key.shuffle == shuffle]:
                self._waiting.remove(move)
                move.dropped = True
                self._end(move)
            running = [one for one in self._running if one.key.shuffle == shuffle]
            for move in running:
                move.dropped = move.deleted = True
            # Its directories remove everything of it.
            self._remains = [one for one in self._remains if one.record.key.shuffle != shuffle]
            return [one.done for one in running if one.target is not None or one.recording]

    def forgotten(self, shuffle: ShuffleKey) -> None:
        """A dropped shuffle is deleted, and in nobody's books any more."""
        with self._guard:
            self._dropped.discard(shuffle)

    def close(self) -> None:
        """End with the move that runs."""
        with self._guard:
            self._closed = True
            self._waiting.clear()
            for move in self._running:
                move.dropped = True
            self._guard.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while self._has_work():
            self._take_next()

    def _has_work(self) -> bool:
        """Wait for a move; False: this is the end."""
        with self._guard:
            self._idle += 1
            while self._pick() is None and not self._closed:
                self._guard.wait()
            self._idle -= 1
            return not self._closed

    def _take_next(self) -> None:
        """Carry out the move that waits longest, if it is still wanted."""
        with self._guard:
            move = self._pick()
            if move is None:
                return
            self._waiting.remove(move)
            self._running.append(move)
        try:
            self._clear_remains()
            self.carry_out(move)
        except FullError:
            move.full, move.problem = True, "no room"
        except (OSError, lmdb.Error, HoldfastError) as error:
            move.full = isinstance(error, OSError) and is_full(error)
            move.problem = f"{move.key} was not moved: {error}"
            if isinstance(error, DfsError | ConfigError):
                move.unusable = True
                self._away_not_before = time.monotonic() + AWAY_PAUSE_SECONDS
        except Exception as error:  # noqa: BLE001 - a bug costs this move, not all that come after it
            log_event(LogEvent.FILE_MOVE_INTERNAL_ERROR, file=move.key, trace=error)
            move.problem = f"{move.key} was not moved: {type(error).__name__}: {error}"
        with self._guard:
            self._running.remove(move)
            self._end(move)
            self._guard.notify_all()

    def _end(self, move: FileMove) -> None:
        if move.target is not None:
            move.target.coming_bytes -= move.size_bytes
        self._ended.append(move)
        move.done.set_result(None)

    def carry_out(self, move: FileMove) -> None:
        """Take all steps, in this thread. Raises FullError, OSError, lmdb.Error or HoldfastError, and then the file is
        where it was."""
        for one in self._remains:
            if one.source in (move.source, move.target):
                raise OSError(f"{one.source.root} could not be changed when {one.record.key} had left it")
        path = move.source.root / sealed_path(move.key)
        record = read_data_footer(path, move.key)
        move.epochs = tuple([key for key, _ in record.epochs])
        if move.target is None:
            self._store_away(move, path, record)
        else:
            self._ask(partial(_check_room, move, move.target))
            if move.dropped:
                return
            _copy(self._disk, path, move, move.target, record)
        if not move.dropped:
            self._ask(partial(self._relocate, move))
        if move.dropped:
            return  # what is in both places is deleted with the shuffle, or settled by the next start
        remains = _Remains(move.source, record, move.home is move.source)
        try:
            self._remove(remains)
        except (OSError, lmdb.Error, HoldfastError) as error:
            move.remains = f"{path} was moved and cannot be removed: {error}"
            with self._guard:
                if not move.deleted:
                    self._remains.append(remains)
        self._open_files.close(str(path))

    def _store_away(self, move: FileMove, path: Path, record: DataRecord) -> None:
        """Bring the bytes to the DFS and record them. An error of the index leaves the copy there: the record may be on
        the disk in spite of it, and then the next start believes it and not the file here."""
        assert self._away is not None, "who moves to the DFS has one"
        try:
            move.token = self._away.put(record, path)
            with self._guard:
                move.recording = not move.dropped
            if move.recording:
                self._record_away(move, record)
                self._away.recorded(record.key)
            else:
                self._away.discard(record.key, move.token)
        finally:
            if move.deleted:  # its folder may be gone already, and back again by this
                self._away.drop(record.key.shuffle, sure=True)
                self._away.remove_dropped()

    @staticmethod
    def _record_away(move: FileMove, record: DataRecord) -> None:
        if move.home is move.source:
            move.home.index.set_away(record, move.token)
        else:
            move.home.index.put_items(data_items(record, move.token))
        move.home.note_away(record.key, move.token, record.file_bytes)

    def _ask(self, act: Callable[[], object]) -> None:
        """Have something done on the loop, and wait until it is. Raises what it raises, and HoldfastError if this
        worker is ending."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - whatever it is, the mover hears of it
                done.set_exception(error)
            else:
                done.set_result(None)

        self._owner(run)
        while not wait([done], LOOP_SECONDS).done:
            if self._closed:
                raise HoldfastError("this worker is ending")
        done.result()

    def _remove(self, remains: _Remains) -> None:
        """Take a file out of the directory that it has left. Raises OSError, lmdb.Error or HoldfastError."""
        remains.remove(self._disk)
        # On the loop: whoever found it in the index before is told there that it is elsewhere.
        self._ask(lambda: remains.source.leaving.discard(remains.record.key))

    def _clear_remains(self) -> None:
        """Try again to remove what files that have moved left behind."""
        for one in list(self._remains):
            try:
                self._remove(one)
            except (OSError, lmdb.Error, HoldfastError):
                continue  # nothing moves from or to that directory until it can be done
            with self._guard:
                if one in self._remains:
                    self._remains.remove(one)


@dataclass(frozen=True, slots=True, eq=False)
class _Remains:
    """A file in a directory that it has left."""

    source: StorageDirectory
    record: DataRecord
    keep_epochs: bool

    def remove(self, disk: Disk) -> None:
        """Take it out. Raises OSError, lmdb.Error or HoldfastError, and may then be called again."""
        remove(disk, self.source, self.record, keep_epochs=self.keep_epochs)


def _check_room(move: FileMove, target: StorageDirectory) -> None:
    """Raises FullError if there is none, as where another file was to leave first, and did not. Loop thread."""
    limit = target.capacity_bytes
    taken = target.used_bytes - target.coming_bytes
    spoken_for = target.reduce.pending_bytes + target.room.kept_bytes  # what seals will write
    if limit and taken + spoken_for + move.size_bytes > limit:
        raise FullError


def _copy(disk: Disk, path: Path, move: FileMove, target: StorageDirectory, record: DataRecord) -> None:
    """Bring the bytes to the target and record them there."""
    folder = target.root / layout.shuffle_folder(move.key.shuffle)
    final = target.root / sealed_path(move.key)
    new = final.with_name(final.name + MOVING_SUFFIX)
    target.count_sealed(move.key.shuffle, [])  # so that its folder goes with the shuffle, whatever becomes of this
    try:
        target.make_folder(folder)
        _copy_bytes(disk, path, new, move)
        if not move.dropped:
            if read_data_footer(new, move.key) != record:
                raise CorruptError(f"{new} is not what was copied")
            disk.rename(new, final)
            try:
                target.sync_folder(folder)
                target.index.put_items(data_items(record))
            except (OSError, lmdb.Error, HoldfastError):
                disk.remove(final)  # should the record be there in spite of the error, the next start sees the truth
                raise
            target.count_sealed(move.key.shuffle, [record.file_bytes])
    except OSError as error:
        if is_full(error):
            raise FullError from error
        raise
    finally:
        disk.remove(new)


def _copy_bytes(disk: Disk, path: Path, new: Path, move: FileMove) -> None:
    source = Handle(os.open(path, os.O_RDONLY | NO_LINK))
    disk.remove(new)
    written = Handle(disk.create(new))
    offset = 0
    while not move.dropped:
        data = os.pread(source.fd, COPY_BYTES, offset)
        if not data:
            break
        disk.write(written.fd, data, offset)
        offset += len(data)
    disk.sync_data(written.fd)


def remove(disk: Disk, source: StorageDirectory, record: DataRecord, *, keep_epochs: bool) -> None:
    """Take a file that is elsewhere now out of a directory: index first. Raises OSError or lmdb.Error."""
    if not keep_epochs:
        # A move to the DFS may have failed before, and be on record in spite of it: the file is elsewhere now.
        source.index.remove_data(record.key, [key for key, _ in record.epochs], away=True)
    disk.remove(source.root / sealed_path(record.key))
    source.count_sealed(record.key.shuffle, [record.file_bytes], gone=True)


def settle(disk: Disk, directories: Sequence[StorageDirectory]) -> list[str]:
    """Finish what moves a kill cut short: a file that is on the DFS goes from every directory, one that several
    directories have from all but the last (the slowest) that has it whole; what was found unsealed in a log, but is
    sealed elsewhere, is no leftover. Returns sentences worth logging."""
    notes = []
    for shuffle in sorted({shuffle for directory in directories for shuffle in directory.tables.sealed}, key=str):
        away = {key for directory in directories for key in directory.away_files(shuffle)}
        having: dict[DataKey, list[tuple[StorageDirectory, int]]] = {}
        for directory in directories:
            if shuffle in directory.tables.sealed:
                for key, size in directory.index.data_files(shuffle).items():
                    having.setdefault(key, []).append((directory, size))
        for key, those in sorted(having.items(), key=str):
            if key not in away:
                if len(those) == 1:
                    continue
                whole = [one for one in those if _is_whole(*one, key)]
                those = [one for one in those if whole and one != whole[-1]]
            for directory, size in those:
                _settle_one(disk, directory, key, size)
                notes.append(f"{directory.root}: {key} was on its way elsewhere, and is there")
    for directory in directories:
        others = [other for other in directories if other is not directory]
        moved = [key for key in directory.reduce.left if any(_has(other, key) for other in others)]
        directory.reduce.pass_over(moved)
    return notes


def _settle_one(disk: Disk, directory: StorageDirectory, key: DataKey, size: int) -> None:
    """Take a file out of a directory: it is whole elsewhere, or on the DFS by a record that may be here."""
    away_here = key in directory.away_files(key.shuffle)
    record = DataRecord(key, size, tuple(_epochs_of(directory, key)))
    if away_here:
        directory.index.remove_data(key, [])
    remove(disk, directory, record, keep_epochs=away_here)


def _is_whole(directory: StorageDirectory, size: int, key: DataKey) -> bool:
    """Whether a file has the length that the index of its directory says, and ends as it should."""
    try:
        return read_data_footer(directory.root / sealed_path(key), key).file_bytes == size
    except (CorruptError, OSError):
        return False


def _epochs_of(directory: StorageDirectory, key: DataKey) -> Iterator[tuple[EpochKey, EpochRecord]]:
    with directory.index.reading() as reader:
        for epoch in list(reader.epochs(encode_shuffle(key.shuffle))):
            record = reader.epoch(epoch)
            if record is not None and record.place(epoch) == key:
                yield epoch, record


def _has(directory: StorageDirectory, key: EpochKey) -> bool:
    with directory.index.reading() as reader:
        return reader.has_epoch(key)
