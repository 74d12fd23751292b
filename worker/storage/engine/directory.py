"""One storage directory in use: its index, the files being written, what is known of the rest.

Facts and steps only; store.py decides which directory a file goes to and what a client is answered. The loop owns all
tables; what runs in threads gets values, and what it found is taken in on the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.common.errors import CorruptError, NoRoomError
from holdfast.common.formats.messages import Ack, FileTotals, MapSealed
from holdfast.common.ids import Incarnation, MapFileKey, ShuffleKey
from holdfast.common.sizes import UsageTotals
from holdfast.worker.core.health import HealthLimits, WindowMean
from holdfast.worker.storage import layout, names
from holdfast.worker.storage.check import ShuffleSum
from holdfast.worker.storage.disks.condition import Condition
from holdfast.worker.storage.engine.directory_room import DirectoryRoom
from holdfast.worker.storage.engine.folders import Folders, remove_folders
from holdfast.worker.storage.engine.map_seals import MapSealJob, MapSeals
from holdfast.worker.storage.engine.owner import DirectoryThreads
from holdfast.worker.storage.engine.reduce_directory import ReduceDirectory
from holdfast.worker.storage.engine.reduce_seal import ReduceSealJob
from holdfast.worker.storage.engine.sealing import Sealer
from holdfast.worker.storage.engine.writer import MapFileWriter, WriterState
from holdfast.worker.storage.env.futures import Future
from holdfast.worker.storage.env.interfaces import Env, Files
from holdfast.worker.storage.identity import Identity, Starts
from holdfast.worker.storage.index.footers import read_footer
from holdfast.worker.storage.index.index import META_KEY, Found, Index, Reader
from holdfast.worker.storage.index.records import EpochRecord, encode_key
from holdfast.worker.storage.layout import DataKey, EpochKey
from holdfast.worker.storage.log.push_log import is_full
from holdfast.worker.storage.read.handles import OpenFiles
from holdfast.worker.storage.read.loans import Loan, Loans, leaves_enough
from holdfast.worker.storage.recovery.inventory import Inventory


@dataclass(slots=True)
class Tables:
    """What is known of a directory's files. Sealed ones are only added up; each is looked up when asked for."""

    sealed: dict[ShuffleKey, ShuffleSum] = field(default_factory=dict)
    writers: dict[MapFileKey, MapFileWriter] = field(default_factory=dict)
    sealing: dict[MapFileKey, MapSealJob] = field(default_factory=dict)
    #: unsealed map files that an earlier incarnation left behind
    leftovers: dict[MapFileKey, Path] = field(default_factory=dict)
    #: map copies that are given up for good
    failed: set[MapFileKey] = field(default_factory=set)
    #: files on the DFS whose epochs are in the index here, with the tokens of their names
    away: dict[ShuffleKey, dict[DataKey, bytes]] = field(default_factory=dict)
    #: their bytes
    away_bytes: Counter[ShuffleKey] = field(default_factory=Counter)

    def holds(self, shuffle: ShuffleKey) -> bool:
        """Whether there is anything of a shuffle."""
        parts = (self.writers, self.sealing, self.leftovers, self.failed)
        return shuffle in self.sealed or any(key.shuffle == shuffle for part in parts for key in part)

    def shuffles(self) -> set[ShuffleKey]:
        """Every shuffle of which there is anything."""
        keys = {key.shuffle for part in (self.writers, self.sealing, self.leftovers, self.failed) for key in part}
        return keys | self.sealed.keys()


def _mark_failed(files: Files, path: Path, sealed: Path, mark: Path) -> None:
    """In a thread. Raises OSError."""
    files.rename(path if files.exists(path) else sealed, mark)
    files.truncate(mark, 0)
    files.sync_folder(mark.parent)


class Leftover(NamedTuple):
    """An unsealed file of an earlier incarnation."""

    path: Path
    size_bytes: int


class StorageDirectory:
    """Made by opening.py; used by store.py."""

    def __init__(
        self,
        *,
        root: Path,
        tier: str,
        capacity_bytes: int,
        identity: Identity,
        lock: object,
        env: Env,
        index: Index,
        threads: DirectoryThreads,
        found: Inventory,
        writers: OpenFiles,
        starts: Starts,
        segment_bytes: int,
        limits: HealthLimits,
        average_ns: int,
    ) -> None:
        self.root = root
        self.root_text = str(root)
        self.tier = tier
        self.capacity_bytes = capacity_bytes
        self.identity = identity
        self.index = index
        self.tables = Tables(
            sealed=found.sealed,
            leftovers=found.unsealed_maps(),
            failed={key for key in found.failed if isinstance(key, MapFileKey)},
            away=found.away,
            away_bytes=found.away_bytes,
        )
        self.condition = Condition(env, root, identity.encode(), limits)
        #: how long writes here and reads from here take
        self.flushes, self.fetches = WindowMean(average_ns), WindowMean(average_ns)
        #: what writers may still add before the next look
        self.room = DirectoryRoom()
        self._lock_file = lock
        self._pool, self.lane, self.owner = threads
        self._env, self._files = env, env.files
        self.folders = Folders(env.files, root / names.DATA)
        sealer = Sealer(env.files, self.folders, index, threads)
        self._map_seals = MapSeals(env.files, self.folders, sealer, self._on_failed)
        self._leftover_bytes = {key: env.files.held_bytes(path) for key, path in self.tables.leftovers.items()}
        #: bytes that are on their way here from another directory
        self.coming_bytes = 0
        #: bytes of files here that have no name
        self.loans = Loans()
        #: files that are elsewhere by now, though the index here may still have them
        self.leaving: set[DataKey] = set()
        #: seals of REDUCE partitions that run
        self.jobs: list[ReduceSealJob] = []
        self.reduce = ReduceDirectory(
            root=root,
            env=env,
            index=index,
            folders=self.folders,
            threads=threads,
            sealer=sealer,
            writers=writers,
            incarnation=starts.incarnation,
            boot_id=starts.boot_id,
            found=found,
            broke=self.condition.broke,
            segment_bytes=segment_bytes,
            room=self.room,
            flushes=self.flushes,
        )

    # writing

    def begin(self, key: MapFileKey, partitions: int, ack: Ack, incarnation: Incarnation) -> MapFileWriter:
        """Create a file; raises OSError or ProtocolError."""
        self.folders.make(self.root / layout.shuffle_folder(key.shuffle))
        writer = MapFileWriter(
            self._env,
            self.root,
            key,
            partitions=partitions,
            ack=ack,
            incarnation=incarnation,
            on_failed=self._on_failed,
            on_grown=self._write_back,
            room=self.room,
            flushes=self.flushes,
        )
        self.tables.writers[key] = writer
        return writer

    def drop(self, key: MapFileKey) -> None:
        """Remove what is unsealed of a file, if anything. Raises OSError; then it is left over, to be removed later."""
        writer = self.tables.writers.pop(key, None)
        leftover = self.tables.leftovers.get(key)
        if writer is not None and not writer.failed:
            writer.state = WriterState.CLOSED
            try:
                self._files.remove(writer.path)
            except OSError:
                self._leave_over(writer)
                raise
        if leftover is not None:
            self._files.remove(leftover)
            self.tables.leftovers.pop(key, None)
            self._leftover_bytes.pop(key, None)

    def _leave_over(self, writer: MapFileWriter) -> None:
        self.tables.leftovers[writer.key] = writer.path
        self._leftover_bytes[writer.key] = writer.size_bytes

    def _write_back(self, writer: MapFileWriter, offset: int, length: int) -> None:
        """Have the kernel begin to write a part of an unsealed file to the disk."""
        self._pool.submit(self._files.start_write_back, writer.handle, offset, length)

    def sync(self, writer: MapFileWriter) -> Future[None]:
        """See MapSeals.sync."""
        return self._map_seals.sync(writer)

    def seal(self, writer: MapFileWriter, totals: FileTotals) -> MapSealJob:
        """Finish the file and start its seal; raises CorruptError or FAILED_COPY as MapFileWriter.finish does."""
        try:
            record = writer.finish(totals)
        except CorruptError:
            self.drop(writer.key)
            raise
        job = MapSealJob(writer, record, self._files, self._on_sealed, self._on_failed)
        self.tables.sealing[writer.key] = job
        self.tables.writers.pop(writer.key, None)
        self._map_seals.seal(job)
        return job

    def _on_sealed(self, job: MapSealJob) -> None:
        key = job.writer.key
        self.tables.sealing.pop(key, None)
        total = self.tables.sealed.setdefault(key.shuffle, ShuffleSum())
        total.files += 1
        total.size_bytes += job.record.file_bytes

    def _on_failed(self, writer: MapFileWriter, error: Exception, then: Callable[[], None] = lambda: None) -> None:
        """Give a copy up for good, once: the name says so, also after a restart. `then` is called when it does."""
        self.tables.sealing.pop(writer.key, None)
        if writer.state is WriterState.CLOSED or writer.given_up:
            then()  # dropped meanwhile, and its files with it
            return
        writer.state = WriterState.FAILED
        writer.given_up = True
        self.tables.writers.pop(writer.key, None)
        self.tables.failed.add(writer.key)
        self.condition.broke(error)
        mark = self.root / layout.failed_path(writer.key)
        marked = self.lane.submit(_mark_failed, self._files, writer.path, writer.sealed_path, mark)
        marked.add_done_callback(lambda done: self.owner(partial(self._marked, writer.key, then, done)))

    def _marked(self, key: MapFileKey, then: Callable[[], None], done: Future[None]) -> None:
        error = done.exception()
        if error is not None:
            # Without the mark a restart finds an unsealed file, never read either; but the disk is not to be trusted.
            self.condition.isolate(f"cannot mark {key} as failed: {error}")
        then()

    @property
    def problem(self) -> str:
        """Why nothing more is written here; "" while all is well."""
        return self.condition.problem

    def try_index(self) -> None:
        """Put into the index what it has already. Blocks; raises OSError or NoRoomError."""
        self.index.put(META_KEY, self.identity.encode())

    def come_back(self) -> bool:
        """Take new data again; False if something has gone wrong meanwhile. What was given up stays given up."""
        if not self.condition.clear():
            return False
        self.folders.look_again()
        self.reduce.renew()
        return not self.problem

    def count_sealed(self, shuffle: ShuffleKey, sizes: list[int], *, gone: bool = False) -> None:
        """Sealed files of REDUCE partitions were added, or have gone elsewhere. A shuffle of which no file is left is
        still known: the index may have answers of it."""
        sign = -1 if gone else 1
        if gone and shuffle not in self.tables.sealed:
            return  # it was deleted meanwhile
        total = self.tables.sealed.setdefault(shuffle, ShuffleSum())
        total.files += sign * len(sizes)
        total.size_bytes += sign * sum(sizes)

    # moving

    def note_away(self, key: DataKey, token: bytes, size_bytes: int) -> None:
        """A file whose epochs are in the index here is on the DFS."""
        self.tables.away.setdefault(key.shuffle, {})[key] = token
        self.tables.away_bytes[key.shuffle] += size_bytes
        self.tables.sealed.setdefault(key.shuffle, ShuffleSum())

    def away_files(self, shuffle: ShuffleKey) -> dict[DataKey, bytes]:
        """The files of a shuffle that are on the DFS and whose epochs are in the index here, with the tokens of their
        names."""
        return self.tables.away.get(shuffle, {})

    def epoch_from_footers(self, key: EpochKey, cause: CorruptError) -> EpochRecord:
        """The record of an epoch that the index cannot give: from the footers of the shuffle's files."""
        folder = self.root / layout.shuffle_folder(key.shuffle)
        for listed in sorted(self._files.names(folder)) if self._files.is_folder(folder) else ():
            path, name = folder / listed, layout.parse_file(key.shuffle, listed)
            if name is None or name.kind is not layout.FileKind.SEALED or isinstance(name.key, MapFileKey):
                continue
            try:
                epochs: dict[EpochKey, EpochRecord] = dict(read_footer(self._files, path, name.key).epochs)
            except (CorruptError, OSError):
                continue  # the epoch may be in another file
            if key in epochs:
                return epochs[key]
        raise CorruptError(f"{key}: {cause}, and no footer has it")

    # looking up

    @property
    def used_bytes(self) -> int:
        """Bytes of data files, sealed, open, left by earlier starts, on their way here or without a name, and of the
        push logs."""
        open_bytes = sum(writer.size_bytes for writer in self.tables.writers.values())
        sealing_bytes = sum(job.record.file_bytes for job in self.tables.sealing.values())
        sealed_bytes = sum(total.size_bytes for total in self.tables.sealed.values())
        left_bytes = sum(self._leftover_bytes.values())
        sums = open_bytes + sealing_bytes + sealed_bytes + left_bytes + self.reduce.used_bytes
        return sums + self.coming_bytes + self.loans.bytes

    def lend(self, size: int) -> Loan | None:
        """DirectoryRoom for a file without a name, for as long as the loan is held; None if that left too little of the
        capacity. Loop thread."""
        limit = self.capacity_bytes
        if limit and not leaves_enough(limit, limit - self.used_bytes, size):
            return None
        self.room.keep(size)
        return self.loans.take(size)

    @property
    def is_low(self) -> bool:
        """Files without a name take room here that is short by now, as far as is known: no disk is asked."""
        seen = self.condition.measured
        return self.lend(0) is None or not leaves_enough(seen.size, seen.free, 0)

    def held(self) -> list[tuple[ShuffleKey, UsageTotals]]:
        """What each shuffle has in sealed files, here and on the DFS, and in map files that are being written."""
        sealed = [(key, UsageTotals(total.size_bytes, total.files)) for key, total in self.tables.sealed.items()]
        away = [(key, UsageTotals(self.tables.away_bytes[key], len(files))) for key, files in self.tables.away.items()]
        return (
            sealed
            + away
            + [(key.shuffle, UsageTotals(writer.size_bytes, 1)) for key, writer in self.tables.writers.items()]
        )

    def holds(self, key: ShuffleKey) -> bool:
        """Whether there is anything of a shuffle but an empty folder."""
        return self.tables.holds(key) or self.reduce.holds(key)

    def shuffles(self) -> set[ShuffleKey]:
        """Every shuffle of which there is anything."""
        return self.tables.shuffles() | self.reduce.shuffles()

    def empty_folders(self) -> set[ShuffleKey]:
        """Every shuffle whose folder this start made or used, and that may be empty: of a map of which all was aborted,
        or of a file that was to come here. It goes with its shuffle."""
        keys = (layout.parse_folder(folder.parent.name, folder.name) for folder in self.folders.known())
        return {key for key in keys if key is not None}

    def has(self, key: ShuffleKey) -> bool:
        """Whether there is anything of a shuffle, an empty folder too."""
        return self.root / layout.shuffle_folder(key) in self.folders.known() or self.holds(key)

    def find(self, key: MapFileKey) -> Found | None:
        """The sealed file's record; from its footer if the index cannot tell. Raises CorruptError if neither can."""
        try:
            with self.index.reading() as reader:
                found = reader.file(encode_key(key))
        except CorruptError as error:
            return self.from_footer(key, error)
        return found or self.forgotten(key)

    def lookup(self, key: MapFileKey, encoded: bytes, reader: Reader) -> Found | None:
        """The same in a snapshot of this directory's index, without files that the index has forgotten."""
        try:
            return reader.file(encoded)
        except CorruptError as error:
            return self.from_footer(key, error)

    def forgotten(self, key: MapFileKey) -> Found | None:
        """The record of a sealed file that is there and not in the index."""
        if key.shuffle in self.tables.sealed and self._files.exists(self.root / layout.sealed_path(key)):
            return self.from_footer(key, CorruptError("the index has forgotten it"))
        return None

    def from_footer(self, key: MapFileKey, cause: CorruptError) -> Found:
        path = self.root / layout.sealed_path(key)
        try:
            epoch = read_footer(self._files, path, key).epoch
        except (CorruptError, OSError) as error:
            raise CorruptError(f"{key}: {cause}, and the footer of {path} does not help: {error}") from error
        return Found(epoch.encode_head(), epoch.regions, epoch.encode_chunks())

    def has_unsealed(self, key: MapFileKey) -> bool:
        tables = self.tables
        return key in tables.writers or key in tables.sealing or key in tables.leftovers

    def sealed_answer(self, key: MapFileKey) -> MapSealed | None:
        """The persisted answer to the seal of a file; None if it is not sealed here."""
        found = self.find(key)
        return None if found is None else found.answer

    # removing

    def let_go(self, key: ShuffleKey) -> None:
        """Nothing of a shuffle is written any more. Loop thread."""
        for name in [name for name in self.tables.writers if name.shuffle == key]:
            writer = self.tables.writers.pop(name)
            writer.state = WriterState.CLOSED
            self._leave_over(writer)
        self.reduce.drop(key)
        for job in self.jobs:
            job.dropped = job.dropped or job.shuffle == key

    def seals_of(self, key: ShuffleKey) -> list[Future[Any]]:
        """The seals of a shuffle that run."""
        maps: list[Future[Any]] = [job.future for name, job in self.tables.sealing.items() if name.shuffle == key]
        return maps + [job.future for job in self.jobs if job.shuffle == key]

    def remove(self, key: ShuffleKey) -> list[Path]:
        """Remove a shuffle: index first, then files; but files first where the index is so full that it cannot shrink.
        In the lane, when nothing of it is written or sealed any more. Raises OSError or NoRoomError; then it is to be
        removed again."""
        try:
            self.index.remove_shuffle(key)
        except (OSError, NoRoomError) as error:
            if isinstance(error, OSError) and not is_full(error):
                raise
            self.remove_folder(key)
            self.index.remove_shuffle(key)
        return self.remove_folder(key)

    def removed(self, key: ShuffleKey) -> None:
        """A shuffle is gone from the disk: nobody asks about it any more. Loop thread."""
        for name in [name for name in self.tables.leftovers if name.shuffle == key]:
            del self.tables.leftovers[name]
            self._leftover_bytes.pop(name, None)
        self.tables.failed = {name for name in self.tables.failed if name.shuffle != key}
        self.tables.sealed.pop(key, None)
        self.tables.away.pop(key, None)
        self.tables.away_bytes.pop(key, None)
        self.leaving = {name for name in self.leaving if name.shuffle != key}
        self.reduce.removed(key)

    def remove_folder(self, key: ShuffleKey) -> list[Path]:
        """Remove the folder of a shuffle and what is in it; all that there is of one that only empty_folders() knows.
        In the lane. Returns the folders that are gone; raises OSError."""
        folder = self.root / layout.shuffle_folder(key)
        for name in self._files.names(folder) if self._files.is_folder(folder) else ():
            self._files.remove(folder / name)
        return remove_folders(self._files, folder)

    def take_leftovers(self, keys: set[ShuffleKey]) -> dict[MapFileKey, Leftover]:
        """The unsealed files of earlier incarnations that belong to these shuffles, which are about to be removed."""
        gone = [key for key in self.tables.leftovers if key.shuffle in keys]
        return {key: Leftover(self.tables.leftovers.pop(key), self._leftover_bytes.pop(key, 0)) for key in gone}

    def put_back_leftovers(self, taken: Mapping[MapFileKey, Leftover]) -> None:
        """They could not be removed."""
        for key, one in taken.items():
            self.tables.leftovers[key], self._leftover_bytes[key] = one

    def remove_files(self, paths: Sequence[Path]) -> None:
        """In the lane. Raises OSError."""
        for path in paths:
            self._files.remove(path)

    def close(self) -> None:
        """Let running seals end and give the directory back; one that hangs is left to the end of the process."""
        if self.condition.hanging:
            for pool in (self._pool, self.lane):
                pool.shutdown(wait=False, cancel_futures=True)
            return
        self._pool.shutdown()
        self.lane.shutdown()  # behind it: what failed in there is marked here
        self.index.close()
        del self._lock_file
