"""Moves sealed partition and pack files from one directory of a worker to another, or to the DFS, while they are read.

The order, each step only after the one before it has succeeded: the bytes go into a file that has no sealed name; its
footer is read back; synced; renamed; the folder synced; one index transaction at the target; readers are told; one
index transaction at the source; the file there goes. Killed before the first transaction what is at the target counts
for nothing; killed between the two the file is in both, and a start settles that (`settle`). Where the source cannot
be changed any more (its disk fails, or is so full that its index cannot grow) the move has come about all the same:
what is left there is removed before anything else moves from or to that directory. A reader that has the file open goes
on with it. No epoch is ever split: a file moves whole, its checksums in it. One file moves at a time; while a move
hangs with one of its directories another one goes on beside it, so that each directory holds up one thread at most. A
move is a generator: what it yields is done in a thread, all else on the loop. Called by tiering.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.common.errors import ConfigError, CorruptError, DfsError, HoldfastError
from holdfast.common.ids import ShuffleKey
from holdfast.common.limits import MIB
from holdfast.common.log_events import LogEvent
from holdfast.common.system.log import log_event
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.folders import Unsynced, sync_folders
from holdfast.worker.storage.engine.owner import Owner
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.futures import Executor, Future
from holdfast.worker.storage.env.interfaces import Env, Files, ThreadEvent
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.index.index import Index, file_items
from holdfast.worker.storage.index.records import DataRecord, EpochRecord, FileRecord, encode_shuffle
from holdfast.worker.storage.layout import DataKey, EpochKey, sealed_path
from holdfast.worker.storage.names import MOVING_SUFFIX
from holdfast.worker.storage.read.handles import OpenFiles

if TYPE_CHECKING:
    from holdfast.worker.storage.dfs.away import Away

#: What is copied at once.
COPY_BYTES = 4 * MIB
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
    #: set when it is not
    unwanted: ThreadEvent = field(kw_only=True)
    #: it has ended
    done: Future[None] = field(default_factory=Future)

    def places(self) -> tuple[StorageDirectory | None, ...]:
        """What it reads and writes; None: the DFS."""
        return self.source, self.target


#: What a move does: each thing that is yielded is done in a thread, all between them on the loop.
Steps = Generator[Callable[[], Any], Any, None]


class FileMover:
    """Moves one file after the other. Loop thread only; what waits for a disk or the DFS is done in threads."""

    def __init__(
        self,
        env: Env,
        directories: Sequence[StorageDirectory],
        open_files: OpenFiles,
        away: Away | None,
        relocate: Callable[[FileMove], None],
        owner: Owner,
    ) -> None:
        self._env = env
        self._files = env.files
        self._open_files = open_files
        self._away = away
        #: tells readers where the file is now
        self._relocate = relocate
        self._owner = owner
        #: for each directory that hangs one that waits for it, and one more
        self._threads = len(directories) + 1
        self._pool: Executor | None = None
        self._waiting: list[FileMove] = []
        #: one, and those that hang
        self._running: list[FileMove] = []
        self._closed = False
        self._away_not_before = 0.0
        #: moves that have ended since they were last taken
        self._ended: list[FileMove] = []
        #: shuffles that are being deleted: nothing of them begins to move
        self._dropped: set[ShuffleKey] = set()
        #: what is still to be taken out of the directories that files have left; one for each directory at most
        self._remains: list[_Remains] = []

    def move(
        self, key: DataKey, size: int, source: StorageDirectory, target: StorageDirectory | None, home: StorageDirectory
    ) -> FileMove:
        """A move that may be started."""
        return FileMove(key, size, source, target, home, unwanted=self._env.threads.event())

    def start(self, move: FileMove) -> bool:
        """Have a file moved; False if too many wait, or its shuffle is being deleted."""
        if self._closed or len(self._waiting) >= WAITING_MAX or move.key.shuffle in self._dropped:
            return False
        if move.target is not None:
            move.target.coming_bytes += move.size_bytes
            move.target.room.keep(move.size_bytes)
        self._waiting.append(move)
        self.look()
        return True

    def look(self) -> None:
        """Begin what may begin; also once a second: where all that runs hangs, the rest goes on."""
        while not self._closed and (move := self._pick()) is not None:
            self._waiting.remove(move)
            self._running.append(move)
            self._go_on(move, self._whole(move), None, None)

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
        ended, self._ended = self._ended, []
        return ended

    def away_is_well(self, now: float) -> bool:
        """Whether moves to the DFS should be tried; `now` as the clock says."""
        return now >= self._away_not_before and self._away is not None and self._away.health.answers

    @property
    def busy(self) -> int:
        """Moves that wait or run, but for what hangs and what waits for that."""
        hanging = [one for one in self._running if self._hangs(one)]
        taken = [place for one in hanging for place in one.places()]
        waiting = [one for one in self._waiting if not any(place in taken for place in one.places())]
        return len(waiting) + len(self._running) - len(hanging)

    def drop(self, shuffle: ShuffleKey) -> list[Future[None]]:
        """Let go of a shuffle that is about to be deleted. When what is returned has ended nothing of it can come into
        a directory or an index any more, and nothing will until `forgotten` is called. What is on its way to the DFS,
        which may hang, is not waited for: it is removed there when it has come."""
        self._dropped.add(shuffle)
        for move in [move for move in self._waiting if move.key.shuffle == shuffle]:
            self._waiting.remove(move)
            move.dropped = True
            self._end(move)
        running = [one for one in self._running if one.key.shuffle == shuffle]
        for move in running:
            move.dropped = move.deleted = True
            move.unwanted.set()
        # Its directories remove everything of it.
        self._remains = [one for one in self._remains if one.record.key.shuffle != shuffle]
        return [one.done for one in running if one.target is not None or one.recording]

    def forgotten(self, shuffle: ShuffleKey) -> None:
        """A dropped shuffle is deleted, and in nobody's books any more."""
        self._dropped.discard(shuffle)

    def close(self) -> None:
        """End with the steps that run; the next start settles what is between two. The loop has ended."""
        self._closed = True
        self._waiting.clear()
        for move in self._running:
            move.dropped = True
            move.unwanted.set()
        if self._pool is not None:
            self._pool.shutdown()

    # carrying out

    def _go_on(self, move: FileMove, steps: Steps, result: Any, error: BaseException | None) -> None:
        """Take the next steps of a move, up to one that a thread has to do."""
        try:
            work = steps.throw(error) if error is not None else steps.send(result)
        except StopIteration:
            self._over(move)
        except Exception as failure:  # noqa: BLE001 - whatever it is, it costs this move, not all that come after it
            self._failed(move, failure)
            self._over(move)
        else:
            if self._closed:
                return
            if self._pool is None:
                self._pool = self._env.threads.pool(self._threads, "holdfast-move")
            done = self._pool.submit(work)
            done.add_done_callback(lambda done: self._owner(partial(self._did, move, steps, done)))

    def _did(self, move: FileMove, steps: Steps, done: Future[Any]) -> None:
        error = done.exception()
        self._go_on(move, steps, None if error is not None else done.result(), error)

    def _failed(self, move: FileMove, error: Exception) -> None:
        """Say why a move did not come about."""
        if isinstance(error, FullError):
            move.full, move.problem = True, "no room"
        elif isinstance(error, OSError | HoldfastError):
            move.full = isinstance(error, OSError) and is_shortage(error)
            move.problem = f"{move.key} was not moved: {error}"
            if isinstance(error, DfsError | ConfigError):
                move.unusable = True
                self._away_not_before = self._env.clock.now() + AWAY_PAUSE_SECONDS
        else:
            log_event(LogEvent.FILE_MOVE_INTERNAL_ERROR, file=move.key, trace=error)
            move.problem = f"{move.key} was not moved: {type(error).__name__}: {error}"

    def _over(self, move: FileMove) -> None:
        self._running.remove(move)
        self._end(move)
        self.look()

    def _end(self, move: FileMove) -> None:
        if move.target is not None:
            move.target.coming_bytes -= move.size_bytes
        self._ended.append(move)
        move.done.set_result(None)

    def _whole(self, move: FileMove) -> Steps:
        """What earlier moves left behind first; then the move, if it is still wanted."""
        yield from self._clear_remains()
        yield from self.steps(move)

    def steps(self, move: FileMove) -> Steps:
        """All steps of a move. Raises FullError, OSError or HoldfastError, and then the file is where it was."""
        for one in self._remains:
            if one.source in (move.source, move.target):
                raise OSError(f"{one.source.root} could not be changed when {one.record.key} had left it")
        path = move.source.root / sealed_path(move.key)
        record = yield partial(read_footer, self._files, path, move.key)
        move.epochs = tuple([key for key, _ in record.epochs])
        if move.target is None:
            yield from self._store_away(move, path, record)
        else:
            _check_room(move, move.target)
            if move.dropped:
                return
            yield from _copy(self._env, path, move, move.target, record)
        if move.dropped:
            return  # what is in both places is deleted with the shuffle, or settled by the next start
        self._relocate(move)
        remains = _Remains(move.source, record, move.home is move.source)
        try:
            yield from self._remove(remains)
        except (OSError, HoldfastError) as error:
            move.remains = f"{path} was moved and cannot be removed: {error}"
            if not move.deleted:
                self._remains.append(remains)
        self._open_files.close(str(path))

    def _store_away(self, move: FileMove, path: Path, record: DataRecord) -> Steps:
        """Bring the bytes to the DFS and record them. An error of the index leaves the copy there: the record may be on
        the disk in spite of it, and then the next start believes it and not the file here."""
        assert self._away is not None, "who moves to the DFS has one"
        try:
            move.token = yield partial(self._away.put, record, path)
            move.recording = not move.dropped
            if move.recording:
                yield partial(_record_away, move, record)
                move.home.note_away(record.key, move.token, record.file_bytes)
                self._away.recorded(record.key)
            else:
                yield partial(self._away.discard, record.key, move.token)
        except Exception:
            self._drop_away(move)
            raise
        self._drop_away(move)

    def _drop_away(self, move: FileMove) -> None:
        """Its shuffle was deleted meanwhile: the folder there may be gone already, and back again by the file."""
        if move.deleted and self._away is not None:
            self._away.drop(move.key.shuffle, sure=True)
            self._away.remove_dropped()

    def _remove(self, remains: _Remains) -> Steps:
        """Take a file out of the directory that it has left. Raises OSError or HoldfastError."""
        source, record = remains.source, remains.record
        try:
            yield partial(remove, self._files, source, record, keep_epochs=remains.keep_epochs)
        except OSError as error:
            source.condition.unremoved(error)
            raise
        source.count_sealed(record.key.shuffle, [record.file_bytes], gone=True)
        # Whoever found it in the index before is told by now that it is elsewhere.
        source.leaving.discard(record.key)

    def _clear_remains(self) -> Steps:
        """Try again to remove what files that have moved left behind."""
        for one in list(self._remains):
            try:
                yield from self._remove(one)
            except (OSError, HoldfastError):
                continue  # nothing moves from or to that directory until it can be done
            if one in self._remains:
                self._remains.remove(one)


def _record_away(move: FileMove, record: DataRecord) -> None:
    """In a thread."""
    if move.home is move.source:
        move.home.index.set_away(record, move.token)
    else:
        move.home.index.put_items(file_items(record, move.token))


@dataclass(frozen=True, slots=True, eq=False)
class _Remains:
    """A file in a directory that it has left."""

    source: StorageDirectory
    record: DataRecord
    keep_epochs: bool


def _check_room(move: FileMove, target: StorageDirectory) -> None:
    """Raises FullError if there is none, as where another file was to leave first, and did not."""
    limit = target.capacity_bytes
    taken = target.used_bytes - target.coming_bytes
    spoken_for = target.unsealed.pending_bytes + target.room.kept_bytes  # what seals will write
    if limit and taken + spoken_for + move.size_bytes > limit:
        raise FullError


def _copy(env: Env, path: Path, move: FileMove, target: StorageDirectory, record: DataRecord) -> Steps:
    """Bring the bytes to the target and record them there."""
    files = env.files
    final = target.root / sealed_path(move.key)
    new = final.with_name(final.name + MOVING_SUFFIX)
    target.count_sealed(move.key.shuffle, [])  # so that its folder goes with the shuffle, whatever becomes of this
    try:
        target.folders.make(final.parent)
        yield partial(_copy_bytes, files, path, new, move.unwanted)
        if not move.dropped:
            if (yield partial(read_footer, files, new, move.key)) != record:
                raise CorruptError(f"{new} is not what was copied")
            folders = target.folders.unsynced(final.parent)
            yield partial(take_in, files, target.index, new, final, folders, record)
            target.folders.synced(folders)
            target.count_sealed(move.key.shuffle, [record.file_bytes])
    except Exception as error:
        yield partial(files.remove, new)
        if isinstance(error, OSError) and is_shortage(error):
            raise FullError from error
        raise
    yield partial(files.remove, new)


def take_in(files: Files, index: Index, new: Path, final: Path, folders: Unsynced, record: DataRecord) -> None:
    """In a thread: give a whole copy its name and its record. Raises OSError or HoldfastError."""
    files.rename(new, final)
    try:
        sync_folders(files, folders)
        index.put_items(file_items(record))
    except (OSError, HoldfastError):
        files.remove(final)  # should the record be there in spite of the error, the next start sees the truth
        raise


def _copy_bytes(files: Files, path: Path, new: Path, unwanted: ThreadEvent) -> None:
    """In a thread."""
    source = files.open(path)
    files.remove(new)
    written = files.create(new)
    offset = 0
    while not unwanted.is_set():
        data = files.read(source, COPY_BYTES, offset)
        if not data:
            break
        files.write(written, data, offset)
        offset += len(data)
    files.sync(written)


def remove(files: Files, source: StorageDirectory, record: DataRecord, *, keep_epochs: bool) -> None:
    """Take a file that is elsewhere now out of a directory: index first. Raises OSError."""
    if not keep_epochs:
        # A move to the DFS may have failed before, and be on record in spite of it: the file is elsewhere now.
        source.index.remove_file(record.key, [key for key, _ in record.epochs], away=True)
    files.remove(source.root / sealed_path(record.key))


def settle(files: Files, directories: Sequence[StorageDirectory]) -> list[str]:
    """Finish what moves a kill cut short: a file that is on the DFS goes from every directory, one that several
    directories have from all but the last (the slowest) that has it whole; what was found unsealed in a log, but is
    sealed elsewhere, is no leftover. Returns sentences worth logging."""
    notes = []
    for shuffle in sorted({shuffle for directory in directories for shuffle in directory.sealed}, key=str):
        away = {key for directory in directories for key in directory.away_files(shuffle)}
        having: dict[DataKey, list[tuple[StorageDirectory, int]]] = {}
        for directory in directories:
            if shuffle in directory.sealed:
                for key, size in directory.index.data_files(shuffle).items():
                    having.setdefault(key, []).append((directory, size))
        for key, those in sorted(having.items(), key=str):
            if key not in away:
                if len(those) == 1:
                    continue
                whole = [one for one in those if _is_whole(files, *one, key)]
                those = [one for one in those if whole and one != whole[-1]]
            for directory, size in those:
                _settle_one(files, directory, key, size)
                notes.append(f"{directory.root}: {key} was on its way elsewhere, and is there")
    for directory in directories:
        others = [other for other in directories if other is not directory]
        moved = [key for key in directory.unsealed.left if any(other.has_epoch(key) for other in others)]
        directory.unsealed.pass_over(moved)
    return notes


def _settle_one(files: Files, directory: StorageDirectory, key: DataKey, size: int) -> None:
    """Take a file out of a directory: it is whole elsewhere, or on the DFS by a record that may be here."""
    away_here = key in directory.away_files(key.shuffle)
    record = FileRecord(key, size, tuple(_epochs_of(directory, key)))
    if away_here:
        directory.index.remove_file(key, [])
    remove(files, directory, record, keep_epochs=away_here)
    directory.count_sealed(key.shuffle, [size], gone=True)


def _is_whole(files: Files, directory: StorageDirectory, size: int, key: DataKey) -> bool:
    """Whether a file has the length that the index of its directory says, and ends as it should."""
    try:
        return read_footer(files, directory.root / sealed_path(key), key).file_bytes == size
    except (CorruptError, OSError):
        return False


def _epochs_of(directory: StorageDirectory, key: DataKey) -> Iterator[tuple[EpochKey, EpochRecord]]:
    with directory.index.reading() as reader:
        for epoch in list(reader.epochs(encode_shuffle(key.shuffle))):
            record = reader.epoch(epoch)
            if record is not None and record.place(epoch) == key:
                yield epoch, record
