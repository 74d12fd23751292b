"""The storage of a worker: all its directories behind one face. What callers use; see the worker's server and the CLI.

    pending = prepare(settings)     # first thing in main: the children that check the indexes run meanwhile
    store = open_store(pending)
    writer = store.begin(key, partitions, ack); writer.append(...); store.seal(key, totals)
    plan = store.plan(shuffle, begin, end, files); for piece in plan.pieces(): ...

Which directory a file goes to, and what a client is answered for a file in any state, is decided here and nowhere else.
All is for one thread, the loop's, and nothing waits for a sync but `open` and `close`: what takes long gives futures.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.errors import CorruptError, NoRoomError, RerouteError, RetryError
from holdfast.common.formats.messages import Ack, FileTotals, MapSealed
from holdfast.common.ids import AttemptId, Epoch, Incarnation, MapFileKey, MapId, ShuffleKey
from holdfast.common.sizes import UsageTotals
from holdfast.common.statuses import Status
from holdfast.worker.core.write.space import Space
from holdfast.worker.storage.dfs.away_health import DfsStatus
from holdfast.worker.storage.dfs.away_note import DfsNotes
from holdfast.worker.storage.dfs.away_search import START_SECONDS, AwaySearch
from holdfast.worker.storage.disks.directory_states import DirectoryStates, DirectoryStatus
from holdfast.worker.storage.disks.monitor import Monitor
from holdfast.worker.storage.engine.answers import SealedError, failed_copy, not_sealed, unknown_file
from holdfast.worker.storage.engine.directory import StorageDirectory
from holdfast.worker.storage.engine.forgetting import Forgetting
from holdfast.worker.storage.engine.owner import DirectoryThreads, Owner
from holdfast.worker.storage.engine.reduce_store import ReduceStore
from holdfast.worker.storage.engine.writer import MapFileWriter
from holdfast.worker.storage.env.errors import is_shortage
from holdfast.worker.storage.env.futures import Executor, Future
from holdfast.worker.storage.env.interfaces import Env
from holdfast.worker.storage.identity import Starts, parse_boot_id
from holdfast.worker.storage.index.index import Found
from holdfast.worker.storage.index.records import encode_key
from holdfast.worker.storage.prepare import Pending, prepare
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.read.map_range_index import MapRangeIndexes
from holdfast.worker.storage.read.reader import Piece, Plan
from holdfast.worker.storage.recovery.opening import (
    decide_all,
    examine,
    new_identity,
    next_start,
    open_directory,
    record_start,
    remove_strays,
)
from holdfast.worker.storage.recovery.recovery import Opening
from holdfast.worker.storage.settings import DirectorySettings, StoreSettings
from holdfast.worker.storage.tiers.moving import FileMover, settle
from holdfast.worker.storage.tiers.tiering import MEMORY, Tiering

if TYPE_CHECKING:
    from holdfast.worker.storage.dfs.away import Away

__all__ = [
    "DirectorySettings",
    "DirectoryStatus",
    "MapFileWriter",
    "Pending",
    "Piece",
    "Plan",
    "Store",
    "StoreSettings",
    "prepare",
]


def open_store(pending: Pending) -> Store:
    """See Pending.open."""
    settings, env = pending.settings, pending.env
    found = [examine(env.files, candidate) for candidate in pending.candidates]
    openings = decide_all(found, settings.cluster_id, settings.worker_name)
    for one, opening in zip(found, openings, strict=True):
        if opening is Opening.CREATE:
            remove_strays(env.files, one)
    known = [one.identity for one in found if one.identity is not None]
    uid = known[0].worker_uid if known else env.machine.token(16)
    starts = next_start(found, parse_boot_id(env.machine.boot_id()))
    writers = OpenFiles(env, settings.open_files_max, write=True)
    dfs, owner = DfsNotes(env.files, [one.root for one in found]), Owner(env)
    directories = []
    for one, opening in zip(found, openings, strict=True):
        directory = open_directory(
            one,
            opening,
            identity=one.identity or new_identity(settings, uid, env.machine.token(16)),
            env=env,
            # Its own, so that a disk that hangs holds up no other one.
            threads=DirectoryThreads(
                env.threads.pool(settings.sync_threads, "holdfast-sync"),
                env.threads.pool(1, "holdfast-lane"),
                owner,
            ),
            writers=writers,
            starts=starts,
            settings=settings,
            dfs=dfs,
        )
        record_start(directory, env.files, starts)
        directories.append(directory)
    away = settings.open_away(uid, env) if settings.open_away is not None else None
    if away is not None:
        away.has_files, away.notes = any(directory.away for directory in directories), dfs
        if dfs.used:
            away.touched(key for directory in directories for key in directory.shuffles())
    notes = (*[note for one in found for note in one.notes], *settle(env.files, directories), *_left(directories))
    store = Store(settings, env, directories, uid, starts, notes, owner, away)
    store.report += store.find_away(dfs)
    return store


def _left(directories: Iterable[StorageDirectory]) -> list[str]:
    return [
        f"{one.root}: {len(one.unsealed.left)} epochs of REDUCE partitions were left unsealed by earlier starts"
        for one in directories
        if one.unsealed.left
    ]


class Store:
    """All directories of a worker. Made by open_store."""

    def __init__(
        self,
        settings: StoreSettings,
        env: Env,
        directories: list[StorageDirectory],
        worker_uid: bytes,
        starts: Starts,
        report: tuple[str, ...],
        owner: Owner,
        away: Away | None = None,
    ) -> None:
        self.worker_uid = worker_uid
        self.incarnation = starts.incarnation
        self.boot_id = str(uuid.UUID(bytes=starts.boot_id))
        #: sentences about what recovery found, worth logging
        self.report = report
        self._env = env
        self._owner = owner
        self._directories = directories
        self._rooms = DirectoryStates(directories, env, settings.reserve_bytes)
        self._starts = starts
        self._open_files = OpenFiles(env, settings.open_files_max)
        #: REDUCE partitions, and those of them that are read by ranges of maps
        self.reduce = ReduceStore(directories, away)
        #: files on the DFS; None without one
        self.away = away
        self._search: AwaySearch | None = None
        self.views = MapRangeIndexes(env, self._directory_at, owner)
        self.mover = FileMover(env, directories, self._open_files, away, self.reduce.relocate, owner)
        self._forgetting = Forgetting(directories, owner, self._folder_is_gone, self._forgotten)
        self.tiering = Tiering(
            directories, self.mover, self.reduce.places, settings.tiers, dfs=away is not None, draw=env.machine.chance
        )
        self.reduce.on_sealed, self.reduce.on_read = self.tiering.sealed, self.tiering.read

    def find_away(self, dfs: DfsNotes) -> tuple[str, ...]:
        """Where an index was lost that had files on the DFS: look for them, first of all. Returns what to log."""
        if not dfs.to_search:
            return ()
        if self.away is None:
            urls = ", ".join(sorted(dfs.urls))
            told = f"an index was lost, and its files on the DFS {urls} cannot be searched for: set [dfs] url as it was"
            self.reduce.not_known_yet = lambda: told
            return (told,)
        search = self._search = AwaySearch(self._env.threads, self.away, self._directories, self._owner)
        self.reduce.not_known_yet = lambda: "" if search.over else "it is being looked for on the DFS"
        return (search.start(START_SECONDS),)

    def run_on(self, on_loop: Callable[[Callable[[], object]], object]) -> None:
        """Have what must happen on the loop thread run there: `on_loop` is the loop's call_soon_threadsafe."""
        self._owner.run_on(on_loop)

    def lanes(self) -> list[tuple[Path, Executor]]:
        """The directories that do not hang, and the lane of each."""
        return [(one.root, one.lane) for one in self._directories if not one.condition.hanging]

    def record_start(self, incarnation: Incarnation) -> list[Future[None]]:
        """Bring the number of a start to the disks, in their lanes: the masters remember more of them."""
        starts = Starts(max(incarnation, self.incarnation), self._starts.boot_id)
        usable = [one for one in self._directories if not one.condition.hanging]
        return [one.lane.submit(self._record_start, one, starts) for one in usable]

    def _record_start(self, directory: StorageDirectory, starts: Starts) -> None:
        try:
            record_start(directory, self._env.files, starts)
        except OSError as error:
            directory.condition.broke(error)
            raise

    def begin_incarnation(self, incarnation: Incarnation) -> None:
        """Go on as this incarnation or a later one, which a directory has on its disk."""
        self._starts = Starts(max(incarnation, self.incarnation), self._starts.boot_id)
        for directory in self._directories:
            directory.unsealed.log.restart(self._starts.incarnation)
        self.incarnation = self._starts.incarnation

    def close(self) -> None:
        """Let running seals, removals and moves end and give the directories back. The loop has ended."""
        self._owner.run_on(None)
        if self.away is not None:
            self.away.close()  # first: a move that waits for the DFS ends with it
        self.mover.close()
        if self._search is not None:
            self._search.close()
        self.views.close()
        self._open_files.clear()
        for directory in self._directories:
            directory.close()

    def monitor(self, interval_seconds: float) -> Monitor:
        """What checks the disks of this store, not started yet."""
        return Monitor(self._env, self._directories, interval_seconds)

    def watch_away(self, interval_seconds: float) -> None:
        """Look at the DFS, if there is one, now and so often; waits for nothing."""
        if self.away is not None:
            self.away.watch(interval_seconds)

    def dfs(self) -> DfsStatus | None:
        """The DFS as this worker sees it; None without one."""
        if self.away is None:
            return None
        size = sum(sum(list(each.away_bytes.values())) for each in self._directories)
        files = sum(len(files) for each in self._directories for files in list(each.away.values()))
        return self.away.health.status(size, files)

    def unread(self, path: str, error: OSError) -> None:
        """A file here could not be read: the directory that it is in hears of it."""
        for directory in self._directories:
            if path.startswith(f"{directory.root_text}/"):
                directory.condition.unread(error)

    @property
    def failing(self) -> bool:
        """Something is wrong with a directory."""
        return any(directory.condition.problem for directory in self._directories)

    @property
    def hanging(self) -> bool:
        """A disk does not answer: `close` leaves what waits for it alone, and so must whoever ends this process."""
        return any(directory.condition.hanging for directory in self._directories)

    # what is here

    @property
    def syncs(self) -> int:
        """Syncs of files, folders and indexes so far."""
        return self._env.files.syncs + self._env.indexes.syncs

    @property
    def files(self) -> int:
        """Sealed files."""
        return sum(total.files for directory in self._directories for total in list(directory.sealed.values()))

    def shuffles(self) -> list[ShuffleKey]:
        """Every shuffle of which anything is here."""
        return sorted({key for directory in self._directories for key in directory.shuffles()})

    def folders(self) -> set[ShuffleKey]:
        """Every shuffle that has a folder since this start, perhaps an empty one."""
        return {key for directory in self._directories for key in directory.empty_folders()}

    def held(self) -> Iterator[tuple[ShuffleKey, UsageTotals]]:
        """Yield what each shuffle has sealed, and of MAP partitions open, in each directory."""
        for directory in self._directories:
            yield from directory.held()

    def directories(self) -> list[DirectoryStatus]:
        """The state of every directory, by what the monitor saw last."""
        return self._rooms.statuses()

    # writing

    def begin(self, key: MapFileKey, partitions: int, ack: Ack) -> MapFileWriter:
        """Begin a map file; what is unsealed of an earlier try is dropped.

        Raises SealedError, RerouteError FAILED_COPY or DISK_FAILED, RetryError BUSY while it is being sealed,
        NoRoomError, ProtocolError.
        """
        for directory in self._directories:
            if key in directory.unsealed.failed:
                raise failed_copy(key, "a write or sync failed")
            if key in directory.unsealed.sealing:
                raise RetryError(f"{key} is being sealed", status=Status.BUSY)
            record = directory.recorded(key)
            if record is not None:
                raise SealedError(f"{key} is sealed", record.map_answer)
        for directory in self._directories:
            with _told_by(directory, key):
                directory.unsealed.abort(key)
        directory = self._choose(key)
        with _told_by(directory, key):
            return directory.unsealed.begin_map(key, partitions, ack, self.incarnation)

    def _choose(self, key: MapFileKey) -> StorageDirectory:
        """The directory for a new file: by turns, among those that are well and have room; not in memory where there
        are disks, because map files are large and stay where they are."""
        lasting = [one for one in self._directories if one.tier != MEMORY] or self._directories
        count = len(lasting)
        first = (key.map + key.attempt + key.epoch) % count
        turns = [lasting[(first + turn) % count] for turn in range(count)]
        well = [directory for directory in turns if not directory.problem]
        if not well:
            raise RerouteError(f"{key}: no directory is well: {turns[0].problem}", status=Status.DISK_FAILED)
        for directory in well:
            if self._rooms.free_bytes(directory) > 0:
                return directory
        raise NoRoomError(f"{key}: no directory has room beyond its reserve")

    def sync(self, writer: MapFileWriter) -> Future[None]:
        """Bring all that was appended to the disk, name included: what SYNCED waits for before it acknowledges."""
        for directory in self._directories:
            if directory.unsealed.copies.get(writer.key) is writer:
                return directory.unsealed.syncing.sync_map(writer)
        raise writer.refusal()

    def seal(self, key: MapFileKey, totals: FileTotals) -> Future[MapSealed]:
        """Make a file final. Idempotent: asked again, also after a restart, it gives the same answer.

        The future, or the call itself, fails with RerouteError UNKNOWN_FILE, NOT_SEALED (left behind by an earlier
        incarnation) or FAILED_COPY, or with CorruptError if the totals differ; an unsealed file is dropped then.
        """
        for directory in self._directories:
            unsealed = directory.unsealed
            if key in unsealed.failed:
                raise failed_copy(key, "a write or sync failed")
            job, writer = unsealed.sealing.get(key), unsealed.copies.get(key)
            if job is not None and job.totals is not None:
                _same_totals(key, job.totals, totals)
                return job.future
            if isinstance(writer, MapFileWriter):
                return unsealed.seal_map(writer, totals).future
        answer = self._sealed_answer(key)
        _same_totals(key, answer.totals, totals)
        done: Future[MapSealed] = Future()
        done.set_result(answer)
        return done

    def _sealed_answer(self, key: MapFileKey) -> MapSealed:
        for directory in self._directories:
            record = directory.recorded(key)
            if record is not None:
                return record.map_answer
        raise self._missing(key)

    def abort(self, key: MapFileKey) -> None:
        """Drop an unsealed file; one that is unknown, sealed or being sealed stays as it is. Raises RerouteError
        DISK_FAILED or NoRoomError; then it is left over."""
        for directory in self._directories:
            with _told_by(directory, key):
                directory.unsealed.abort(key)

    def look(self, reserve_share: float, reserve_bytes: int) -> list[Space | None]:
        """What there is of each directory for REDUCE partitions: beyond what the log has yet to write elsewhere the
        smaller of `reserve_bytes` and that share of its capacity stays free; None for one that is not well. By
        what the monitor saw last; directories on one file system share its room. New epochs and moves go by it."""
        spaces = self._rooms.spaces(reserve_share, reserve_bytes)
        self.tiering.look(spaces)
        return spaces

    def limits_met(self, reserve_share: float, reserve_bytes: int, least: int) -> list[str]:
        """For each directory which limit leaves less than `least` bytes of that room, or than what found none last, for
        people; "" if none does, or the directory is not well. Costs what `look` does."""
        spaces = self._rooms.spaces(reserve_share, reserve_bytes)
        wanted = [max(least, directory.room.wanted_bytes) for directory in self._directories]
        return [space.full(size) if space is not None else "" for space, size in zip(spaces, wanted, strict=True)]

    # reading

    @property
    def open_files(self) -> OpenFiles:
        """The files that readers have open."""
        return self._open_files

    def plan(self, shuffle: ShuffleKey, begin: int, end: int, files: Sequence[tuple[int, int, int]]) -> Plan:
        """Plan a stream over partitions [begin, end) of sealed files, each (map, attempt, epoch).

        Raises RerouteError UNKNOWN_FILE, NOT_SEALED or FAILED_COPY, or CorruptError; all name the file.
        """
        plan = Plan(shuffle, begin, end, self._env.files, self._open_files)
        self.extend(plan, files)
        return plan

    def extend(self, plan: Plan, files: Sequence[tuple[int, int, int]]) -> None:
        """Add more files to a plan: a long one is made in parts, so that the loop turns. Raises as `plan` does."""
        shuffle = plan.shuffle
        with ExitStack() as stack:
            places = [(one, one.reader(stack)) for one in self._directories]
            for map_id, attempt, epoch in files:
                key = MapFileKey(shuffle, MapId(map_id), AttemptId(attempt), Epoch(epoch))
                encoded = encode_key(key)
                for directory, reader in places:
                    found = directory.lookup(key, encoded, reader)
                    if found is not None:
                        plan.add(key, directory, found, None if isinstance(reader, CorruptError) else reader)
                        break
                else:
                    self._add_forgotten(plan, key)

    def _add_forgotten(self, plan: Plan, key: MapFileKey) -> None:
        for directory in self._directories:
            found = directory.forgotten(key)
            if found is not None:
                plan.add(key, directory, Found.of(found))
                return
        raise self._missing(key)

    def _missing(self, key: MapFileKey) -> RerouteError:
        """Why a file that no directory has sealed is not here."""
        for directory in self._directories:
            if key in directory.unsealed.failed:
                return failed_copy(key, "a write or sync failed")
            if directory.unsealed.has(key):
                return not_sealed(key)
        return unknown_file(key)

    # removing

    def forget(self, keys: Iterable[ShuffleKey]) -> Future[int]:
        """Delete shuffles; call it only for what a confirmed leader says it dropped. The future tells how many were
        here, or fails with OSError or NoRoomError when all was tried; what is left is still among
        `shuffles`. What hangs does not end, and holds up nothing else."""
        keys = list(keys)
        for key in keys:
            if self._search is not None:
                self._search.forget(key)
            if self.away is not None:
                searching = self._search is not None and not self._search.over
                away = any(directory.away_files(key) for directory in self._directories)
                self.away.drop(key, sure=searching or away)
        done = self._forgetting.forget(keys, self.mover.drop)
        if self.away is not None:
            done.add_done_callback(self.away.remove_dropped)
        return done

    def _directory_at(self, path: str) -> StorageDirectory:
        return next(one for one in self._directories if path.startswith(f"{one.root_text}/"))

    def _folder_is_gone(self, key: ShuffleKey, folder: str) -> None:
        self._directory_at(folder).lane.submit(self._open_files.forget(folder).clear)
        self.views.forget(folder)

    def _forgotten(self, key: ShuffleKey, gone: bool) -> None:
        self.tiering.forget(key)
        if gone:
            self.mover.forgotten(key)

    def remove_leftovers(self, keys: Iterable[ShuffleKey]) -> Future[int]:
        """Delete unsealed files of earlier starts, of shuffles that the masters answered about."""
        return self._forgetting.remove_leftovers(keys)


@contextmanager
def _told_by(directory: StorageDirectory, key: MapFileKey) -> Iterator[None]:
    """A directory does something for a file: it hears of what its disk raises, and who asked gets DISK_FAILED."""
    try:
        yield
    except OSError as error:
        if is_shortage(error):
            raise NoRoomError(f"{key}: no room in {directory.root} ({error.strerror})") from error
        directory.condition.broke(error)
        raise RerouteError(f"{key}: {directory.root}: {error}", status=Status.DISK_FAILED) from error


def _same_totals(key: MapFileKey, held: FileTotals, asked: FileTotals) -> None:
    if held != asked:
        raise CorruptError(f"{key}: sealed with {held}, asked with {asked}")
